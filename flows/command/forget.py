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
from flows.forget import forget
from indexmill.command.options import Options, common
from indexmill.command.waiting import Waiting
from indexmill.errors import BadInput
from indexmill.text.counted import counted
from indexmill.text.printable import escaped, one_line
from storage.forget import Forgetting, Search
from storage.forget import dry_run as rehearse


@click.command("forget")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--no-build", is_flag=True, help="Publish nothing; refused if the newest version holds a document.")
@click.option("--allow-shrink", is_flag=True, help="For the build: see `indexmill build --help`.")
@workers_option
@cluster_options
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation: for scripts.")
@common
def command(
    options: Options,
    ids: tuple[str, ...],
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

    This cannot be undone: no later build takes the documents in again, even if the corpus still holds them. If the
    newest version holds one, the configured corpus is built and published without them. Then every older version that
    holds one is withdrawn, aliases that point to it move to the newest version, and whatever could hold a trace is
    removed at once. Exported copies are out of reach, and listed.

    An id that no version holds is left out of later builds, too. If the command is interrupted, run it again to finish.
    Exit codes are those of `indexmill build`; also 2 if a build is needed and no corpus is configured.
    """
    try:
        "".join(ids).encode("utf-8")
    except UnicodeEncodeError:
        raise BadInput("an id is not UTF-8, as every id of a document is; nothing was done") from None
    store = store_of(options)
    if dry_run:
        with Waiting("looking for the documents in every version", only_terminals=True):
            search = Search(store, ids)
            found = _counted(rehearse(store, search))
        lines, known = _planned(ids, search, found), frozenset(search.known)
        _print(options, ids, known, found, lines, dry_run=True, build=search.newest_holds)
        return
    run = cluster_overrides(dask, insecure_cluster=insecure_cluster)
    run |= {} if workers is None else {"workers": workers}
    configuration = configuration_of(options, {"run": run} if run else {})
    why_not = "--no-build is given" if no_build else "no corpus is configured" if configuration.corpus is None else ""
    if not yes:
        planned = None
        with Waiting("looking for the documents in every version", only_terminals=True):
            search = Search(store, ids)
            if not (search.newest_holds and why_not):  # which `forget` refuses
                planned = _planned(ids, search, _counted(rehearse(store, search)))
        if planned is not None:
            _ask(ids, planned)

    def build() -> None:
        progress = make_progress()
        try:
            local.build_under_prefect(configuration, progress=progress, allow_shrink=allow_shrink)
        except BaseException:
            progress.close()
            click.echo("the documents are left out from now on, but nothing was removed yet: run it again", err=True)
            raise

    record, known = forget(store, ids, build=None if why_not else build, why_not=why_not)
    removed = record.model_dump(mode="json")
    lines = _lines(ids, known, removed, dry_run=False, build=False)
    _print(options, ids, known, removed, lines, dry_run=False, build=False)


def _counted(forgetting: Forgetting) -> dict[str, Any]:
    """What there is to remove, as the record of what was removed says it."""
    found: dict[str, Any] = dataclasses.asdict(forgetting)
    found["bytes"] = sum(found["blobs"].values())
    found |= {name: len(found[name]) for name in ("blobs", "receipts", "records", "answers")}
    found["batches"] = list(found["batches"])
    found["quarantine_rows"] = sum(found["quarantine_rows"].values())
    found["exports"] = [export.model_dump(mode="json") for export in found["exports"]]
    return found


def _planned(ids: Sequence[str], search: Search, found: Mapping[str, Any]) -> list[str]:
    """What would be done, a line each, and a word about ids that no version holds and that look like versions."""
    numbers = {str(ref.version) for ref in search.there}
    return [
        *_lines(ids, frozenset(search.known), found, dry_run=True, build=search.newest_holds),
        *(
            f"{one} is taken for the id of a document, not for version {one}: `indexmill gc` removes versions"
            for one in ids
            if one in numbers and one not in search.known
        ),
    ]


def _ask(ids: Sequence[str], lines: Sequence[str]) -> None:
    """Show what would be done and go on where a person says yes; raises BadInput where nobody is there to say it."""
    click.echo("\n".join(lines), err=True)
    these = "this document" if len(ids) == 1 else f"these {len(ids)} documents"
    try:
        said = click.confirm(f"Forget {these} for good?", err=True)
    except click.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise BadInput("nobody answered, so nothing was done: --yes forgets without asking") from None
    if not said:
        click.echo("nothing was done", err=True)
        click.get_current_context().exit(1)


def _print(
    options: Options,
    ids: tuple[str, ...],
    known: frozenset[str],
    found: Mapping[str, Any],
    lines: Sequence[str],
    *,
    dry_run: bool,
    build: bool,
) -> None:
    unknown = [document_id for document_id in ids if document_id not in known]
    result = {"dry_run": dry_run, "build_needed": build, "documents": list(ids), "unknown": unknown}
    result |= {name: value for name, value in found.items() if name not in ("documents", "run_id", "created")}
    print_result(options, result, lines)


def _lines(
    ids: Sequence[str], known: frozenset[str], found: Mapping[str, Any], *, dry_run: bool, build: bool
) -> list[str]:
    """What would be done, or was, a line each."""
    lines = []
    removed = "would be removed" if dry_run else "removed"
    at_most = "at most " if build else ""
    if build:
        lines.append("the newest version holds what is to be forgotten: a version without it would be built first")
    for document_id in ids:
        if document_id not in known:
            lines.append(f"{escaped(document_id)}: found nowhere; it is left out of every later build all the same")
        elif dry_run:
            lines.append(f"{escaped(document_id)}: found, and left out of every later build")
    versions = ", ".join(map(str, found["versions"])) or "none"
    lines.append(f"versions {'to withdraw' if dry_run else 'withdrawn'}: {versions}")
    for alias, (old, new) in sorted(found["aliases"].items()):
        lines.append(f"alias {alias}: from version {old} to {new}")
    lines.append(f"blobs: {at_most}{found['blobs']:,} ({counted(found['bytes'], 'byte')}) {removed}")
    lines.append(f"receipts: {at_most}{found['receipts']:,} {removed}")
    lines.append(f"refused rows: {found['quarantine_rows']:,} {removed}; records rewritten: {found['records']:,}")
    lines.append(
        f"answers of language models: {found['answers']:,} {removed}; questions of batches: {found['questions']:,}"
    )
    lines += [f"out of reach until it ends and is collected: {batch} holds texts of them" for batch in found["batches"]]
    for export in found["exports"]:
        what = "the ledger" if export["version"] is None else f"version {export['version']}"
        lines.append(f"out of reach: {what}, exported to {export['path']}")
    if not dry_run:
        forgotten = counted(len(ids), "document is", "documents are")
        lines.append(f"{forgotten} forgotten: nothing of them was found in a last look at the store")
    return [one_line(line) for line in lines]
