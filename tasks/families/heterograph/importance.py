"""The entities that get an attribute (NodeRAG, Algorithm 1), from the graph of units, relations and entities.

    core       degree >= floor(ln |V| sqrt(mean degree))
    between    betweenness > mean betweenness max(1, floor(log10 |V|))

The important entities are the union of both sets. The paper calls the first set a k-core but defines it by degree; a
true k-core at that bound is almost always empty. The bound is at least 1. Betweenness (Brandes 2001) is
summed over paths from 10 pivots, the nodes with the smallest seeded hashes of their ids, so that a refresh hardly
changes them; means and |V| count all nodes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Sparse
from tasks.core.shards import hash_order, id_hashes
from tasks.families.heterograph.graph import TypedGraph

PIVOTS = 10
"""The number of nodes from which paths are followed."""

_TINY = 1e-300
_HUGE = 1e150

Rows = NDArray[np.int64]
Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Importance:
    """The entities in `core` and `between` as flags (n_entities,), in the order of their ids, and the two bounds."""

    core: Flags
    between: Flags
    least_degree: int
    least_betweenness: float

    @property
    def chosen(self) -> Flags:
        return self.core | self.between


def important(graph: TypedGraph, *, seed: int = 0) -> Importance:
    """Return the important entities of a graph that has only units, relations and entities [G1]."""
    size, entities = len(graph), graph.rows("N")
    degrees = graph.links.degrees(np.arange(size))
    mean = float(degrees.sum()) / max(size, 1)
    least = max(1, math.floor(math.log(max(size, 1)) * math.sqrt(mean)))
    between = betweenness(graph.links, pivots(graph.ids.to_pylist(), seed=seed))
    bound = float(between.sum()) / max(size, 1) * max(1, math.floor(math.log10(max(size, 1))))
    # Sums in different orders may differ in the last digits: values equal to nine digits count as equal.
    return Importance(degrees[entities] >= least, between[entities] > bound * (1 + 1e-9), least, bound)


def pivots(ids: Sequence[str], *, seed: int = 0) -> Rows:
    """Return the rows of the ids with the smallest seeded hashes, at most PIVOTS, ascending."""
    return np.sort(stable_order(ids, seed=seed)[:PIVOTS])


def stable_order(ids: Sequence[str], *, seed: int = 0) -> Rows:
    """Return the rows in the order of seeded hashes of their ids; a new id hardly changes which rows come first."""
    return hash_order(id_hashes(f"{seed} {one}" for one in ids))


def betweenness(links: Sparse, sources: Rows) -> Scores:
    """Return each node's betweenness, (n,): the shares of shortest paths through it, summed over sources and targets.

    For node v this is the sum over sources s and nodes t of sigma_st(v) / sigma_st, except for paths that start or end
    at v; it is not normalised.
    """
    totals = np.zeros(len(links))
    for source in sources.tolist():
        totals += _dependencies(links, source)
    return totals


def _dependencies(links: Sparse, source: int) -> Scores:
    """Sum the shares of a source's shortest paths through each node, over targets (Brandes 2001, Theorem 6)."""
    size = len(links)
    distance = np.full(size, -1, dtype=np.int32)
    paths = np.zeros(size)  # numbers of shortest paths; a level with huge numbers is rescaled
    mark = np.empty(size, dtype=np.int64)
    distance[source], paths[source] = 0, 1.0
    frontier: Rows = np.array([source], dtype=np.int64)
    level = 0
    steps: list[tuple[Rows, Rows, Scores]] = []
    while len(frontier):
        level += 1
        owners, columns, _ = links.links(frontier)
        fresh = distance[columns] < 0
        tails, heads = frontier[owners[fresh]], columns[fresh]
        np.add.at(paths, heads, paths[tails])
        steps.append((tails, heads, paths[tails] / paths[heads]))
        mark[heads] = np.arange(len(heads))
        frontier = np.sort(heads[mark[heads] == np.arange(len(heads))])
        distance[frontier] = level
        if len(frontier) and (most := float(paths[frontier].max())) > _HUGE:
            paths[frontier] = np.maximum(paths[frontier] / most, _TINY)
    passing = np.zeros(size)
    for tails, heads, shares in reversed(steps):
        np.add.at(passing, tails, shares * (1 + passing[heads]))
    passing[source] = 0.0
    return passing
