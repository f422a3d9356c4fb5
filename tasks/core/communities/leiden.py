"""Leiden (Traag, Waltman and van Eck 2019) on weighted links, from scratch or from an earlier membership.

igraph maximises modularity, with a generator seeded for every call, so that earlier calls in the process do not change
the result. The resolution is 1, or one for every `grain` nodes if that is more (ours): communities of plain modularity
grow with the graph (Fortunato and Barthelemy 2007), to thousands of entities, too many for a summary. The weight that
links two nodes of strengths s and t, resolution s t / 2w, then stays the same as a graph grows, and so does the size
of communities.

No community has more than `largest` nodes, the bound of a summary's prompt. igraph has no such bound; leidenalg has one
but takes ten to twenty times as long. So igraph clusters the graph, and leidenalg splits communities that are too large
and makes the final moves of single nodes (ours). The modularity differs from that of leidenalg alone by at most 0.0005
if few communities are too large, and by at most 1.5 % if all are.

From an earlier membership (ours) there are three candidates. The *near* one moves single nodes while that raises
modularity: an unchanged graph keeps its communities, and a small change moves only nodes near it. The *far* candidate
continues Leiden from there, merging and splitting. The *cold* candidate starts from scratch. The first candidate
within `patience` of the best is chosen: every changed community costs a new summary, and a smaller gain in modularity
is not worth a summary. So after any number of builds, the result is at most `patience` worse than a cold start.
"""

from __future__ import annotations

import random
import threading

import igraph
import leidenalg
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tasks.core.communities.graph import ALONE, Labels, Weighted, in_order
from tasks.core.communities.measures import modularity

_STRICT = 1e6  # penalty of each node above the bound; gains are at most the weight of its links

_ROUNDS = 10  # further rounds take as long and raise modularity by less than a thousandth

_LEAST = 1e-9  # smallest gain in modularity that is not rounding

_GENERATOR = threading.Lock()
"""igraph has one generator per process: a call that seeds it keeps this lock until it ends."""


def leiden(
    graph: Weighted,
    start: NDArray[np.int64] | None = None,
    *,
    grain: int = 0,
    largest: int = 0,
    patience: float = 0.015,
    seed: int = 0,
) -> Labels:
    """Return the label of each node.

    start: (n,), a number for each earlier community, ALONE for nodes without a community; if None, the result depends
    only on the graph. grain: 0 for resolution 1. largest: 0 for no bound.
    """
    if not len(graph.edges):
        return np.arange(graph.size)
    resolution = max(1.0, graph.size / grain) if grain else 1.0
    search = _Search(graph, resolution, largest, seed)
    if start is None or (start == ALONE).all():
        return search.far()
    near = search.near(_admitted(graph, start, largest))
    candidates = [near, search.far(near), search.far()]
    reached = [modularity(graph, labels, resolution) for labels in candidates]
    enough = max(reached) - patience * abs(max(reached))
    return next(labels for labels, value in zip(candidates, reached, strict=True) if value >= enough)


class _Search:
    def __init__(self, graph: Weighted, resolution: float, largest: int, seed: int) -> None:
        self._graph = graph
        self._links = igraph.Graph(
            n=graph.size,
            edges=graph.edges.tolist(),
            edge_attrs={"weight": graph.weights.tolist()},
        )
        self._resolution = resolution
        self._largest = largest
        self._seed = seed

    def near(self, start: Labels) -> Labels:
        """Move single nodes while that raises modularity; split communities that are no longer connected."""
        optimiser, partition = self._bounded(self._links, start, self._resolution)
        while optimiser.move_nodes(partition) > _LEAST:  # with bounded sizes, a move makes room for others
            pass
        return _connected(self._graph, np.array(partition.membership, dtype=np.int64))

    def far(self, start: Labels | None = None) -> Labels:
        """Run rounds of Leiden, then move single nodes until none moves, so that `near` finds nothing to do.

        The final moves also split communities that the bound on sizes left unconnected. start: None to start each node
        alone.
        """
        labels = self._clustered(start)
        sizes = np.bincount(labels)
        for row in np.flatnonzero(sizes > self._largest).tolist() if self._largest else ():
            (members,) = (labels == row).nonzero()
            labels[members] = int(labels.max()) + 1 + self._parted(members)
        return self.near(in_order(labels))

    def _parted(self, members: NDArray[np.int64]) -> Labels:
        """Split a community that is too large; returns the label of each member."""
        links = self._links.subgraph(members.tolist())
        share = sum(links.es["weight"]) / float(self._graph.weights.sum())
        optimiser, partition = self._bounded(links, np.arange(len(members)), self._resolution * share)
        optimiser.optimise_partition(partition, n_iterations=_ROUNDS)
        return np.array(partition.membership, dtype=np.int64)

    def _bounded(
        self, links: igraph.Graph, start: Labels, resolution: float
    ) -> tuple[leidenalg.Optimiser, leidenalg.RBConfigurationVertexPartition]:
        optimiser = leidenalg.Optimiser()
        optimiser.set_rng_seed(self._seed)
        optimiser.max_comm_size = self._largest
        optimiser.community_constraint_enforcement = _STRICT if self._largest else 0.0
        partition = leidenalg.RBConfigurationVertexPartition(
            links, start.tolist(), weights="weight", resolution_parameter=resolution
        )
        return optimiser, partition

    def _clustered(self, start: Labels | None) -> Labels:
        with _GENERATOR:
            igraph.set_random_number_generator(random.Random(self._seed))  # noqa: S311 - no secret
            try:
                clustering = self._links.community_leiden(
                    "modularity",
                    weights="weight",
                    resolution=self._resolution,
                    initial_membership=None if start is None else start.tolist(),
                    n_iterations=_ROUNDS,
                )
            finally:
                igraph.set_random_number_generator(random)
        return np.array(clustering.membership, dtype=np.int64)


def _admitted(graph: Weighted, start: NDArray[np.int64], largest: int) -> Labels:
    """Return the start with unknown nodes and oversized communities as single nodes; splits unconnected communities."""
    sizes = np.bincount(start[start != ALONE])
    free = start == ALONE
    if largest:
        free |= sizes[np.where(free, 0, start)] > largest
    labels = np.where(free, len(sizes) + np.arange(graph.size), start)
    return _connected(graph, labels)


def _connected(graph: Weighted, labels: NDArray[np.int64]) -> Labels:
    """Return the connected components of communities; splitting an unconnected community never lowers modularity."""
    inside = labels[graph.edges[:, 0]] == labels[graph.edges[:, 1]]
    internal = Weighted(graph.size, graph.edges[inside], graph.weights[inside])
    return in_order(sparse.csgraph.connected_components(internal.matrix(), directed=False)[1])
