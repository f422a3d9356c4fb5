"""``indexmill coverage``: what became of each file of the corpus, and how many of its words are left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from flows.command.shared import print_result, store_of, table_of
from indexmill.command.options import Options, common
from indexmill.errors import SnapshotNotFound, StoreError
from indexmill.text.counted import byte_size, counted
from indexmill.text.printable import escaped
from storage import runs as records
from storage.readings import readings_until, tables_of

if TYPE_CHECKING:
    import pyarrow as pa

_OUTCOMES = ("indexed", "partly", "quarantined", "empty", "duplicate", "passed-over", "forgotten")
_MOST_FOLDERS, _MOST_FILES, _MOST_SUFFIXES = 20, 10, 5
_FORMAT = {"format": "format", "files": "files", "size": "size", "documents": "documents", "words": "words"}
_FORMAT |= {"text_words": "kept", "left_out": "left out"}
_FOLDER = {"folder": "folder", "files": "files", "read": "read", "size": "size", "documents": "documents"}
_FILE = {"name": "file", "outcome": "outcome", "reason": "reason", "bytes": "bytes", "documents": "documents"}
_FILE |= {"words": "words", "text_words": "kept", "left_out": "left out"}


@click.command("coverage")
@click.argument("name", metavar="[FILE]", required=False)
@click.option("--run", "run_id", metavar="ID", help="Run to show; by default, the last run that read the corpus.")
@click.option("--outcome", type=click.Choice(_OUTCOMES), help="List the files with this outcome.")
@click.option("--format", "kind", help="List the files of this format, such as pdf.")
@click.option("--all", "everything", is_flag=True, help="List every file.")
@common
def command(
    options: Options, name: str | None, run_id: str | None, outcome: str | None, kind: str | None, *, everything: bool
) -> None:
    """Show what became of the files of the corpus, by format and folder, and the files that lost most words.

    Every listed file has an outcome: indexed, partly, quarantined, empty, duplicate or passed-over, with the reason.
    For files that become one document, the words of the file are counted apart from its text: the words left out have
    reasons, such as running-head or navigation. Many words left out as `unexplained` show a fault of the reader.

    With FILE, a name as listed, show that file, its pages with missing words, and its quarantined rows.
    """
    lists_files = everything or outcome is not None or kind is not None
    if name is not None and lists_files:
        raise click.UsageError("give FILE, or --outcome, --format or --all, but not both")
    from tasks.stages.ingest.corpus_coverage import summary_of  # takes half a second
    from tasks.stages.ingest.known import FILES

    store = store_of(options)
    readings = readings_until(store, run_id)
    if not readings:
        raise SnapshotNotFound(
            f"{store.url} has no record of files"
            + (f" of run {run_id}; `indexmill runs` lists the runs" if run_id else ": run `indexmill build`")
        )
    (run, reading), *before = readings
    try:
        table = tables_of(store, reading.files, FILES)
    except StoreError as error:
        raise SnapshotNotFound(
            f"the record of the files of run {run} is damaged, or `indexmill forget` removed it, since it named a "
            "document: `indexmill build` makes another"
        ) from error
    identities: set[tuple[str, ...]] = set()
    with suppress(StoreError):  # `forget` removes the tables of runs that name a document
        identities.update(*(_identities(tables_of(store, record.files, FILES)) for _, record in before))
    unchanged = [bool(identity[-2]) and identity in identities for identity in _identities(table)]
    if name is None and not lists_files:
        summary = summary_of(table) | {"unchanged": sum(unchanged)}
        print_result(options, {"run": run, **summary}, [f"run {run}", *coverage_lines(summary)])
        return
    rows = [row | {"unchanged": is_same} for row, is_same in zip(table.to_pylist(), unchanged, strict=True)]
    if name is not None:
        rows = [row for row in rows if name in (row["name"], escaped(row["name"]))]
        if not rows:
            raise SnapshotNotFound(f"run {run} listed no file {name!r}; `indexmill coverage --all` lists the names")
        names = {row["name"] for row in rows}
        refused = [row for row in records.quarantine_of(store, run)[1].to_pylist() if row["file"] in names]
        print_result(
            options, {"run": run, "files": list(map(_json_row, rows)), "rows": refused}, _details(rows, refused)
        )
        return
    kinds = sorted({row["kind"] for row in rows if row["kind"]})
    if kind is not None and kind not in kinds:
        raise click.UsageError(f"the corpus has no file of the format {kind!r}; it has {', '.join(kinds)}")
    rows = [row for row in rows if outcome in (None, row["outcome"]) and kind in (None, row["kind"])]
    print_result(options, {"run": run, "files": list(map(_json_row, rows))}, [table_of(_FILE, map(_table_row, rows))])


def coverage_lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Describe the summary of a run's files: `tasks.stages.ingest.corpus_coverage.summary_of`."""
    if not summary["files"]:
        yield "the corpus has no file"
    for outcome, files in summary["files"].items():
        further = ""
        if outcome == "passed-over":
            suffixes = _reasons(dict(list(summary["suffixes_passed_over"].items())[:_MOST_SUFFIXES]))
            further = f": {_reasons(summary['passed_over'])}" + (f" ({suffixes})" if suffixes else "")
        yield f"{outcome}: {counted(files, 'file')}, {byte_size(summary['bytes'][outcome])}{further}"
    formats = [{"format": kind, **_figures_row(figures)} for kind, figures in summary["formats"].items()]
    if formats:
        yield table_of(_FORMAT, formats)
    folders = [{"folder": escaped(row["name"]) or "(top)", **_figures_row(row)} for row in summary["folders"]]
    if len(folders) > 1:
        yield table_of(_FOLDER, folders[:_MOST_FOLDERS])
        if more := max(0, len(folders) - _MOST_FOLDERS) + summary["folders_left_out"]:
            yield f"and {counted(more, 'other folder')}"
    if worst := summary["worst"][:_MOST_FILES]:
        yield "most words left out:"
        for row in worst:
            yield f"  {escaped(row['name'])}: {_reasons(row['left_out'])}; {row['text_words']:,} words are kept"


def _identities(table: pa.Table) -> list[tuple[str, ...]]:
    """Return, by file, what changes with its bytes or with how it is read; the token is the last but one."""
    names = ("source", "path", "name", "kind", "token", "details")
    return list(zip(*(table[name].to_pylist() for name in names), strict=True))


def _figures_row(figures: Mapping[str, Any]) -> dict[str, Any]:
    words = figures["words"]
    return {
        **figures,
        "size": byte_size(figures["bytes"]),
        "words": words or None,
        "text_words": figures["text_words"] or None,
        "left_out": _reasons(figures.get("left_out", {})),
    }


def _reasons(counts: Mapping[str, int]) -> str:
    most = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{number:,} {reason}" for reason, number in most)


def _left_out(row: Mapping[str, Any]) -> dict[str, int]:
    return {entry["reason"]: entry["words"] for entry in row["left_out"]}


def _json_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row for --json, without what only the next build needs."""
    public = {name: value for name, value in row.items() if name not in ("token", "details")}
    return public | {"left_out": _left_out(row)}


def _table_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "name": escaped(row["name"]), "reason": escaped(row["reason"]), "left_out": _reasons(_left_out(row))}


def _details(rows: list[dict[str, Any]], refused: list[dict[str, Any]]) -> Iterator[str]:
    from tasks.stages.ingest.corpus_coverage import OUTCOMES
    from tasks.stages.ingest.documents import REASONS
    from tasks.stages.ingest.file_counts import LEFT_OUT
    from tasks.stages.ingest.source_files import PASSED_OVER

    for row in rows:
        why = f" ({escaped(row['reason'])})" if row["reason"] else ""
        yield f"{escaped(row['name'])}: {row['outcome']}{why}{', unchanged' if row['unchanged'] else ''}"
        meaning = PASSED_OVER.get(row["reason"]) or REASONS.get(row["reason"]) or OUTCOMES[row["outcome"]]
        yield f"  {meaning}"
        documents, rejected = counted(row["documents"], "document"), counted(row["rejected"], "rejected row")
        yield f"  {byte_size(row['bytes'])}, {documents}, {rejected}"
        if row["text_words"] is not None:
            of_file = "" if row["words"] is None else f" of {row['words']:,} in the file"
            added = f", and {row['added']:,} that only the document has" if row["added"] else ""
            yield f"  {row['text_words']:,} words in the document{of_file}{added}"
        for reason, words in sorted(_left_out(row).items()):
            yield f"  left out: {words:,} {reason}: {LEFT_OUT[reason]}"
        for page in row["pages"]:
            yield f"  page {page['page']}: {page['text_words']:,} of {page['words']:,} words"
    for row in refused:
        line = "" if row["line"] is None else f" line {row['line']}"
        yield f"  rejected{line}: {row['reason']}: {escaped(row['detail'])}"
