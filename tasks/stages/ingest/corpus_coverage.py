"""The coverage of a corpus: what became of each of its files.

`table_of` makes the row of each listed file, for the reading of a run (schema `known.FILES`): whether its content is in
the index, is rejected, or is passed over, and the words that are left out of its document. So the bytes of the rows are
those of the corpus' folders, except hidden folders and stores of indexes, which are not searched.

`summary_of` sums the rows for the report of the run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.text.counted import counted
from indexmill.text.printable import utf8_name
from tasks.stages.ingest.file_counts import FileCounts, columns_of
from tasks.stages.ingest.known import FILES, FileIdentity
from tasks.stages.ingest.refused import NO_FAILURES, OLD_FORMAT, failures_of
from tasks.stages.ingest.source_files import NO_READER, RECORDS, PassedOver, SourceFile, suffix_of

OUTCOMES: dict[str, str] = {
    "indexed": "all of its rows are documents of the index",
    "partly": "some of its rows are documents of the index, and others are quarantined",
    "quarantined": "none of its rows is a document",
    "empty": "it has no row, or no text",
    "duplicate": "another file, which `reason` names, has the same document",
    "passed-over": "it is not read; see `reason`",
    "forgotten": "files of forgotten documents, in one row without a name; `documents` is their number",
}
"""What can become of a file."""

_FOLDERS, _WORST, _EXAMPLES, _SUFFIXES = 200, 50, 3, 50
"""The maximum number of folders and files in a summary."""


def table_of(
    files: Sequence[SourceFile],
    passed_over: Iterable[PassedOver],
    counts: Mapping[str, FileCounts],
    rows: pa.Table,
    refused: pa.Table,
    *,
    forgotten: Iterable[SourceFile | PassedOver] = (),
) -> pa.Table:
    """Return what became of each file: schema `known.FILES`, sorted by name, source and path.

    files: those read; the token of a file that must be read again is empty. counts: by file. rows: every planned row,
    schema CARRIED_ROW. refused: every rejected row, schema QUARANTINE. forgotten: the files whose documents are.
    """
    documents, same_document = _documents_by_file(rows)
    rejected, reasons = _count_by_file(failures_of(refused)), _reasons_by_file(refused)
    identities = [FileIdentity.of(file) for file in files]
    outcomes = [
        _outcome(documents[file.name], reasons.get(file.name), same_document.get(file.name, "")) for file in identities
    ]
    sizes = [file.size for file in files]
    unread = list(passed_over)
    identities += [FileIdentity(file.source, utf8_name(file.path), file.name, "", "", "") for file in unread]
    outcomes += [("passed-over", file.reason) for file in unread]
    sizes += [file.size for file in unread]
    if forgotten_sizes := [file.size for file in forgotten]:
        identities.append(FileIdentity("", "", "", "", "", ""))
        outcomes.append(("forgotten", ""))
        sizes.append(sum(forgotten_sizes))
        documents[""] = len(forgotten_sizes)
    names = [identity.name if identity.kind or not identity.name else None for identity in identities]
    # The counts of a record source may be of the rows since a cursor.
    file_counts = [
        counts.get(identity.name, _NO_COUNTS) if identity.kind not in ("", RECORDS) else _NO_COUNTS
        for identity in identities
    ]
    columns: dict[str, Any] = {
        field: [identity[at] for identity in identities] for at, field in enumerate(FileIdentity._fields)
    }
    columns["outcome"], columns["reason"] = ([outcome[at] for outcome in outcomes] for at in (0, 1))
    columns["bytes"] = sizes
    columns["documents"] = [documents[name] if name is not None else 0 for name in names]
    columns["rejected"] = [0 if name is None else rejected[name] for name in names]
    columns |= columns_of(file_counts)
    return pa.table(columns, FILES).sort_by([(name, "ascending") for name in ("name", "source", "path")])


_NO_COUNTS = FileCounts()


def _outcome(documents: int, reasons: Counter[str] | None, same_document: str) -> tuple[str, str]:
    if reasons and OLD_FORMAT in reasons:
        return "passed-over", OLD_FORMAT
    reasons = Counter({reason: number for reason, number in (reasons or {}).items() if reason not in NO_FAILURES})
    if not reasons:
        without = ("duplicate", same_document) if same_document else ("empty", "")
        return ("indexed", "") if documents else without
    most = min(reasons, key=lambda reason: (-reasons[reason], reason))
    return ("partly" if documents else "quarantined"), most


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
    if rows.num_rows == documents.total():
        return documents, {}
    repeated = rows.filter(pc.invert(rows["published"]))["document_id"].unique()
    columns = ("document_id", "content_hash", "file")
    rows = rows.filter(pc.is_in(rows["document_id"], repeated)).sort_by([(name, "ascending") for name in columns])
    ids, hashes, files = (rows[name].combine_chunks() for name in columns)
    published = rows["published"].combine_chunks().to_numpy(zero_copy_only=False)
    repeats = pc.and_(pc.equal(ids[1:], ids[:-1]), pc.equal(hashes[1:], hashes[:-1])).to_numpy(zero_copy_only=False)
    is_first = np.concatenate([[True], ~repeats])
    group = np.cumsum(is_first) - 1
    first = files.take(pa.array(np.flatnonzero(is_first)[group]))  # by row, the first file with its document
    documents.subtract(_count_by_file(pa.table({"file": files.filter(pa.array(published))})))
    documents.update(_count_by_file(pa.table({"file": first.filter(pa.array(published))})))
    is_document = np.bincount(group, published)[group] > 0
    elsewhere = np.flatnonzero(is_document & pc.not_equal(files, first).to_numpy(zero_copy_only=False))
    codes = files.take(pa.array(elsewhere)).dictionary_encode()
    _, at = np.unique(codes.indices.to_numpy(zero_copy_only=False), return_index=True)
    chosen = pa.array(elsewhere[at])
    return documents, dict(zip(files.take(chosen).to_pylist(), first.take(chosen).to_pylist(), strict=True))


def summary_of(table: pa.Table) -> dict[str, Any]:
    """Return the summary of a table of the schema `known.FILES`, as JSON.

    files, bytes: by outcome. passed_over: by reason. suffixes_passed_over: files that no reader takes, by suffix.
    formats, folders: files, bytes and words by format and by first folder (at most 200, the largest first). worst: at
    most 50 files, those with the most words left out first.
    """
    table = table.filter(pc.invert(pc.ends_with(table["name"], "/")))  # folders that are not searched
    outcomes = _summed(table, "outcome")
    named = table.filter(pc.not_equal(table["outcome"], "forgotten"))
    folder_of = pc.replace_substring_regex(named["name"], _FOLDER, r"\1")
    folders = _summed(named.append_column("folder", folder_of), "folder")
    largest = sorted(folders, key=lambda name: (-folders[name]["files"], name))[:_FOLDERS]
    formats = _summed(table.filter(pc.not_equal(table["kind"], "")), "kind")
    published = table.filter(pc.greater(table["documents"], 0))
    reasons = _reasons(published)
    left_out: dict[str, dict[str, int]] = {}
    by_kind = reasons.group_by(["kind", "reason"]).aggregate([("words", "sum")])
    for row in sorted(by_kind.to_pylist(), key=lambda row: str(row["reason"])):
        left_out.setdefault(row["kind"], {})[row["reason"]] = row["words_sum"]
    skipped = table.filter(pc.equal(table["outcome"], "passed-over"))
    passed_over = Counter(skipped["reason"].to_pylist())
    no_reader = skipped.filter(pc.is_in(skipped["reason"], pa.array(sorted(NO_READER))))
    suffixes = Counter(map(suffix_of, no_reader["name"].to_pylist()))
    most_suffixes = sorted(suffixes.items(), key=lambda item: (-item[1], item[0]))[:_SUFFIXES]
    return {
        "files": {
            name: outcomes[name]["documents" if name == "forgotten" else "files"]
            for name in OUTCOMES
            if name in outcomes
        },
        "bytes": {name: outcomes[name]["bytes"] for name in OUTCOMES if name in outcomes},
        "passed_over": dict(sorted(passed_over.items())),
        "suffixes_passed_over": dict(most_suffixes),
        "formats": {kind: formats[kind] | {"left_out": left_out.get(kind, {})} for kind in sorted(formats)},
        "folders": [{"name": name} | folders[name] for name in largest],
        "folders_left_out": len(folders) - len(largest),
        "worst": _worst(published, reasons),
    }


def _worst(published: pa.Table, reasons: pa.Table) -> list[dict[str, Any]]:
    """Return the files that lost most words. reasons: of `_reasons`."""
    losses = reasons.filter(pc.not_equal(reasons["reason"], _METADATA)).group_by("row").aggregate([("words", "sum")])
    names = published["name"].take(losses["row"]).to_pylist()
    ranked = sorted(
        (-words, name, row)
        for words, name, row in zip(losses["words_sum"].to_pylist(), names, losses["row"].to_pylist(), strict=True)
    )
    rows = published.take(pa.array([row for _, _, row in ranked[:_WORST]], pa.int64())).to_pylist()
    return [
        {"name": row["name"], "words": row["words"], "text_words": row["text_words"]}
        | {"left_out": {entry["reason"]: entry["words"] for entry in row["left_out"]}}
        for row in rows
    ]


_FOLDER = r"(?s)^(?:([^/]*/).*|[^/]*)$"


def _summed(table: pa.Table, column: str) -> dict[str, dict[str, int]]:
    """Return the numbers of files, files read, bytes, documents and words by the value of a column."""
    is_document = pc.greater(table["documents"], 0)
    table = table.append_column("read", pc.cast(pc.not_equal(table["kind"], ""), pa.int64()))
    for name in ("words", "text_words"):  # of what is not published, the words are neither kept nor lost
        words = pc.if_else(is_document, table[name], 0)
        table = table.set_column(table.schema.get_field_index(name), name, words)
    names = ("read", "bytes", "documents", "words", "text_words")
    groups = table.group_by(column).aggregate([([], "count_all"), *((name, "sum") for name in names)])
    return {
        row[column]: {"files": row["count_all"], **{name: row[f"{name}_sum"] or 0 for name in names}}
        for row in groups.to_pylist()
    }


def _reasons(table: pa.Table) -> pa.Table:
    """Return the words left out of each file: row (its position in the table), kind, reason and words."""
    lists = table["left_out"].combine_chunks()
    rows = pc.list_parent_indices(lists)
    entries = pc.list_flatten(lists)
    return pa.table(
        {"row": rows, "kind": table["kind"].combine_chunks().take(rows)}
        | {name: pc.struct_field(entries, name) for name in ("reason", "words")}
    )


def words_line(summary: Mapping[str, Any]) -> str:
    """Return a line about the words that are left out of documents, by format; empty if there are none."""
    parts: list[tuple[int, str]] = []
    for kind, figures in summary["formats"].items():
        files = counted(figures["files"], f"{kind} file")
        for reason, number in figures["left_out"].items():
            share = number / figures["words"] if figures["words"] else 0.0
            if share >= _WORTH_SAYING and reason != _METADATA:
                parts.append((number, f"{share:.0%} of the words of {files} ({reason})"))
    parts.sort(key=lambda part: (-part[0], part[1]))
    return f"{', '.join(text for _, text in parts[:_EXAMPLES])} are left out" if parts else ""


_METADATA = "front-matter"
"""The reason of words that are not lost, but are metadata."""
_WORTH_SAYING = 0.01
"""The least share of a format's words that is mentioned."""
