"""Directions of vectors, quantised to 8 bits: a quarter of the size of float32, for vectors that are only compared.

A vector is scaled so that its largest component is 127, and rounded. Only the direction is stored; the length is one.
For MiniLM's sentence vectors (384 dimensions), the cosine between direction and vector is at least 0.9999. Encoding and
decoding use only correctly rounded operations, and the squares of the components add up exactly in float32 for up to
1,040 dimensions (``127**2 * d < 2**24``), and beyond that in float64. So the bits are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Directions = npt.NDArray[np.int8]

_MOST = 127
_EXACT = (1 << 24) // _MOST**2
"""The maximum number of dimensions whose squared components float32 adds without rounding."""


def directions_of(vectors: npt.NDArray[np.floating]) -> Directions:
    """Return the directions ``(n, d) int8`` of vectors ``(n, d)``; zeros for a vector of zeros."""
    rows = np.asarray(vectors, dtype=np.float32)
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scale = np.divide(np.float32(_MOST), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.asarray(np.rint(rows * scale[:, None]).clip(-_MOST, _MOST), dtype=np.int8)


def unit_vectors(directions: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return the unit vectors ``(n, d) float32`` of some directions; zeros where a direction is zero."""
    steps = directions.astype(np.float32)
    steps /= lengths_of(steps)[:, None]
    return steps


def lengths_of(steps: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the lengths ``(n,)`` of quantised directions ``(n, d)``; 1 where a direction is zero."""
    kind: Any = np.float32 if steps.shape[1] <= _EXACT else np.float64
    squares = np.vecdot(steps, steps, dtype=kind)
    lengths: npt.NDArray[np.float32] = np.maximum(np.sqrt(squares), 1).astype(np.float32)
    return lengths


def is_directions(array: npt.NDArray[Any]) -> bool:
    """Return True for an array of directions, False for an array of vectors."""
    return array.dtype.kind == "i"
