"""``indexmill resume``: allow builds again after a rollback."""

from __future__ import annotations

import click

from flows.command.shared import print_result, store_of
from flows.rollback import resume
from indexmill.command.options import Options, common


@click.command("resume")
@click.option("--note", default="", help="The correction that was made; stored with the record that ends the hold.")
@common
def command(options: Options, note: str) -> None:
    """End the hold that `indexmill rollback` put on the store, so that builds are allowed again.

    The next build starts from the newest version and brings it up to date with the corpus as it is then. It reuses
    parts that were made before the rollback. A store that is not on hold is left as it is, with exit code 0.
    """
    ended = resume(store_of(options), note=note)
    line = "builds are allowed again" if ended.released else "nothing to do: the store is not on hold"
    print_result(options, ended, [line])
