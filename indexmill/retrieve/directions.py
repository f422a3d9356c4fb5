"""Directions of vectors in 8-bit steps: a quarter of the bytes of float32, for vectors that are only compared.

A vector is scaled until its largest component is 127, and rounded. Only the direction is stored; the length is one. For
sentences of MiniLM (384 dimensions) the angle to the vector itself has a cosine of 0.9999 and above. Encoding and
decoding use correctly rounded operations alone, and the squares of the steps add up exactly in float32 for any number
of dimensions up to 1,040 (``127**2 * d < 2**24``); beyond that in float64. So the bits are the same everywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Directions = npt.NDArray[np.int8]

_MOST = 127
_EXACT = (1 << 24) // _MOST**2
"""The dimensions whose squared steps float32 adds without rounding."""


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
    """Return the lengths ``(n,)`` of directions ``(n, d)`` in steps; 1 where a direction is zero."""
    kind: Any = np.float32 if steps.shape[1] <= _EXACT else np.float64
    squares = np.vecdot(steps, steps, dtype=kind)
    lengths: npt.NDArray[np.float32] = np.maximum(np.sqrt(squares), 1).astype(np.float32)
    return lengths


def is_directions(array: npt.NDArray[Any]) -> bool:
    """Return True for an array of directions, False for one of vectors."""
    return array.dtype.kind == "i"
