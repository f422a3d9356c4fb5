"""The coverage of a corpus: what became of each of its files.

`table_of` makes the row of each listed file, for the reading of a run (schema `known.FILES`): whether its content is in
the index, is rejected, or is passed over, and the words that are left out of its document. So the bytes of the rows are
those of the corpus' folders, except hidden folders and stores of indexes, which are not searched.

`summary_of` sums the rows for the report of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.text.counted import counted
from indexmill.text.printable import utf8_name
from tasks.stages.ingest.file_counts import FileCounts
from tasks.stages.ingest.known import FILES, FileIdentity
from tasks.stages.ingest.refused import EMPTY
from tasks.stages.ingest.source_files import PassedOver, SourceFile

OUTCOMES: dict[str, str] = {
    "indexed": "all of its rows are documents of the index",
    "partly": "some of its rows are documents of the index, and others are quarantined",
    "quarantined": "none of its rows is a document",
    "empty": "it has no row, or no text",
    "duplicate": "another file, which `reason` names, has the same document",
    "passed-over": "it is not read; see `reason`",
    "forgotten": "files of forgotten documents, in one row without a name",
}
"""What can become of a file."""

_FOLDERS, _WORST, _EXAMPLES = 200, 50, 3
"""The maximum number of folders and files in a summary."""


def table_of(
    files: Iterable[SourceFile],
    passed_over: Iterable[PassedOver],
    counts: Mapping[str, FileCounts],
    rows: pa.Table,
    refused: pa.Table,
    *,
    forgotten: Iterable[SourceFile] = (),
) -> pa.Table:
    """Return what became of each file: schema `known.FILES`, sorted by name, source and path.

    files: those read; the token of a file that must be read again is empty. counts: by file. rows: every planned row,
    schema CARRIED_ROW. refused: every rejected row, schema QUARANTINE. forgotten: the files whose documents are.
    """
    documents, twins = _documents_by_file(rows)
    rejected, reasons = _count_by_file(refused), _reasons_by_file(refused)
    listed: list[dict[str, Any]] = []
    for file in files:
        name = file.name
        outcome, reason = _outcome(documents[name], reasons.get(name, Counter()), twins.get(name, ""))
        listed.append(
            FileIdentity.of(file)._asdict()
            | {"outcome": outcome, "reason": reason, "bytes": file.size}
            | {"documents": documents[name], "rejected": rejected[name]}
            | counts.get(name, FileCounts()).row()
        )
    listed += [
        FileIdentity(entry.source, utf8_name(entry.path), entry.name, "", "", "")._asdict()
        | {"outcome": "passed-over", "reason": entry.reason, "bytes": entry.size, "documents": 0, "rejected": 0}
        | FileCounts().row()
        for entry in passed_over
    ]
    if sizes := [file.size for file in forgotten]:
        listed.append(
            FileIdentity("", "", "", "", "", "")._asdict()
            | {"outcome": "forgotten", "reason": "", "bytes": sum(sizes), "documents": 0, "rejected": 0}
            | FileCounts().row()
        )
    table = pa.Table.from_pylist(listed, FILES)
    return table.sort_by([(name, "ascending") for name in ("name", "source", "path")])


def _outcome(documents: int, reasons: Counter[str], twin: str) -> tuple[str, str]:
    failures = Counter({reason: number for reason, number in reasons.items() if reason != EMPTY})
    most = min(failures, key=lambda reason: (-failures[reason], reason), default="")
    if documents:
        return ("partly", most) if failures else ("indexed", "")
    if failures:
        return "quarantined", most
    return ("duplicate", twin) if twin else ("empty", "")


def _count_by_file(table: pa.Table) -> Counter[str]:
    counts = pc.value_counts(table["file"].combine_chunks())
    return Counter(dict(zip(counts.field("values").to_pylist(), counts.field("counts").to_pylist(), strict=True)))


def _reasons_by_file(refused: pa.Table) -> dict[str, Counter[str]]:
    groups = refused.group_by(["file", "reason"]).aggregate([([], "count_all")])
    reasons: dict[str, Counter[str]] = {}
    for row in groups.to_pylist():
        reasons.setdefault(row["file"], Counter())[row["reason"]] = row["count_all"]
    return reasons


def _documents_by_file(rows: pa.Table) -> tuple[Counter[str], dict[str, str]]:
    """Return the number of documents by file, and by file one that has the same document.

    A document counts for the file with the smallest name among those that have it, whatever was read first.
    """
    documents = _count_by_file(rows.filter(rows["published"]))
    twins: dict[str, str] = {}
    if rows.num_rows == documents.total():
        return documents, twins
    repeated = rows.filter(pc.invert(rows["published"]))["document_id"].unique()
    files: dict[tuple[str, bytes], set[str]] = {}
    holders: dict[tuple[str, bytes], str] = {}
    for row in rows.filter(pc.is_in(rows["document_id"], repeated)).to_pylist():
        key = row["document_id"], row["content_hash"]
        files.setdefault(key, set()).add(row["file"])
        if row["published"]:
            holders[key] = row["file"]
    for key, holder in sorted(holders.items()):
        first = min(files[key])
        documents[holder] -= 1
        documents[first] += 1
        for file in files[key] - {first}:
            twins.setdefault(file, first)
    return documents, twins


def summary_of(table: pa.Table) -> dict[str, Any]:
    """Return the summary of a table of the schema `known.FILES`, as JSON.

    files, bytes: by outcome. passed_over: by reason. formats, folders: files, bytes and words by format and by first
    folder (at most 200, the largest first). worst: at most 50 files, those with the most words left out first.
    """
    rows = table.to_pylist()
    formats: dict[str, Counter[str]] = {}
    folders: dict[str, Counter[str]] = {}
    left_out: dict[str, Counter[str]] = {}
    for row in rows:
        if row["outcome"] == "forgotten":
            continue
        figures = _figures(row)
        if row["kind"]:
            formats.setdefault(row["kind"], Counter()).update(figures)
            left_out.setdefault(row["kind"], Counter()).update(_left_out(row))
        folder, slash, _ = row["name"].partition("/")
        folders.setdefault(folder + slash if slash else "", Counter()).update(figures)
    outcomes = Counter(row["outcome"] for row in rows)
    sizes: Counter[str] = Counter()
    for row in rows:
        sizes[row["outcome"]] += row["bytes"]
    largest = sorted(folders, key=lambda name: (-folders[name]["files"], name))[:_FOLDERS]
    losing = [row for row in rows if row["left_out"]]
    losing.sort(key=lambda row: (-_left_out(row).total(), row["name"]))
    return {
        "files": {name: outcomes[name] for name in OUTCOMES if outcomes[name]},
        "bytes": {name: sizes[name] for name in OUTCOMES if outcomes[name]},
        "passed_over": dict(sorted(Counter(row["reason"] for row in rows if row["outcome"] == "passed-over").items())),
        "formats": {
            kind: dict(formats[kind]) | {"left_out": dict(sorted(left_out[kind].items()))} for kind in sorted(formats)
        },
        "folders": {name: dict(folders[name]) for name in largest},
        "folders_left_out": len(folders) - len(largest),
        "worst": [
            {"name": row["name"], "words": row["words"], "kept": row["kept"], "left_out": dict(_left_out(row))}
            for row in losing[:_WORST]
        ],
    }


def _figures(row: Mapping[str, Any]) -> Counter[str]:
    read = row["outcome"] != "passed-over"
    return Counter(
        files=1,
        read=int(read),
        bytes=row["bytes"],
        documents=row["documents"],
        words=row["words"] or 0,
        kept=row["kept"] or 0,
    )


def _left_out(row: Mapping[str, Any]) -> Counter[str]:
    return Counter({entry["reason"]: entry["words"] for entry in row["left_out"]})


def words_line(summary: Mapping[str, Any]) -> str:
    """Return a line about the words that are left out of documents, by format; empty if there are none."""
    parts: list[tuple[int, str]] = []
    for kind, figures in summary["formats"].items():
        words = figures["words"]
        for reason, number in figures["left_out"].items():
            share = number / words if words else 0.0
            if share >= _WORTH_SAYING:
                parts.append(
                    (number, f"{share:.0%} of the words of {counted(figures['files'], f'{kind} file')} ({reason})")
                )
    parts.sort(key=lambda part: (-part[0], part[1]))
    return f"left out are {', '.join(text for _, text in parts[:_EXAMPLES])}" if parts else ""


_WORTH_SAYING = 0.01
"""The least share of a format's words that is mentioned."""
