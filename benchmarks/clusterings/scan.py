"""SCAN (Xu, Yuruk, Feng and Schweiger 2007): communities around cores that share neighbours. Links have no weights.

    sigma(u, v) = |N(u) and N(v)| / sqrt(|N(u)| |N(v)|),   N(v): the neighbours of v and v itself

A core has at least `core` nodes, itself among them, with sigma >= epsilon. Cores that are linked so are one community,
with the nodes that are linked so to one of them. Ours, where the source leaves an order open or ends outside a
partition: a node at the border of several communities goes to its most similar core, the smallest id of equals; hubs
and outliers, in no community, are each alone.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from tasks.core.communities.graph import Labels, Weighted, in_order, shared_neighbours


def scan(graph: Weighted, *, epsilon: float = 0.5, core: int = 3) -> Labels:
    """The label of each node."""
    shared, degrees = shared_neighbours(graph.size, graph.edges)
    similarity = shared / np.sqrt(degrees[graph.edges].prod(axis=1))
    near = graph.edges[similarity >= epsilon]
    cores = 1 + np.bincount(near.ravel(), minlength=graph.size) >= core
    joins = near[cores[near].all(axis=1)]
    links = Weighted(graph.size, joins, np.ones(len(joins))).matrix()
    labels = sparse.csgraph.connected_components(links, directed=False)[1].astype(np.int64)
    both = np.concatenate([graph.edges, graph.edges[:, ::-1]])
    value = np.tile(similarity, 2)
    borders = (value >= epsilon) & cores[both[:, 0]] & ~cores[both[:, 1]]
    hub, border = both[borders].T
    order = np.lexsort((hub, -value[borders], border))
    nodes, first = np.unique(border[order], return_index=True)
    labels[nodes] = labels[hub[order[first]]]
    return in_order(labels)
