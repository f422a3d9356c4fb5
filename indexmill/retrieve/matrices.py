"""Sparse matrices that are read by rows, and those of the Tri-graph (LinearRAG, section 3.1, eqs. 1 and 2)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Integers",
    "Matrices",
    "Rows",
    "Scores",
    "Sparse",
    "TooManyLinks",
    "both_ways",
    "pointers",
    "rarity",
]

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Integers = npt.NDArray[np.integer]


class TooManyLinks(Exception):
    """More links were asked for than may be laid out at once."""


@dataclass(frozen=True, slots=True)
class Sparse:
    """A matrix by rows (CSR): row i has the columns ``indices[indptr[i]:indptr[i + 1]]``, ascending, with ``counts``.

    indptr: ``(n_rows + 1,) int64``. indices: ``(n_links,) int32``. counts: ``(n_links,)``, or None where all are one.
    """

    indptr: Integers
    indices: Integers
    counts: Integers | None = None

    @classmethod
    def of(cls, arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Sparse:
        """The matrix that a pack holds as ``name.indptr``, ``name.indices`` and perhaps ``name.counts``."""
        return cls(arrays[f"{name}.indptr"], arrays[f"{name}.indices"], arrays.get(f"{name}.counts"))

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays by name, as a pack holds them."""
        counts = {} if self.counts is None else {f"{name}.counts": self.counts}
        return {f"{name}.indptr": self.indptr, f"{name}.indices": self.indices, **counts}

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def links(self, rows: Rows, most: int | None = None) -> tuple[Rows, Rows, Rows]:
        """For some rows: the position in ``rows`` of every link, its column, and its place in ``indices``.

        Raises TooManyLinks where there are more than ``most``.
        """
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
        """The counts at some places of ``indices``."""
        return np.ones(len(places)) if self.counts is None else self.counts.take(places).astype(np.float64)

    def degrees(self, rows: Rows) -> Rows:
        """The number of links of some rows."""
        return (self.indptr.take(rows + 1) - self.indptr.take(rows)).astype(np.int64, copy=False)


def rarity(documents: Integers) -> Scores:
    """How much entities tell, by the documents that each is in: 1 for one, falling with the logarithm."""
    weight: Scores = 1.0 / np.log(math.e - 1 + np.maximum(documents, 1))
    return weight


@dataclass(frozen=True, slots=True)
class Matrices:
    """The graph's matrices (eqs. 1, 2), each by rows and by columns.

    mentions: sentences x entities [M]; mentioned_in: its transpose. contents: passages x entities with occurrence
    counts [C, N]; contained_in: its transpose. strengths: ``(n_entities,) int64``, the links of an entity, each as
    often as N says. documents: ``(n_entities,)``, in how many documents an entity is; None where every document is one
    passage.
    """

    mentions: Sparse
    mentioned_in: Sparse
    contents: Sparse
    contained_in: Sparse
    strengths: Integers
    documents: Integers | None = None

    def spread(self, entities: Rows) -> Rows:
        """In how many documents some entities are."""
        if self.documents is None:
            return self.contained_in.degrees(entities)
        return self.documents.take(entities).astype(np.int64, copy=False)

    def rarity(self, entities: Rows) -> Scores:
        """How much some entities tell: see ``rarity``."""
        return rarity(self.spread(entities))


def both_ways(
    rows: Integers, columns: Integers, counts: Integers | None, height: int, width: int
) -> tuple[Sparse, Sparse]:
    """A sparse matrix from links, repeated ones added up, by rows and by columns."""
    key = rows.astype(np.int64)
    key *= width
    key += columns
    total = None
    if counts is None:
        key.sort()
    else:
        order = np.argsort(key)
        key, counts = key[order], counts[order]
        del order
    first = np.ones(len(key), dtype=bool)
    np.not_equal(key[1:], key[:-1], out=first[1:])
    if counts is not None:
        starts = np.flatnonzero(first)
        total = np.add.reduceat(counts, starts, dtype=np.int64).astype(np.int32) if len(starts) else counts[:0]
    key = key[first]
    column = (key % max(width, 1)).astype(np.int32)
    key //= max(width, 1)
    row = key.astype(np.int32)
    del key, first
    across = np.argsort(column, kind="stable")  # rows are ascending
    return (
        Sparse(pointers(row, height), column, total),
        Sparse(pointers(column, width), row[across], None if total is None else total[across]),
    )


def pointers(rows: Integers, height: int) -> Rows:
    """Where the entries of each of `height` rows begin, and the end; rows: of each entry, ascending."""
    found: Rows = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=height))]).astype(np.int64)
    return found
