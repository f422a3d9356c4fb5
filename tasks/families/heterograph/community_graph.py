"""Stage `hetero_graph`: the graph that communities are found in, of units, relations, entities and attributes [G2].

(NodeRAG, section 2.3.) Entities are also linked where their names are nearly the same (`same_as`, ours). A pure
function of what was extracted and of whose attributes were written: where a clustering starts from is no matter of
this stage.

    Want(WHOLE, {"units/<p>", "unit_entities/<p>", "relations/<p>", "attributes/<e>", "same_as"}, {})

`same_as` where there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from indexmill.families.heterograph.search import KINDS
from indexmill.store.pack_schema import Array, PackSchema
from schemas.tables import HETERO_ATTRIBUTES, RELATIONS, SAME_AS, UNIT_ENTITIES, UNITS
from tasks.core.estimate import Estimate, Range
from tasks.core.groups import hex_ids, id_bytes
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.families.heterograph.graph import ENDS, TypedGraph, attributes, decomposed, graph_of

__all__ = ["GRAPH", "STAGE", "estimate", "graph_of_pack", "graph_pack", "most_rows"]

Pack = Mapping[str, NDArray[Any]]

GRAPH = PackSchema(
    "the graph that communities are found in: see TypedGraph",
    {
        "ids": Array("uint8", ("nodes", 16), "kind by kind in the order of KINDS, then by id"),
        "offsets": Array("int64", (len(KINDS) + 1,), "where each kind begins, and the end", into="nodes"),
        "edges": Array("int32", ("links", 2), "rows of source and target", below="nodes", least=0),
        "kinds": Array("uint8", ("links",), "places in tasks.families.heterograph.graph.ENDS", below=len(ENDS)),
    },
)


def graph_pack(graph: TypedGraph) -> Pack:
    """The arrays of a graph whose ids are all 32 hexadecimal digits, as those that come from content are."""
    pack = {"ids": id_bytes(graph.ids), "offsets": graph.offsets, "edges": graph.edges, "kinds": graph.kinds}
    return GRAPH.conform(pack)


def graph_of_pack(pack: Pack) -> TypedGraph:
    """The graph that a pack holds."""
    ids = pa.array(hex_ids(pack["ids"]), pa.string())
    return TypedGraph(ids, np.asarray(pack["offsets"]), np.asarray(pack["edges"]), np.asarray(pack["kinds"]))


def _compute(inputs: Inputs) -> Outputs:
    same_as = None
    if "same_as" in inputs.job.inputs:
        same_as = inputs.table("same_as", SAME_AS, "entity_id", "other_id")
    first = decomposed(
        inputs.tables("units", UNITS, "unit_id"),
        inputs.tables("unit_entities", UNIT_ENTITIES, "unit_id", "entity_id"),
        inputs.tables("relations", RELATIONS, "source", "target", "text"),
        same_as,
    )
    graph = graph_of(first, attributes(inputs.tables("attributes", HETERO_ATTRIBUTES, "attribute_id", "entity_id")))
    counts = graph.counts()
    return Outputs(packs={"graph": graph_pack(graph)}, counts={"nodes": counts["nodes"], "links": counts["edges"]})


def most_rows(inputs: Inputs, expected: Mapping[str, Range], *prefixes: str) -> int:
    """The rows that the input tables of these names, or named `<prefix>/<label>`, have together at most."""
    return sum(
        (expected.get(name) or Range.exactly(pq.read_metadata(inputs.path(digest)).num_rows)).high
        for name, digest in inputs.job.inputs.items()
        if name.partition("/")[0] in prefixes
    )


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of the size of the graph: what several passages say may be one node."""
    units, named, relations, written, same = (
        most_rows(inputs, expected, name) for name in ("units", "unit_entities", "relations", "attributes", "same_as")
    )
    nodes, links = units + named + relations + written, named + 2 * relations + written + same
    size = GRAPH.size({"nodes": nodes, "links": links})
    return Estimate(bytes={"graph": Range(0, size)}, rows={"graph": Range(0, max(nodes, len(KINDS) + 1, links))})


STAGE = Stage("hetero_graph", version=1, compute=_compute, libraries=("numpy", "polars"), estimate=estimate)
