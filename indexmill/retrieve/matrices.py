"""Sparse matrices that are read by rows, and the matrices of the Tri-graph (LinearRAG, section 3.1, eqs. 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import changes, distinct

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]


class TooManyLinks(Exception):
    """More links were requested than may be in memory at once."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """A matrix by rows (CSR): row i has the columns ``indices[indptr[i]:indptr[i + 1]]``, ascending, with ``counts``.

    indptr: ``(n_rows + 1,) int64``. indices: ``(n_links,) int32``. counts: ``(n_links,)``, or None if all are one.
    """

    indptr: Integers
    indices: Integers
    counts: Integers | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Sparse:
        """Read the matrix stored in a pack as ``name.indptr``, ``name.indices`` and optionally ``name.counts``."""
        return cls(arrays[f"{name}.indptr"], arrays[f"{name}.indices"], arrays.get(f"{name}.counts"))

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return the arrays by name, as stored in a pack."""
        counts = {} if self.counts is None else {f"{name}.counts": self.counts}
        return {f"{name}.indptr": self.indptr, f"{name}.indices": self.indices, **counts}

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def links(self, rows: Rows, most: int | None = None) -> tuple[Rows, Rows, Rows]:
        """Return per link its index in ``rows``, column and index in ``indices``. Raises TooManyLinks over ``most``."""
        starts = self.indptr.take(rows)
        lengths = self.indptr.take(rows + 1) - starts
        ends = lengths.cumsum()
        if most is not None and len(ends) and ends[-1] > most:
            raise TooManyLinks
        owners = np.arange(len(rows)).repeat(lengths)
        places = (starts - ends + lengths).repeat(lengths)
        places += np.arange(len(places))
        return owners, self.indices.take(places).astype(np.int64), places

    def occurrences(self, places: Rows) -> Scores:
        """Return the counts at some positions of ``indices``."""
        return np.ones(len(places)) if self.counts is None else self.counts.take(places).astype(np.float64)

    def degrees(self, rows: Rows) -> Rows:
        """Count the links of each row."""
        return (self.indptr.take(rows + 1) - self.indptr.take(rows)).astype(np.int64, copy=False)

    def counts_of(self, columns: npt.NDArray[np.bool_]) -> Rows:
        """Count each row's links to the columns in a mask: ``(n_rows,)``."""
        sums = np.zeros(len(self.indices) + 1, dtype=np.int64)
        np.cumsum(columns[self.indices], out=sums[1:])
        return np.diff(sums[self.indptr])


def rarity(documents: Integers) -> Scores:
    """Weigh entities by document frequency: 1 for one document, decreasing logarithmically."""
    weight: Scores = 1.0 / np.log(math.e - 1 + np.maximum(documents, 1))
    return weight


@dataclass(frozen=True, slots=True)
class Matrices:
    """The graph's matrices (eqs. 1, 2), each by rows and by columns.

    mentions: sentences x entities [M]; mentioned_in: its transpose. contents: passages x entities with occurrence
    counts [C, N]; contained_in: its transpose. strengths: ``(n_entities,) int64``, the links of an entity, each
    weighted by its occurrences [N]. documents: ``(n_entities,)``, the document frequency of an entity.
    """

    mentions: Sparse
    mentioned_in: Sparse
    contents: Sparse
    contained_in: Sparse
    strengths: Integers
    documents: Integers

    def spread(self, entities: Rows) -> Rows:
        """Return the document frequency of some entities."""
        return self.documents.take(entities).astype(np.int64, copy=False)

    def rarity(self, entities: Rows) -> Scores:
        """Return the weights of some entities: see the function ``rarity``."""
        return rarity(self.spread(entities))


def both_ways(
    rows: Integers, columns: Integers, counts: Integers | None, height: int, width: int
) -> tuple[Sparse, Sparse]:
    """Build a sparse matrix from links, with duplicates summed, and its transpose."""
    key = rows.astype(np.int64)
    key *= width
    key += columns
    total: Integers | None = None
    if counts is None:
        key = distinct(key)
    else:
        order = np.argsort(key)
        key, counts = key[order], counts[order]
        first = changes(key)
        starts = np.flatnonzero(first)
        total = np.add.reduceat(counts, starts, dtype=np.int64).astype(np.int32) if len(starts) else counts[:0]
        key = key[first]
        del order, first, starts
    column = (key % max(width, 1)).astype(np.int32)
    key //= max(width, 1)
    row = key.astype(np.int32)
    across = Sparse(pointers(row, height), column, total)
    if total is None:
        key += column.astype(np.int64) << 32  # the low half is the row; sorting keys is faster than argsort
        key.sort()
        return across, Sparse(pointers(column, width), key.astype(np.int32))
    order = np.argsort(column, kind="stable")  # rows are ascending
    return across, Sparse(pointers(column, width), row[order], total[order])


def pointers(rows: Integers, height: int) -> Rows:
    """Compute the CSR row pointers of `height` rows; rows: the row of each entry, ascending."""
    row_pointers: Rows = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=height))]).astype(np.int64)
    return row_pointers
