"""Leiden (Traag, Waltman and van Eck 2019) on weighted links, from nothing or from an earlier membership.

Modularity, by leidenalg with a generator of its own, seeded by every call: what ran before in the process leaves no
trace. Its resolution is 1, or one for every `grain` nodes where that is more (ours): communities of plain modularity
grow with the graph (Fortunato and Barthelemy 2007), to thousands of entities, which no summary holds. What two nodes of
strengths s and t must be linked by, resolution s t / 2w, then stays the same as a graph grows, and so does the size of
communities. None has more than `largest` nodes, the bound of a summary's prompt.

From an earlier membership (ours) there are three candidates. The *near* one moves single nodes while that raises
modularity: a graph that did not change keeps its communities, and a small change moves what is near it. The *far* one
lets Leiden go on from there, merging and splitting. The *cold* one starts from nothing. The first of them that is
within `patience` of the best is taken: every community that changes costs a summary, and modularity below that share is
not worth one. So the result never falls behind a cold start by more, however many nights go by.
"""

from __future__ import annotations

import igraph
import leidenalg
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tasks.communities.graph import ALONE, Labels, Weighted, in_order
from tasks.communities.measures import modularity

__all__ = ["leiden"]

_STRICT = 1e6  # what a node too many costs, beside gains of at most the weight of its links

_ROUNDS = 10  # further ones take as long and raise modularity by a thousandth


def leiden(
    graph: Weighted,
    start: NDArray[np.int64] | None = None,
    *,
    grain: int = 0,
    largest: int = 0,
    patience: float = 0.015,
    seed: int = 0,
) -> Labels:
    """The label of each node. `start`: see graph.start_from; without it the result is a function of the graph.

    `grain` 0: resolution 1. `largest` 0: no bound.
    """
    if not len(graph.edges):
        return np.arange(graph.size)
    resolution = max(1.0, graph.size / grain) if grain else 1.0
    search = _Search(graph, resolution, largest, seed)
    if start is None or (start == ALONE).all():
        return search.far(np.arange(graph.size))
    near = search.near(_admitted(graph, start, largest))
    candidates = [near, search.far(near), search.far(np.arange(graph.size))]
    reached = [modularity(graph, labels, resolution) for labels in candidates]
    enough = max(reached) - patience * abs(max(reached))
    return next(labels for labels, value in zip(candidates, reached, strict=True) if value >= enough)


class _Search:
    """Leiden on one graph."""

    def __init__(self, graph: Weighted, resolution: float, largest: int, seed: int) -> None:
        self._graph = graph
        self._links = igraph.Graph(n=graph.size, edges=graph.edges.tolist())
        self._resolution = resolution
        self._largest = largest
        self._seed = seed

    def near(self, start: Labels) -> Labels:
        """Single nodes moved while that raises modularity; communities that fell apart are their parts."""
        optimiser, partition = self._from(start)
        optimiser.move_nodes(partition)
        return _connected(self._graph, np.array(partition.membership, dtype=np.int64))

    def far(self, start: Labels) -> Labels:
        """Rounds of Leiden, then single nodes until none moves, so that `near` finds nothing to do.

        Connected as well, which a bound on sizes does not promise.
        """
        optimiser, partition = self._from(start)
        optimiser.optimise_partition(partition, n_iterations=_ROUNDS)
        optimiser.move_nodes(partition)
        return _connected(self._graph, np.array(partition.membership, dtype=np.int64))

    def _from(self, start: Labels) -> tuple[leidenalg.Optimiser, leidenalg.RBConfigurationVertexPartition]:
        optimiser = leidenalg.Optimiser()
        optimiser.set_rng_seed(self._seed)
        optimiser.max_comm_size = self._largest
        optimiser.community_constraint_enforcement = _STRICT if self._largest else 0.0
        partition = leidenalg.RBConfigurationVertexPartition(
            self._links, start.tolist(), self._graph.weights.tolist(), resolution_parameter=self._resolution
        )
        return optimiser, partition


def _admitted(graph: Weighted, start: NDArray[np.int64], largest: int) -> Labels:
    """The start with nodes alone where none is known, or where a community is too large, and in connected parts."""
    sizes = np.bincount(start[start != ALONE])
    free = start == ALONE
    if largest:
        free |= sizes[np.where(free, 0, start)] > largest
    labels = np.where(free, len(sizes) + np.arange(graph.size), start)
    return _connected(graph, labels)


def _connected(graph: Weighted, labels: NDArray[np.int64]) -> Labels:
    """The connected parts of communities; to part what no link joins never lowers modularity."""
    inside = labels[graph.edges[:, 0]] == labels[graph.edges[:, 1]]
    kept = Weighted(graph.size, graph.edges[inside], graph.weights[inside])
    return in_order(sparse.csgraph.connected_components(kept.matrix(), directed=False)[1])
