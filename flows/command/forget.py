"""``indexmill forget``: remove documents for good."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import click

from flows.command.shared import configured, progress_of
from indexmill.command.options import Options, common, printable
from indexmill.counted import counted

__all__ = ["command"]


@click.command("forget")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--no-build", is_flag=True, help="Publish nothing: only where the newest version is without them.")
@click.option("--allow-shrink", is_flag=True, help="Of the build: see `indexmill build --help`.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes of the build; default: the cores.")
@click.option("--dask", metavar="ADDRESS", help="Build on the Dask cluster whose scheduler is at tcp://HOST:PORT.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and touch nothing.")
@common
def command(
    options: Options,
    ids: tuple[str, ...],
    no_build: bool,
    allow_shrink: bool,
    workers: int | None,
    dask: str | None,
    dry_run: bool,
) -> None:
    """Remove the documents with these ids for good, from every version and from all that was ever made of them.

    No later build takes them in again, also where the corpus still holds them; there is no way back. If the newest
    version holds one, the configured corpus is built and published without them. Then every older version that holds
    one is withdrawn, aliases move on to the newest version, and whatever could hold a trace is removed at once. What
    was exported is out of reach, and listed.

    An id that no version holds is remembered all the same. A command that was interrupted is finished by running it
    again. Exit codes are those of `indexmill build`; 2 also where a build is needed and no corpus is configured.
    """
    from flows.forget import forget
    from indexmill.errors import BadInput
    from storage.folder import open_store
    from storage.forget import Search
    from storage.forget import dry_run as rehearse

    try:
        "".join(ids).encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput("an id is not UTF-8, as every id of a document is; nothing was done") from None
    store = open_store(options.store_path())
    if dry_run:
        search = Search(store, ids)
        found: dict[str, Any] = dataclasses.asdict(rehearse(store, search))
        found["bytes"] = sum(found["blobs"].values())
        found |= {name: len(found[name]) for name in ("blobs", "receipts", "records", "answers")}
        found["batches"] = list(found["batches"])
        found["quarantine_rows"] = sum(found["quarantine_rows"].values())
        found["exports"] = [export.model_dump(mode="json") for export in found["exports"]]
        _show(options, ids, frozenset(search.known), found, dry_run=True, build=search.newest_holds)
        return
    configuration = configured(options, {"run": {"workers": workers}} if workers is not None else {})
    why_not = "--no-build is given" if no_build else "no corpus is configured" if configuration.corpus is None else ""

    def build() -> None:
        from flows.run import build_under_prefect

        try:
            build_under_prefect(configuration, progress=progress_of(), allow_shrink=allow_shrink, dask=dask)
        except BaseException:
            click.echo("the documents are left out from now on, but nothing was removed yet: run it again", err=True)
            raise

    record, known = forget(store, ids, build=None if why_not else build, why_not=why_not)
    _show(options, ids, known, record.model_dump(mode="json"), dry_run=False, build=False)


def _show(
    options: Options,
    ids: tuple[str, ...],
    known: frozenset[str],
    found: Mapping[str, Any],
    *,
    dry_run: bool,
    build: bool,
) -> None:
    unknown = [document_id for document_id in ids if document_id not in known]
    if options.json:
        told = {name: value for name, value in found.items() if name not in ("documents", "run_id", "created")}
        options.print_json(
            {"dry_run": dry_run, "build_needed": build, "documents": list(ids), "unknown": unknown, **told}
        )
        return
    removed = "would be removed" if dry_run else "removed"
    at_most = "at most " if build else ""
    if build:
        click.echo("the newest version holds what is to be forgotten: a version without it would be built first")
    for document_id in unknown:
        click.echo(printable(f"{document_id}: found nowhere; it is left out of every later build all the same"))
    versions = ", ".join(map(str, found["versions"])) or "none"
    click.echo(f"versions {'to withdraw' if dry_run else 'withdrawn'}: {versions}")
    for alias, (old, new) in sorted(found["aliases"].items()):
        click.echo(f"alias {alias}: from version {old} to {new}")
    click.echo(f"blobs: {at_most}{found['blobs']:,} ({counted(found['bytes'], 'byte')}) {removed}")
    click.echo(f"receipts: {at_most}{found['receipts']:,} {removed}")
    click.echo(f"refused rows: {found['quarantine_rows']:,} {removed}; records rewritten: {found['records']:,}")
    click.echo(
        f"answers of language models: {found['answers']:,} {removed}; questions of batches: {found['questions']:,}"
    )
    for batch in found["batches"]:
        click.echo(printable(f"out of reach until it ends and is collected: {batch} holds texts of them"))
    for export in found["exports"]:
        what = "the ledger" if export["version"] is None else f"version {export['version']}"
        click.echo(printable(f"out of reach: {what}, exported to {export['path']}"))
    if not dry_run:
        forgotten = counted(len(ids), "document is", "documents are")
        click.echo(f"{forgotten} forgotten: nothing of them was found in a last look at the store")
