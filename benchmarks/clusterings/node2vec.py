"""node2vec and k-means: communities of nodes that walks find near each other (Grover and Leskovec 2016).

From every node `walks` walks of `length` nodes, seeded. After the step t -> v, the next node x is drawn in proportion
to the weight of v - x times 1 / p where x is t, 1 where x is linked to t, and 1 / q elsewhere (by rejection: x is drawn
by weight alone and accepted in proportion to that factor).

Ours: in place of skip-gram with negative samples, the matrix that it factorises (Levy and Goldberg 2014): the positive
pointwise mutual information of nodes within `window` steps, reduced to its greatest eigenvalues. It has no order of
training and no learning rate. Nodes without links are each alone.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks.clusterings.kmeans import kmeans
from benchmarks.clusterings.spectral import leading
from tasks.core.communities.graph import Labels, Weighted, in_order

Rows = NDArray[np.int64]


def node2vec(
    graph: Weighted,
    clusters: int,
    *,
    p: float = 1.0,
    q: float = 0.5,
    walks: int = 10,
    length: int = 20,
    window: int = 5,
    dimensions: int = 64,
    seed: int = 0,
) -> Labels:
    """The label of each node: at most `clusters` communities, and each node without links."""
    linked = np.unique(graph.edges)
    labels = np.arange(graph.size) + clusters
    if len(linked):
        dense = Weighted(len(linked), np.searchsorted(linked, graph.edges), graph.weights)
        paths = walked(dense, p=p, q=q, walks=walks, length=length, seed=seed)
        values, vectors = leading(mutual_information(paths, len(linked), window), min(dimensions, len(linked)))
        labels[linked] = kmeans(vectors * np.sqrt(np.maximum(values, 0.0)), clusters, seed=seed)
    return in_order(labels)


def walked(graph: Weighted, *, p: float, q: float, walks: int, length: int, seed: int) -> Rows:
    """The nodes (walks * n, length) of walks from each node of a graph without isolated nodes."""
    matrix = graph.matrix()
    upto = np.concatenate([[0.0], np.cumsum(matrix.data)])
    starts, ends = matrix.indptr[:-1], matrix.indptr[1:]
    keys = np.repeat(np.arange(graph.size), np.diff(matrix.indptr)) * graph.size + matrix.indices  # ascending
    generator = np.random.default_rng(seed)
    paths = np.empty((walks * graph.size, length), dtype=np.int64)
    paths[:, 0] = np.tile(np.arange(graph.size), walks)
    most = max(1.0, 1 / p, 1 / q)
    for step in range(1, length):
        waiting = np.arange(len(paths))
        while len(waiting):
            at = paths[waiting, step - 1]
            drawn = upto[starts[at]] + generator.random(len(at)) * (upto[ends[at]] - upto[starts[at]])
            place = np.clip(np.searchsorted(upto, drawn, side="right") - 1, starts[at], ends[at] - 1)
            to = matrix.indices[place].astype(np.int64)
            accepted = np.ones(len(at), dtype=bool)
            if step > 1:
                back = paths[waiting, step - 2]
                wanted = back * graph.size + to
                linked = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
                factor = np.where(to == back, 1 / p, np.where(linked, 1.0, 1 / q))
                accepted = generator.random(len(at)) * most < factor
            paths[waiting[accepted], step] = to[accepted]
            waiting = waiting[~accepted]
    return paths


def mutual_information(paths: Rows, size: int, window: int) -> sparse.csr_array:
    """max(0, ln(P(u, v) / P(u) P(v))) (n, n), symmetric, of nodes at most `window` steps apart on a path."""
    counts = sparse.csr_array((size, size))
    for apart in range(1, min(window, paths.shape[1] - 1) + 1):
        one, other = paths[:, :-apart].ravel(), paths[:, apart:].ravel()
        counts = counts + sparse.csr_array((np.ones(len(one)), (one, other)), shape=(size, size))
    counts = sparse.coo_array(counts + counts.T)
    totals = counts.sum(axis=1)
    values = np.log(counts.data * totals.sum() / (totals[counts.row] * totals[counts.col]))
    positive = sparse.csr_array((np.maximum(values, 0.0), (counts.row, counts.col)), shape=(size, size))
    positive.eliminate_zeros()
    return positive
