"""Stage `community_graph`: the graph in which a level's communities are found (ArchRAG, Algorithm 1, lines 3 to 5, 9).

The nodes of level 1 are the described entities, linked by relations and by nearly equal names (`same_as`, not in the
paper). The nodes of a higher level are the communities of the level below, linked if their members are linked. The
stage adds links between similar nodes and weights every link. It is a pure function of vectors and links; the start of
the clustering is an input of `community_clusters` alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.store.pack_schema import Array, PackSchema
from schemas.tables import SAME_AS
from tasks.core.communities.augment import Augment, codicil, knn, none, weighted
from tasks.core.communities.clusterings import CLUSTERS
from tasks.core.communities.graph import Edges, Floats, coarser, graph_of
from tasks.core.groups import id_bytes
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, shared_tables
from tasks.families.community_tree.tables import COMMUNITIES
from tasks.stages.embed.embed import TEXT_VECTORS

LETTERS = "stuvwxyz"
"""The letter of each level's groups, from level 1."""

GRAPH = PackSchema(
    "the graph in which the communities of a level are found",
    {
        "ids": Array("uint8", ("nodes", 16), "the ids of the nodes, ascending"),
        "edges": Array("int32", ("links", 2), "rows a < b of two nodes, ascending", below="nodes", least=0),
        "weights": Array("float64", ("links",), "the weight of each link"),
    },
)


def level_label(level: int) -> str:
    """Return the label of the parts that find the communities of a level; `k1` is for entities."""
    return f"k{level}"


@dataclass(frozen=True, kw_only=True)
class CommunityGraphSettings(StageSettings):
    """augmentation: the method of adding links. neighbours: the number of nearest nodes considered per node."""

    augmentation: str
    neighbours: int
    threshold: float
    alpha: float
    level: int
    dimension: int


def nodes_below(part: Part[Any]) -> pa.Table:
    """Return the nodes that a level clusters, ordered by id: columns `id`, `digest` and `shard`."""
    name, key = ("described", "entity_id") if part.labels("described") else ("communities", "community_id")
    tables = [pa.table({column: pa.array([], pa.string()) for column in ("id", "digest", "shard")})]
    for label in part.labels(name):
        table = part.table(f"{name}/{label}", key, "digest")
        shard = pa.array([label] * len(table), pa.string())
        tables.append(pa.table({"id": table[key], "digest": table["digest"], "shard": shard}))
    return pa.concat_tables(tables).combine_chunks()


def _vectors_below(part: Part[CommunityGraphSettings]) -> Floats:
    """Return the vectors (n, d) of the nodes, in the order of `nodes_below`."""
    packs = [*part.packs("description_vectors"), *part.packs("community_vectors")]
    none = np.empty((0, part.settings.dimension), dtype=np.float32)
    return np.concatenate([none, *(pack["vectors"] for pack in packs)])


def _compute(part: Part[CommunityGraphSettings]) -> Outputs:
    settings = part.settings
    ids = nodes_below(part)["id"].combine_chunks()
    graph = graph_of(ids.to_pylist(), _vectors_below(part), _links(part, ids))
    edges = _augment(settings)(graph)
    weighted_graph = weighted(graph, edges)
    pack: dict[str, NDArray[Any]] = {
        "ids": id_bytes(graph.ids),
        "edges": edges.astype(np.int32),
        "weights": weighted_graph.weights,
    }
    return Outputs(packs={"graph": pack}, counts={f"links_l{settings.level}": len(edges)})


def _links(part: Part[CommunityGraphSettings], ids: pa.Array) -> Edges:
    """Return the links (m, 2) between the nodes before augmentation, as rows of `ids`."""
    if part.has("clusters"):
        edges = part.pack("graph")["edges"].astype(np.int64)
        return coarser(edges, part.pack("clusters")["labels"].astype(np.int64))
    ends = part.tables("related", "source", "target")
    if part.has("same_as"):
        same = part.table("same_as", "entity_id", "other_id")
        ends = pa.concat_tables([ends, same.rename_columns(["source", "target"])])
    rows = [pc.index_in(ends[name], ids).fill_null(-1).to_numpy() for name in ("source", "target")]
    links = np.stack(rows, axis=1).astype(np.int64)
    return links[(links >= 0).all(axis=1)]


def _augment(settings: CommunityGraphSettings) -> Augment:
    methods: dict[str, Augment] = {
        "knn": partial(knn, k=settings.neighbours, threshold=settings.threshold),
        "codicil": partial(codicil, k=settings.neighbours, alpha=settings.alpha),
        "none": none,
    }
    return methods[settings.augmentation]


STAGE = Stage(
    "community_graph",
    version=1,
    compute=_compute,
    libraries=("numpy", "scipy"),
    expensive=True,
    inputs=(
        *shared_tables("described", "related", each=True, optional=True),
        Input("description_vectors", TEXT_VECTORS, each=True, optional=True),
        Input("same_as", SAME_AS, optional=True),
        Input("communities", COMMUNITIES, each=True, optional=True),
        Input("community_vectors", TEXT_VECTORS, each=True, optional=True),
        Input("graph", GRAPH, stage="community_graph", optional=True),
        Input("clusters", CLUSTERS, optional=True),
    ),
    outputs=(Output("graph", GRAPH),),
)
