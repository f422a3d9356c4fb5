"""Stage `hetero_elements_read`: what the high-level elements of each community are made of (NodeRAG, section 2.3).

    Want(WHOLE, {"graph", "hetero_communities", "units/<p>", "relations/<p>", "entities/<e>", "attributes/<e>"},
         {"units", "relations", "attributes", "input_tokens", "fewest", "group", "seed", "writer"},
         encoder={"writer": writer})

The graph is that of `hetero_graph`, the communities are those of `hetero_groups`. writer: the fingerprint of what
writes the elements (`element_text.fingerprint`), which is part of what each is made of. Where that is a model (its
`backend` is not `extractive`) the inputs are `mentions/<p>` and `extracted/<p>`, too: a passage that writes a name as
it is shown is among those that a prompt is about. No row is dear: earlier parts only tell a plan which groups there may
be.

Tables, a pair, or three, for each group of communities, a leaf of a trie over `made_of` of the label `H` and bits, so
that a part of `elements` reads its own alone:

    element_read/<h>      HETERO_READ: the units, attributes and relations that are read
    element_made/<h>      HETERO_MADE; a community is called after the entities that most of these name
    element_sources/<h>   HETERO_SOURCES, where a model is asked: what a prompt is about
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from schemas.tables import (
    ENTITIES,
    EXTRACTED,
    HETERO_ATTRIBUTES,
    HETERO_COMMUNITIES,
    HETERO_MADE,
    HETERO_READ,
    HETERO_SOURCES,
    MENTIONS,
    RELATIONS,
    UNITS,
    conform,
)
from storage.tables import put_table, read_table
from tasks.core.estimate import Estimate, Range, Rows
from tasks.core.groups import assigned, expected_labels, shares
from tasks.core.stage import ARRAYS, Input, Inputs, Output, Outputs, Stage
from tasks.families.heterograph.community_graph import graph_of_pack, most_rows
from tasks.families.heterograph.graph import TypedGraph, relation_nodes
from tasks.families.heterograph.reading import about_communities, capped, first_of, made_of, rows_of
from tasks.families.heterograph.sources import about
from tasks.families.heterograph.texts import digested, relation_table, relation_texts, unit_texts
from tasks.families.heterograph.titles import named, titles
from tasks.stages.split.node_texts import is_table

__all__ = ["GROUPS", "STAGE", "estimate", "read_about"]

GROUPS = "H"
"""The letter of the groups' labels."""

_ROW = 8192  # bytes of what is read of a node, its text among them, in the mean and at most: for the plan


def read_about(
    graph: TypedGraph,
    communities: pa.Table,
    units: pa.Table,
    relations: pa.Table,
    attributes: pa.Table,
    surfaces: pa.Table,
    settings: Mapping[str, Any],
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """What the elements of communities are made of: HETERO_READ with `tokens`, HETERO_MADE, and what these name.

    graph, communities (HETERO_COMMUNITIES): of each other. units, relations, attributes: schemas UNITS, RELATIONS and
    HETERO_ATTRIBUTES, of all nodes. surfaces: columns entity_id and surface of all entities. settings: those of the
    stage. The last table is that of tasks.families.heterograph.titles.named.
    """
    seed, room = settings["seed"], settings["input_tokens"]
    caps = {"S": settings["units"], "A": settings["attributes"], "R": settings["relations"]}
    pairs = first_of(about_communities(graph, communities, settings["fewest"]), caps, seed=seed)
    own = rows_of(attributes, "attribute_id", pairs)
    texts = [
        unit_texts(rows_of(units, "unit_id", pairs)),
        pa.table({"node_id": own["attribute_id"], "text": own["text"]}),
        relation_texts(relation_table(rows_of(relation_nodes(relations), "node_id", pairs), surfaces)),
    ]
    read = capped(pairs, digested(pa.concat_tables(texts)), caps, room, seed=seed)
    names = named(graph, read)
    owners = titles(names, surfaces, read["owner"].unique())
    return read, made_of(read, {"writer": settings["writer"]}, owners), names


def _tables(inputs: Inputs[Any]) -> tuple[dict[str, pa.Table], int]:
    """The tables of a part, and of how many communities they are."""
    settings = inputs.settings
    graph = graph_of_pack(inputs.pack(inputs.job.inputs["graph"]))
    units = inputs.tables("units", UNITS, "unit_id", "passage_id", "text")
    relations = inputs.tables("relations", RELATIONS, "passage_id", "source", "target", "text")
    attributes = inputs.tables("attributes", HETERO_ATTRIBUTES, "attribute_id", "text", "made_of")
    surfaces = inputs.tables("entities", ENTITIES, "entity_id", "surface")
    communities = inputs.table("hetero_communities", HETERO_COMMUNITIES)
    read, made, names = read_about(graph, communities, units, relations, attributes, surfaces, settings)
    found = {"element_read": conform(read, HETERO_READ), "element_made": made}
    if settings["writer"]["backend"] != "extractive":
        ends = names.filter(pc.equal(names["kind"], "R"))  # a relation shows their names
        texts = [*inputs.paths("mentions"), *inputs.paths("extracted")]
        found["element_sources"] = about(read, units, relations, ends, surfaces, texts, attributes)
    keys = made["made_of"].to_pylist()
    tables: dict[str, pa.Table] = {}
    for label, rows in assigned(keys, settings["group"], GROUPS).items():
        owners = made["owner"].combine_chunks().take(pa.array(rows))
        for name, table in found.items():
            tables[f"{name}/{label}"] = table.filter(pc.is_in(table["owner"], owners))
    return tables, len(keys)


def _compute(inputs: Inputs[Any]) -> Outputs:
    tables, count = _tables(inputs)
    return Outputs(tables=tables, counts={"communities_read": count})


def estimate(inputs: Inputs[Any], expected: Mapping[str, Range]) -> Estimate:
    """What the part will hold, where the graph and its communities are known, and else how many there may be."""
    if not expected:
        tables, _ = _tables(inputs)
        kept = {name: put_table(inputs.store, table) for name, table in tables.items()}
        return Estimate(
            bytes={name: Range.exactly(size) for name, (_, size) in kept.items()},
            rows={name: Range.exactly(len(table)) for name, table in tables.items()},
            stand_ins={name: digest for name, (digest, _) in kept.items()},
        )
    settings = inputs.settings
    nodes = most_rows(inputs, expected, "units", "relations", "attributes")  # each is read for one community at most
    made = Range(0, nodes // max(1, settings["fewest"]))
    known: set[str] = set()
    for digest in inputs.job.reuse:
        if is_table(inputs, digest) and "made_of" in pq.read_schema(inputs.path(digest)).names:
            known.update(read_table(inputs.store, digest, HETERO_MADE, columns=("made_of",))["made_of"].to_pylist())
    labels = expected_labels(known, made, settings["group"], GROUPS)
    asks = settings["writer"]["backend"] != "extractive"
    names = ("element_read", "element_made", *(("element_sources",) if asks else ()))
    rows = {
        f"{name}/{label}": share
        for name, most in (("element_read", nodes), ("element_made", made.high))
        for label, share in zip(labels, shares(Rows(0, most, Range(0, most)), len(labels)), strict=True)
    }
    size = Range(0, _ROW * nodes + 65_536)
    return Estimate(bytes={f"{name}/{label}": size for name in names for label in labels}, rows=rows)


STAGE = Stage(
    "hetero_elements_read",
    version=1,
    compute=_compute,
    libraries=("numpy", "polars"),
    estimate=estimate,
    inputs=(
        Input("units", UNITS, each=True),
        Input("relations", RELATIONS, each=True),
        Input("entities", ENTITIES, each=True),
        Input("attributes", HETERO_ATTRIBUTES, each=True),
        Input("graph", ARRAYS),
        Input("hetero_communities", HETERO_COMMUNITIES),
        Input("mentions", MENTIONS, each=True, optional=True),
        Input("extracted", EXTRACTED, each=True, optional=True),
    ),
    outputs=(
        Output("element_read", HETERO_READ, each=True),
        Output("element_made", HETERO_MADE, each=True),
        Output("element_sources", HETERO_SOURCES, each=True),
    ),
)
