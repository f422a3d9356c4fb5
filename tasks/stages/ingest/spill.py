"""Two passes over a corpus of any size: scan the files, plan the shards, then take each shard's documents.

`scan` reads some files and spills their documents to disk; it runs on any worker, many at once. `plan` reads ids,
hashes and sizes alone, about a hundred bytes a document: it decides which row of an id is the document and which
documents make a shard. `documents_of` takes one shard's winners out of the mapped spill, again on any worker.

**One id, several rows.** Rows with the same id and content are one document, however often and wherever they stand. Of
rows with the same id and different contents one is the document and the others are refused as `duplicate-id`. The
smallest content hash wins: a choice without merit, but a function of the set of rows. Neither the order of the rows nor
of the files can change it, so that the same corpus makes the same index.

A scan leaves Arrow IPC files: `<scan>.documents.<piece>.arrow`, one for each sixteenth of the id hashes that has
documents, `<scan>.index.arrow` (the same rows in the same batches, without the texts) and `<scan>.quarantine.arrow`. A
batch is a megabyte or so, its rows in the order of their id hashes, and a shard is a range of hashes: what
`documents_of` reads lies together, and what comes before a shard can be dropped (`drop_before`). `plan` adds
`winners.arrow`, one batch a shard, and `refused.arrow`. All names are relative to the spill folder, which may be
mounted anywhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.errors import DiskFull, StoreError, StoreNotWritable
from indexmill.store.tables import LOCATIONS
from schemas.corpus import CorpusSettings
from schemas.tables import DOCUMENTS, QUARANTINE, conform
from tasks.core.shards import SHARD_TOKENS, estimate_tokens, hash_order, id_hash, id_hashes, leaves
from tasks.stages.ingest.documents import FILE_FIELDS, Document, Location, Refusal, Row, clip, document_of
from tasks.stages.ingest.formats.readers import read
from tasks.stages.ingest.language import with_language
from tasks.stages.ingest.places.place import Deleted, PlaceError, Until
from tasks.stages.ingest.sources import RECORDS, TEXT_KINDS, SourceFile

__all__ = [
    "INDEX",
    "KNOWN",
    "Cut",
    "ScanResult",
    "Shard",
    "ShardPlan",
    "carry",
    "digest_of_documents",
    "document_ids",
    "documents_of",
    "drop_before",
    "drop_partial",
    "ids_of",
    "known_rows",
    "plan",
    "quarantine_of",
    "refused_of",
    "respill",
    "scan",
    "spilled_rows",
]

_INDEX_FIELDS: list[pa.Field[Any]] = [
    pa.field("document_id", pa.string(), nullable=False),
    pa.field("id_hash", pa.binary(32), nullable=False),
    pa.field("content_hash", pa.binary(32), nullable=False),
    pa.field("tokens", pa.int64(), nullable=False),  # estimated
    pa.field("size", pa.int64(), nullable=False),  # bytes of title and text
    pa.field("published", pa.bool_(), nullable=False),  # the last version has this very document
    pa.field("gone", pa.bool_(), nullable=False),  # no document: the id's rows before are no longer
    pa.field("file", pa.string(), nullable=False),
    pa.field("line", pa.int64()),
]
INDEX = pa.schema(_INDEX_FIELDS)
"""The row that `scan` stores for a document beside the document itself."""

KNOWN = pa.schema([one for one in _INDEX_FIELDS if one.name not in ("id_hash", "gone")])
"""What `carry` takes."""

_NOTHING = "0" * 64
"""The content hash of a row that takes earlier ones back."""

_PASSING = frozenset({"reader-failed", "unreadable-file"})
"""Reasons that may have been a matter of the moment: permissions, a network, memory that others took."""

_WINNERS_FIELDS: list[pa.Field[Any]] = [
    pa.field("document_id", pa.string(), nullable=False),
    pa.field("content_hash", pa.binary(32), nullable=False),
    pa.field("spilled", pa.string(), nullable=False),  # the file of the spill folder
    pa.field("batch", pa.int32(), nullable=False),
    pa.field("row", pa.int32(), nullable=False),
]
_WINNERS = pa.schema(_WINNERS_FIELDS)
_PLACED = pa.schema([*_WINNERS_FIELDS, *_INDEX_FIELDS[-2:]])
"""A row with its file and line in the corpus, which refusals name and no part stores."""
CARRIED = ""
"""Takes the place of a spill file's name where the document is that of the last version."""
_CARRIED_SCAN = "carried"
_KNOWN_FILE = "known.arrow"
_WINNERS_FILE = "winners.arrow"
_REFUSED_FILE = "refused.arrow"
_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 50_000
_LOCATION_BYTES = 256  # of one in memory
_GATHERED = 50_000  # winners whose ids are in memory at a time
_PIECE_BITS = 4  # of the id hash


@dataclass(frozen=True, slots=True)
class ScanResult:
    """A summary of a scan's files in the spill folder, small enough to be sent from a worker."""

    name: str
    files: tuple[str, ...]
    documents: int  # rows that are documents, repeated ids among them
    tokens: int
    refused: dict[str, int]  # by reason
    changed: tuple[str, ...]  # warning: files that changed while they were read; what was read is kept
    front_matter_left_out: tuple[str, ...] = ()  # warning: files whose front matter cannot be read
    unsure: tuple[str, ...] = ()  # files that another reading may find otherwise: the next version reads them again
    ordered: bool = False  # of rows with one id the last one counts: changes of a place with a cursor
    cursor: Any = None  # where the reading of a place of records ended
    whole: bool = True  # False: the rows are what changed since the cursor


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of the corpus as it is now."""

    label: str
    ordinal: int  # its batch among the winners
    documents: int
    tokens: int  # estimated
    digest: str  # digest_of_documents of its documents
    up_to: str  # digest_of_documents of its documents and those of all shards before it


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """All shards of a corpus, sorted by label, and counts of its rows."""

    shards: tuple[Shard, ...]
    fingerprint: str  # digest_of_documents of the whole corpus
    documents: int
    tokens: int
    repeats: int  # rows that repeat a document's id and content
    refused: dict[str, int]  # by reason, duplicate-id included
    changed: tuple[str, ...]
    scans: tuple[str, ...] = field(repr=False)
    forgotten: int = 0  # documents left out because they must be forgotten
    front_matter_left_out: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()  # files that were not read and have documents that the last version lacks
    with_forgotten: tuple[str, ...] = ()  # files that have documents to forget


@dataclass(frozen=True, slots=True)
class Cut:
    """The point where reading a file must end, before an unreadable row, and the reason."""

    rows: int  # read before that point, including refused ones
    reason: str
    detail: str


def scan(
    files: Sequence[SourceFile],
    settings: CorpusSettings,
    spill_folder: str | os.PathLike[str],
    *,
    cuts: Mapping[int, Cut] = MappingProxyType({}),
    position: list[int] | memoryview[int] | None = None,
) -> ScanResult:
    """Read some files into the spill folder; a second scan of the same files replaces the first.

    cuts: by the number of the file. position: updated with the number of the current file, and of its rows processed
    so far; -1 while errors are not caused by a file.

    Takes about 50 MB of memory plus the longest line. Raises DiskFull or StoreNotWritable for the spill folder; a file
    that cannot be read becomes a row of the quarantine.
    """
    name = _name_of(files)
    folder = Path(spill_folder)
    position = [-1, 0] if position is None else position
    changed: list[str] = []
    left_out: list[str] = []
    unsure: dict[str, None] = {}
    until: Until | None = None
    refused: Counter[str] = Counter()
    with _writing(name, folder) as (rows, quarantine):
        refusals: list[dict[str, Any]] = []
        for number, file in enumerate(files):
            position[1], position[0] = 0, number
            before = _state(file)
            fields = FILE_FIELDS if file.kind in TEXT_KINDS else settings.fields
            for row in _read(file, settings, cuts.get(number), position):
                if isinstance(row, Until):
                    until = row
                    continue
                if isinstance(row, Deleted):
                    rows.add_gone(row.document_id, file.name)
                    continue
                limits = (settings.max_document_bytes, settings.access)
                found = row if isinstance(row, Refusal) else document_of(row, fields, *limits)
                if isinstance(found, Document):
                    found = with_language(found) if "language" in settings.file_metadata else found
                    rows.add(found, file.name, row.line)
                    if isinstance(row, Row) and row.front_matter_left_out:
                        left_out.append(file.name)
                    continue
                if file.kind == RECORDS and found.document_id is not None:
                    rows.add_gone(found.document_id, file.name)
                if found.reason in _PASSING:
                    unsure[file.name] = None
                refused[found.reason] += 1
                refusals.append(_quarantined(file.name, found.line, found.document_id, found.reason, found.detail))
                if len(refusals) >= 4096:
                    quarantine.write_batch(pa.RecordBatch.from_pylist(refusals, schema=QUARANTINE))
                    refusals = []
            if file.kind == RECORDS and until is None:
                raise PlaceError(f"{file.name} was not read to its end; nothing of it is published: run again")
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
        tuple(left_out),
        tuple(unsure),
        ordered=until is not None and until.cursor is not None,
        cursor=None if until is None else until.cursor,
        whole=until is None or until.whole,
    )


def carry(
    rows: pa.Table, refusals: pa.Table, files: Mapping[str, bool], spill_folder: str | os.PathLike[str]
) -> ScanResult:
    """Take over what the last version read of files that have not changed, as if it were scanned now.

    rows: columns document_id, content_hash, tokens, size, published, file, line. refusals: schema QUARANTINE.
    files: the names of the files; True where front matter was left out. The texts stay where they are, in the last
    version: `documents_of` takes them from there.
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
    with _spilled(folder / f"{_CARRIED_SCAN}.index.arrow", INDEX) as index:
        for batch in whole.to_batches(max_chunksize=_BATCH_ROWS):
            index.write_batch(batch)
    with _spilled(folder / f"{_CARRIED_SCAN}.quarantine.arrow", QUARANTINE) as quarantine:
        for batch in refusals.to_batches():
            quarantine.write_batch(batch)
    refused = dict(Counter(refusals.column("reason").to_pylist()))
    left_out = tuple(sorted(name for name, without in files.items() if without))
    tokens = int(pc.sum(whole.column("tokens")).as_py() or 0)
    return ScanResult(_CARRIED_SCAN, tuple(sorted(files)), len(hashes), tokens, refused, (), left_out)


def respill(
    files: Sequence[SourceFile], read: pa.Table, refusals: pa.Table, spill_folder: str | os.PathLike[str]
) -> ScanResult:
    """Spill rows that a scan of some files found before: see `spilled_rows`.

    Files that may be found otherwise now are left out, and not among those of the result.
    """
    unsure = {row["file"] for row in refusals.to_pylist() if row["reason"] in _PASSING}
    files = [file for file in files if file.name not in unsure]
    names = tuple(file.name for file in files)
    sure = pa.array(names, pa.string())
    read, refusals = (table.filter(pc.is_in(table.column("file"), sure)) for table in (read, refusals))
    name, folder = _name_of(files), Path(spill_folder)
    with _writing(name, folder) as (rows, quarantine):
        for batch in read.to_batches(max_chunksize=1024):
            for row in batch.to_pylist():
                file = row.pop("file")
                places = tuple(
                    Location(one["start"], one["page"], _box(one["box"])) for one in row.pop("locations") or ()
                )
                size = len(row["title"].encode("utf-8")) + len(row["text"].encode("utf-8"))
                rows.add(Document(**row, size=size, locations=places), file, None)
        rows.flush()
        for batch in refusals.to_batches():
            quarantine.write_batch(batch)
    refused = Counter(refusals.column("reason").to_pylist())
    return ScanResult(name, names, rows.documents, rows.tokens, dict(refused), ())


def _box(held: Sequence[float] | None) -> tuple[float, float, float, float] | None:
    if held is None:
        return None
    left, top, right, bottom = held
    return left, top, right, bottom


def spilled_rows(result: ScanResult, spill_folder: str | os.PathLike[str]) -> tuple[pa.Table, pa.Table]:
    """The documents of a scan, with a column `file`, in the order of their hashes; and the refused rows."""
    folder = Path(spill_folder)
    pieces = [DOCUMENTS.empty_table()]
    files = [folder / _documents_file(result.name, piece) for piece in range(1 << _PIECE_BITS)]
    pieces += [_mapped(file).read_all() for file in files if file.exists()]
    index = _mapped(folder / f"{result.name}.index.arrow").read_all()
    documents = pa.concat_tables(pieces)
    documents = documents.take(pc.index_in(index.column("document_id"), documents.column("document_id")))
    refused = _mapped(folder / f"{result.name}.quarantine.arrow").read_all()
    return documents.append_column("file", index.column("file")), refused


def ids_of(result: ScanResult, spill_folder: str | os.PathLike[str]) -> pa.ChunkedArray:
    """The ids that a scan has rows of, those that are gone included."""
    return _mapped(Path(spill_folder) / f"{result.name}.index.arrow").read_all().column("document_id")


def drop_partial(files: Sequence[SourceFile], spill_folder: str | os.PathLike[str]) -> None:
    """Remove the partial files of a killed scan."""
    for file in Path(spill_folder).glob(f"{_name_of(files)}.*.partial"):
        file.unlink(missing_ok=True)


def plan(
    results: Iterable[ScanResult],
    spill_folder: str | os.PathLike[str],
    shard_tokens: int = SHARD_TOKENS,
    *,
    poison: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    forgotten: Collection[bytes] = (),
) -> ShardPlan:
    """Decide the documents and the shards of all scans together; the order of the results does not matter.

    poison: the reason and the detail of a refusal, by content hash; the corpus is planned without these rows.
    forgotten: the id hashes of documents to leave out, as if no row had their id. Raises
    DiskFull and StoreNotWritable as `scan` does.
    """
    scans = sorted(results, key=lambda result: (result.files, result.name))
    folder = Path(spill_folder)
    scanned = _ScannedRows([_mapped(folder / f"{result.name}.index.arrow") for result in scans])
    hashes, tokens = scanned.hashes_and_tokens()
    order = hash_order(hashes)
    order = order[scanned.live(order, hashes, [result.ordered for result in scans])]
    gone = 0
    holding: tuple[str, ...] = ()
    names = [result.name for result in scans]
    if forgotten:
        out = _numbers_of(forgotten, hashes)
        gone = len(np.unique(out[out >= 0]))
        holding = tuple(sorted(set(scanned.rows(np.flatnonzero(out >= 0), names).column("file").to_pylist())))
        order = order[out[order] < 0]
    poisonous = scanned.with_content(poison)
    poisonous = poisonous[np.isin(poisonous, order)]
    order = order[~np.isin(order, poisonous)]
    known = order
    winners, losers, keepers = _winners(hashes, order, scanned)
    lacking = scanned.write_known(folder, known, poisonous, winners, [result.name == _CARRIED_SCAN for result in scans])
    repeats = len(order) - len(winners) - len(losers)
    found = leaves(hashes, winners, tokens, shard_tokens)
    sums = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(tokens[winners])])
    del hashes, tokens, order
    shards: list[Shard] = []
    corpus = hashlib.sha256()
    with _spilled(folder / _WINNERS_FILE, _WINNERS) as spilled:
        for group in _grouped(found):
            first = group[0][1]
            rows = scanned.rows(winners[first : group[-1][2]], names).select(_WINNERS.names)
            for label, low, high in group:
                batch = rows.slice(low - first, high - low).combine_chunks().to_batches()[0]
                pairs = _pairs(_values(batch, "document_id"), _values(batch, "content_hash"))
                corpus.update(pairs)
                digest = hashlib.sha256(pairs).hexdigest()
                held = int(sums[high] - sums[low])
                shards.append(Shard(label, len(shards), high - low, held, digest, corpus.hexdigest()))
                spilled.write_batch(batch)
    refused = sum((Counter(result.refused) for result in scans), Counter({"duplicate-id": len(losers)}))
    with _spilled(folder / _REFUSED_FILE, QUARANTINE) as spilled:
        for batch in _duplicates(losers, keepers, scanned, names):
            spilled.write_batch(batch)
        for row in scanned.rows(poisonous, names).to_pylist():
            reason, detail = poison[row["content_hash"].hex()]
            refused[reason] += 1
            refusal = _quarantined(row["file"], row["line"], clip(row["document_id"]), reason, detail)
            spilled.write_batch(pa.RecordBatch.from_pylist([refusal], schema=QUARANTINE))
    changed = tuple(name for result in scans for name in result.changed)
    return ShardPlan(
        tuple(shards),
        corpus.hexdigest(),
        len(winners),
        int(sums[-1]),
        repeats,
        dict(sorted((+refused).items())),
        changed,
        tuple(names),
        gone,
        tuple(name for result in scans for name in result.front_matter_left_out),
        lacking,
        holding,
    )


def known_rows(spill_folder: str | os.PathLike[str]) -> pa.Table:
    """Every row of the corpus as it was planned, for the next version: the columns that `carry` takes."""
    return _mapped(Path(spill_folder) / _KNOWN_FILE).read_all()


def documents_of(
    shard: Shard, spill_folder: str | os.PathLike[str], before: Callable[[], Iterable[pa.Table]] = tuple
) -> pa.Table:
    """The documents of a shard: schemas.tables.DOCUMENTS, sorted by id, as Unicode code points.

    before: the documents of the last version that may be among them. Raises StoreError if the shard was not planned
    from this spill, or a document is missing in the last version.
    """
    folder = Path(spill_folder)
    try:
        table = _read_rows(_winners_of(shard, folder), folder, before)
        found = digest_of_documents(_values(table, "document_id"), _values(table, "content_hash"))
    except (pa.ArrowException, ValueError, IndexError) as error:
        found = f"{type(error).__name__}: {error}"
    if found != shard.digest:
        raise StoreError(
            f"the spill folder {folder} does not hold shard {shard.label} as it was planned "
            f"(found {found}, expected {shard.digest}): scan and plan again"
        )
    return table


def document_ids(spill_folder: str | os.PathLike[str]) -> pa.ChunkedArray:
    """The ids of all documents of the corpus as it was planned, in the order of the shards."""
    return _mapped(Path(spill_folder) / _WINNERS_FILE).read_all().column("document_id")


def drop_before(shard: Shard, spill_folder: str | os.PathLike[str]) -> None:
    """Remove the spill files whose documents all belong to shards before this one."""
    first = int((shard.label[1:] + "0" * _PIECE_BITS)[:_PIECE_BITS], 2)
    for piece in range(first):
        for file in Path(spill_folder).glob(_documents_file("*", piece)):
            file.unlink(missing_ok=True)


def quarantine_of(planned: ShardPlan, spill_folder: str | os.PathLike[str]) -> pa.Table:
    """Every refused row: schemas.tables.QUARANTINE, sorted by file, line, reason and id."""
    folder = Path(spill_folder)
    files = [folder / _REFUSED_FILE, *(folder / f"{name}.quarantine.arrow" for name in planned.scans)]
    table = pa.concat_tables(_mapped(file).read_all() for file in files)
    return conform(
        table.sort_by([(name, "ascending") for name in ("file", "line", "reason", "document_id")]), QUARANTINE
    )


def refused_of(planned: ShardPlan, spill_folder: str | os.PathLike[str]) -> pa.Table:
    """The rows that were refused for what they are (schema QUARANTINE), whatever other rows or stages say."""
    files = [Path(spill_folder) / f"{name}.quarantine.arrow" for name in planned.scans]
    return conform(
        pa.concat_tables([QUARANTINE.empty_table(), *(_mapped(file).read_all() for file in files)]), QUARANTINE
    )


def digest_of_documents(document_ids: Sequence[str], content_hashes: Sequence[str]) -> str:
    """SHA-256 over the (document id, content hash) pairs in the order of SHA-256(id), for a set of documents.

    A pair is the length of the id's UTF-8 as 8 bytes little-endian, the id, and the 32 bytes of the hash. In this order
    the pairs of a corpus are the concatenated pairs of its shards.
    """
    pairs = sorted(zip(document_ids, content_hashes, strict=True), key=lambda pair: id_hash(pair[0]))
    return hashlib.sha256(_pairs([name for name, _ in pairs], [bytes.fromhex(hash_) for _, hash_ in pairs])).hexdigest()


def _name_of(files: Sequence[SourceFile]) -> str:
    paths = "\n".join(f"{file.source}\n{file.path}" for file in files)
    return "scan-" + hashlib.sha256(os.fsencode(paths)).hexdigest()[:24]


def _read(
    file: SourceFile, settings: CorpusSettings, cut: Cut | None, position: list[int] | memoryview[int]
) -> Iterator[Row | Refusal | Deleted | Until]:
    """The rows of a file up to its cut. The position advances when the consumer asks for the next row."""
    line = None
    for number, row in enumerate(islice(read(file, settings), cut.rows if cut else None), 1):
        line = row.line if isinstance(row, Row | Refusal) else line
        yield row
        position[1] = number
    if cut is not None:
        where = "" if line is None else f"after line {line}: "
        document_id = file.document_name if file.kind in TEXT_KINDS else None
        yield Refusal(None, document_id, cut.reason, where + cut.detail)


def _pairs(document_ids: list[str], content_hashes: list[bytes]) -> bytes:
    pieces: list[bytes] = []
    for document_id, content_hash in zip(document_ids, content_hashes, strict=True):
        name = document_id.encode("utf-8")
        pieces += (len(name).to_bytes(8, "little"), name, content_hash)
    return b"".join(pieces)


def _read_rows(winners: pa.RecordBatch, folder: Path, before: Callable[[], Iterable[pa.Table]]) -> pa.Table:
    """The documents of some winners, sorted by UTF-8 bytes, which is the order of code points."""
    places: dict[str, dict[int, list[int]]] = {}
    for spilled, batch, row in zip(*(_values(winners, name) for name in ("spilled", "batch", "row")), strict=True):
        places.setdefault(spilled, {}).setdefault(batch, []).append(row)
    pieces: list[pa.RecordBatch] = []
    if places.pop(CARRIED, None):
        carried = winners.filter(pc.equal(winners.column("spilled"), CARRIED)).column("document_id")
        for table in before():
            pieces += table.filter(pc.is_in(table.column("document_id"), carried)).to_batches()
    for spilled, in_batches in sorted(places.items()):
        with _mapped(folder / spilled) as file:
            for batch, rows in sorted(in_batches.items()):
                pieces.append(file.get_batch(batch).take(pa.array(rows, pa.int32())))
    table = conform(pa.Table.from_batches(pieces, DOCUMENTS), DOCUMENTS)
    return table.take(pc.sort_indices(table.column("document_id"))).combine_chunks()


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
        """Take back the rows of an id that came before."""
        nothing = Document(document_id, "", "", None, "{}", _NOTHING, 0)
        self._waiting.append((id_hash(document_id), nothing, file, None))
        if len(self._waiting) >= _BATCH_ROWS:
            self.flush()

    def flush(self) -> None:
        held = sorted(self._waiting, key=lambda row: row[0])  # stable: rows of one id stay in their order
        self._waiting, self._size = [], 0
        for piece, rows in groupby(held, key=lambda row: _piece(row[0])):
            self._write(list(rows), self._documents(piece))

    def _write(self, held: list[tuple[bytes, Document, str, int | None]], writer: pa.ipc.RecordBatchFileWriter) -> None:
        hashes, documents, files, lines = zip(*held, strict=True)
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


class _ScannedRows:
    """The rows of all scans, numbered consecutively by scan, batch and row."""

    def __init__(self, files: list[pa.ipc.RecordBatchFileReader]) -> None:
        self._files = files
        self._batches = [(scan, batch) for scan, file in enumerate(files) for batch in range(file.num_record_batches)]
        sizes: list[int] = []
        self._spilled: list[tuple[int, int]] = []  # of each batch: its piece, and its number there
        in_piece: Counter[tuple[int, int]] = Counter()
        for scan, batch in self._batches:
            hashes = files[scan].get_batch(batch).column("id_hash")
            piece = _piece(hashes[0].as_py())
            sizes.append(len(hashes))
            self._spilled.append((piece, in_piece[scan, piece]))
            in_piece[scan, piece] += 1
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    def hashes_and_tokens(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        total = int(self._starts[-1])
        hashes, tokens = np.empty((total, 32), dtype=np.uint8), np.empty(total, dtype=np.int64)
        for (scan, batch), start in zip(self._batches, self._starts.tolist(), strict=False):
            read = self._files[scan].get_batch(batch)
            hashes[start : start + read.num_rows] = _bytes(read.column("id_hash"))
            tokens[start : start + read.num_rows] = read.column("tokens").to_numpy()
        return hashes, tokens

    def live(self, order: NDArray[np.int64], hashes: NDArray[np.uint8], ordered: list[bool]) -> NDArray[np.bool_]:
        """Which rows, in the order of their hashes, are documents, and no later row of their scan replaces them.

        ordered: by scan, True if later rows of an id replace earlier ones, and take them back where they are gone.
        """
        gone = np.concatenate([np.empty(0, dtype=bool), *(self._column(batch, "gone") for batch in self._batches)])
        lives: NDArray[np.bool_] = ~gone
        if any(ordered):
            scans = np.repeat([scan for scan, _ in self._batches], np.diff(self._starts)).astype(np.int64)
            by_scan = order[np.lexsort((np.arange(len(order)), scans[order]))]
            follows = np.zeros(len(order), dtype=bool)  # the next row is of the same scan and id
            if len(order) > 1:
                same = (hashes[by_scan[1:]] == hashes[by_scan[:-1]]).all(axis=1)
                follows[:-1] = same & (scans[by_scan[1:]] == scans[by_scan[:-1]])
            lives[by_scan] &= ~(follows & np.array(ordered, dtype=bool)[scans[by_scan]])
        return lives[order]

    def write_known(
        self,
        folder: Path,
        rows: NDArray[np.int64],
        poisonous: NDArray[np.int64],
        winners: NDArray[np.int64],
        carried: list[bool],
    ) -> tuple[str, ...]:
        """Write rows that are known now, for the next version.

        Returns the files whose documents are in this version, were not read for it, and not in the last one either.
        """
        wins = np.zeros(int(self._starts[-1]), dtype=bool)
        wins[winners] = True
        stays = np.zeros(len(wins), dtype=bool)
        stays[rows] = stays[poisonous] = True
        lacking: set[str] = set()
        with _spilled(folder / _KNOWN_FILE, KNOWN) as spilled:
            for (scan, batch), start, end in zip(self._batches, self._starts, self._starts[1:], strict=False):
                read = self._files[scan].get_batch(batch)
                if carried[scan]:
                    needed = wins[start:end] & ~self._column((scan, batch), "published")
                    lacking.update(read.column("file").filter(pa.array(needed)).to_pylist())
                columns = {name: read.column(name) for name in KNOWN.names} | {"published": pa.array(wins[start:end])}
                marked = pa.RecordBatch.from_arrays(list(columns.values()), schema=KNOWN)
                spilled.write_batch(marked.filter(pa.array(stays[start:end])))
        return tuple(sorted(lacking))

    def _column(self, batch: tuple[int, int], name: str) -> NDArray[np.bool_]:
        column = self._files[batch[0]].get_batch(batch[1]).column(name)
        return np.asarray(column.to_numpy(zero_copy_only=False), dtype=bool)

    def content_hashes(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        hashes = np.empty((len(rows), 32), dtype=np.uint8)
        for number, at, within in self._by_batch(rows):
            scan, batch = self._batches[number]
            hashes[at] = _bytes(self._files[scan].get_batch(batch).column("content_hash"))[within]
        return hashes

    def with_content(self, hashes: Iterable[str]) -> NDArray[np.int64]:
        """The rows whose content hash is one of these."""
        wanted = pa.array([bytes.fromhex(one) for one in hashes], pa.binary(32))
        found = [np.empty(0, dtype=np.int64)]
        if len(wanted):
            for (scan, batch), start in zip(self._batches, self._starts.tolist(), strict=False):
                same = pc.is_in(self._files[scan].get_batch(batch).column("content_hash"), value_set=wanted)
                found.append(start + np.flatnonzero(same.to_numpy(zero_copy_only=False)))
        return np.concatenate(found)

    def rows(self, rows: NDArray[np.int64], names: list[str]) -> pa.Table:
        """The table (schema _PLACED) of some rows, in their order."""
        pieces: list[pa.Table] = []
        taken: list[NDArray[np.int64]] = []
        for number, at, within in self._by_batch(rows):
            (scan, batch), (piece, in_piece) = self._batches[number], self._spilled[number]
            known = self._files[scan].get_batch(batch).take(pa.array(within, pa.int64()))
            file = CARRIED if names[scan] == _CARRIED_SCAN else _documents_file(names[scan], piece)
            place: dict[str, Any] = {"spilled": [file] * len(at), "batch": [in_piece] * len(at), "row": within}
            columns = place | {name: known.column(name) for name in _PLACED.names if name not in place}
            pieces.append(pa.table(columns, schema=_PLACED))
            taken.append(at)
        if not pieces:
            return _PLACED.empty_table()
        return pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(taken))))

    def _by_batch(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (batch, positions in `rows`, rows of the batch) for each batch that contains some of the rows."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(batches, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(batches[order])) + 1):
            if len(group):
                number = int(batches[group[0]])
                yield number, group, rows[group] - self._starts[number]


def _winners(
    hashes: NDArray[np.uint8], order: NDArray[np.int64], scanned: _ScannedRows
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return (winners, losers, keepers): for each id the first row with the smallest content hash, in the order of the
    id hashes; the rows with another content; and the winner of each loser.
    """
    same = np.zeros(len(order), dtype=bool)  # the row has the id of the row before
    step = 1 << 20
    for low in range(1, len(order), step):
        high = min(low + step, len(order))
        same[low:high] = (hashes[order[low:high]] == hashes[order[low - 1 : high - 1]]).all(axis=1)
    several = same.copy()
    several[:-1] |= same[1:]
    positions = np.flatnonzero(several)
    if not positions.size:
        return order, order[:0], order[:0]
    contents = scanned.content_hashes(order[positions])
    ids = np.cumsum(~same[positions])  # the rows of an id share a number
    words = [np.ascontiguousarray(contents[:, at : at + 8]).view(">u8").reshape(-1) for at in (24, 16, 8, 0)]
    by_content = np.lexsort([order[positions], *words, ids])
    firsts = np.ones(len(positions), dtype=bool)
    firsts[1:] = np.diff(ids[by_content]) > 0
    best = by_content[np.maximum.accumulate(np.where(firsts, np.arange(len(positions)), 0))]
    other = (contents[by_content] != contents[best]).any(axis=1)
    kept = ~several
    kept[positions[~same[positions]]] = True  # one place for each id, in order ...
    winners = order.copy()
    winners[positions[~same[positions]]] = order[positions[by_content[firsts]]]  # ... taken by its winner
    return winners[kept], order[positions[by_content[other]]], order[positions[best[other]]]


def _numbers_of(forgotten: Collection[bytes], hashes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The index of each row's id among the sorted forgotten ids, -1 for ids that are not forgotten."""
    wanted = np.frombuffer(b"".join(sorted(forgotten)), dtype="S32")
    rows = hashes.reshape(-1).view("S32")
    at = np.minimum(np.searchsorted(wanted, rows), wanted.size - 1)
    return np.where(wanted[at] == rows, at, -1).astype(np.int64)


def _duplicates(
    losers: NDArray[np.int64], keepers: NDArray[np.int64], scanned: _ScannedRows, names: list[str]
) -> Iterator[pa.RecordBatch]:
    """The quarantine rows of ids with several contents."""
    for low in range(0, len(losers), _GATHERED):
        lost, kept = (scanned.rows(rows[low : low + _GATHERED], names).to_pylist() for rows in (losers, keepers))
        refused = []
        for row, other in zip(lost, kept, strict=True):
            line = "" if other["line"] is None else f", line {other['line']}"
            detail = f"kept is {other['file']}{line}, with another content: the smallest content hash stays"
            refused.append(_quarantined(row["file"], row["line"], clip(row["document_id"]), "duplicate-id", detail))
        yield pa.RecordBatch.from_pylist(refused, schema=QUARANTINE)


def _grouped(found: list[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, int]]]:
    """The leaves in runs of about _GATHERED rows."""
    group: list[tuple[str, int, int]] = []
    for leaf in found:
        group.append(leaf)
        if leaf[2] - group[0][1] >= _GATHERED:
            yield group
            group = []
    if group:
        yield group


def _places(document: Document) -> list[dict[str, Any]] | None:
    """The locations of a document as its table holds them."""
    return [{"start": one.start, "page": one.page, "box": one.box} for one in document.locations] or None


def _piece(id_hash: bytes) -> int:
    return id_hash[0] >> 8 - _PIECE_BITS


def _documents_file(scan: str, piece: int) -> str:
    return f"{scan}.documents.{piece:x}.arrow"


def _winners_of(shard: Shard, folder: Path) -> pa.RecordBatch:
    file = _mapped(folder / _WINNERS_FILE)
    if shard.ordinal >= file.num_record_batches:
        raise StoreError(f"the spill folder {folder} has no shard {shard.label}: scan and plan again")
    return file.get_batch(shard.ordinal)


def _quarantined(file: str, line: int | None, document_id: str | None, reason: str, detail: str) -> dict[str, Any]:
    return {"file": file, "line": line, "document_id": document_id, "reason": reason, "detail": detail}


def _values(table: pa.Table | pa.RecordBatch, name: str) -> list[Any]:
    return list(table.column(name).to_pylist())


def _bytes(column: pa.Array[Any]) -> NDArray[np.uint8]:
    """A column of hashes as an (n, 32) uint8 array, without a copy."""
    data: NDArray[np.uint8] = np.frombuffer(memoryview(column.buffers()[1] or b""), dtype=np.uint8)
    return data[32 * column.offset : 32 * (column.offset + len(column))].reshape(-1, 32)


def _state(file: SourceFile) -> tuple[int, int] | None:
    try:
        status = Path(file.path).stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _mapped(path: Path) -> pa.ipc.RecordBatchFileReader:
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"the spill file {path} cannot be read ({error}): scan and plan again") from error


@contextmanager
def _writing(name: str, folder: Path) -> Iterator[tuple[_SpillWriter, pa.ipc.RecordBatchFileWriter]]:
    """The writers of a scan: of its rows, and of what it refuses."""
    with (
        _spilled(folder / f"{name}.index.arrow", INDEX) as index,
        _spilled(folder / f"{name}.quarantine.arrow", QUARANTINE) as quarantine,
        ExitStack() as pieces,
    ):

        @cache
        def documents(piece: int) -> pa.ipc.RecordBatchFileWriter:
            return pieces.enter_context(_spilled(folder / _documents_file(name, piece), DOCUMENTS))

        yield _SpillWriter(documents, index), quarantine


@contextmanager
def _spilled(path: Path, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
    """A writer whose file gets its name once complete; after an error nothing of it remains."""
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
        with os.fdopen(handle, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            yield writer
        Path(temporary).replace(path)
    except OSError as error:
        needed = "documents are spilled there: free about the size of the corpus, uncompressed"
        advice = f"{needed}, and run again: nothing is lost, and the next run goes on"
        if (full := DiskFull.of(error, path.parent, advice)) is not None:
            raise full from error
        said = f"cannot spill documents to {path.parent}: {error.strerror or error}"
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT):
            raise StoreNotWritable(f"{said}. Permission is needed there") from error
        raise
    finally:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
