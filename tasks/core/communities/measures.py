"""Quality measures of communities: modularity of links; CHI and Sim of vectors (ArchRAG, eqs. 5 and 6).

    modularity   sum over communities of  w_in / w - gamma (strength / 2 w)^2
    CHI          (N - C) / (C - 1)  times  sum_i n_i |c_i - c|^2  /  sum_i sum_{x in C_i} |x - c_i|^2
    Sim          1 / N  sum_i sum_{x in C_i} cos(x, c_i)

with w the weight of all links, w_in the weight of the links inside a community, c_i the mean of its vectors and c the
mean of all vectors. Sim grows with the number of communities, to 1 if each node is alone, so compare it only between
clusterings with equally many communities.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tasks.core.communities.graph import Floats, Labels, Weighted

_TILE = 32_768  # the number of vectors in memory at once in double precision


def modularity(graph: Weighted, labels: Labels, resolution: float = 1.0) -> float:
    """Return the modularity with a resolution (gamma); 0 for a graph without links."""
    total = float(graph.weights.sum())
    if not total:
        return 0.0
    inside = graph.weights[labels[graph.edges[:, 0]] == labels[graph.edges[:, 1]]].sum()
    strength = np.bincount(labels[graph.edges].T.ravel(), np.tile(graph.weights, 2))
    return float(inside / total - resolution * np.square(strength / (2 * total)).sum())


def calinski_harabasz(vectors: Floats, labels: Labels) -> float | None:
    """Return CHI; None if it is undefined: one community, each node alone, or no spread within communities."""
    size, count = len(labels), int(labels.max(initial=-1)) + 1
    if not 1 < count < size:
        return None
    members, centres = _centres(vectors, labels)
    between = float(members @ np.square(centres - vectors.mean(axis=0, dtype=np.float64)).sum(axis=1))
    within = sum(float(np.square(vectors[some] - centres[labels[some]]).sum()) for some in _tiles(size))
    return (size - count) / (count - 1) * between / within if within > 0 else None


def cosine_to_centre(vectors: Floats, labels: Labels) -> float | None:
    """Return Sim; None if there are no nodes. A vector counts as 0 if it or its community's mean is zero."""
    if not len(labels):
        return None
    centres = _centres(vectors, labels)[1]
    cosines = np.zeros(len(labels))
    for some in _tiles(len(labels)):
        tile, centre = vectors[some].astype(np.float64), centres[labels[some]]
        lengths = np.linalg.norm(tile, axis=1) * np.linalg.norm(centre, axis=1)
        np.divide(np.einsum("ij,ij->i", tile, centre), lengths, out=cosines[some], where=lengths > 0)
    return float(cosines.mean())


def _centres(vectors: Floats, labels: Labels) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the size (C,) and the mean vector (C, d) of each community."""
    members = np.bincount(labels)
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(members)
    starts = ends - members
    centres = np.empty((len(members), vectors.shape[1]))
    first = 0
    while first < len(members):  # whole communities: as many as fit a tile, or a single larger community
        last = max(int(np.searchsorted(ends, starts[first] + _TILE, side="right")), first + 1)
        block = vectors[order[starts[first] : ends[last - 1]]].astype(np.float64)
        centres[first:last] = np.add.reduceat(block, starts[first:last] - starts[first], axis=0)
        first = last
    return members, centres / members[:, None]


def _tiles(size: int) -> Iterator[slice]:
    return (slice(low, low + _TILE) for low in range(0, size, _TILE))
