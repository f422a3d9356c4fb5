"""Spectral clustering of weighted links (Ng, Jordan and Weiss 2001; von Luxburg 2007).

The eigenvectors of D^-1/2 W D^-1/2 with the greatest eigenvalues, one row per node, each row brought to length one,
clustered by k-means. Ours, because a graph of entities has many parts and many communities: no cluster crosses
connected parts, a part gets clusters in proportion to its nodes and one at least, and of the eigenvectors, one per
cluster in the source, `dimensions` at most are taken.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.clusterings.kmeans import kmeans
from tasks.core.communities.graph import Labels, Weighted, in_order

_DENSE = 400  # rows up to which all eigenvectors are computed


def spectral(graph: Weighted, clusters: int, *, dimensions: int = 32, seed: int = 0) -> Labels:
    """The label of each node, in about `clusters` communities; at least one for each connected part."""
    matrix = graph.matrix()
    count, parts = sparse.csgraph.connected_components(matrix, directed=False)
    labels = np.empty(graph.size, dtype=np.int64)
    members = np.split(np.argsort(parts, kind="stable"), np.cumsum(np.bincount(parts, minlength=count))[:-1])
    used = 0
    for rows in members[: count if graph.size else 0]:
        share = max(1, round(min(clusters, graph.size) * len(rows) / graph.size))
        if share == 1:
            labels[rows] = used
        else:
            labels[rows] = used + kmeans(_embedded(matrix[rows][:, rows], min(share, dimensions)), share, seed=seed)
        used += share
    return in_order(labels)


def leading(matrix: sparse.csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The greatest eigenvalues (count,) of a symmetric matrix, ascending, and their vectors (n, count).

    In one thread: sums that are shared out among several come out different, and with them communities.
    """
    with threadpool_limits(1, user_api="blas"):
        return _leading(matrix, count)


def _leading(matrix: sparse.csr_array, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    size = matrix.shape[0]
    if size <= max(_DENSE, 2 * count):
        values, vectors = np.linalg.eigh(matrix.toarray())
        return values[-count:], vectors[:, -count:]
    start = np.random.default_rng(0).standard_normal(size)
    values, vectors = sparse.linalg.eigsh(matrix, k=count, which="LA", v0=start, tol=1e-4)
    return values, vectors


def _embedded(matrix: sparse.csr_array, count: int) -> NDArray[np.float64]:
    root = 1 / np.sqrt(matrix.sum(axis=1))
    scale = sparse.diags_array(root)
    vectors = leading(sparse.csr_array(scale @ matrix @ scale), count)[1]
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0))
