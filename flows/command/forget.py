"""``indexmill forget``: remove documents for good."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import click

from flows import local
from flows.command.shared import (
    cluster_options,
    cluster_overrides,
    configuration_of,
    make_progress,
    print_result,
    store_of,
    workers_option,
)
from flows.forget import forget, lift
from indexmill.command.options import Options, common
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput
from indexmill.text.counted import counted
from indexmill.text.printable import escaped, one_line
from storage import tombstones
from storage.forget import Forgetting, Search
from storage.forget import dry_run as preview
from storage.protocol import Store


@click.command("forget")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--lift", "lifts", is_flag=True, help="Let documents with these ids in again; nothing returns by itself.")
@click.option("--no-build", is_flag=True, help="Publish nothing; refused if the newest version has one of them.")
@click.option("--allow-shrink", is_flag=True, help="For the build: see `indexmill build --help`.")
@workers_option
@cluster_options
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation: for scripts.")
@common
def command(
    options: Options,
    ids: tuple[str, ...],
    lifts: bool,
    no_build: bool,
    allow_shrink: bool,
    workers: int | None,
    dask: str | None,
    insecure_cluster: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove the documents with these ids for good, from every version and from everything derived from them.

    An ID names a document, never a version: `indexmill gc` removes old versions. The command shows what it will
    withdraw and remove, and asks for confirmation unless --yes is given.

    This cannot be undone: later builds exclude the documents, even if the corpus still has them, until
    `indexmill forget --lift ID` lets a document with this id in again; nothing that was removed returns. If the newest
    version contains any of them, the configured corpus is built and published without them. Then every older version
    that contains any of them is withdrawn, aliases that point to it move to the newest version, and everything that
    could contain a trace is removed immediately. Exported copies cannot be reached; they are listed.

    Later builds also exclude an id that no version has. If the command is interrupted, run it again to finish. Exit
    codes are those of `indexmill build`; also 2 if a build is needed but no corpus is configured.
    """
    try:
        "".join(ids).encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput("an id is not UTF-8, as document ids are; nothing was done") from None
    store = store_of(options)
    if lifts:
        _lift(options, store, ids, dry_run=dry_run)
        return
    if dry_run:
        with Waiting("looking for the documents in every version", only_terminals=True):
            search = Search(store, ids)
            removal = _counted(preview(store, search))
        lines, known_ids = _planned(ids, search, removal), frozenset(search.known_ids)
        _print(options, ids, known_ids, removal, lines, dry_run=True, build=search.newest_holds)
        return
    run = cluster_overrides(dask, insecure_cluster=insecure_cluster)
    run |= {} if workers is None else {"workers": workers}
    configuration = configuration_of(options, {"run": run} if run else {})
    why_not = "--no-build is given" if no_build else "no corpus is configured" if configuration.corpus is None else ""
    if not yes:
        planned = None
        with Waiting("looking for the documents in every version", only_terminals=True):
            search = Search(store, ids)
            if not (search.newest_holds and why_not):  # `forget` refuses this case
                planned = _planned(ids, search, _counted(preview(store, search)))
        if planned is not None:
            _ask(ids, planned)

    def build() -> None:
        progress = make_progress()
        try:
            local.build_under_prefect(configuration, progress=progress, allow_shrink=allow_shrink)
        except BaseException:
            progress.close()
            click.echo("later builds exclude the documents, but nothing was removed yet: run it again", err=True)
            raise

    record, known_ids = forget(store, ids, build=None if why_not else build, why_not=why_not)
    removed = record.model_dump(mode="json")
    lines = _lines(ids, known_ids, removed, dry_run=False, build=False)
    _print(options, ids, known_ids, removed, lines, dry_run=False, build=False)


def _lift(options: Options, store: Store, ids: tuple[str, ...], *, dry_run: bool) -> None:
    forgotten = tombstones.forgotten(store)
    names = {document_id: one_line(escaped(document_id)) for document_id in ids}
    if not any(document_id in forgotten for document_id in ids):
        raise BadInput(f"{', '.join(names.values())}: not forgotten in {store.url}, so nothing was done")
    lifted = tuple(name for name in names if name in forgotten) if dry_run else lift(store, ids)
    may = "may include" if not dry_run else "would include"
    lines = [
        f"{shown}: later builds {may} a document with this id again; what was removed stays removed"
        if document_id in lifted
        else f"{shown}: not forgotten"
        for document_id, shown in names.items()
    ]
    unknown = [document_id for document_id in names if document_id not in lifted]
    print_result(options, {"dry_run": dry_run, "lifted": list(lifted), "unknown": unknown}, lines)


def _counted(forgetting: Forgetting) -> dict[str, Any]:
    """Return the counts of the files to remove, as JSON fields named as in a `ForgetRecord`."""
    counts: dict[str, Any] = dataclasses.asdict(forgetting)
    counts["bytes"] = sum(counts["blobs"].values())
    counts |= {name: len(counts[name]) for name in ("blobs", "receipts", "records", "answers")}
    counts["batches"] = list(counts["batches"])
    counts["quarantine_rows"] = sum(counts["quarantine_rows"].values())
    counts["exports"] = [export.model_dump(mode="json") for export in counts["exports"]]
    return counts


def _planned(ids: Sequence[str], search: Search, removal: Mapping[str, Any]) -> list[str]:
    """Describe the planned removal as lines, with a note on unknown ids that look like version numbers."""
    numbers = {str(ref.version) for ref in search.there}
    return [
        *_lines(ids, frozenset(search.known_ids), removal, dry_run=True, build=search.newest_holds),
        *(
            f"{name} is treated as a document id, not as version {name}: `indexmill gc` removes versions"
            for name in ids
            if name in numbers and name not in search.known_ids
        ),
    ]


def _ask(ids: Sequence[str], lines: Sequence[str]) -> None:
    """Show the planned removal and ask for confirmation. Exits if the user declines; raises BadInput without input."""
    click.echo("\n".join(lines), err=True)
    these = "this document" if len(ids) == 1 else f"these {len(ids)} documents"
    try:
        confirmed = click.confirm(f"Forget {these} for good?", err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise BadInput("there was no confirmation, so nothing was done; use --yes to skip the question") from None
    if not confirmed:
        click.echo("nothing was done", err=True)
        click.get_current_context().exit(1)


def _print(
    options: Options,
    ids: tuple[str, ...],
    known_ids: frozenset[str],
    removal: Mapping[str, Any],
    lines: Sequence[str],
    *,
    dry_run: bool,
    build: bool,
) -> None:
    unknown = [document_id for document_id in ids if document_id not in known_ids]
    result = {"dry_run": dry_run, "build_needed": build, "documents": list(ids), "unknown": unknown}
    result |= {name: value for name, value in removal.items() if name not in ("documents", "run_id", "created")}
    print_result(options, result, lines)


def _lines(
    ids: Sequence[str], known_ids: frozenset[str], removal: Mapping[str, Any], *, dry_run: bool, build: bool
) -> list[str]:
    lines = []
    removed = "would be removed" if dry_run else "removed"
    at_most = "at most " if build else ""
    if build:
        lines.append("the newest version contains these documents: a version without them would be built first")
    for document_id in ids:
        if document_id not in known_ids:
            lines.append(f"{escaped(document_id)}: found nowhere; later builds exclude it all the same")
        elif dry_run:
            lines.append(f"{escaped(document_id)}: found; later builds exclude it")
    versions = ", ".join(map(str, removal["versions"])) or "none"
    lines.append(f"versions {'to withdraw' if dry_run else 'withdrawn'}: {versions}")
    for alias, (old, new) in sorted(removal["aliases"].items()):
        lines.append(f"alias {alias}: from version {old} to {new}")
    lines.append(f"blobs: {at_most}{removal['blobs']:,} ({counted(removal['bytes'], 'byte')}) {removed}")
    lines.append(f"receipts: {at_most}{removal['receipts']:,} {removed}")
    lines.append(f"refused rows: {removal['quarantine_rows']:,} {removed}; records rewritten: {removal['records']:,}")
    lines.append(
        f"answers of language models: {removal['answers']:,} {removed}; questions of batches: {removal['questions']:,}"
    )
    lines += [
        f"out of reach until it ends and is collected: {batch} contains texts of them" for batch in removal["batches"]
    ]
    for export in removal["exports"]:
        what = "the ledger" if export["version"] is None else f"version {export['version']}"
        lines.append(f"out of reach: {what}, exported to {export['path']}")
    if not dry_run:
        forgotten = counted(len(ids), "document is", "documents are")
        lines.append(f"{forgotten} forgotten: a final search of the store found no trace of them")
    return [one_line(line) for line in lines]
