"""Scans: corpus files become documents in a spill folder, in bounded memory.

`scan` reads some files and spills their documents to disk; it runs on any worker, many at once. `carry` copies the
previous version's rows of unchanged files, and `respill` the rows of a part (`tasks.stages.ingest.read_part`).
`tasks.stages.ingest.shard_plan` selects documents among the rows; `tasks.stages.ingest.spill_files` names the files.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
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
from tasks.stages.ingest.documents import FILE_FIELDS, Document, Location, RejectedRow, SourceRow, document_of
from tasks.stages.ingest.language import with_language
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import RECORDS, TEXT_KINDS, SourceFile
from tasks.stages.ingest.sources.source_interface import Deleted, SourceError, Until
from tasks.stages.ingest.spill_files import (
    CARRIED_SCAN,
    INDEX,
    documents_file,
    index_file,
    open_spilled,
    piece_of,
    quarantine_file,
    quarantine_row,
    writing,
)

_NOTHING = "0" * 64
"""The content hash of a row that cancels earlier ones."""

_PASSING = frozenset({"reader-failed", "too-slow", "unreadable-file"})
"""Reasons that may be temporary: permissions, a network, memory that other processes used, a slow disk or processor.
The next version reads these files again, so that it equals a build of an empty store.
"""

_COSTLY = frozenset({"reader-failed", "too-slow"})
"""Temporary reasons where another attempt on the same machine costs as much and will hardly succeed."""

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 50_000
_RESPILLED_ROWS = 1024  # as Python objects at once
_REFUSALS = 4096  # in memory at once
_LOCATION_BYTES = 256  # of one in memory


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A summary of a scan's files in the spill folder, small enough to be sent from a worker."""

    name: str
    files: tuple[str, ...]
    documents: int  # rows that are documents, repeated ids among them
    tokens: int
    refused: dict[str, int]  # by reason
    changed: tuple[str, ...]  # warning: files that changed while they were read; their rows are kept
    stale: tuple[str, ...] = ()  # files refused because they were removed or replaced since they were listed
    front_matter_left_out: tuple[str, ...] = ()  # warning: files whose front matter cannot be read
    unsure: tuple[str, ...] = ()  # files with temporary failures: the next version reads them again
    ordered: bool = False  # of rows with one id the last one counts: changes from a source with a cursor
    cursor: Any = None  # where the reading of a record source ended
    whole: bool = True  # False: the rows are the changes since the cursor


@dataclass(frozen=True, slots=True)
class Cut:
    """The point where reading a file must end, before an unreadable row, and the reason."""

    rows: int  # read before that point, including refused ones
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

    cuts: by the number of the file. position: updated with the number of the current file, and of its rows processed
    so far; -1 while errors are not caused by a file. before_file: called at the start of each.

    Takes about 50 MB of memory plus the longest line. Raises DiskFull or StoreNotWritable for the spill folder; a file
    that cannot be read becomes a row of the quarantine.
    """
    name = _name_of(files)
    folder = Path(spill_folder)
    position = [-1, 0] if position is None else position
    changed: list[str] = []
    stale: list[str] = []
    left_out: list[str] = []
    unsure: dict[str, None] = {}
    until: Until | None = None
    refused: Counter[str] = Counter()
    with _scan_writers(name, folder) as (rows, quarantine):
        refusals: list[dict[str, Any]] = []
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
                if isinstance(result, Document):
                    result = with_language(result) if "language" in settings.file_metadata else result
                    rows.add(result, file.name, row.line)
                    if isinstance(row, SourceRow) and row.front_matter_left_out:
                        left_out.append(file.name)
                    continue
                if file.kind == RECORDS and result.document_id is not None:
                    rows.add_gone(result.document_id, file.name)
                if result.reason in _PASSING:
                    unsure[file.name] = None
                refused[result.reason] += 1
                refusals.append(
                    quarantine_row(file.name, result.line, result.document_id, result.reason, result.detail)
                )
                if len(refusals) >= _REFUSALS:
                    quarantine.write_batch(pa.RecordBatch.from_pylist(refusals, schema=QUARANTINE))
                    refusals = []
            if file.kind == RECORDS and until is None:
                raise SourceError(f"{file.name} was not read to its end; nothing of it is published: run again")
            if file.place is None and _state(file) != before:
                changed.append(file.name)
        position[0] = -1
        rows.flush()
        quarantine.write_batch(pa.RecordBatch.from_pylist(refusals, schema=QUARANTINE))
    names = tuple(file.name for file in files)
    return ScanResult(
        name,
        names,
        rows.documents,
        rows.tokens,
        dict(refused),
        tuple(changed),
        tuple(stale),
        tuple(left_out),
        tuple(unsure),
        ordered=until is not None and until.cursor is not None,
        cursor=None if until is None else until.cursor,
        whole=until is None or until.whole,
    )


def carry(
    rows: pa.Table, refusals: pa.Table, files: Mapping[str, bool], spill_folder: str | os.PathLike[str]
) -> ScanResult:
    """Copy the previous version's rows of unchanged files, as if the files were scanned now.

    rows: columns document_id, content_hash, tokens, size, published, file, line. refusals: schema QUARANTINE.
    files: the names of the files; True where front matter was left out. The texts stay in the previous version:
    `documents_of` reads them there.
    """
    folder = Path(spill_folder)
    rows = rows.sort_by([("published", "descending")])  # of equal rows the first is the document: one with a text
    hashes = id_hashes(rows.column("document_id").to_pylist())
    order = hash_order(hashes)
    whole = pa.table(
        {
            **{name: rows.column(name) for name in rows.column_names},
            "id_hash": pa.array(map(bytes, hashes), pa.binary(32)),
            "gone": pa.array(np.zeros(len(hashes), dtype=bool)),
        }
    )
    whole = conform(whole.select(INDEX.names).take(pa.array(order)), INDEX)
    with writing(folder / index_file(CARRIED_SCAN), INDEX) as index:
        for batch in whole.to_batches(max_chunksize=_BATCH_ROWS):
            index.write_batch(batch)
    with writing(folder / quarantine_file(CARRIED_SCAN), QUARANTINE) as quarantine:
        for batch in refusals.to_batches():
            quarantine.write_batch(batch)
    refused = dict(Counter(refusals.column("reason").to_pylist()))
    left_out = tuple(sorted(name for name, without in files.items() if without))
    tokens = int(pc.sum(whole.column("tokens")).as_py() or 0)
    return ScanResult(CARRIED_SCAN, tuple(sorted(files)), len(hashes), tokens, refused, (), (), left_out)


def respill(
    files: Sequence[SourceFile],
    read: pa.Table,
    refusals: pa.Table,
    spill_folder: str | os.PathLike[str],
    *,
    fresh: bool = False,
) -> ScanResult:
    """Spill the rows of an earlier scan of some files: see `spilled_rows`.

    Files with temporary failures are left out, also in the result. fresh: True for a scan of this run, after which slow
    failures are not retried.
    """
    reasons = _PASSING - _COSTLY if fresh else _PASSING
    again = {row["file"] for row in refusals.to_pylist() if row["reason"] in reasons}
    files = [file for file in files if file.name not in again]
    names = tuple(file.name for file in files)
    unsure = {row["file"] for row in refusals.to_pylist() if row["reason"] in _PASSING} - again
    sure = pa.array(names, pa.string())
    read, refusals = (table.filter(pc.is_in(table.column("file"), sure)) for table in (read, refusals))
    name, folder = _name_of(files), Path(spill_folder)
    with _scan_writers(name, folder) as (rows, quarantine):
        for batch in read.to_batches(max_chunksize=_RESPILLED_ROWS):
            for row in batch.to_pylist():
                file = row.pop("file")
                places = tuple(
                    Location(stored["start"], stored["page"], _box(stored["box"]))
                    for stored in row.pop("locations") or ()
                )
                size = len(row["title"].encode("utf-8")) + len(row["text"].encode("utf-8"))
                rows.add(Document(**row, size=size, locations=places), file, None)
        rows.flush()
        for batch in refusals.to_batches():
            quarantine.write_batch(batch)
    refused = Counter(refusals.column("reason").to_pylist())
    return ScanResult(name, names, rows.documents, rows.tokens, dict(refused), (), unsure=tuple(sorted(unsure)))


def spilled_rows(result: ScanResult, spill_folder: str | os.PathLike[str]) -> tuple[pa.Table, pa.Table]:
    """The documents of a scan, with a column `file`, in the order of their hashes; and the refused rows."""
    folder = Path(spill_folder)
    pieces = [DOCUMENTS.empty_table()]
    files = [folder / documents_file(result.name, piece) for piece in range(1 << spill_files.PIECE_BITS)]
    pieces += [open_spilled(file).read_all() for file in files if file.exists()]
    index = open_spilled(folder / index_file(result.name)).read_all()
    index = index.filter(pc.invert(index.column("gone")))
    documents = pa.concat_tables(pieces)
    documents = documents.take(pc.index_in(index.column("document_id"), documents.column("document_id")))
    refused = open_spilled(folder / quarantine_file(result.name)).read_all()
    return documents.append_column("file", index.column("file")), refused


def ids_of(result: ScanResult, spill_folder: str | os.PathLike[str]) -> pa.ChunkedArray:
    """The ids that a scan has rows of, including deleted ones."""
    return open_spilled(Path(spill_folder) / index_file(result.name)).read_all().column("document_id")


def without(result: ScanResult, names: Collection[str], spill_folder: str | os.PathLike[str]) -> ScanResult:
    """Remove some files from a scan, as if it had not read them."""
    folder = Path(spill_folder)
    out = pa.array(sorted(names), pa.string())
    refusals = open_spilled(folder / quarantine_file(result.name)).read_all()
    refusals = refusals.filter(pc.invert(pc.is_in(refusals.column("file"), out)))
    with writing(folder / quarantine_file(result.name), QUARANTINE) as sink:
        sink.write_table(refusals)
    documents = tokens = 0
    index = open_spilled(folder / index_file(result.name))
    with writing(folder / index_file(result.name), INDEX) as sink:
        for number in range(index.num_record_batches):  # the same batches as those of the documents
            batch = index.get_batch(number)
            gone = pc.or_(batch.column("gone"), pc.is_in(batch.column("file"), out))
            remaining = batch.filter(pc.invert(gone))
            documents += remaining.num_rows
            tokens += int(pc.sum(remaining.column("tokens")).as_py() or 0)
            columns = {name: batch.column(name) for name in INDEX.names} | {"gone": gone}
            sink.write_batch(pa.RecordBatch.from_arrays(list(columns.values()), schema=INDEX))

    def remaining_files(files: Sequence[str]) -> tuple[str, ...]:
        return tuple(file for file in files if file not in names)

    return replace(
        result,
        documents=documents,
        tokens=tokens,
        refused=dict(Counter(refusals.column("reason").to_pylist())),
        files=remaining_files(result.files),
        changed=remaining_files(result.changed),
        stale=remaining_files(result.stale),
        front_matter_left_out=remaining_files(result.front_matter_left_out),
        unsure=remaining_files(result.unsure),
    )


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
    """The rows of a file up to its cut. The position advances when the consumer asks for the next row."""
    line = None
    for number, row in enumerate(islice(read(file, settings), cut.rows if cut else None), 1):
        line = row.line if isinstance(row, SourceRow | RejectedRow) else line
        yield row
        position[1] = number
    if cut is not None:
        where = "" if line is None else f"after line {line}: "
        document_id = file.document_name if file.kind in TEXT_KINDS else None
        yield RejectedRow(None, document_id, cut.reason, where + cut.detail)


@contextmanager
def _scan_writers(name: str, folder: Path) -> Iterator[tuple[_SpillWriter, pa.ipc.RecordBatchFileWriter]]:
    """The writers of a scan: of its rows, and of its refused rows."""
    with (
        writing(folder / index_file(name), INDEX) as index,
        writing(folder / quarantine_file(name), QUARANTINE) as quarantine,
        ExitStack() as pieces,
    ):

        @cache
        def documents(piece: int) -> pa.ipc.RecordBatchFileWriter:
            return pieces.enter_context(writing(folder / documents_file(name, piece), DOCUMENTS))

        yield _SpillWriter(documents, index), quarantine


class _SpillWriter:
    """Buffers documents and writes them to the spill in batches of some megabytes, each sorted by id hash.

    documents: opens the file of a piece of the hashes.
    """

    def __init__(
        self, documents: Callable[[int], pa.ipc.RecordBatchFileWriter], index: pa.ipc.RecordBatchFileWriter
    ) -> None:
        self._documents, self._index = documents, index
        self._waiting: list[tuple[bytes, Document, str, int | None]] = []
        self._size = 0
        self.documents = self.tokens = 0

    def add(self, document: Document, file: str, line: int | None) -> None:
        self._waiting.append((id_hash(document.document_id), document, file, line))
        self._size += document.size + len(document.metadata) + _LOCATION_BYTES * len(document.locations)
        self.documents += 1
        self.tokens += estimate_tokens(document.size)
        if self._size >= _BATCH_BYTES or len(self._waiting) >= _BATCH_ROWS:
            self.flush()

    def add_gone(self, document_id: str, file: str) -> None:
        """Cancel the earlier rows of an id."""
        nothing = Document(document_id, "", "", None, "{}", _NOTHING, 0)
        self._waiting.append((id_hash(document_id), nothing, file, None))
        if len(self._waiting) >= _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        waiting = sorted(self._waiting, key=lambda row: row[0])  # stable: rows of one id stay in their order
        self._waiting, self._size = [], 0
        for piece, rows in groupby(waiting, key=lambda row: piece_of(row[0])):
            self._write(list(rows), self._documents(piece))

    def _write(self, rows: list[tuple[bytes, Document, str, int | None]], writer: pa.ipc.RecordBatchFileWriter) -> None:
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
        writer.write_batch(pa.RecordBatch.from_pydict(columns, schema=DOCUMENTS))
        self._index.write_batch(pa.RecordBatch.from_pydict(index, schema=INDEX))


def _places(document: Document) -> list[dict[str, Any]] | None:
    """The locations of a document, for its table."""
    return [{"start": at.start, "page": at.page, "box": at.box} for at in document.locations] or None


def _box(sides: Sequence[float] | None) -> tuple[float, float, float, float] | None:
    if sides is None:
        return None
    left, top, right, bottom = sides
    return left, top, right, bottom


def _is_stale(file: SourceFile, state: tuple[int, int] | None, cut: Cut | None) -> bool:
    """True for a file that was removed or replaced since it was listed."""
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
