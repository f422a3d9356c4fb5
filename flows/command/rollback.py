"""``indexmill rollback``: an earlier version becomes the newest again, and builds wait."""

from __future__ import annotations

import dataclasses

import click

from indexmill.command.options import Options, common

__all__ = ["command"]


@click.command("rollback")
@click.argument("version", metavar="VERSION")
@click.option("--note", default="", help="Why; kept with the version and told to whoever tries to build.")
@common
def command(options: Options, version: str, note: str) -> None:
    """Make VERSION (a number, an alias or `newest`) the newest again and put the store on hold.

    A new version with the manifest of that one is published: nothing is removed, readers that open the newest version
    get its answers to the byte, and those that open an alias get what they got before (see `indexmill promote`).

    While the store is on hold, `indexmill build` refuses with exit code 3: the next build would make of the corpus what
    was just taken back. Mend the corpus or the settings, then `indexmill resume`.

    Every file of the version is looked for first, with its length; `indexmill verify VERSION` reads every byte. Exit
    code 5: a build is at work, stop it or wait. A rollback that was interrupted is finished by running it again.
    """
    from flows.rollback import roll_back
    from indexmill.command.versions import version_of
    from indexmill.store.folder import FolderReader
    from storage.folder import open_store

    store = open_store(options.store_path())
    made = roll_back(store, version_of(FolderReader(store.root), version), note=note)
    if options.json:
        options.print_json({**dataclasses.asdict(made), "hold": made.hold.model_dump(mode="json")})
        return
    if made.published:
        click.echo(f"published version {made.version}, which is version {made.target} again")
    else:
        click.echo(f"nothing to publish: version {made.version}, the newest, is version {made.target} already")
    click.echo("builds are on hold; `indexmill resume` lets them go on")
