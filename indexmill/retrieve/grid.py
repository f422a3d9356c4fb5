"""Vectors on a grid, so that inner products are exact in any order of summation.

A unit vector times ``SCALE``, rounded, has integer components, stored as float32. By the Cauchy-Schwarz inequality, no
partial sum of an inner product of two such vectors exceeds ``(SCALE + sqrt(d) / 2) ** 2``. For d up to 36,000 this is
below 2^24, and float32 represents all integers up to there. So a matrix product of any shape, with any library or
number of threads, gives the same bits. Rounding each component to 1 / SCALE changes a cosine by about 1e-4.
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
