"""The heterograph over a small snapshot with a knowledge graph: its tables and arrays, without words and vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import indexmill
from indexmill.manifest import Family
from indexmill.names import entity_id
from indexmill.retrieve.heterograph import KINDS, Heterograph
from schemas.tables import (
    ENTITIES,
    HETERO_ATTRIBUTES,
    HETERO_EDGES,
    HETERO_ELEMENTS,
    HETERO_NODES,
    HETERO_RELATIONS,
)
from tasks.heterograph.graph import (
    ENDS,
    Pieces,
    TypedGraph,
    attributes,
    decomposed,
    graph_of,
    high_level,
    node_id,
    relation_nodes,
    texts,
)
from tasks.heterograph.texts import relation_table
from tests.indexmill.small_knowledge import KNOWLEDGE, publish_knowledge
from tests.indexmill.small_snapshot import EMBEDDER, SnapshotWriter

ABOUT = ("ada venn", "ilse")
ELEMENTS = {"The valley & its river": "A bridge crosses a cold river.", "A patron": "Ada Venn paid for much."}
UNNAMED = "no unit names it"


def publish_heterograph(path: Path, **replaced: np.ndarray) -> tuple[SnapshotWriter, TypedGraph]:
    """Version 1 holds what is known, version 2 its heterograph, too; replaced: arrays of the graph's pack."""
    writer = publish_knowledge(path, KNOWLEDGE)
    with indexmill.open(path) as snapshot:
        held = {name: snapshot.table(name) for name in ("passages", "units", "unit_entities", "relations")}
    entities = [_entity(name) for name in sorted([*KNOWLEDGE.names, UNNAMED], key=entity_id)]
    about = [_attribute(name) for name in ABOUT]
    elements = [_element(title, text) for title, text in ELEMENTS.items()]
    tables = {
        "entities": _halves(entities, "entity_id", "e", ENTITIES),
        "attributes": _by_entity(about),
        "elements": _halves(elements, "element_id", "H", HETERO_ELEMENTS),
    }
    graph = _graph(held, about, elements)
    nodes, edges = graph.tables()
    surfaces = pa.table(
        {name: pa.array([one[name] for one in entities], pa.string()) for name in ("entity_id", "surface")}
    )
    relations = relation_table(relation_nodes(held["relations"]), surfaces)
    for name, shards in tables.items():
        for label, (table, schema) in shards.items():
            writer.table(f"{name}/{label}", table, schema)
            if name != "entities":
                vectors = EMBEDDER.encode(table["text"].to_pylist()).reshape(len(table), -1)
                writer.arrays(f"{name.removesuffix('s')}_vectors/{label}", {"vectors": vectors})
    for name, table, schema in (
        ("nodes", nodes, HETERO_NODES),
        ("edges", edges, HETERO_EDGES),
        ("relations", relations, HETERO_RELATIONS),
    ):
        writer.table(f"heterograph/{name}", table, schema)
    in_order = {
        "T": held["passages"]["passage_id"].to_pylist(),
        "S": held["units"]["unit_id"].to_pylist(),
        "A": [one for table, _ in tables["attributes"].values() for one in table["attribute_id"].to_pylist()],
        "H": [one for table, _ in tables["elements"].values() for one in table["element_id"].to_pylist()],
        "R": relations["node_id"].to_pylist(),
        "N": [one["entity_id"] for one in entities],
        "O": [one for table, _ in tables["elements"].values() for one in table["overview_id"].to_pylist()],
    }
    rows = [in_order[kind].index(one) for kind in KINDS for one in graph.ids_of(kind).to_pylist()]
    arrays = {
        **Heterograph(graph.offsets, graph.links).arrays(),
        "rows": np.array(rows, np.int32),
        "edges": np.bincount(graph.kinds, minlength=len(ENDS)).astype(np.int64),
        "stand_ins": np.array([1, 0], np.int64),
    }
    writer.arrays("heterograph/graph", arrays | replaced)
    writer.arrays("heterograph/names", {"words": np.zeros(3, np.int32)})
    writer.families["heterograph"] = Family(history_dependent=True)
    writer.publish(2)
    return writer, graph


def _graph(
    held: Mapping[str, pa.Table], about: Sequence[Mapping[str, Any]], elements: Sequence[Mapping[str, Any]]
) -> TypedGraph:
    def strings(rows: Sequence[Mapping[str, Any]], name: str) -> pa.Array:
        return pa.array([one[name] for one in rows], pa.string())

    unit = held["units"]["unit_id"].combine_chunks()
    element = strings(elements, "element_id")
    same = pa.table(
        {
            "entity_id": pa.array([entity_id("mercury god")]),
            "other_id": pa.array([entity_id("mercury planet")]),
        }
    )
    return graph_of(
        decomposed(held["units"], held["unit_entities"], held["relations"], same),
        attributes(pa.table({name: strings(about, name) for name in ("attribute_id", "entity_id")})),
        high_level(pa.table({name: strings(elements, name) for name in ("element_id", "overview_id")})),
        texts(held["passages"], held["units"]),
        Pieces({}, {"match": (unit.slice(0, 2), element)}),
        Pieces({}, {"near": (unit.slice(0, 3), unit.slice(1, 3))}),
    )


def _entity(name: str) -> dict[str, Any]:
    surface = KNOWLEDGE.surfaces.get(name, name)
    return {
        "entity_id": entity_id(name),
        "name": name,
        "surface": surface,
        **dict.fromkeys(("mentions", "passages", "documents"), 1),
    }


def _attribute(name: str) -> dict[str, Any]:
    return {
        "attribute_id": node_id("attribute", entity_id(name)),
        "entity_id": entity_id(name),
        "text": f"What is known of {name}.",
        "tokens": 5,
        "digest": "0" * 32,
        "made_of": "0" * 64,
        "stand_in": False,
    }


def _element(title: str, text: str) -> dict[str, Any]:
    own = node_id("high_level", "0" * 64, text)
    return {
        "element_id": own,
        "overview_id": node_id("overview", own),
        "community_id": "0" * 32,
        "title": title,
        "text": text,
        "tokens": 5,
        "digest": "0" * 32,
        "made_of": "0" * 64,
        "stand_in": False,
    }


def _halves(
    rows: Sequence[Mapping[str, Any]], key: str, letter: str, schema: pa.Schema
) -> dict[str, tuple[pa.Table, pa.Schema]]:
    """Two shards, by the first bit of the ids."""
    table = pa.Table.from_pylist(list(rows), schema).sort_by(key)
    high = pc.greater_equal(table[key], "8")
    return {f"{letter}0": (table.filter(pc.invert(high)), schema), f"{letter}1": (table.filter(high), schema)}


def _by_entity(rows: Sequence[Mapping[str, Any]]) -> dict[str, tuple[pa.Table, pa.Schema]]:
    """Attributes in the shards of their entities, ordered by their own ids."""
    halves = _halves(rows, "entity_id", "e", HETERO_ATTRIBUTES)
    return {label: (table.sort_by("attribute_id"), schema) for label, (table, schema) in halves.items()}
