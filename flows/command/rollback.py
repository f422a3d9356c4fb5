"""``indexmill rollback``: publish an earlier version again, and put builds on hold."""

from __future__ import annotations

import dataclasses

import click

from flows.command.shared import print_result, store_of, version_number
from flows.rollback import roll_back
from indexmill.command.options import Options, common


@click.command("rollback")
@click.argument("version", metavar="VERSION")
@click.option("--note", default="", help="The reason; stored with the version, and shown to anyone who tries to build.")
@common
def command(options: Options, version: str, note: str) -> None:
    """Make VERSION (a number, an alias or `newest`) the newest again and put the store on hold.

    A new version with the same manifest is published, and nothing is removed. Readers that open the newest version get
    exactly the answers of VERSION; readers that open an alias notice nothing (see `indexmill promote`).

    While the store is on hold, `indexmill build` exits with code 3: it would undo the rollback. Correct the corpus
    or the settings, then run `indexmill resume`.

    Every file of the version must exist with its recorded length; `indexmill verify VERSION` reads every byte. Exit
    code 5: a build is at work; stop it or wait. If a rollback is interrupted, run it again to finish.
    """
    store = store_of(options)
    done = roll_back(store, version_number(store, version), note=note)
    if done.published:
        line = f"published version {done.version}, which is version {done.target} again"
    else:
        line = f"nothing to publish: version {done.version}, the newest, is already version {done.target}"
    result = {**dataclasses.asdict(done), "hold": done.hold.model_dump(mode="json")}
    print_result(options, result, [line, "builds are on hold; `indexmill resume` allows them again"])
