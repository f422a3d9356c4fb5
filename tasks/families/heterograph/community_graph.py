"""Stage `hetero_graph`: the graph of units, relations, entities and attributes [G2], in which communities are found.

(NodeRAG, section 2.3.) Entities with nearly equal names are also linked (`same_as`, not in the paper). The graph is a
pure function of the extracted pieces and of the entities that have attributes; the start of the clustering is an input
of `hetero_groups` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.families.heterograph.search import KINDS
from indexmill.store.pack_schema import Array, PackSchema
from schemas.tables import RELATIONS, SAME_AS
from tasks.core.groups import hex_ids, id_bytes
from tasks.core.stage import Input, NoSettings, Output, Outputs, Part, Stage, shared_tables
from tasks.families.heterograph.graph import ENDS, TypedGraph, attributes, decomposed, graph_of
from tasks.families.heterograph.tables import HETERO_ATTRIBUTES

Pack = Mapping[str, NDArray[Any]]

GRAPH = PackSchema(
    "the graph in which communities are found; see TypedGraph",
    {
        "ids": Array("uint8", ("nodes", 16), "kind by kind in the order of KINDS, then by id"),
        "offsets": Array("int64", (len(KINDS) + 1,), "the first row of each kind, and the end", into="nodes"),
        "edges": Array("int32", ("links", 2), "rows of source and target", below="nodes", least=0),
        "kinds": Array("uint8", ("links",), "indices into tasks.families.heterograph.graph.ENDS", below=len(ENDS)),
    },
)


def graph_pack(graph: TypedGraph) -> Pack:
    """Pack a graph whose ids are all 32 hexadecimal digits, as content-derived ids are."""
    return {"ids": id_bytes(graph.ids), "offsets": graph.offsets, "edges": graph.edges, "kinds": graph.kinds}


def graph_of_pack(pack: Pack) -> TypedGraph:
    ids = pa.array(hex_ids(pack["ids"]), pa.string())
    return TypedGraph(ids, np.asarray(pack["offsets"]), np.asarray(pack["edges"]), np.asarray(pack["kinds"]))


def _compute(part: Part[NoSettings]) -> Outputs:
    first = decomposed(
        part.tables("units", "unit_id"),
        part.tables("unit_entities", "unit_id", "entity_id"),
        part.tables("relations", "source", "target", "text"),
        part.table("same_as", "entity_id", "other_id") if part.has("same_as") else None,
    )
    graph = graph_of(first, attributes(part.tables("attributes", "attribute_id", "entity_id")))
    counts = graph.counts()
    return Outputs(packs={"graph": graph_pack(graph)}, counts={"nodes": counts["nodes"], "links": counts["edges"]})


STAGE = Stage(
    "hetero_graph",
    version=1,
    compute=_compute,
    libraries=("numpy", "polars"),
    expensive=True,
    inputs=(
        *shared_tables("units", "unit_entities", each=True),
        Input("relations", RELATIONS, stage="extract", each=True),
        Input("attributes", HETERO_ATTRIBUTES, each=True),
        Input("same_as", SAME_AS, optional=True),
    ),
    outputs=(Output("graph", GRAPH),),
)
