"""Plans a corpus: selects its documents among the scanned rows, and divides them into shards.

`plan` reads only ids, hashes and sizes, about a hundred bytes a document. `documents_of` reads one shard's winners from
the memory-mapped spill, on any worker. A shard is a range of id hashes: the input of `documents_of` is contiguous, and
the spill before a shard can be dropped (`drop_before`).

**One id, several rows.** Rows with the same id and content are one document, however often and wherever they occur. Of
rows with the same id and different contents, the one with the smallest content hash is the document, and the others are
rejected as `duplicate-id`. The choice is arbitrary, but depends neither on the order of rows nor on the order of files,
so that the same corpus yields the same index.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.errors import StoreError
from schemas.tables import DOCUMENTS, QUARANTINE, conform
from tasks.core.shards import hash_order, id_hash, leaves
from tasks.stages.ingest import spill_files
from tasks.stages.ingest.documents import clip
from tasks.stages.ingest.file_counts import FileCounts
from tasks.stages.ingest.spill import ScanResult
from tasks.stages.ingest.spill_files import (
    CARRIED_ROW,
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

_PLACED = pa.schema(
    [
        INDEX.field("document_id"),
        INDEX.field("content_hash"),
        pa.field("spilled", pa.string(), nullable=False),  # the file in the spill folder
        pa.field("batch", pa.int32(), nullable=False),
        pa.field("row", pa.int32(), nullable=False),
        INDEX.field("file"),
        INDEX.field("line"),
    ]
)
"""A row of the spill. The row's file and line in the corpus are for rejections; no part stores them."""

_WINNERS = pa.schema(list(_PLACED)[:5])

_CARRIED = ""
"""Replaces the name of the spill file if the document comes from the previous version."""

_KNOWN_FILE = "known.arrow"
_WINNERS_FILE = "winners.arrow"
_REFUSED_FILE = "refused.arrow"
_GATHERED = 50_000  # winners whose ids are in memory at a time
_COMPARED = 1 << 20  # id hashes compared at a time with the previous hashes


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of the corpus as planned."""

    label: str
    ordinal: int  # its batch in the file of winners
    documents: int
    tokens: int  # estimated
    digest: str  # `digest_of_documents` of the shard
    up_to: str  # `digest_of_documents` of this shard and all shards before it


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """All shards of a corpus, sorted by label, and counts of its rows."""

    shards: tuple[Shard, ...]
    fingerprint: str  # `digest_of_documents` of the whole corpus
    documents: int
    tokens: int
    repeats: int  # rows that repeat a document's id and content
    refused: dict[str, int]  # counts by reason, including duplicate-id
    changed: tuple[str, ...]
    scans: tuple[str, ...] = field(repr=False)
    forgotten: int = 0  # documents left out because they must be forgotten
    counts: Mapping[str, FileCounts] = field(default_factory=dict)  # by file
    lacking: tuple[str, ...] = ()  # unread files with documents that the previous version lacks
    with_forgotten: tuple[str, ...] = ()  # files with documents to forget


def plan(
    results: Iterable[ScanResult],
    spill_folder: str | os.PathLike[str],
    shard_tokens: int = 128_000,  # as in the settings, which builds pass
    *,
    poison: Mapping[str, tuple[str, str]] = MappingProxyType({}),
    forgotten: Collection[bytes] = (),
) -> ShardPlan:
    """Select the documents of all scans, and plan the shards; the order of the results does not matter.

    poison: the reason and the detail of a rejection, by content hash; the corpus is planned without these rows.
    forgotten: the id hashes of documents to leave out, as if no row had their id. Raises DiskFull and StoreNotWritable
    as `scan` does.
    """
    scans = sorted(results, key=lambda result: (result.files, result.name))
    folder = Path(spill_folder)
    scanned = _ScannedRows(scans, folder)
    hashes, tokens = scanned.hashes_and_tokens()
    order = hash_order(hashes)
    order = order[scanned.live(order, hashes)]
    gone = 0
    holding: set[str] = set()
    if forgotten:
        out = _numbers_of(forgotten, hashes)
        left_out = np.sort(order[out[order] >= 0])
        gone = len(np.unique(out[left_out]))
        holding = set(scanned.rows(left_out).column("file").to_pylist())
        order = order[out[order] < 0]
    poisonous = scanned.with_content(poison)
    poisonous = poisonous[np.isin(poisonous, order)]
    order = order[~np.isin(order, poisonous)]
    winners, losers, keepers = _winners(hashes, order, scanned)
    lacking = scanned.write_known(folder, order, poisonous, winners)
    repeats = len(order) - len(winners) - len(losers)
    shard_leaves = leaves(hashes, winners, tokens, shard_tokens)
    tokens = tokens[winners]
    del hashes, order
    shards: list[Shard] = []
    corpus = hashlib.sha256()
    with writing(folder / _WINNERS_FILE, _WINNERS) as spilled:
        for _, leaf_group in groupby(shard_leaves, lambda leaf: leaf[1] // _GATHERED):
            group = list(leaf_group)
            first = group[0][1]
            rows = scanned.rows(winners[first : group[-1][2]]).select(_WINNERS.names)
            for label, low, high in group:
                batch = rows.slice(low - first, high - low).combine_chunks().to_batches()[0]
                pairs = _pairs(_values(batch, "document_id"), _values(batch, "content_hash"))
                corpus.update(pairs)
                digest = hashlib.sha256(pairs).hexdigest()
                estimated = int(tokens[low:high].sum())
                shards.append(Shard(label, len(shards), high - low, estimated, digest, corpus.hexdigest()))
                spilled.write_batch(batch)
    refused = sum((Counter(result.refused) for result in scans), Counter({"duplicate-id": len(losers)}))
    with writing(folder / _REFUSED_FILE, QUARANTINE) as spilled:
        for batch in _duplicates(losers, keepers, scanned):
            spilled.write_batch(batch)
        for row in scanned.rows(poisonous).to_pylist():
            reason, detail = poison[row["content_hash"].hex()]
            refused[reason] += 1
            refusal = quarantine_row(row["file"], row["line"], clip(row["document_id"]), reason, detail)
            spilled.write_batch(pa.RecordBatch.from_pylist([refusal], schema=QUARANTINE))
    changed = tuple(name for result in scans for name in result.changed)
    return ShardPlan(
        tuple(shards),
        corpus.hexdigest(),
        len(winners),
        int(tokens.sum()),
        repeats,
        dict(sorted((+refused).items())),
        changed,
        tuple(result.name for result in scans),
        gone,
        {name: counts for result in sorted(scans, key=_is_scanned) for name, counts in result.counts.items()},
        lacking,
        tuple(sorted(holding)),
    )


def _is_scanned(result: ScanResult) -> bool:
    """Return whether the counts of a scan go before those of the previous version, of a source read since a cursor."""
    return result.name != CARRIED_SCAN


def known_rows(spill_folder: str | os.PathLike[str]) -> pa.Table:
    """Return every planned row of the corpus, for the next version, with the columns that `carry` needs."""
    return open_spilled(Path(spill_folder) / _KNOWN_FILE).read_all()


def documents_of(shard: Shard, spill_folder: str | os.PathLike[str], before: Iterable[pa.Table] = ()) -> pa.Table:
    """Return the documents of a shard: schemas.tables.DOCUMENTS, in the order of the hashes of their ids.

    before: tables of the previous version that may contain some of these documents, read only if needed. Raises
    StoreError if the shard was not planned from this spill, or the previous version lacks a document.
    """
    folder = Path(spill_folder)
    try:
        winners = open_spilled(folder / _WINNERS_FILE).get_batch(shard.ordinal)
        table = _read_rows(winners, folder, before)
        digest = digest_of_documents(_values(table, "document_id"), _values(table, "content_hash"))
    except (pa.ArrowException, ValueError, IndexError) as error:
        digest = f"{type(error).__name__}: {error}"
    if digest != shard.digest:
        raise StoreError(
            f"the spill folder {folder} does not contain shard {shard.label} as planned "
            f"(found {digest}, expected {shard.digest}): scan and plan again"
        )
    return table


def document_ids(spill_folder: str | os.PathLike[str]) -> pa.ChunkedArray:
    """Return the ids of all planned documents of the corpus, in the order of the shards."""
    return open_spilled(Path(spill_folder) / _WINNERS_FILE).read_all().column("document_id")


def drop_before(shard: Shard, spill_folder: str | os.PathLike[str]) -> None:
    """Remove the spill files whose documents all belong to shards before this shard."""
    first = int((shard.label[1:] + "0" * spill_files.PIECE_BITS)[: spill_files.PIECE_BITS], 2)
    for piece in range(first):
        for file in Path(spill_folder).glob(documents_file("*", piece)):
            file.unlink(missing_ok=True)


def quarantine_of(planned: ShardPlan, spill_folder: str | os.PathLike[str]) -> pa.Table:
    """Return every rejected row: schemas.tables.QUARANTINE, sorted by file, line, reason and id."""
    of_plan = open_spilled(Path(spill_folder) / _REFUSED_FILE).read_all()
    table = pa.concat_tables([of_plan, refused_of(planned, spill_folder)])
    return table.sort_by([(name, "ascending") for name in ("file", "line", "reason", "document_id")])


def refused_of(planned: ShardPlan, spill_folder: str | os.PathLike[str]) -> pa.Table:
    """Return the rows that scans rejected (schema QUARANTINE); duplicates and poison documents are not included."""
    files = [Path(spill_folder) / quarantine_file(name) for name in planned.scans]
    return pa.concat_tables([QUARANTINE.empty_table(), *(open_spilled(file).read_all() for file in files)])


def digest_of_documents(document_ids: Sequence[str], content_hashes: Sequence[str]) -> str:
    """Return the SHA-256 of the (document id, content hash) pairs of a set of documents, in the order of SHA-256(id).

    A pair is the length of the id's UTF-8 as 8 bytes little-endian, the id, and the 32 bytes of the hash. In this order
    the pairs of a corpus are the concatenated pairs of its shards.
    """
    pairs = sorted(zip(document_ids, content_hashes, strict=True), key=lambda pair: id_hash(pair[0]))
    return hashlib.sha256(_pairs([name for name, _ in pairs], [bytes.fromhex(hash_) for _, hash_ in pairs])).hexdigest()


def _pairs(document_ids: list[str], content_hashes: list[bytes]) -> bytes:
    pieces: list[bytes] = []
    for document_id, content_hash in zip(document_ids, content_hashes, strict=True):
        name = document_id.encode("utf-8")
        pieces += (len(name).to_bytes(8, "little"), name, content_hash)
    return b"".join(pieces)


def _read_rows(winners: pa.RecordBatch, folder: Path, before: Iterable[pa.Table]) -> pa.Table:
    opened = cache(lambda spilled: open_spilled(folder / spilled))
    places: dict[tuple[str, int], list[int]] = {}
    for spilled, batch, row in zip(*(_values(winners, name) for name in ("spilled", "batch", "row")), strict=True):
        places.setdefault((spilled, batch), []).append(row)
    pieces: list[pa.RecordBatch] = []
    carried = winners.filter(pc.equal(winners.column("spilled"), _CARRIED)).column("document_id")
    for table in before if len(carried) else ():
        pieces += table.filter(pc.is_in(table.column("document_id"), carried)).to_batches()
    for (spilled, batch), rows in sorted(places.items()):
        if spilled != _CARRIED:
            pieces.append(opened(spilled).get_batch(batch).take(pa.array(rows, pa.int32())))
    table = conform(pa.Table.from_batches(pieces, DOCUMENTS), DOCUMENTS)
    rows = pc.index_in(winners.column("document_id"), table.column("document_id").combine_chunks())
    if rows.null_count:
        raise ValueError(f"{rows.null_count} documents are missing")
    return table.take(rows).combine_chunks()


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch of a scan's index. spilled, number: the file with the documents, and the batch's number in that file."""

    scan: int
    rows: pa.RecordBatch  # memory-mapped
    spilled: str
    number: int


class _ScannedRows:
    """The rows of all scans, numbered consecutively by scan, batch and row."""

    def __init__(self, scans: list[ScanResult], folder: Path) -> None:
        self._scans = scans
        self._batches: list[_Batch] = []
        numbers: Counter[str] = Counter()
        for scan, result in enumerate(scans):
            index = open_spilled(folder / index_file(result.name))
            for rows in map(index.get_batch, range(index.num_record_batches)):
                piece = piece_of(rows.column("id_hash")[0].as_py())
                spilled = _CARRIED if result.name == CARRIED_SCAN else documents_file(result.name, piece)
                self._batches.append(_Batch(scan, rows, spilled, numbers[spilled]))
                numbers[spilled] += 1
        sizes = [batch.rows.num_rows for batch in self._batches]
        self._starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    def hashes_and_tokens(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        hashes = [_bytes(batch.rows.column("id_hash")) for batch in self._batches]
        tokens = [batch.rows.column("tokens").to_numpy() for batch in self._batches]
        nothing = np.empty((0, 32), dtype=np.uint8), np.empty(0, dtype=np.int64)
        return np.concatenate([nothing[0], *hashes]), np.concatenate([nothing[1], *tokens])

    def live(self, order: NDArray[np.int64], hashes: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return a mask, in the order of the hashes: False for rows that a later row of the scan replaces or cancels.

        Only in a scan of a source with a cursor do later rows of an id replace or cancel earlier rows.
        """
        lives = ~self._mask(lambda batch: batch.column("gone"))
        ordered = np.array([scan.until.cursor is not None for scan in self._scans], dtype=bool)
        if ordered.any():
            scans = np.repeat([batch.scan for batch in self._batches], np.diff(self._starts)).astype(np.int64)
            by_scan = order[np.lexsort((np.arange(len(order)), scans[order]))]
            repeats = _repeats_id(hashes, by_scan)
            repeats[1:] &= scans[by_scan[1:]] == scans[by_scan[:-1]]
            follows = np.roll(repeats, -1)  # the next row has the same scan and id
            lives[by_scan] &= ~(follows & ordered[scans[by_scan]])
        return lives[order]

    def write_known(
        self, folder: Path, rows: NDArray[np.int64], poisonous: NDArray[np.int64], winners: NDArray[np.int64]
    ) -> tuple[str, ...]:
        """Write the rows of this corpus, for the next version.

        Returns the unchanged files that must be read after all: the previous version does not store documents that this
        version takes from them.
        """
        wins = np.zeros(int(self._starts[-1]), dtype=bool)
        wins[winners] = True
        stays = np.zeros(len(wins), dtype=bool)
        stays[rows] = stays[poisonous] = True
        lacking: set[str] = set()
        published = CARRIED_ROW.get_field_index("published")
        with writing(folder / _KNOWN_FILE, CARRIED_ROW) as spilled:
            for batch, start, end in zip(self._batches, self._starts, self._starts[1:], strict=False):
                is_document = pa.array(wins[start:end])
                if batch.spilled == _CARRIED:
                    needed = pc.and_not(is_document, batch.rows.column("published"))
                    lacking.update(batch.rows.column("file").filter(needed).to_pylist())
                planned = batch.rows.select(CARRIED_ROW.names)
                planned = planned.set_column(published, CARRIED_ROW.field(published), is_document)
                spilled.write_batch(planned.filter(pa.array(stays[start:end])))
        return tuple(sorted(lacking))

    def content_hashes(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        hashes = np.empty((len(rows), 32), dtype=np.uint8)
        for batch, at, within in self._by_batch(rows):
            hashes[at] = _bytes(batch.rows.column("content_hash"))[within]
        return hashes

    def with_content(self, hashes: Iterable[str]) -> NDArray[np.int64]:
        requested = pa.array([bytes.fromhex(hash_) for hash_ in hashes], pa.binary(32))
        if not len(requested):
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self._mask(lambda rows: pc.is_in(rows.column("content_hash"), value_set=requested)))

    def rows(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return the table (schema _PLACED) of some rows, in the order of `rows`."""
        pieces: list[pa.Table] = [_PLACED.empty_table()]
        positions: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
        for batch, at, within in self._by_batch(rows):
            picked = dict(zip(INDEX.names, batch.rows.take(pa.array(within, pa.int64())).columns, strict=True))
            place = {"spilled": [batch.spilled] * len(at), "batch": [batch.number] * len(at), "row": within}
            pieces.append(pa.table(picked | place, schema=_PLACED))
            positions.append(at)
        return pa.concat_tables(pieces).take(pa.array(np.argsort(np.concatenate(positions))))

    def _mask(self, of_batch: Callable[[pa.RecordBatch], pa.Array[Any]]) -> NDArray[np.bool_]:
        masks = [of_batch(batch.rows).to_numpy(zero_copy_only=False) for batch in self._batches]
        return np.concatenate([np.empty(0, dtype=bool), *masks])

    def _by_batch(self, rows: NDArray[np.int64]) -> Iterator[tuple[_Batch, NDArray[np.int64], NDArray[np.int64]]]:
        """Yield (batch, positions in `rows`, rows of the batch) for each batch that contains any of the rows."""
        batches = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(batches, kind="stable")
        for group in np.split(order, np.flatnonzero(np.diff(batches[order])) + 1):
            if len(group):
                number = int(batches[group[0]])
                yield self._batches[number], group, rows[group] - self._starts[number]


def _repeats_id(hashes: NDArray[np.uint8], order: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask of some rows: True if a row has the same id as the previous row."""
    repeats = np.zeros(len(order), dtype=bool)
    for low in range(1, len(order), _COMPARED):
        high = min(low + _COMPARED, len(order))
        repeats[low:high] = (hashes[order[low:high]] == hashes[order[low - 1 : high - 1]]).all(axis=1)
    return repeats


def _winners(
    hashes: NDArray[np.uint8], order: NDArray[np.int64], scanned: _ScannedRows
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return winners, losers, and the winner of each loser.

    The winners are, in the order of the id hashes, each id's first row with the smallest content hash; the losers are
    the id's rows with other contents.
    """
    same = _repeats_id(hashes, order)
    several = same.copy()
    several[:-1] |= same[1:]
    positions = np.flatnonzero(several)
    if not positions.size:
        return order, order[:0], order[:0]
    contents = scanned.content_hashes(order[positions]).reshape(-1).view("S32")
    ids = np.cumsum(~same[positions])  # the rows of an id share a number
    by_content = np.lexsort([order[positions], contents, ids])
    firsts = np.ones(len(positions), dtype=bool)
    firsts[1:] = np.diff(ids[by_content]) > 0
    best = by_content[np.maximum.accumulate(np.where(firsts, np.arange(len(positions)), 0))]
    differs = contents[by_content] != contents[best]
    first_of_id = ~several
    first_of_id[positions[~same[positions]]] = True  # one position for each id, in order ...
    winners = order.copy()
    winners[positions[~same[positions]]] = order[positions[by_content[firsts]]]  # ... for its winner
    return winners[first_of_id], order[positions[by_content[differs]]], order[positions[best[differs]]]


def _numbers_of(forgotten: Collection[bytes], hashes: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the index of each row's id among the sorted forgotten ids; -1 if the id is not forgotten."""
    forgotten_ids = np.frombuffer(b"".join(sorted(forgotten)), dtype="S32")
    rows = hashes.reshape(-1).view("S32")
    at = np.minimum(np.searchsorted(forgotten_ids, rows), forgotten_ids.size - 1)
    return np.where(forgotten_ids[at] == rows, at, -1).astype(np.int64)


def _duplicates(
    losers: NDArray[np.int64], keepers: NDArray[np.int64], scanned: _ScannedRows
) -> Iterator[pa.RecordBatch]:
    for low in range(0, len(losers), _GATHERED):
        lost, winning = (scanned.rows(rows[low : low + _GATHERED]).to_pylist() for rows in (losers, keepers))
        refused = []
        for row, winner in zip(lost, winning, strict=True):
            line = "" if winner["line"] is None else f", line {winner['line']}"
            detail = f"{winner['file']}{line} is kept, which has another content: the smallest content hash wins"
            refused.append(quarantine_row(row["file"], row["line"], clip(row["document_id"]), "duplicate-id", detail))
        yield pa.RecordBatch.from_pylist(refused, schema=QUARANTINE)


def _values(table: pa.Table | pa.RecordBatch, name: str) -> list[Any]:
    return list(table.column(name).to_pylist())


def _bytes(column: pa.Array[Any]) -> NDArray[np.uint8]:
    """Return a column of hashes as an (n, 32) uint8 array, without a copy."""
    data: NDArray[np.uint8] = np.frombuffer(memoryview(column.buffers()[1] or b""), dtype=np.uint8)
    return data[32 * column.offset : 32 * (column.offset + len(column))].reshape(-1, 32)
