"""The contents of a version: sizes, distributions, levels, central entities, and similar names.

Columns are read one shard at a time and tallied, so memory holds one shard and the distinct values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.report.charts import Bar
from indexmill.retrieve.artifacts import sound
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import ReaderFamily, load
from indexmill.retrieve.same_names import same_names
from indexmill.snapshot import Snapshot
from indexmill.store.manifest import Manifest
from indexmill.store.table_reader import read_table, row_groups

CENTRAL = 15
"""The maximum number of entities listed."""
ALIKE = 15
"""The maximum number of pairs or groups of names listed."""

SHARED = "shared by several"
_BARS = 18

Integers = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True)
class FamilySize:
    """The bytes of files that only this family reads, or that families share. kinds: bytes by kind, largest first."""

    name: str
    bytes: int
    kinds: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A distribution of whole numbers. doubling: True if each group is twice as wide as the previous group."""

    family: str
    name: str
    of: str
    total: int
    least: int
    median: int
    most: int
    doubling: bool
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True)
class FamilyLevels:
    """The number of a family's nodes on each level, or of each kind, the lowest level first."""

    family: str
    levels: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CentralEntity:
    """An entity that many passages mention."""

    surface: str
    passages: int
    mentions: int
    documents: int


@dataclass(frozen=True, slots=True)
class Alike:
    """Names that may denote one entity. likeness: similarity of letters, 0 to 1; None if only punctuation differs."""

    names: tuple[str, ...]
    likeness: float | None


@dataclass(frozen=True, slots=True)
class Inside:
    """The contents of a version. compared: True if names were compared by a model, not only by their letters."""

    bytes: int
    sizes: tuple[FamilySize, ...]
    histograms: tuple[Histogram, ...]
    levels: tuple[FamilyLevels, ...]
    entities: int
    central: tuple[CentralEntity, ...]
    alike: tuple[Alike, ...]
    compared: bool


def inside(snapshot: Snapshot) -> Inside:
    """Collect the contents of an opened version. Raises CorruptBlob."""
    with sound(snapshot.path, "tables"):
        pairs = same_names(snapshot, ALIKE)
        central, alike = _entities(snapshot, names=not pairs)
        if pairs:
            alike = tuple(
                Alike(tuple(entity["surface"] for entity in pair["entities"]), pair["likeness"]) for pair in pairs
            )
        histograms, levels = _of_families(snapshot)
        return Inside(
            bytes=total_bytes(snapshot.manifest),
            sizes=sizes_by_family(snapshot.manifest),
            histograms=(*_of_tables(snapshot), *histograms),
            levels=levels,
            entities=sum(shard.rows or 0 for shard in snapshot.shards("entities")),
            central=central,
            alike=alike,
            compared=bool(pairs),
        )


# Sizes


def total_bytes(manifest: Manifest) -> int:
    """Return the total size of a snapshot's files; each file counts once."""
    return sum({artifact.digest: artifact.bytes for artifact in manifest.artifacts}.values())


def sizes_by_family(manifest: Manifest) -> tuple[FamilySize, ...]:
    """Return file sizes by the only family that reads them, or as shared, largest first; each file counts once."""
    owners: dict[str, set[str]] = {}
    for family in METHODS.values():
        if family.name in manifest.families:
            for kind in _kinds_of(family):
                owners.setdefault(kind, set()).add(family.name)
    bytes_of: dict[str, dict[str, int]] = {}
    seen: set[str] = set()
    for artifact in manifest.artifacts:
        if artifact.digest in seen:
            continue
        seen.add(artifact.digest)
        kind = artifact.name.partition("/")[0]
        readers = owners.get(kind, set())
        owner = next(iter(readers)) if len(readers) == 1 else SHARED
        kinds = bytes_of.setdefault(owner, {})
        kinds[kind] = kinds.get(kind, 0) + artifact.bytes
    sizes = (
        FamilySize(
            name, sum(kinds.values()), dict(sorted(kinds.items(), key=lambda kind_size: (-kind_size[1], kind_size[0])))
        )
        for name, kinds in bytes_of.items()
    )
    return tuple(sorted(sizes, key=lambda size: (-size.bytes, size.name)))


def _kinds_of(family: ReaderFamily) -> set[str]:
    """Return the first name component of each artifact that a family reads."""
    packs = load(family.packs) if family.packs else {}
    return {family.name, *(name.partition("/")[0] for name in (*family.artifacts, *family.tables, *packs))}


# Distributions


class _Tally:
    """Counts of distinct whole numbers."""

    def __init__(self) -> None:
        self.values: Integers = np.empty(0, np.int64)
        self.counts: Integers = np.empty(0, np.int64)

    def add(self, numbers: Integers) -> None:
        values, counts = np.unique(np.maximum(np.asarray(numbers, np.int64), 0), return_counts=True)
        both, places = np.unique(np.concatenate([self.values, values]), return_inverse=True)
        summed = np.zeros(len(both), np.int64)
        np.add.at(summed, places, np.concatenate([self.counts, counts]))
        self.values, self.counts = both, summed

    def histogram(self, family: str, name: str, of: str) -> Histogram | None:
        values, counts = self.values, self.counts
        if not len(values):
            return None
        total = int(counts.sum())
        median = int(values[np.searchsorted(np.cumsum(counts), (total + 1) // 2)])
        bars, doubling = grouped(values, counts, median)
        return Histogram(family, name, of, total, int(values[0]), median, int(values[-1]), doubling, bars)


def grouped(values: Integers, counts: Integers, median: int) -> tuple[tuple[Bar, ...], bool]:
    """Group ascending, distinct values into bars; also return True if widths double to fit a few much larger values."""
    least, most = int(values[0]), int(values[-1])
    doubling = most > 24 and most > 12 * max(median, 1)
    if doubling:
        edges = [0] if least <= 0 else []
        edges += [1 << power for power in range(most.bit_length())]
        edges = [edge for edge in edges if edge * 2 > least or edge == 0]
    else:
        width = _round(-(-(most - least + 1) // _BARS))
        first = least // width * width
        edges = list(range(first, most + 1, width))
    highs = [*(edge - 1 for edge in edges[1:]), 2 * edges[-1] - 1 if doubling else edges[-1] + width - 1]
    places = np.searchsorted(np.array(edges), values, side="right") - 1
    summed = np.zeros(len(edges), np.int64)
    np.add.at(summed, places, counts)
    bars = zip(edges, highs, summed.tolist(), strict=True)
    return tuple(Bar(low, max(low, high), count) for low, high, count in bars), doubling


def _round(width: int) -> int:
    """Round a width up to 1, 2, 5, 10, 20, 50, ..."""
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale >= width:
                return step * scale
        scale *= 10


def _of_tables(snapshot: Snapshot) -> tuple[Histogram, ...]:
    tokens, per_document = _Tally(), _Tally()
    for shard in snapshot.shards("passages"):
        for table in row_groups(snapshot.file(shard.name), shard, ["tokens"]):
            tokens.add(table["tokens"].to_numpy())
        owners = read_table(snapshot.file(shard.name), shard, ["document_id"])  # a document may span row groups
        per_document.add(_frequencies(owners["document_id"]))
    histograms = (
        tokens.histogram("", "Lengths of passages, in tokens", "passages"),
        per_document.histogram("", "Passages per document", "documents"),
    )
    return tuple(histogram for histogram in histograms if histogram is not None)


def _frequencies(column: pa.ChunkedArray) -> Integers:
    counts: Integers = pc.value_counts(column.combine_chunks()).field("counts").to_numpy()
    return counts


def _of_families(snapshot: Snapshot) -> tuple[list[Histogram], tuple[FamilyLevels, ...]]:
    histograms, levels = [], []
    for family in METHODS.values():
        if family.distributions and family.name in snapshot.manifest.families:
            sizes = load(family.distributions).sizes(snapshot)
            for distribution in sizes.distributions:
                tally = _Tally()
                tally.add(distribution.numbers)
                histograms.append(tally.histogram(family.name, distribution.name, distribution.of))
            if sizes.levels:
                levels.append(FamilyLevels(family.name, tuple(sizes.levels.items())))
    return [histogram for histogram in histograms if histogram is not None], tuple(levels)


# Entities


def _entities(snapshot: Snapshot, *, names: bool) -> tuple[tuple[CentralEntity, ...], tuple[Alike, ...]]:
    """Find the entities with the most passages. names: True to also find names that differ only in punctuation."""
    best: list[dict[str, Any]] = []
    keyed: list[pa.Table] = []
    for shard in snapshot.shards("entities"):
        columns = ["entity_id", "surface", "mentions", "passages", "documents"]
        for table in row_groups(snapshot.file(shard.name), shard, columns):
            order = [("passages", "descending"), ("mentions", "descending"), ("entity_id", "ascending")]
            first = table.take(pc.select_k_unstable(table, k=CENTRAL, sort_keys=order))
            best = sorted([*best, *first.to_pylist()], key=_order)[:CENTRAL]
            if names:
                keyed.append(_keyed(table))
    shown = ("surface", "passages", "mentions", "documents")
    return tuple(CentralEntity(*(row[name] for name in shown)) for row in best), _alike(keyed)


def _order(row: Mapping[str, Any]) -> tuple[int, int, str]:
    return -row["passages"], -row["mentions"], row["entity_id"]


def _keyed(table: pa.Table) -> pa.Table:
    """Add a column ``key``: each name without accents, spaces and punctuation."""
    folded = pc.utf8_normalize(table["surface"], form="NFKD")
    keys = pc.utf8_lower(pc.replace_substring_regex(folded, pattern=r"[^\pL\pN]+", replacement=""))
    return table.select(["surface", "mentions"]).append_column("key", keys)


def _alike(keyed: list[pa.Table]) -> tuple[Alike, ...]:
    """Group names that differ only in punctuation, spaces, accents and capitals, the most mentioned first."""
    if not keyed:
        return ()
    table = pa.concat_tables(keyed)
    table = table.filter(pc.greater(pc.utf8_length(table["key"]), 3))
    groups = table.group_by("key").aggregate([("mentions", "sum"), ([], "count_all")])
    groups = groups.filter(pc.greater(groups["count_all"], 1))
    order = [("mentions_sum", "descending"), ("key", "ascending")]
    first = groups.take(pc.select_k_unstable(groups, k=ALIKE, sort_keys=order))["key"]
    rows = table.filter(pc.is_in(table["key"], value_set=first.combine_chunks())).to_pylist()
    names: dict[str, list[tuple[int, str]]] = {}
    for row in rows:
        names.setdefault(row["key"], []).append((-row["mentions"], row["surface"]))
    return tuple(Alike(tuple(name for _, name in sorted(names[key])[:6]), None) for key in first.to_pylist())
