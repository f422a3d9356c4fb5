"""C-HNSW: one graph of neighbours over entities and communities, searched level by level (ArchRAG, section 3.2.1).

Each node is on one level. Rows are ordered by level, from the entities up, and by id within a level. Links within a
level join near nodes, in both directions; a link down leads from a node to the nearest node of the level below (eq. 2).

A search begins on the topmost level, finds its nearest nodes, and follows their links down to enter the next level
(Algorithm 2, with a beam of ef nodes instead of one). Small levels are scanned exhaustively.

Vectors are quantised to the grid of indexmill.retrieve.grid: products are exact, ties go to the lower row, and the
results of a question are bit-identical in any batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.columns import changes, runs
from indexmill.retrieve.grid import UNIT, on_grid

Rows = NDArray[np.int64]

_ROW_BITS = 32
_NOTHING = np.iinfo(np.int64).max  # odd, so it counts as expanded (bit 0)
_TOGETHER = 64  # questions advanced at once


@dataclass(frozen=True)
class Beam:
    """The settings of a search.

    ef: the size of a beam; k if k is larger. width: nodes expanded per step. starts: the number of nearest nodes whose
    links down lead into the level below. whole: the maximum size, in nodes, of a level that is scanned exhaustively.
    """

    ef: int = 64
    width: int = 8
    starts: int = 16
    whole: int = 1024


@dataclass(frozen=True)
class LevelHits:
    """The hits of a batch of questions on one level, nearest first.

    rows: (questions, k) int64, rows of the index (not of the level), -1 past the last hit. scores: (questions, k)
    float32, cosines. compared: (questions,) int64, how many vectors of the level each question was compared with.
    """

    rows: Rows
    scores: NDArray[np.float32]
    compared: Rows


@dataclass(frozen=True)
class Chnsw:
    """The index, as plain arrays, which may be memory maps.

    vectors: (n, d), whole numbers on the grid. level_offsets: (levels + 1,), level l has the rows from level_offsets[l]
    to level_offsets[l + 1]. indptr: (n + 1,), and indices: the links within levels, ascending, by row of the index.
    down: (n,), the nearest row one level below; -1 on level 0, and above a level without nodes. entries: (levels,),
    where a search enters a level that no links lead into: the row nearest to the level's mean; -1 for an empty level.
    """

    vectors: NDArray[Any]
    level_offsets: Rows
    indptr: Rows
    indices: NDArray[np.int32]
    down: NDArray[np.int32]
    entries: NDArray[np.int32]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays by name, as stored in a pack."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Chnsw:
        """Build the index from the arrays of a pack, by name."""
        return cls(**{field.name: arrays[field.name] for field in fields(cls)})

    def level(self, number: int) -> slice:
        """Return the rows of a level."""
        return slice(int(self.level_offsets[number]), int(self.level_offsets[number + 1]))

    def search(self, questions: NDArray[np.floating[Any]], k: int, beam: Beam | None = None) -> list[LevelHits]:
        """Find the k nearest nodes of every level, level 0 first, for unit vectors (questions, d)."""
        beam = beam or Beam()
        queries = on_grid(questions)
        tiles = [
            self._descend(queries[first : first + _TOGETHER], k, beam)
            for first in range(0, max(len(queries), 1), _TOGETHER)
        ]
        return [
            LevelHits(*(np.concatenate([getattr(level, field.name) for level in parts]) for field in fields(LevelHits)))
            for parts in zip(*tiles, strict=True)
        ]

    def _descend(self, queries: NDArray[np.float32], k: int, beam: Beam) -> list[LevelHits]:
        levels = []
        above = np.empty((len(queries), 0), dtype=np.int64)  # nearest nodes of the level above
        for number in reversed(range(len(self.level_offsets) - 1)):
            level = self.level(number)
            size = level.stop - level.start
            if size <= max(beam.whole, beam.ef, k):
                keys = self._compare(queries, level, max(k, beam.starts))
                compared = np.full(len(queries), size, dtype=np.int64)
            else:
                starts = self.down[above[:, : beam.starts]]
                if not starts.shape[1]:
                    starts = np.full((len(queries), 1), self.entries[number])
                keys, compared = _Walk(self, queries, level, max(beam.ef, k), beam.width).run(starts)
            rows, products = _decoded(keys)
            above = rows[:, : max(0, min(size, beam.starts))]
            levels.append(LevelHits(*_padded(rows, products, k), compared))
        return levels[::-1]

    def _compare(self, queries: NDArray[np.float32], level: slice, k: int) -> NDArray[np.int64]:
        """Return the keys of the k nearest nodes of a level, ascending, by an exhaustive scan."""
        products = queries @ np.asarray(self.vectors[level], dtype=np.float32).T
        keys = _keys(products, np.arange(level.start, level.stop))
        if k < keys.shape[1]:
            keys = np.partition(keys, k - 1, axis=1)[:, :k]
        keys.sort(axis=1)
        return keys


class _Walk:
    """Beams of a batch of questions on one level (Algorithm 2, SearchLayer).

    A beam is a row of keys, ascending: see _keys. Bit 0 of a key is set once its node has been expanded.
    """

    def __init__(self, index: Chnsw, queries: NDArray[np.float32], level: slice, ef: int, width: int) -> None:
        self.index = index
        self.queries = queries
        self.first = level.start
        self.size = level.stop - level.start
        self.width = width
        self.seen = np.zeros(len(queries) * self.size, dtype=np.bool_)  # only touched pages use memory
        self.beams = np.full((len(queries), ef), _NOTHING)
        self.compared = np.zeros(len(queries), dtype=np.int64)

    def run(self, starts: NDArray[np.integer[Any]]) -> tuple[NDArray[np.int64], Rows]:
        """Run the beams to their end; return them and how many vectors each question was compared with."""
        owners = np.repeat(np.arange(len(self.queries)), starts.shape[1])
        self._visit(owners, starts.ravel().astype(np.int64))
        while True:
            open_ = (self.beams & 1) == 0
            owners, places = (open_ & (np.cumsum(open_, axis=1) <= self.width)).nonzero()
            if not len(owners):
                return self.beams, self.compared
            rows = _decoded(self.beams[owners, places])[0]
            self.beams[owners, places] |= 1
            begin, end = self.index.indptr[rows], self.index.indptr[rows + 1]
            counts = end - begin
            self._visit(np.repeat(owners, counts), self.index.indices[runs(begin, counts)].astype(np.int64))

    def _visit(self, owners: Rows, rows: Rows) -> None:
        """Compare questions with the nodes that they have not visited, and keep the best nodes in the beams."""
        pairs = owners * self.size + (rows - self.first)
        pairs = pairs[~self.seen[pairs]]
        pairs.sort()
        pairs = pairs[changes(pairs)]
        self.seen[pairs] = True
        owners, rows = np.divmod(pairs, self.size)
        rows += self.first
        counts = np.bincount(owners, minlength=len(self.queries))
        self.compared += counts
        vectors = self.index.vectors[rows].astype(np.float32, copy=False)
        if len(self.queries) == 1:
            products = vectors @ self.queries[0]
        else:
            products = np.einsum("ij,ij->i", vectors, self.queries[owners])
        most = int(counts.max(initial=0))
        wide = np.full((len(self.queries), self.beams.shape[1] + most), _NOTHING)
        wide[:, : self.beams.shape[1]] = self.beams
        places = runs(np.zeros_like(counts), counts)
        wide[owners, self.beams.shape[1] + places] = _keys(products, rows)
        wide.sort(axis=1)
        self.beams = wide[:, : self.beams.shape[1]].copy()


def _keys(products: NDArray[np.float32], rows: Rows) -> NDArray[np.int64]:
    """Encode products and rows as integer keys that sort by descending product, ties by ascending row."""
    keys: NDArray[np.int64] = -products.astype(np.int64)
    keys <<= _ROW_BITS
    keys += rows << 1
    return keys


def _decoded(keys: NDArray[np.int64]) -> tuple[Rows, Rows]:
    """Decode keys into rows and products; row -1 for an empty key."""
    rows = (keys & ((1 << _ROW_BITS) - 1)) >> 1
    nothing = keys == _NOTHING
    return np.where(nothing, -1, rows), np.where(nothing, 0, -(keys >> _ROW_BITS))


def _padded(rows: Rows, products: Rows, k: int) -> tuple[Rows, NDArray[np.float32]]:
    shape = (len(rows), k)
    wide, scores = np.full(shape, -1, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    count = min(k, rows.shape[1])
    wide[:, :count] = rows[:, :count]
    scores[:, :count] = products[:, :count] / UNIT
    return wide, scores
