"""The limit of a row's links: mean plus standard deviations of exp(cos) over all other rows (ZoomRAG, section 3.1).

Up to `exact_rows` rows, the moments are exact sums of integers: exp(cos) - 1 in units of 1 / UNITS, from a table. So
removing an added row restores them exactly. For more rows, exp(cos) is split into its second-order polynomial, whose
moments follow exactly from the sum and the Gram matrix of the vectors, and a remainder, estimated from a sample: the
rows with the smallest names. The moments of the remainder are sums of integers from a table, too.

A limit is a similarity in steps, rounded to a multiple of GRAIN, 0.001 of cosine. So of the rows with fewer links than
they may choose, few get a different limit in a refresh, and only these are compared with all rows again.
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

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

UNITS = 512
"""The units per 1 of exp(cos) - 1, so that sums of squares over 65,536 rows seldom need more than 32 bits."""

REMAINDER_UNITS = 1 << 14
"""The units per 1 of remainders, so that their sums over a sample need no more than 32 bits."""

GRAIN = 32
"""The number of steps of similarity between two limits."""

_TILE = 8192  # columns whose exponentials are in memory at once
_MOST = 1 << 24  # above every product on the grid
_GRAIN_BITS = 8  # products that differ in these bits alone, by 2e-5 in cosine, have the same exponential


@dataclass
class Moments:
    """sums, squares: `(n,)`, the sums of exp(cos) - 1 in units, and of its square, over all other rows.

    sampled: True if they are sums of the remainders of both polynomials, over the other rows of the sample.
    """

    sums: Rows
    squares: Rows
    sampled: bool = False

    @classmethod
    def zeros(cls, rows: int, sampled: bool = False) -> Moments:
        """Return the moments of rows that have not been compared yet."""
        return cls(np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=np.int64), sampled)

    def add(self, products: Floats, columns: NDArray[np.intp], first: int = 0, sign: int = 1) -> None:
        """Add the products of rows with a tile, `(m, w)`, to the moments of rows of the tile; sign -1 subtracts them.

        columns: the rows to update, ascending; rows outside the tile are ignored. first: the tile's first row.
        """
        for sums, squares, at in self._sums(products, 0):
            mine = columns[slice(*columns.searchsorted((first + at.start, first + at.stop)))]
            self.sums[mine] += sign * sums[mine - first - at.start]
            self.squares[mine] += sign * squares[mine - first - at.start]

    def add_rows(self, products: Floats, rows: Rows) -> None:
        """Add the products of some rows with all, or with the sample, `(m, w)`, to their own moments."""
        for sums, squares, _ in self._sums(products, 1):
            self.sums[rows] += sums
            self.squares[rows] += squares

    def limits(self, rows: Rows, threshold: float) -> Rows:
        """Return the limits of some rows, from their exact moments over the n - 1 other rows."""
        others = max(len(self.sums) - 1, 1)
        sums, squares = self.sums[rows], self.squares[rows]
        mean = sums / others
        deviation = np.sqrt(np.maximum(squares / others - mean * mean, 0.0))
        return _limit_of((mean + threshold * deviation) / UNITS)

    def _sums(self, products: Floats, axis: int) -> Iterator[tuple[Rows, Rows, slice]]:
        """Yield the sums of values and squares for each group of columns; a row's product with itself adds nothing."""
        for first in range(0, products.shape[1], _TILE):
            places = products[:, first : first + _TILE].astype(np.int32)
            places >>= _GRAIN_BITS
            places += _MOST >> _GRAIN_BITS
            if self.sampled:
                sums, squares = (table.take(places).sum(axis=axis) for table in remainders())
            else:
                values = exponentials().take(places)
                sums = values.sum(axis=axis)
                squares = np.einsum("ij,ij->i" if axis else "ij,ij->j", values, values)
            yield sums.astype(np.int64), squares.astype(np.int64), slice(first, first + places.shape[1])

    def stored(self, sample: int) -> tuple[Rows, Rows]:
        """Return both sums as integers of at least 0. sample: the number of rows in the sample."""
        return self.sums + self._offset(sample), self.squares + (self._offset(sample) if self.sampled else 0)

    @classmethod
    def of_stored(cls, sums: NDArray[Any], squares: NDArray[Any], sample: int, sampled: bool) -> Moments:
        moments = cls(sums.astype(np.int64), squares.astype(np.int64), sampled)
        moments.sums -= moments._offset(sample)
        moments.squares -= moments._offset(sample) if sampled else 0
        return moments

    def _offset(self, sample: int) -> int:
        """Return the offset that makes every sum at least 0."""
        return REMAINDER_UNITS * sample if self.sampled else UNITS * len(self.sums)


class Polynomials:
    """The moments of the polynomial part of all rows; with the moments of remainders they give the limits.

    With c the cosine, exp(c) - 1 = c + c^2/2 + (remainder), and its square is c^2 + (remainder). Sums of c and c^2 over
    all rows are those of exact integers; the Gram matrix is rounded to whole numbers per row first, so that float64
    holds every sum, in any order.
    """

    def __init__(self, vectors: NDArray[np.int16], sample: int) -> None:
        self._vectors, self._sample = vectors, sample
        n = len(vectors)
        self._total = np.zeros(vectors.shape[1])
        gram = np.zeros((vectors.shape[1],) * 2)
        for first in range(0, n, _TILE):
            block = vectors[first : first + _TILE].astype(np.float64)
            self._total += block.sum(axis=0)
            gram += block.T @ block
        self._gram = np.rint(gram / max(n, 1) * 16)

    def limits(self, remainders: Moments, rows: Rows, threshold: float) -> Rows:
        """Return the limits of some rows. remainders: the moments of remainders for the same set and sample."""
        limits = np.empty(len(rows), dtype=np.int64)
        for first in range(0, len(rows), _TILE):
            some = slice(first, first + _TILE)
            limits[some] = self._limits(remainders, rows[some], threshold)
        return limits

    def _limits(self, remainders: Moments, rows: Rows, threshold: float) -> Rows:
        n = len(self._vectors)
        others = max(n - 1, 1)
        block = self._vectors[rows].astype(np.float64)
        squared_norms = np.einsum("ij,ij->i", block, block)
        mean = (block @ self._total - squared_norms) / UNIT / others
        whole = np.einsum("ij,ij->i", block @ self._gram, block) / 16 * n
        square = np.maximum(whole - squared_norms * squared_norms, 0.0) / UNIT / UNIT / others
        units = np.maximum(self._sample - (rows < self._sample), 1) * float(REMAINDER_UNITS)
        first_moment = mean + square / 2 + remainders.sums[rows] / units
        second_moment = square + remainders.squares[rows] / units
        deviation = np.sqrt(np.maximum(second_moment - first_moment * first_moment, 0.0))
        return _limit_of(first_moment + threshold * deviation)


@lru_cache(maxsize=1)
def exponentials() -> NDArray[np.float64]:
    """Return exp(cos) - 1 in units, as whole numbers, for each grain of products; the grain from 0 is in the middle.

    It is a table of rounded values, since numpy's exponentials differ in the last bit between processors. Only a value
    within 1e-9 of a half could round differently, and there is none.
    """
    return np.asarray(np.rint(np.expm1(_cosines()) * UNITS))


@lru_cache(maxsize=1)
def remainders() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the remainders of exp(c) - 1 after c + c^2/2, and of its square after c^2: tables like `exponentials`."""
    cosine = _cosines()
    value = np.expm1(cosine)
    low, high = value - cosine - cosine * cosine / 2, value * value - cosine * cosine
    return np.rint(low * REMAINDER_UNITS), np.rint(high * REMAINDER_UNITS)


def _cosines() -> NDArray[np.float64]:
    """Return the middle of each grain of products."""
    grains = np.arange(-(_MOST >> _GRAIN_BITS), _MOST >> _GRAIN_BITS)
    middles = grains * (1 << _GRAIN_BITS) + ((1 << _GRAIN_BITS) - 1) / 2
    return np.asarray(middles / UNIT)


def _limit_of(value: NDArray[np.float64]) -> Rows:
    steps = np.log1p(np.maximum(value, -0.9)) * (STEPS_PER_UNIT / GRAIN)
    return np.minimum(np.rint(steps).astype(np.int64) * GRAIN, LARGEST_STEP)
