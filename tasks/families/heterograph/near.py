"""Edges between the nodes of near vectors: texts, units, attributes and high-level elements (NodeRAG, section 2.4).

The paper takes the base layer of an HNSW index, which depends on the order that nodes were inserted in. Ours links each
node to the k nearest by cosine, and keeps a pair that either chose: a function of the set. With k = 24 there are 12 to
21 edges for each vector, as in the paper's table 4. Neighbours are exact up to `ListSettings.exact` vectors, and those
of inverted lists beyond (tasks.core.neighbours); benchmarks/heterograph.py sets both beside a true base layer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.grid import on_grid
from tasks.core.communities.graph import Edges, Floats, joined
from tasks.core.neighbours import Lists, ListSettings
from tasks.families.heterograph.importance import stable_order

__all__ = ["near_pairs"]

_TILE = 16_384  # vectors put on the grid at once


def near_pairs(
    ids: Sequence[str], vectors: Floats, k: int = 24, *, lists: ListSettings | None = None, seed: int = 0
) -> Edges:
    """Pairs (m, 2) of rows a < b, ascending, of unit vectors (n, d) float32 in the order of the graph's nodes.

    A zero vector is near to none, and so are vectors at a right angle or more. Ties go to the earlier row.
    """
    size = len(vectors)
    if k < 1 or size < 2:
        return np.empty((0, 2), dtype=np.int64)
    held: NDArray[np.float32] = np.empty(vectors.shape, dtype=np.float32)
    for first in range(0, size, _TILE):
        held[first : first + _TILE] = on_grid(vectors[first : first + _TILE])
    found = Lists(held, stable_order(ids, seed=seed), lists or ListSettings()).nearest(held, min(k, size - 1), True)
    owners, places = ((found.rows >= 0) & (found.products > 0)).nonzero()
    return joined(size, np.stack([owners, found.rows[owners, places].astype(np.int64)], axis=1))
