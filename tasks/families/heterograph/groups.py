"""Communities of the graph of units, relations, entities and attributes (NodeRAG, section 2.3): Leiden, unit weights.

A community is named by its members. The clustering goes on from where nodes were in an earlier build, where it is given
that, under the rule of tasks.core.communities.leiden: the first of three candidates that is good enough.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.tables import HETERO_COMMUNITIES, conform
from tasks.core.communities.graph import Weighted
from tasks.core.communities.levels import community_id
from tasks.core.communities.measures import modularity
from tasks.families.heterograph.graph import TypedGraph

__all__ = ["communities_of", "community_rows", "grouped", "quality"]

_LEVEL = 0  # of the ids: those of tasks.core.communities.levels begin at 1


def grouped(
    graph: TypedGraph,
    start: NDArray[np.int64] | None = None,
    *,
    grain: int = 0,
    largest: int = 0,
    patience: float = 0.015,
    seed: int = 0,
) -> pa.Table:
    """The community of each node (HETERO_COMMUNITIES) of a graph of units, relations, entities and attributes [G2].

    start and the rest: see `leiden`.
    """
    from tasks.core.communities.leiden import leiden  # its libraries are slow to import, and a check needs none of it

    ids: list[str] = graph.ids.to_pylist()
    labels = leiden(_unweighted(graph), start, grain=grain, largest=largest, patience=patience, seed=seed)
    order = np.argsort(labels, kind="stable")
    members = np.split(np.array(ids, dtype=object)[order], np.cumsum(np.bincount(labels))[:-1]) if ids else []
    names = pa.array([community_id(_LEVEL, held.tolist()) for held in members], pa.string())
    table = pa.table({"node_id": graph.ids, "community_id": names.take(pa.array(labels))})
    return conform(table.sort_by("node_id"), HETERO_COMMUNITIES)


def quality(graph: TypedGraph, table: pa.Table) -> float:
    """The modularity, at resolution 1, of the communities of a graph's nodes."""
    return modularity(_unweighted(graph), community_rows(table, graph.ids, communities_of(table)))


def _unweighted(graph: TypedGraph) -> Weighted:
    edges = np.sort(graph.edges.astype(np.int64), axis=1)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    return Weighted(len(graph.ids), edges, np.ones(len(edges)))


def communities_of(table: pa.Table) -> pa.Array:
    """The ids of all communities of a table HETERO_COMMUNITIES, ascending."""
    return table["community_id"].unique().sort()


def community_rows(table: pa.Table, ids: pa.Array, communities: pa.Array) -> NDArray[np.int64]:
    """The place of each node's community in `communities`, (n,): -1 for a node that is in none of them."""
    at = pc.index_in(ids, table["node_id"].combine_chunks())
    own = table["community_id"].combine_chunks().take(at)
    found = pc.fill_null(pc.index_in(own, communities), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)
