"""``indexmill copy``: copy a version into another store."""

from __future__ import annotations

import math

import click

from flows.command.shared import make_progress, print_result
from flows.copy import copy_version
from flows.interrupt import Interrupt
from indexmill.command.options import Options, common, trust_option
from indexmill.command.versions import version_of
from indexmill.store.reader import StoreReader
from indexmill.text.counted import byte_size, bytes_of, counted
from storage.stores import open_store


class _Rate(click.ParamType[int]):
    """Bytes per second: `20MB`."""

    name = "rate"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            rate = bytes_of(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return rate or self.fail("must be more than 0 bytes per second", param, ctx)


@click.command("copy")
@click.argument("source", metavar="STORE")
@click.argument("target", metavar="URL")
@click.option("--version", "version", metavar="N", help="The version to copy; the newest by default.")
@click.option("--alias", metavar="NAME", help="Copy the version that this alias points to.")
@click.option(
    "--bandwidth", metavar="RATE", type=_Rate(), help="Send at most this many bytes per second, such as 20MB."
)
@trust_option
@click.option("--note", default="", help="A remark that is stored with the version there.")
@common
def command(
    options: Options,
    source: str,
    target: str,
    version: str | None,
    alias: str | None,
    bandwidth: int | None,
    note: str,
) -> None:
    """Copy a version of STORE into the store at URL, where it becomes the newest.

    STORE and URL are folders, or s3://, gs:// or az:// URLs. A store is created at URL if there is none. The copy gets
    the next number there and has the same manifest, so readers get byte-identical answers. Its parent is the version
    that was the newest there.

    Only files that the other store lacks are sent, each checked against its digest, so a nightly copy sends only
    changes. An interrupted copy continues where it stopped when you run it again; until it is complete, readers see
    nothing of it. If the newest version there is already this one, missing files are restored and nothing is published.

    STORE keeps a record of the copy, for `forget` to list: it must be writable. Nothing else is copied, such as its
    history, its aliases, the answers of language models (`indexmill ledger export`) or the parts that the next build
    would reuse. To move a whole store, copy its files while no build runs.

    Exit code 3: the other store is on hold after a rollback. Exit code 5: a run is at work there; wait for it.
    """
    if options.store:
        raise click.UsageError("give the store to copy from as an argument, not by --store: `indexmill copy STORE URL`")
    if version is not None and alias is not None:
        raise click.UsageError("--version and --alias each name a version: give only one")
    store = open_store(source)
    reader = StoreReader(store.url)
    number = version_of(reader, version or "newest") if alias is None else reader.resolve(alias=alias).version
    progress = make_progress()
    with Interrupt(progress.note).installed():
        copied = copy_version(
            store,
            number,
            target,
            bytes_per_second=bandwidth or math.inf,
            note=note,
            trust=options.trust,
            progress=progress,
        )
    size = f"{counted(copied.blobs, 'file')} copied, {byte_size(copied.bytes)}"
    if copied.published:
        line = f"published version {copied.version} of {copied.target}, which is version {number} of {copied.source}"
    else:
        line = f"nothing to publish: version {copied.version} of {copied.target} is version {number} already"
    print_result(options, copied, [f"{line}: {size}"])
