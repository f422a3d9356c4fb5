"""Vectors on a grid, so that inner products are exact in any order of summation.

A unit vector times ``SCALE``, rounded, has integer components, stored as float32. By Cauchy and Schwarz no partial sum
of an inner product of two of them exceeds ``(SCALE + sqrt(d) / 2) ** 2``, which for d up to 36,000 is below 2^24, where
float32 holds every integer. So a matrix product of any shape, library or number of threads gives the same bits. A
cosine read from it is wrong by about 1e-4 (rounding of each component to 1 / SCALE).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SCALE = 4000
"""The number of grid steps per unit."""

UNIT = float(SCALE * SCALE)
"""The approximate product of a vector with itself: a product divided by it is the cosine."""


def on_grid(vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """Multiply each component of unit vectors ``(n, d)`` by SCALE and round it, as float32."""
    return np.asarray(np.rint(vectors * np.float32(SCALE)), dtype=np.float32)
