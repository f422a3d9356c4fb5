"""Stage `hetero_groups`: the communities of the graph [G2] (NodeRAG, section 2.3): Leiden with unit weights.

A community's id is derived from its members. The clustering starts from the communities of the previous version
(tasks.core.warm_start) and keeps the first of three candidates that is good enough (tasks.core.communities.leiden).
`start` holds each node's previous community: see `community_clusters`. For n nodes:

    hetero_communities  private table HETERO_COMMUNITIES, n rows
    start               private pack: labels (n,) int32 in the order of the graph's nodes, -1 for a new node
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.errors import CorruptBlob
from schemas.tables import conform
from storage.lineage import LineageEntry
from storage.table_blobs import read_table
from tasks.core.communities.clusterings import Clusters, community_id, start_of
from tasks.core.communities.graph import Labels, Weighted
from tasks.core.communities.measures import modularity
from tasks.core.groups import id_bytes
from tasks.core.run import Run
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings
from tasks.core.warm_start import START, start_inputs, start_pack
from tasks.families.heterograph.community_graph import GRAPH, graph_of_pack
from tasks.families.heterograph.graph import TypedGraph
from tasks.families.heterograph.tables import HETERO_COMMUNITIES

_LEVEL = 0  # the level in the ids; tasks.core.communities.clusterings begins at 1


def grouped(
    graph: TypedGraph,
    start: NDArray[np.int64] | None = None,
    *,
    grain: int = 0,
    largest: int = 0,
    patience: float = 0.015,
    seed: int = 0,
) -> pa.Table:
    """Find the communities (HETERO_COMMUNITIES) of a graph of units, relations, entities and attributes [G2].

    start and the keyword arguments: see `leiden`.
    """
    from tasks.core.communities.leiden import leiden  # its libraries are slow to import, and checks do not need them

    ids: list[str] = graph.ids.to_pylist()
    labels = leiden(_unweighted(graph), start, grain=grain, largest=largest, patience=patience, seed=seed)
    order = np.argsort(labels, kind="stable")
    members = np.split(np.array(ids, dtype=object)[order], np.cumsum(np.bincount(labels))[:-1]) if ids else []
    names = pa.array([community_id(_LEVEL, own.tolist()) for own in members], pa.string())
    table = pa.table({"node_id": graph.ids, "community_id": names.take(pa.array(labels))})
    return conform(table.sort_by("node_id"), HETERO_COMMUNITIES)


def quality(graph: TypedGraph, table: pa.Table) -> float:
    """Return the modularity, at resolution 1, of the communities of a graph's nodes."""
    return modularity(_unweighted(graph), community_rows(table, graph.ids, communities_of(table)))


def _unweighted(graph: TypedGraph) -> Weighted:
    edges = np.sort(graph.edges.astype(np.int64), axis=1)
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    return Weighted(len(graph.ids), edges, np.ones(len(edges)))


def communities_of(table: pa.Table) -> pa.Array:
    """Return the ids of all communities in a table HETERO_COMMUNITIES, ascending."""
    return table["community_id"].unique().sort()


def community_rows(table: pa.Table, ids: pa.Array, communities: pa.Array) -> NDArray[np.int64]:
    """Return the index of each node's community in `communities`, (n,), -1 for a node in none of them."""
    at = pc.index_in(ids, table["node_id"].combine_chunks())
    node_communities = table["community_id"].combine_chunks().take(at)
    rows = pc.fill_null(pc.index_in(node_communities, communities), -1)
    return np.asarray(rows.to_numpy(zero_copy_only=False), dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class CommunitySettings(StageSettings):
    grain: int
    largest: int
    seed: int


def inputs_of(run: Run, label: str, graph: str, settings: CommunitySettings) -> dict[str, str]:
    """Return the inputs of a clustering: `graph` and, if there is one, `start`. label, settings: those of its part."""

    def start(earlier: LineageEntry) -> Labels | None:
        nodes = run.pack(graph)
        if nodes is None:
            return None
        with contextlib.suppress(CorruptBlob):  # a lost or damaged start is ignored
            table = read_table(run.store, earlier.outputs["hetero_communities"], HETERO_COMMUNITIES)
            return start_of(nodes["ids"], clusters_before(table))
        return None

    return start_inputs(run, STAGE, label, graph, settings, start)


def clusters_before(table: pa.Table) -> Clusters:
    """Return the communities in a table HETERO_COMMUNITIES, with ids as bytes."""
    communities = communities_of(table)
    labels = community_rows(table, table["node_id"].combine_chunks(), communities)
    return Clusters(id_bytes(table["node_id"]), labels, id_bytes(communities))


def _compute(part: Part[CommunitySettings]) -> Outputs:
    settings = part.settings
    graph = graph_of_pack(part.pack("graph"))
    start = np.asarray(part.pack("start")["labels"], dtype=np.int64) if part.has("start") else None
    table = grouped(graph, start, grain=settings.grain, largest=settings.largest, seed=settings.seed)
    return Outputs(
        tables={"hetero_communities": table},
        packs={} if start is None else {"start": start_pack(start)},
        counts={
            "communities": len(communities_of(table)),
            "modularity_thousandths": round(1000 * quality(graph, table)),
        },
    )


STAGE = Stage(
    "hetero_groups",
    version=2,
    compute=_compute,
    libraries=("igraph", "leidenalg", "numpy", "scipy"),
    expensive=True,
    inputs=(
        Input("graph", GRAPH, stage="hetero_graph"),
        Input("start", START, stage="hetero_groups", optional=True),
    ),
    outputs=(
        Output("hetero_communities", HETERO_COMMUNITIES),
        Output("start", START),
    ),
)
