"""``indexmill promote``: point an alias, under which a serving team opens the index, to a version."""

from __future__ import annotations

import click

from flows.command.shared import print_result, store_of, version_number
from flows.promote import promote, remove_alias
from indexmill.command.options import Options, common, trust_option


@click.command("promote")
@click.argument("version", metavar="[VERSION NAME]", required=False)
@click.argument("alias", metavar="", required=False)
@click.option("--remove", metavar="NAME", help="Remove this alias instead.")
@click.option("--note", default="", help="The reason; stored with the change.")
@trust_option
@common
def command(options: Options, version: str | None, alias: str | None, remove: str | None, note: str) -> None:
    """Point the alias NAME to a version.

    VERSION is a number, `newest`, or another alias, as in `indexmill promote staging prod`. It is resolved now: the
    alias stays at that version until it is moved. `indexmill snapshots` shows where aliases point; readers open one
    with `--alias NAME` or `indexmill.open(store, alias=NAME)`. An open snapshot does not change.

    The version must be complete: every file must exist with its recorded length. A build may be at work meanwhile. Exit
    code 5: another command moved the alias elsewhere at the same moment.
    """
    if (remove is None) == (version is None) or (version is None) != (alias is None):
        raise click.UsageError("give a version and a name, as in `indexmill promote 7 prod`, or --remove and a name")
    store = store_of(options)
    if remove is not None:
        moved = remove_alias(store, remove, note=note)
    else:
        assert version is not None and alias is not None  # noqa: S101, PT018
        moved = promote(store, version_number(store, version), alias, note=note, trust=options.trust)
    before = "" if moved.before is None else f"; it was at version {moved.before}"
    if moved.version is None:
        line = f"{moved.alias} is removed{before}"
    elif moved.moved:
        line = f"{moved.alias} is at version {moved.version}{before}"
    else:
        line = f"nothing to do: {moved.alias} is at version {moved.version}"
    print_result(options, moved, [line])
