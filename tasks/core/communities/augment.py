"""Add links by content to the links of a graph, and weight all links (ArchRAG, Algorithm 1, lines 3 to 5).

- `knn`: links each node to the k nodes with the highest cosines that reach a threshold.
- `codicil` (Ruan, Fuhry and Parthasarathy 2013, Algorithm 1): unites the links of `knn` without a threshold with the
  links of the graph. Of its links in the union, every node keeps the ceil(sqrt(degree)) links with the highest

      alpha J(u, v) + (1 - alpha) cos(u, v)

  with J the Jaccard overlap of the two nodes' neighbours in the union, and both terms scaled to [0, 1] per node by
  their minimum and maximum. A link that either node keeps is kept. Ties, here and in `knn`, go to the smaller id.
  Ours: neighbours include the node itself, so that two linked nodes overlap; equal values all become 0; k is 10, not
  50. ArchRAG's published code keeps half of the links and all links of the graph, and computes J on the graph alone.
- `none`: leaves the links unchanged.

Algorithm 1 writes the weight as 1 - cos, which is a distance. Every clustering here needs an affinity, so the weight
is cos, but at least FLOOR, so that a link between dissimilar nodes remains a link.

Up to EXACT_NODES nodes, all pairs are compared. In larger graphs each node is compared with the nodes in the nearest
inverted lists (tasks.core.neighbours): nearly the same links, and still a function of the nodes and their ids.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.grid import UNIT
from tasks.core.communities.graph import Edges, Graph, Weighted, joined, shared_neighbours
from tasks.core.neighbours import Lists, ListSettings
from tasks.core.shards import hash_order, id_hashes

Augment = Callable[[Graph], Edges]
"""Returns the links of a graph together with links by content."""

FLOOR = 0.01
"""The minimum weight of a link."""

EXACT_NODES = 100_000
"""The maximum number of nodes for comparing all pairs, unless the caller sets another maximum."""


def knn(graph: Graph, k: int = 10, threshold: float = 0.6, exact: int | None = None) -> Edges:
    """Return the graph's links, and links from each node to those of its k nearest nodes that reach the threshold."""
    return joined(len(graph.ids), graph.edges, _nearest(graph, k, threshold, exact))


def codicil(graph: Graph, k: int = 10, alpha: float = 0.5, exact: int | None = None) -> Edges:
    """Return the links, from the graph and to the k nearest nodes, that at least one of their nodes keeps."""
    size = len(graph.ids)
    union = joined(size, graph.edges, _nearest(graph, k, 0.0, exact))
    shared, degrees = shared_neighbours(size, union)
    overlap, cosine = shared / (degrees[union].sum(axis=1) - shared), graph.cosines(union)
    owner, neighbour = np.concatenate([union, union[:, ::-1]]).T
    both = np.concatenate([np.arange(len(union))] * 2)
    score = alpha * _scaled(size, owner, overlap[both]) + (1 - alpha) * _scaled(size, owner, cosine[both])
    order = np.lexsort((neighbour, -np.round(score, 9), owner))
    degree = np.bincount(owner, minlength=size)
    place = np.arange(len(order)) - (np.cumsum(degree) - degree)[owner[order]]
    strongest = order[place < np.ceil(np.sqrt(degree))[owner[order]]]
    return joined(size, np.stack([owner[strongest], neighbour[strongest]], axis=1))


def none(graph: Graph) -> Edges:
    """Return the graph's links unchanged."""
    return graph.edges


def weighted(graph: Graph, edges: Edges) -> Weighted:
    """Return the links, weighted by the cosines of their nodes, but at least by FLOOR."""
    return Weighted(len(graph.ids), edges, np.maximum(graph.cosines(edges), FLOOR))


def _nearest(graph: Graph, k: int, threshold: float, exact: int | None) -> Edges:
    """Return links (m, 2) from each node to its k nearest nodes that reach the threshold, as (node, neighbour)."""
    if not k or len(graph.ids) < 2:
        return np.empty((0, 2), dtype=np.int64)
    settings = ListSettings(exact=EXACT_NODES if exact is None else exact)
    near = Lists(graph.grid, hash_order(id_hashes(graph.ids)), settings).nearest(graph.grid, k, alone=True)
    reach = np.float32(np.ceil(threshold * UNIT))
    owners, places = ((near.rows >= 0) & (near.products >= reach)).nonzero()
    return np.stack([owners, near.rows[owners, places].astype(np.int64)], axis=1)


def _scaled(size: int, owner: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Scale the values of each owner to [0, 1]; all 0 if they are equal."""
    least, most = np.full(size, np.inf), np.full(size, -np.inf)
    np.minimum.at(least, owner, values)
    np.maximum.at(most, owner, values)
    width = (most - least)[owner]
    return np.asarray(np.divide(values - least[owner], width, out=np.zeros(len(values)), where=width > 0))
