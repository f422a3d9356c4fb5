"""Scans: corpus files become documents in a spill folder, in bounded memory.

`scan` reads some files and spills their documents to disk; many scans may run concurrently on any workers. `carry`
copies the previous version's rows of unchanged files, and `respill` the rows of a part
(`tasks.stages.ingest.read_part`). `tasks.stages.ingest.shard_plan` selects documents among the rows;
`tasks.stages.ingest.spill_files` names the files.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.store.table_reader import LOCATIONS
from schemas.corpus import CorpusSettings
from schemas.tables import DOCUMENTS, QUARANTINE, conform
from tasks.core.shards import estimate_tokens, hash_order, id_hash, id_hashes
from tasks.stages.ingest import spill_files
from tasks.stages.ingest.documents import FILE_FIELDS, Document, RejectedRow, SourceRow, document_of, with_language
from tasks.stages.ingest.file_counts import FileCounts, counts_of
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.refused import COSTLY, TEMPORARY, files_refused_for
from tasks.stages.ingest.source_files import RECORDS, TEXT_KINDS, SourceFile
from tasks.stages.ingest.sources.source_interface import Deleted, SourceError, Until
from tasks.stages.ingest.spill_files import (
    CARRIED_SCAN,
    INDEX,
    documents_file,
    index_file,
    of_files,
    open_spilled,
    piece_of,
    quarantine_file,
    quarantine_row,
    writing,
)

_NOTHING = "0" * 64
"""The content hash of a row that cancels earlier rows."""

_WHOLE = Until(cursor=None, whole=True)

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 50_000
_LOCATION_BYTES, _REFUSAL_BYTES = 256, 4096  # approximate memory of a location and of a rejected row


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A summary of a scan's files in the spill folder, small enough for a worker to send."""

    name: str
    files: tuple[str, ...]
    documents: int  # rows that are documents, including repeated ids
    refused: dict[str, int]  # by reason
    changed: tuple[str, ...]  # warning: files that changed while they were read; their rows are kept
    stale: tuple[str, ...] = ()  # files rejected because they were removed or replaced since they were listed
    counts: Mapping[str, FileCounts] = field(default_factory=dict)  # by file, if anything was counted
    until: Until = _WHOLE  # with a cursor, the last row of an id counts


@dataclass(frozen=True, slots=True)
class Cut:
    """The point where reading a file must end, before an unreadable row, and the reason."""

    rows: int  # rows read before that point, including rejected ones
    reason: str
    detail: str
    stale: bool = False  # the file was removed or replaced since it was listed


def scan(
    files: Sequence[SourceFile],
    settings: CorpusSettings,
    spill_folder: str | os.PathLike[str],
    *,
    cuts: Mapping[int, Cut] = MappingProxyType({}),
    position: list[int] | memoryview[int] | None = None,
    before_file: Callable[[], None] = lambda: None,
) -> ScanResult:
    """Read some files into the spill folder; a second scan of the same files replaces the first.

    cuts: by file number. position: updated in place to the number of the current file (-1 while no file can cause
    errors) and the number of its rows processed so far. before_file: called at the start of each file.

    Takes about 50 MB of memory plus the longest line. Raises DiskFull or StoreNotWritable for the spill folder; a file
    that cannot be read becomes a row of the quarantine.
    """
    name = _name_of(files)
    folder = Path(spill_folder)
    position = [-1, 0] if position is None else position
    changed: list[str] = []
    stale: list[str] = []
    counts: dict[str, FileCounts] = {}
    until: Until | None = None
    with ExitStack() as opened:
        rows = _SpillWriter(name, folder, opened)
        for number, file in enumerate(files):
            position[1], position[0] = 0, number
            before_file()
            before, cut = _state(file), cuts.get(number)
            if _is_stale(file, before, cut):
                stale.append(file.name)
            fields = FILE_FIELDS if file.kind in TEXT_KINDS else settings.fields
            for row in _read(file, settings, cut, position):
                if isinstance(row, Until):
                    until = row
                    continue
                if isinstance(row, Deleted):
                    rows.add_gone(row.document_id, file.name)
                    continue
                limits = (settings.max_document_bytes, settings.access)
                result = row if isinstance(row, RejectedRow) else document_of(row, fields, *limits)
                if isinstance(row, SourceRow) and isinstance(result, Document):
                    result = with_language(result) if "language" in settings.file_metadata else result
                    rows.add(result, file.name, row.line)
                    if row.words is not None:
                        counts[file.name] = counts_of(row.words, result.text, int(result.metadata_left_out))
                    elif result.metadata_left_out:
                        of_file = counts.get(file.name, FileCounts())
                        counts[file.name] = replace(of_file, metadata_left_out=of_file.metadata_left_out + 1)
                    continue
                assert isinstance(result, RejectedRow)  # noqa: S101 - for mypy
                if file.kind == RECORDS and result.document_id is not None:
                    rows.add_gone(result.document_id, file.name)
                rows.reject(result, file.name)
            if file.kind == RECORDS and until is None:
                raise SourceError(f"{file.name} was not read to its end; none of it is published: run again")
            if file.place is None and _state(file) != before:
                changed.append(file.name)
        position[0] = -1
        rows.flush()
    names = tuple(file.name for file in files)
    noticed = tuple(changed), tuple(stale), counts
    return ScanResult(name, names, rows.documents, dict(rows.refused), *noticed, until or _WHOLE)


def carry(
    rows: pa.Table, refusals: pa.Table, files: Mapping[str, FileCounts], spill_folder: str | os.PathLike[str]
) -> ScanResult:
    """Copy the previous version's rows of unchanged files, as if the files had been scanned now.

    rows: schema CARRIED_ROW. refusals: schema QUARANTINE. files: the counts by name. The texts stay in the previous
    version, where `documents_of` reads them.
    """
    rows = rows.sort_by([("published", "descending")])  # of equal rows the first is the document: it must have a text
    names = tuple(sorted(files))
    result = _copied(CARRIED_SCAN, names, rows, refusals, spill_folder)
    return replace(result, counts={name: files[name] for name in names})


def respill(
    files: Sequence[SourceFile],
    read: pa.Table,
    refusals: pa.Table,
    counts: Mapping[str, FileCounts],
    spill_folder: str | os.PathLike[str],
    *,
    fresh: bool = False,
) -> ScanResult:
    """Spill the rows of an earlier scan of some files; see `spilled_rows`. counts: the scan's, by file.

    Files that failed temporarily are left out of the spill and of the result. fresh: whether this run made the scan; if
    so, files that crashed or stalled the reader are kept, since another attempt would cost as much.
    """
    again = files_refused_for(refusals, TEMPORARY - COSTLY if fresh else TEMPORARY)
    files = [file for file in files if file.name not in again]
    names = tuple(file.name for file in files)
    read, refusals = of_files(read, names), of_files(refusals, names)
    sizes = pc.add(pc.binary_length(read.column("title")), pc.binary_length(read.column("text")))
    rows = pa.table(
        {
            "document_id": read.column("document_id"),
            "content_hash": pa.array(map(bytes.fromhex, read.column("content_hash").to_pylist()), pa.binary(32)),
            "tokens": list(map(estimate_tokens, sizes.to_pylist())),
            "size": sizes,
            "published": np.zeros(len(read), dtype=bool),
            "file": read.column("file"),
            "line": pa.nulls(len(read), pa.int64()),
        }
    )
    result = _copied(_name_of(files), names, rows, refusals, spill_folder, read)
    return replace(result, counts={name: counts[name] for name in names if name in counts})


def _copied(
    name: str,
    files: tuple[str, ...],
    rows: pa.Table,
    refusals: pa.Table,
    spill_folder: str | os.PathLike[str],
    documents: pa.Table | None = None,
) -> ScanResult:
    """Spill an earlier scan's rows. documents: in the order of the rows; None if the previous version stores them."""
    with ExitStack() as opened:
        _SpillWriter(name, Path(spill_folder), opened).copy(rows, refusals, documents)
    return ScanResult(name, files, rows.num_rows, dict(Counter(refusals.column("reason").to_pylist())), ())


def spilled_rows(result: ScanResult, spill_folder: str | os.PathLike[str]) -> tuple[pa.Table, pa.Table]:
    """Return a scan's documents (with a column `file`, in the order of their hashes), and its rejected rows."""
    folder = Path(spill_folder)
    pieces = [open_spilled(file).read_all() for file in sorted(folder.glob(f"{result.name}.documents.*.arrow"))]
    documents = pa.concat_tables([DOCUMENTS.empty_table(), *pieces])
    index = open_spilled(folder / index_file(result.name)).read_all()
    index = index.filter(pc.invert(index.column("gone")))
    documents = documents.take(pc.index_in(index.column("document_id"), documents.column("document_id")))
    refused = open_spilled(folder / quarantine_file(result.name)).read_all()
    return documents.append_column("file", index.column("file")), refused


def ids_of(result: ScanResult, spill_folder: str | os.PathLike[str]) -> pa.ChunkedArray:
    """Return the document ids in a scan's rows, including deleted ids."""
    return open_spilled(Path(spill_folder) / index_file(result.name)).read_all().column("document_id")


def without(result: ScanResult, names: Collection[str], spill_folder: str | os.PathLike[str]) -> ScanResult:
    """Remove some files from a scan, as if it had not read them."""
    folder = Path(spill_folder)
    remaining: dict[str, Any] = {
        name: tuple(file for file in getattr(result, name) if file not in names)
        for name in ("files", "changed", "stale")
    }
    counts = {file: counted for file, counted in result.counts.items() if file not in names}
    refusals = of_files(open_spilled(folder / quarantine_file(result.name)).read_all(), remaining["files"])
    with writing(folder / quarantine_file(result.name), QUARANTINE) as sink:
        sink.write_table(refusals)
    documents = 0
    index, out = open_spilled(folder / index_file(result.name)), pa.array(sorted(names), pa.string())
    with writing(folder / index_file(result.name), INDEX) as sink:
        for number in range(index.num_record_batches):  # the batches stay those of the documents
            batch = index.get_batch(number)
            gone = pc.or_(batch.column("gone"), pc.is_in(batch.column("file"), out))
            documents += pc.sum(pc.invert(gone)).as_py()
            sink.write_batch(batch.set_column(INDEX.get_field_index("gone"), INDEX.field("gone"), gone))
    refused = dict(Counter(refusals.column("reason").to_pylist()))
    return replace(result, documents=documents, refused=refused, counts=counts, **remaining)


def drop_partial(files: Sequence[SourceFile], spill_folder: str | os.PathLike[str]) -> None:
    """Remove the partial files of a killed scan."""
    for file in Path(spill_folder).glob(f"{_name_of(files)}.*.partial"):
        file.unlink(missing_ok=True)


def _name_of(files: Sequence[SourceFile]) -> str:
    paths = "\n".join(f"{file.source}\n{file.path}" for file in files)
    return "scan-" + hashlib.sha256(paths.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _read(
    file: SourceFile, settings: CorpusSettings, cut: Cut | None, position: list[int] | memoryview[int]
) -> Iterator[SourceRow | RejectedRow | Deleted | Until]:
    """Yield the rows of a file up to its cut. The position advances when the consumer asks for the next row."""
    line = None
    for number, row in enumerate(islice(read(file, settings), cut.rows if cut else None), 1):
        line = row.line if isinstance(row, SourceRow | RejectedRow) else line
        yield row
        position[1] = number
    if cut is not None:
        where = "" if line is None else f"after line {line}: "
        document_id = file.document_name if file.kind in TEXT_KINDS else None
        yield RejectedRow(None, document_id, cut.reason, where + cut.detail)


class _SpillWriter:
    """Writes the files of a scan; buffers documents for batches of some megabytes, each sorted by id hash.

    opened: the stack that closes the files. documents, refused: counts of rows written so far, the latter by reason.
    """

    def __init__(self, name: str, folder: Path, opened: ExitStack) -> None:
        self._index = opened.enter_context(writing(folder / index_file(name), INDEX))
        self._quarantine = opened.enter_context(writing(folder / quarantine_file(name), QUARANTINE))
        self._piece = cache(
            lambda piece: opened.enter_context(writing(folder / documents_file(name, piece), DOCUMENTS))
        )
        self._waiting: list[tuple[bytes, Document, str, int | None]] = []
        self._refusals: list[dict[str, Any]] = []
        self._size = 0
        self.documents = 0
        self.refused: Counter[str] = Counter()

    def add(self, document: Document, file: str, line: int | None) -> None:
        self.documents += 1
        self._waiting.append((id_hash(document.document_id), document, file, line))
        self._grow(document.size + len(document.metadata) + _LOCATION_BYTES * len(document.locations))

    def add_gone(self, document_id: str, file: str) -> None:
        """Cancel the earlier rows of an id."""
        nothing = Document(document_id, "", "", None, "{}", _NOTHING, 0)
        self._waiting.append((id_hash(document_id), nothing, file, None))
        self._grow(0)

    def reject(self, row: RejectedRow, file: str) -> None:
        self.refused[row.reason] += 1
        self._refusals.append(quarantine_row(file, row.line, row.document_id, row.reason, row.detail))
        self._grow(_REFUSAL_BYTES)

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size >= _BATCH_BYTES or len(self._waiting) >= _BATCH_ROWS:
            self.flush()

    def copy(self, rows: pa.Table, refusals: pa.Table, documents: pa.Table | None) -> None:
        """Write an earlier scan's rows and rejections. documents: in the order of the rows; None if already stored."""
        hashes = id_hashes(rows.column("document_id").to_pylist())
        order = hash_order(hashes)
        rows = rows.append_column("id_hash", pa.array(map(bytes, hashes), pa.binary(32)))
        rows = rows.append_column("gone", pa.array(np.zeros(len(hashes), dtype=bool)))
        index = conform(rows.select(INDEX.names).take(pa.array(order)), INDEX)
        pieces = hashes[order, 0] >> 8 - spill_files.PIECE_BITS
        for piece in np.unique(pieces).tolist():
            low, high = np.searchsorted(pieces, [piece, piece + 1]).tolist()
            self._index.write_table(index.slice(low, high - low), max_chunksize=_BATCH_ROWS)
            if documents is not None:
                texts = documents.select(DOCUMENTS.names).take(pa.array(order[low:high]))
                self._piece(piece).write_table(texts.combine_chunks(), max_chunksize=_BATCH_ROWS)
        self._quarantine.write_table(refusals)

    def flush(self) -> None:
        waiting = sorted(self._waiting, key=lambda row: row[0])  # stable: rows with the same id stay in their order
        for piece, rows in groupby(waiting, key=lambda row: piece_of(row[0])):
            self._write(piece, list(rows))
        self._quarantine.write_batch(pa.RecordBatch.from_pylist(self._refusals, schema=QUARANTINE))
        self._waiting, self._refusals, self._size = [], [], 0

    def _write(self, piece: int, rows: list[tuple[bytes, Document, str, int | None]]) -> None:
        hashes, documents, files, lines = zip(*rows, strict=True)
        columns = {name: [getattr(document, name) for document in documents] for name in DOCUMENTS.names}
        columns[LOCATIONS] = [_places(document) for document in documents]
        index = {
            "document_id": columns["document_id"],
            "id_hash": hashes,
            "content_hash": list(map(bytes.fromhex, columns["content_hash"])),
            "tokens": [estimate_tokens(document.size) for document in documents],
            "size": [document.size for document in documents],
            "published": [False] * len(documents),
            "gone": [document.content_hash == _NOTHING for document in documents],
            "file": files,
            "line": lines,
        }
        self._piece(piece).write_batch(pa.RecordBatch.from_pydict(columns, schema=DOCUMENTS))
        self._index.write_batch(pa.RecordBatch.from_pydict(index, schema=INDEX))


def _places(document: Document) -> list[dict[str, Any]] | None:
    return [{"start": at.start, "page": at.page, "box": at.box} for at in document.locations] or None


def _is_stale(file: SourceFile, state: tuple[int, int] | None, cut: Cut | None) -> bool:
    if file.place is None:
        return state is None and bool(file.token or file.size)
    return cut is not None and cut.stale


def _state(file: SourceFile) -> tuple[int, int] | None:
    if file.place is not None:
        return None
    try:
        status = Path(file.path).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns
