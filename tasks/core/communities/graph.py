"""Graphs of nodes with vectors: nodes are in the order of their ids, and each link occurs once.

Vectors are rounded to the grid of indexmill.retrieve.grid, where products are exact: the cosine of two nodes does not
depend on the other nodes, the library or its threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.columns import distinct
from indexmill.retrieve.grid import UNIT, on_grid

if TYPE_CHECKING:
    from scipy import sparse

Floats = NDArray[np.float32]
Weights = NDArray[np.float64]
Edges = NDArray[np.int64]
"""Links (m, 2) between rows a < b, in ascending order, without duplicates."""
Labels = NDArray[np.int64]
"""The community of each node: 0, 1, ... in the order of their first nodes."""

ALONE = -1
"""Marks a node without a known earlier community in a start (see leiden)."""

_TILE = 8192  # the number of links whose vectors or neighbours are in memory at once


@dataclass(frozen=True)
class Graph:
    """Nodes with links: ids ascending and distinct; vectors (n, d) float32, of unit length, or zero without a text."""

    ids: list[str]
    vectors: Floats
    edges: Edges

    @cached_property
    def grid(self) -> Floats:
        return on_grid(self.vectors)

    def cosines(self, edges: Edges) -> Weights:
        """Return the cosine (m,) float64 of the two nodes of each link."""
        cosines = np.empty(len(edges))
        for low in range(0, len(edges), _TILE):
            ends = self.grid[edges[low : low + _TILE]]
            cosines[low : low + _TILE] = np.einsum("ij,ij->i", ends[:, 0], ends[:, 1])
        return cosines / UNIT


@dataclass(frozen=True)
class Weighted:
    """The input of a clustering: the number of nodes, the links, and their weights (``(m,) float64``, all positive)."""

    size: int
    edges: Edges
    weights: Weights

    def matrix(self) -> sparse.csr_array:
        """Return the symmetric adjacency (n, n), float64."""
        from scipy import sparse  # slow to import; checks of other families do not need it

        rows, columns = np.concatenate([self.edges, self.edges[:, ::-1]]).T
        return sparse.csr_array((np.tile(self.weights, 2), (rows, columns)), shape=(self.size, self.size))


def graph_of(ids: Sequence[str], vectors: NDArray[np.floating], links: Edges) -> Graph:
    """Make a graph from nodes and from links (m, 2) between their rows, both in any order.

    Links of a node to itself are dropped; a repeated link counts once. Raises ValueError for repeated ids, if there is
    not one vector per id, and for vectors whose length is neither one (to 0.1 %) nor zero.
    """
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)
    sorted_ids = [ids[row] for row in order.tolist()]
    for first, second in pairwise(sorted_ids):
        if first == second:
            raise ValueError(f"two nodes have the id {first!r}: give each node once")
    if vectors.ndim != 2 or len(vectors) != len(ids):
        raise ValueError(f"expected a vector per node; found {vectors.shape} for {len(ids)} nodes")
    lengths = np.linalg.norm(vectors, axis=1)
    wrong = np.flatnonzero(~((np.abs(lengths - 1) < 1e-3) | (lengths == 0)))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(f"the vector of {ids[row]!r} has length {lengths[row]:.4g}: divide it by its length")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    ascending = vectors[order].astype(np.float32)
    return Graph(sorted_ids, ascending, joined(len(ids), place[links.reshape(-1, 2).astype(np.int64)]))


def joined(size: int, *links: Edges) -> Edges:
    """Return the union of several sets of links between `size` nodes, in ascending order."""
    pairs = np.concatenate([np.empty((0, 2), dtype=np.int64), *links])
    low, high = pairs.min(axis=1), pairs.max(axis=1)
    keys = distinct((low * size + high)[low < high])
    return np.stack(np.divmod(keys, max(size, 1)), axis=1)


def in_order(labels: NDArray[np.integer]) -> Labels:
    """Renumber labels in the order of each community's first node."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def coarser(edges: Edges, labels: Labels) -> Edges:
    """Return the links between communities: two are linked if a member of one is linked to a member of the other."""
    return joined(int(labels.max(initial=-1)) + 1, labels[edges])


def shared_neighbours(size: int, edges: Edges) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the number of neighbours that the two nodes of each link share (m,), and of each node's neighbours (n,).

    A node is its own neighbour, so that linked nodes share at least themselves.
    """
    from scipy import sparse

    links = Weighted(size, edges, np.ones(len(edges))).matrix()
    near = sparse.csr_array(links + sparse.eye_array(size, format="csr"))
    shared = np.empty(len(edges), dtype=np.int64)
    for low in range(0, len(edges), _TILE):
        sources, targets = edges[low : low + _TILE].T
        shared[low : low + _TILE] = near[sources].multiply(near[targets]).sum(axis=1)
    return shared, np.diff(near.indptr).astype(np.int64)
