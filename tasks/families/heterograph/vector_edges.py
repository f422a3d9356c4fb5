"""The edges made from vectors: between near nodes, and from high-level elements to near nodes of their community.

`near_pairs` (NodeRAG, section 2.4). The paper takes the base layer of an HNSW index, which depends on the insertion
order of the nodes. Here each node is linked to its k nearest by cosine, and a pair stays if either node chose it, so
the edges depend only on the set. With k = 24 there are 12 to 21 edges per vector, as in the paper's table 4. Neighbours
are exact up to `ListSettings.exact` vectors; for more, they come from inverted lists (tasks.core.neighbours).

`matched` (Algorithm 2). The n vectors of all units, attributes and high-level elements form floor(sqrt(n)) clusters, by
k-means. A unit or an attribute is linked to an element if both are in the same community and cluster. (Section 2.3 also
links elements to each other; Algorithm 2 does not.) Unlike the paper's, the k-means is spherical, on exact products
(indexmill.retrieve.grid), and starts from the vectors with the smallest seeded hashes of their ids, so that the
clusters depend only on the set and a new node hardly moves them. The means come from a sample of at most 256 vectors
per cluster, FAISS's default: all vectors, if there are at most 65,536.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.grid import on_grid
from tasks.core.communities.graph import Edges, Floats, Labels, joined
from tasks.core.neighbours import Lists, ListSettings, centroids
from tasks.families.heterograph.importance import stable_order

_TILE = 16_384  # vectors rounded to the grid at once
_ROUNDS, _SAMPLE = 25, 256
_CELLS = 1 << 22  # products in memory at once


def near_pairs(
    ids: Sequence[str], vectors: Floats, k: int = 24, *, lists: ListSettings | None = None, seed: int = 0
) -> Edges:
    """Return the linked pairs (m, 2) of rows a < b, ascending: each node chooses its `k` nearest.

    vectors: (n, d) float32, unit length or zero, in the order of the graph's nodes. Only vectors less than 90 degrees
    apart are linked, so a zero vector has no pairs. Ties go to the earlier row.
    """
    size = len(vectors)
    if k < 1 or size < 2:
        return np.empty((0, 2), dtype=np.int64)
    grid: NDArray[np.float32] = np.empty(vectors.shape, dtype=np.float32)
    for first in range(0, size, _TILE):
        grid[first : first + _TILE] = on_grid(vectors[first : first + _TILE])
    nearest = Lists(grid, stable_order(ids, seed=seed), lists or ListSettings()).nearest(grid, min(k, size - 1), True)
    owners, places = ((nearest.rows >= 0) & (nearest.products > 0)).nonzero()
    return joined(size, np.stack([owners, nearest.rows[owners, places].astype(np.int64)], axis=1))


def clusters_of(ids: Sequence[str], vectors: Floats, *, seed: int = 0) -> Labels:
    """Return each vector's cluster, below floor(sqrt(n)). vectors: unit, (n, d) float32. Ties: the lower number."""
    size = len(vectors)
    if not size:
        return np.empty(0, dtype=np.int64)
    count = math.isqrt(size)
    grid = on_grid(vectors)
    means = centroids(grid, stable_order(ids, seed=seed), count, rounds=_ROUNDS, per_list=_SAMPLE)
    labels = np.empty(size, dtype=np.int64)
    tile = max(1, _CELLS // count)
    for first in range(0, size, tile):
        labels[first : first + tile] = np.argmax(grid[first : first + tile] @ means.T, axis=1)
    return labels


def matched(clusters: Labels, communities: NDArray[np.int64], elements: NDArray[np.bool_]) -> Edges:
    """Return pairs (m, 2) of rows, ascending: a unit or an attribute, and an element of its community and cluster.

    clusters, communities: (n,), numbers or -1 for none. elements: (n,), True for rows of high-level elements.
    """
    places = np.flatnonzero((clusters >= 0) & (communities >= 0))
    keys = communities[places] * (int(clusters.max(initial=0)) + 1) + clusters[places]
    is_high = elements[places]
    high = places[is_high][np.argsort(keys[is_high], kind="stable")]
    high_keys = np.sort(keys[is_high])
    low, low_keys = places[~is_high], keys[~is_high]
    first, last = high_keys.searchsorted(low_keys), high_keys.searchsorted(low_keys, side="right")
    counts = last - first
    owners = np.arange(len(low)).repeat(counts)
    at = np.arange(len(owners)) - (counts.cumsum() - counts)[owners] + first[owners]
    return np.stack([low[owners], high[at]], axis=1).astype(np.int64)
