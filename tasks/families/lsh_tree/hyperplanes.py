"""Seeded hyperplanes: two vectors share a bit of their codes with probability 1 - angle / pi (EraRAG, III.B).

    bit j of v = [h_j . v > 0],    P(bits of v and w agree) = 1 - angle(v, w) / pi

(The paper's Theorem 1 prints (1 + cos) / 2, which is a different curve.) The 64 normals h_j are a function of
(seed, dimension) alone, apart from those that axes replace.

Codes are exact. A vector is scaled by the power of two that brings its largest component to between 2**14 and 2**15,
and rounded to integers; normals are integers of at most 2**10. An inner product over d dimensions, and every partial
sum of it, is an integer of at most d * 2**25, which float64 holds exactly up to 2**53: for d <= 2**28. So no code
depends on the order of a sum, on other rows, on BLAS or on the number of threads.
"""

from __future__ import annotations

import hashlib
from functools import cache, cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint64]
Floats = NDArray[np.float32]

BITS = 64
"""The number of hyperplanes in a block: the bits of one word of a code."""

_VECTOR_BITS = 15
_NORMAL_BITS = 10

LARGEST_NORMAL = 2**_NORMAL_BITS

MOST_DIMENSIONS = 2 ** (53 - _VECTOR_BITS - _NORMAL_BITS)
"""The maximum number of dimensions for which every product is exact."""

_TILE = 4096  # rows in memory as float64 at once


class Hyperplanes:
    """The hyperplanes of a seed in a dimension.

    axes: (m, d) int16 with m <= 64 and values up to LARGEST_NORMAL; they replace the first m normals. Raises ValueError
    for other axes, and for a dimension below 1 or above MOST_DIMENSIONS.
    """

    def __init__(self, seed: int, dimension: int, axes: NDArray[np.int16] | None = None) -> None:
        if not 1 <= dimension <= MOST_DIMENSIONS:
            raise ValueError(f"expected a dimension from 1 to {MOST_DIMENSIONS}; found {dimension}")
        self.seed = seed
        self.dimension = dimension
        self._axes = np.empty((0, dimension), dtype=np.int16) if axes is None else axes
        if self._axes.shape[1:] != (dimension,) or len(self._axes) > BITS:
            raise ValueError(f"expected axes (m, {dimension}), m at most {BITS}; found {self._axes.shape}")
        if (np.abs(self._axes.astype(np.int64)) > LARGEST_NORMAL).any():
            raise ValueError(f"an axis has a number beyond {LARGEST_NORMAL}, above which codes are not exact")

    def normals(self) -> NDArray[np.int16]:
        """Return the normals (64, d) int16: any axes, then normally distributed values, not zero and at most 2**10."""
        label = f"hyperplanes {self.seed} {self.dimension} 0".encode("ascii")
        drawn = np.frombuffer(hashlib.shake_256(label).digest(2 * BITS * self.dimension), dtype="<u2")
        upper = _quantiles()[drawn & 0x7FFF]
        normals: NDArray[np.int16] = np.where(drawn >> 15, upper, -upper).reshape(BITS, self.dimension)
        normals[: len(self._axes)] = self._axes
        return normals

    @cached_property
    def _transposed(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(self.normals().T, dtype=np.float64)

    def codes(self, vectors: Floats) -> Codes:
        """Return the codes of vectors (n, d): (n,) uint64, the first hyperplane's bit the most significant.

        A vector of zeros has the code 0. A row's code depends on its own numbers alone. Raises ValueError for the wrong
        dimension and for a vector with a NaN or an infinity.
        """
        if vectors.ndim != 2 or vectors.shape[1] != self.dimension:
            raise ValueError(f"expected vectors (n, {self.dimension}); found {vectors.shape}")
        codes = np.empty(len(vectors), dtype=np.uint64)
        for low in range(0, len(vectors), _TILE):
            products = _integers(vectors[low : low + _TILE], low) @ self._transposed
            bits = np.packbits(products > 0, axis=1)
            codes[low : low + _TILE] = bits.view(">u8").reshape(-1)
        return codes


def _integers(vectors: Floats, first_row: int) -> NDArray[np.float64]:
    """Return the vectors as integers of at most 2**15, each scaled by its own power of two."""
    peaks = np.abs(vectors).max(axis=1, initial=0).astype(np.float64)
    if not np.isfinite(peaks).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(peaks))[0])
        raise ValueError(f"the vector of row {row} contains a NaN or an infinity: encode its text again")
    scales = np.ldexp(1.0, _VECTOR_BITS - np.frexp(peaks)[1])
    integers: NDArray[np.float64] = np.rint(vectors * scales[:, None])
    return integers


@cache
def _quantiles() -> NDArray[np.int16]:
    """Return the upper half of the normal distribution in 2**15 steps of equal probability, scaled to at most 2**10."""
    count = 2**15
    normal = NormalDist()
    upper = np.array([normal.inv_cdf(0.5 + (step + 0.5) / (2 * count)) for step in range(count)])
    scaled: NDArray[np.int16] = np.maximum(np.rint(upper / upper[-1] * 2**_NORMAL_BITS), 1).astype(np.int16)
    return scaled
