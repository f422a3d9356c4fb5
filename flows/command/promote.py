"""``indexmill promote``: move the name by which a serving team opens a version."""

from __future__ import annotations

import dataclasses

import click

from indexmill.command.options import Options, common

__all__ = ["command"]


@click.command("promote")
@click.argument("version", metavar="[VERSION NAME]", required=False)
@click.argument("alias", metavar="", required=False)
@click.option("--remove", metavar="NAME", help="Take this alias away instead.")
@click.option("--note", default="", help="Why; kept with the move.")
@common
def command(options: Options, version: str | None, alias: str | None, remove: str | None, note: str) -> None:
    """Point the alias NAME to a version, from now on.

    VERSION is a number, `newest`, or another alias: `indexmill promote staging prod`. Which version that is, is decided
    now: an alias stays where it is until it is moved. `indexmill snapshots` shows where aliases point; readers open one
    with `--alias NAME` or `indexmill.open(store, alias=NAME)`. A snapshot that is open stays as it is.

    The version must be whole: every file of it is looked for, with its length. A build may be at work meanwhile. Exit
    code 5: somebody moved the alias elsewhere at the same moment.
    """
    from flows.promote import promote, remove_alias
    from indexmill.command.versions import version_of
    from indexmill.store.folder import FolderReader
    from storage.folder import open_store

    if (remove is None) == (version is None) or (version is None) != (alias is None):
        raise click.UsageError("give a version and a name, `indexmill promote 7 prod`, or --remove and a name")
    store = open_store(options.store_path())
    if remove is not None:
        moved = remove_alias(store, remove, note=note)
    else:
        assert version is not None and alias is not None  # noqa: S101, PT018
        moved = promote(store, version_of(FolderReader(store.root), version), alias, note=note)
    if options.json:
        options.print_json(dataclasses.asdict(moved))
        return
    before = "" if moved.before is None else f"; it was at version {moved.before}"
    if moved.version is None:
        click.echo(f"{moved.alias} is removed{before}")
    elif moved.moved:
        click.echo(f"{moved.alias} is at version {moved.version}{before}")
    else:
        click.echo(f"nothing to do: {moved.alias} is at version {moved.version}")
