"""The limit that a row's links exceed: mean plus deviations of exp(cos) over all other rows (ZoomRAG, section 3.1).

Up to `exact_rows` rows the moments are exact sums of integers, exp(cos) - 1 in units of 1 / UNITS by a table, so that
adding a row and taking it out again leaves nothing behind. Above, exp(cos) is split into its second-order polynomial,
whose moments follow exactly from the sum and the Gram matrix of the vectors, and a remainder, estimated from SAMPLE
rows.

A limit is a similarity in steps, rounded to a multiple of GRAIN, 0.001 of cosine. So of the rows with fewer links than
they may choose, few have another limit after a refresh, and only these are compared with all rows again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.similar import LARGEST_STEP, STEPS_PER_UNIT
from indexmill.retrieve.grid import UNIT

__all__ = ["GRAIN", "SAMPLE", "UNITS", "Moments", "estimated_limits", "exponentials"]

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

UNITS = 512
"""Units of exp(cos) - 1, so that sums of squares over 65,536 rows seldom need more than 32 bits."""

GRAIN = 32
"""Steps of similarity between two limits."""

SAMPLE = 8192
"""Rows from which the remainder of estimated moments is taken: those with the smallest names."""

_TILE = 8192  # columns whose exponentials are in memory at once
_STRIP = 512  # rows compared at once
_MOST = 1 << 24  # above every product on the grid
_GRAIN_BITS = 8  # products that differ in these bits alone, by 2e-5 in cosine, have the same exponential


@dataclass
class Moments:
    """sums, squares: `(n,)`, of exp(cos) - 1 in units, and of its square, over all other rows."""

    sums: Rows
    squares: Rows

    @classmethod
    def zeros(cls, rows: int) -> Moments:
        """The moments of rows that are compared with nothing yet."""
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64))

    def add(self, products: Floats, columns: NDArray[np.intp], sign: int = 1) -> None:
        """Add the products of some rows with all, `(m, n)`, to the moments of some columns; -1 takes them out."""
        for tile, at in _exponentials(products):
            mine = columns[slice(*columns.searchsorted((at.start, at.stop)))]
            if len(mine) < at.stop - at.start:
                tile = tile[:, mine - at.start]
            self.sums[mine] += sign * tile.sum(axis=0).astype(np.int64)
            self.squares[mine] += sign * np.einsum("ij,ij->j", tile, tile).astype(np.int64)

    def add_rows(self, products: Floats, rows: Rows) -> None:
        """Add the products of some rows with all, `(m, n)`, to their own moments."""
        for tile, _ in _exponentials(products):
            self.sums[rows] += tile.sum(axis=1).astype(np.int64)
            self.squares[rows] += np.einsum("ij,ij->i", tile, tile).astype(np.int64)

    def limits(self, rows: Rows, threshold: float) -> Rows:
        """The limits of some rows, from the moments of their n - 1 others."""
        others = max(len(self.sums) - 1, 1)
        sums, squares = self.sums[rows], self.squares[rows]
        mean = sums / others
        deviation = np.sqrt(np.maximum(squares / others - mean * mean, 0.0))
        return _limit_of((mean + threshold * deviation) / UNITS)


@lru_cache(maxsize=1)
def exponentials() -> NDArray[np.float64]:
    """exp(cos) - 1 in units, as whole numbers, for each grain of products, the one that begins at 0 in the middle.

    A table, since numpy's exponentials differ in the last bit between processors. Here that would show only in a value
    within 1e-9 of a half, and none is.
    """
    grains = np.arange(-(_MOST >> _GRAIN_BITS), _MOST >> _GRAIN_BITS)
    middles = grains * (1 << _GRAIN_BITS) + ((1 << _GRAIN_BITS) - 1) / 2
    return np.asarray(np.rint(np.expm1(middles / UNIT) * UNITS))


def _exponentials(strip: Floats) -> Iterator[tuple[NDArray[np.float64], slice]]:
    """exp(cos) - 1 in units, a few columns at a time; that of a row with itself is 0."""
    table = exponentials()
    for first in range(0, strip.shape[1], _TILE):
        places = strip[:, first : first + _TILE].astype(np.int32)
        places >>= _GRAIN_BITS
        places += len(table) // 2
        yield table.take(places), slice(first, first + places.shape[1])


def _limit_of(value: NDArray[np.float64]) -> Rows:
    """The limit that stands for a value of exp(cos) - 1."""
    steps = np.log1p(np.maximum(value, -0.9)) * (STEPS_PER_UNIT / GRAIN)
    return np.minimum(np.rint(steps).astype(np.int64) * GRAIN, LARGEST_STEP)


def estimated_limits(vectors: NDArray[Any], threshold: float, some: slice = slice(None)) -> Rows:
    """Limits of some rows from estimated moments: the polynomial part exact, the remainder from the first rows.

    With c the cosine, exp(c) - 1 = c + c^2/2 + (remainder), and its square is c^2 + (remainder). Sums of c and c^2 over
    all rows are those of exact integers; the Gram matrix is rounded to whole numbers per row first, so that float64
    holds every sum, in any order.
    """
    n = len(vectors)
    others = max(n - 1, 1)
    total = np.zeros(vectors.shape[1])
    gram = np.zeros((vectors.shape[1],) * 2)
    for first in range(0, n, _TILE):
        block = vectors[first : first + _TILE].astype(np.float64)
        total += block.sum(axis=0)
        gram += block.T @ block
    gram = np.rint(gram / max(n, 1) * 16)
    begin, end, _ = some.indices(n)
    mean, square, low, high = (np.empty(end - begin) for _ in range(4))
    for first in range(begin, end, _TILE):
        block = vectors[first : min(first + _TILE, end)].astype(np.float64)
        own, at = np.einsum("ij,ij->i", block, block), slice(first - begin, first - begin + len(block))
        mean[at] = (block @ total - own) / UNIT / others
        whole = np.einsum("ij,ij->i", block @ gram, block) / 16 * n
        square[at] = np.maximum(whole - own * own, 0.0) / UNIT / UNIT / others
    chosen = vectors[:SAMPLE].astype(np.float32)
    for first in range(begin, end, _STRIP):
        strip = vectors[first : min(first + _STRIP, end)].astype(np.float32) @ chosen.T
        inside = np.arange(first, max(first, min(first + len(strip), len(chosen))))
        strip[inside - first, inside] = 0.0
        cosine = strip.astype(np.float64) / UNIT
        value = np.expm1(cosine)
        at = slice(first - begin, first - begin + len(strip))
        held = np.full(len(strip), float(len(chosen)))
        held[inside - first] -= 1.0
        low[at] = (value - cosine - cosine * cosine / 2).sum(axis=1) / np.maximum(held, 1)
        high[at] = (value * value - cosine * cosine).sum(axis=1) / np.maximum(held, 1)
    first_moment = mean + square / 2 + low
    deviation = np.sqrt(np.maximum(square + high - first_moment * first_moment, 0.0))
    return _limit_of(first_moment + threshold * deviation)
