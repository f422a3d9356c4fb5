"""``indexmill resume``: builds go on after a rollback."""

from __future__ import annotations

import dataclasses

import click

from indexmill.command.options import Options, common

__all__ = ["command"]


@click.command("resume")
@click.option("--note", default="", help="What was mended; kept with the record that ends the hold.")
@common
def command(options: Options, note: str) -> None:
    """End the hold that `indexmill rollback` put on the store, so that builds go on.

    The next build starts from the newest version and brings it up to date with the corpus as it is then. Parts that
    were made before the rollback are found again. Nothing to do, and exit code 0, where the store is not on hold.
    """
    from flows.rollback import resume
    from storage.folder import open_store

    ended = resume(open_store(options.store_path()), note=note)
    if options.json:
        options.print_json(dataclasses.asdict(ended))
    else:
        click.echo("builds go on" if ended.released else "nothing to do: the store is not on hold")
