"""k-means (Lloyd) from k-means++ centres (Arthur and Vassilvitskii 2007), seeded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.core.communities.graph import Labels, in_order

_TILE = 2**17  # distances held at once: few enough to stay in the cache


def kmeans(rows: NDArray[np.float64], clusters: int, *, seed: int = 0, rounds: int = 50) -> Labels:
    """The cluster of each row (n, d): at most `clusters`, fewer where rows are equal."""
    if not len(rows):
        return np.empty(0, dtype=np.int64)
    centres = _spread(rows, clusters, np.random.default_rng(seed))
    labels = _nearest(rows, centres)
    for _ in range(rounds):
        counts = np.bincount(labels, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, labels, rows)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        before, labels = labels, _nearest(rows, centres)
        if np.array_equal(before, labels):
            break
    return in_order(labels)


def _spread(rows: NDArray[np.float64], clusters: int, generator: np.random.Generator) -> NDArray[np.float64]:
    """Rows as centres, each drawn in proportion to the squared distance from those before."""
    chosen = [int(generator.integers(len(rows)))]
    distances = np.square(rows - rows[chosen[0]]).sum(axis=1)
    while len(chosen) < clusters and distances.any():
        upto = np.cumsum(distances)
        row = int(np.searchsorted(upto, generator.random() * upto[-1], side="right"))
        chosen.append(min(row, len(rows) - 1))
        distances = np.minimum(distances, np.square(rows - rows[chosen[-1]]).sum(axis=1))
    return rows[chosen]


def _nearest(rows: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.int64]:
    """The nearest centre of each row, the first of equals; rounded, so that tiles and threads leave no trace."""
    labels = np.empty(len(rows), dtype=np.int64)
    half = np.square(centres).sum(axis=1) / 2
    step = max(1, _TILE // len(centres))
    for low in range(0, len(rows), step):
        labels[low : low + step] = np.round(half - rows[low : low + step] @ centres.T, 9).argmin(axis=1)
    return labels
