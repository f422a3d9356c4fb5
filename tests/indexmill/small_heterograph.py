"""The family heterograph in a small snapshot: what passages say, and what is told of it, as a test names them.

The graph is made by `tasks.families.heterograph`, from tables as the stages make them, and laid out as a build lays it
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.store.canonical import digest_of
from indexmill.store.manifest import FamilyRecord
from indexmill.text.canonical_names import NameIndex, canonical_name, entity_id
from schemas.tables import ENTITIES, RELATIONS, UNIT_ENTITIES, UNITS
from tasks.core.shards import estimate_tokens
from tasks.families.heterograph.graph import (
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
from tasks.families.heterograph.names import name_words
from tasks.families.heterograph.support import support
from tasks.families.heterograph.tables import (
    HETERO_ATTRIBUTES,
    HETERO_EDGES,
    HETERO_ELEMENTS,
    HETERO_NODES,
    HETERO_RELATIONS,
)
from tasks.families.heterograph.texts import relation_table
from tasks.families.heterograph.vector_edges import near_pairs
from tasks.stages.extract.extraction_tables import Entity, Extraction, Unit, tables_of
from tests.indexmill.small_snapshot import EMBEDDER, SnapshotWriter, read_written


@dataclass(frozen=True)
class Attribute:
    """What is written of an entity, by its canonical name, and the texts of the units that it is made of."""

    name: str
    text: str
    units: Sequence[str]
    stand_in: bool = False


@dataclass(frozen=True)
class Element:
    """A high-level element: its overview, its text, and the texts of the units and attributes that it is made of."""

    title: str
    text: str
    made_of: Sequence[str]
    stand_in: bool = False


def write_heterograph(
    writer: SnapshotWriter,
    said: Sequence[Sequence[Unit]],
    told: Sequence[Attribute] = (),
    elements: Sequence[Element] = (),
    surfaces: Mapping[str, str] | None = None,
    near: int = 3,
    **parameters: JsonValue,
) -> TypedGraph:
    """The family over the passages written so far. said: the units of each, by its row. surfaces: by canonical name.

    An element is matched with all that it is made of. The tokens of a text are its words.
    """
    labels = [one.name.partition("/")[2] for one in writer.artifacts if one.name.startswith("passages/")]
    passages = {label: read_written(writer, f"passages/{label}")["passage_id"].to_pylist() for label in labels}
    rows = iter(said)
    pieces = {label: tables_of(ids, [_extraction(next(rows)) for _ in ids]) for label, ids in passages.items()}
    units, unit_entities, relations = (
        pa.concat_tables([made[name] for made in pieces.values()]) if pieces else schema.empty_table()
        for name, schema in (("units", UNITS), ("unit_entities", UNIT_ENTITIES), ("relations", RELATIONS))
    )
    names = sorted({name for of_one in said for unit in of_one for name in unit.entities}, key=entity_id)
    entities = [_entity(name, (surfaces or {}).get(name, name)) for name in names]
    unit_ids = dict(zip(units["text"].to_pylist(), units["unit_id"].to_pylist(), strict=True))
    told_rows = _attributes(told)
    element_rows = _elements(elements)
    ids = unit_ids | {one.text: row["attribute_id"] for one, row in zip(told, told_rows, strict=True)}
    read = [(row["attribute_id"], ids[text]) for one, row in zip(told, told_rows, strict=True) for text in one.units]
    read += [
        (row["element_id"], ids[text]) for one, row in zip(elements, element_rows, strict=True) for text in one.made_of
    ]
    tables = {
        "units": [(label, made["units"].to_pylist()) for label, made in pieces.items()],
        "entities": _shards("e", entities, "entity_id"),
        "attributes": _shards("e", told_rows, "entity_id", "attribute_id"),
        "elements": _shards("H", element_rows, "made_of", "element_id"),
    }
    for label, made in pieces.items():
        for name, schema in (("units", UNITS), ("unit_entities", UNIT_ENTITIES), ("relations", RELATIONS)):
            writer.table(f"{name}/{label}", made[name], schema)
    for name, schema in (("entities", ENTITIES), ("attributes", HETERO_ATTRIBUTES), ("elements", HETERO_ELEMENTS)):
        for label, held in tables[name]:
            writer.table(f"{name}/{label}", pa.Table.from_pylist(held, schema), schema)
    vectors = _vectors(writer, tables)
    related = relation_table(
        relation_nodes(relations),
        pa.table({side: pa.array([one[side] for one in entities], pa.string()) for side in ("entity_id", "surface")}),
    )
    graph = _graph(
        (units, unit_entities, relations),
        passages,
        told_rows,
        element_rows,
        read,
        vectors | _texts(writer, labels),
        near,
    )
    _whole(writer, graph, tables, (units, relations, related), passages, read)
    counts = {kind: count for kind, count in graph.counts().items() if kind not in KINDS}
    writer.families["heterograph"] = FamilyRecord(parameters=parameters, counts=counts, history_dependent=True)
    return graph


def _extraction(units: Sequence[Unit]) -> Extraction:
    names = sorted({name for unit in units for name in unit.entities})
    return Extraction(tuple(Entity(name, name, "thing", "") for name in names), tuple(units))


def _entity(name: str, surface: str) -> dict[str, Any]:
    assert canonical_name(surface) == name == canonical_name(name)
    counts = {"mentions": 1, "passages": 1, "documents": 1}
    return {"entity_id": entity_id(name), "name": name, "surface": surface, **counts}


def _attributes(told: Sequence[Attribute]) -> list[dict[str, Any]]:
    return [
        {
            "attribute_id": node_id("attribute", entity_id(one.name)),
            "entity_id": entity_id(one.name),
            **_written(one.text, "".join(one.units), one.stand_in),
        }
        for one in told
    ]


def _elements(elements: Sequence[Element]) -> list[dict[str, Any]]:
    rows = []
    for one in elements:
        written = _written(one.text, "".join(one.made_of), one.stand_in)
        own = node_id("high_level", written["made_of"], one.text)
        ids = {"element_id": own, "overview_id": node_id("overview", own), "community_id": written["made_of"]}
        rows.append({**ids, "title": one.title, **written})
    return rows


def _written(text: str, made_of: str, stand_in: bool) -> dict[str, Any]:
    digest, key = (digest_of(one.encode())[:32] for one in (text, made_of))
    return {"text": text, "tokens": len(text.split()), "digest": digest, "made_of": key, "stand_in": stand_in}


def _shards(
    letter: str, rows: Sequence[dict[str, Any]], by: str, order: str | None = None
) -> list[tuple[str, list[dict[str, Any]]]]:
    """The rows in two shards by a key, each in the order of an id; none where there are no rows."""
    return [
        (
            f"{letter}{half}",
            sorted([row for row in rows if (row[by] >= "8") == (half == "1")], key=lambda row: row[order or by]),
        )
        for half in "01"
        if rows
    ]


def _vectors(
    writer: SnapshotWriter, tables: Mapping[str, list[tuple[str, list[dict[str, Any]]]]]
) -> dict[str, np.ndarray]:
    """Write the packs of vectors; the vector of each node."""
    found = {}
    for name, key, pack in (
        ("units", "unit_id", "unit_vectors"),
        ("attributes", "attribute_id", "attribute_vectors"),
        ("elements", "element_id", "element_vectors"),
    ):
        for label, rows in tables[name]:
            made = EMBEDDER.encode([row["text"] for row in rows]).reshape(len(rows), 64)
            keys = [list(bytes.fromhex(digest_of(row["text"].encode())[:32])) for row in rows]
            arrays = {"text_keys": np.array(keys, np.uint8).reshape(len(rows), 16), "vectors": made}
            if name == "units":
                arrays["tokens"] = np.array([len(row["text"].split()) for row in rows], np.int32)
            writer.pack(f"{pack}/{label}", arrays)
            found |= dict(zip([row[key] for row in rows], made, strict=True))
    return found


def _texts(writer: SnapshotWriter, labels: Sequence[str]) -> dict[str, np.ndarray]:
    found = {}
    for label in labels:
        table = read_written(writer, f"passages/{label}")
        found |= dict(zip(table["passage_id"].to_pylist(), EMBEDDER.encode(table["text"].to_pylist()), strict=True))
    return found


def _graph(
    extracted: tuple[pa.Table, pa.Table, pa.Table],
    passages: Mapping[str, Sequence[str]],
    told: Sequence[Mapping[str, Any]],
    elements: Sequence[Mapping[str, Any]],
    read: Sequence[tuple[str, str]],
    vectors: Mapping[str, np.ndarray],
    near: int,
) -> TypedGraph:
    units = extracted[0]
    held = pa.table({"passage_id": _strings([one for ids in passages.values() for one in ids])})
    pieces = [
        decomposed(*extracted),
        attributes(pa.table({name: _strings([row[name] for row in told]) for name in ("attribute_id", "entity_id")})),
        high_level(
            pa.table({name: _strings([row[name] for row in elements]) for name in ("element_id", "overview_id")})
        ),
        texts(held, units),
    ]
    own = {row["element_id"] for row in elements}
    match = [(node, owner) for owner, node in read if owner in own]
    graph = graph_of(*pieces, _edges("match", match))
    embedded = graph.ids.slice(0, int(graph.offsets[4])).to_pylist()
    found = near_pairs(embedded, np.array([vectors[one] for one in embedded], np.float32).reshape(-1, 64), near)
    pairs = [(embedded[one], embedded[other]) for one, other in found.tolist()]
    return graph_of(*pieces, _edges("match", match), _edges("near", pairs))


def _edges(kind: str, pairs: Sequence[tuple[str, str]]) -> Pieces:
    return Pieces({}, {kind: (_strings([one for one, _ in pairs]), _strings([other for _, other in pairs]))})


def _strings(values: Sequence[str]) -> pa.Array:
    return pa.array(values, pa.string())


def _whole(
    writer: SnapshotWriter,
    graph: TypedGraph,
    tables: Mapping[str, list[tuple[str, list[dict[str, Any]]]]],
    related: tuple[pa.Table, pa.Table, pa.Table],
    passages: Mapping[str, Sequence[str]],
    read: Sequence[tuple[str, str]],
) -> None:
    """The artifacts of the whole: tables, graph and names."""
    units, relations, said = related
    every = [one for ids in passages.values() for one in ids]
    rows = {name: [row for _, held in shards for row in held] for name, shards in tables.items()}
    made = pa.table({"owner": _strings([owner for owner, _ in read]), "node_id": _strings([one for _, one in read])})
    comes_from = support(graph, _strings(every), units, relations, made)
    reader = Heterograph(graph.offsets, graph.links, comes_from, graph.link_kinds)
    columns = {
        "T": every,
        "S": [row["unit_id"] for row in rows["units"]],
        "A": [row["attribute_id"] for row in rows["attributes"]],
        "H": [row["element_id"] for row in rows["elements"]],
        "R": said["node_id"].to_pylist(),
        "N": [row["entity_id"] for row in rows["entities"]],
        "O": [row["overview_id"] for row in rows["elements"]],
    }
    places = [pc.index_in(graph.ids_of(kind), _strings(columns[kind])).to_pylist() for kind in KINDS]
    surface = {row["entity_id"]: row["name"] for row in rows["entities"]}
    title = {row["overview_id"]: canonical_name(row["title"]) for row in rows["elements"]}
    names = [surface[one] for one in graph.ids_of("N").to_pylist()]
    names += [title[one] for one in graph.ids_of("O").to_pylist()]
    stand_ins = [sum(row["stand_in"] for row in rows[name]) for name in ("attributes", "elements")]
    arrays = {
        **reader.arrays(),
        "rows": np.array([place for of_kind in places for place in of_kind], np.int32),
        "entity_keys": NameIndex.keys(graph.ids_of("N").to_pylist()),
        "edges": np.bincount(graph.kinds, minlength=len(ENDS)).astype(np.int64),
        "relation_tokens": np.array([estimate_tokens(len(one.encode())) for one in said["said"].to_pylist()], np.int32),
        "stand_ins": np.array(stand_ins, np.int64),
    }
    nodes, edges = graph.tables()
    writer.table("heterograph/nodes", nodes, HETERO_NODES)
    writer.table("heterograph/edges", edges, HETERO_EDGES)
    writer.table("heterograph/relations", said, HETERO_RELATIONS)
    writer.pack("heterograph/graph", arrays)
    writer.pack("heterograph/names", name_words(_strings(names)).arrays())
