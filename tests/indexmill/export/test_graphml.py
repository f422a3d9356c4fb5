"""Graphs as GraphML: XML that any parser reads, with every attribute, whatever the texts hold."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.errors import FamilyNotFound
from indexmill.export import graphml
from indexmill.export.graphml import Elements
from indexmill.text.canonical_names import entity_id
from tests.deep import examples
from tests.indexmill.small_communities import Group
from tests.indexmill.small_knowledge import KNOWLEDGE, publish_knowledge
from tests.indexmill.small_snapshot import publish

SPACE = "{http://graphml.graphdrawing.org/xmlns}"
CASTS: dict[str, Any] = {"string": str, "long": int, "double": float, "boolean": lambda text: text == "true"}


def parsed(data: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The nodes and edges of a file, each with its attributes."""
    root = ElementTree.fromstring(data)  # noqa: S314 - we wrote it
    keys = {
        (one.attrib["for"], one.attrib["id"]): (one.attrib["attr.name"], CASTS[one.attrib["attr.type"]])
        for one in root.iter(f"{SPACE}key")
    }
    found: dict[str, list[dict[str, Any]]] = {"node": [], "edge": []}
    for kind, rows in found.items():
        for element in root.iter(f"{SPACE}{kind}"):
            row: dict[str, Any] = dict(element.attrib)
            for data_of in element.iter(f"{SPACE}data"):
                name, cast = keys[kind, data_of.attrib["key"]]
                row[name] = cast(data_of.text)
            rows.append(row)
    return found["node"], found["edge"]


def of_snapshot(path: Path) -> bytes:
    with indexmill.open(path) as snapshot:
        return b"".join(graphml.document(*graphml.graph(snapshot)))


def test_the_graph_of_a_snapshot_with_communities(tmp_path: Path) -> None:
    place = KNOWLEDGE.names.index
    levels = [
        [Group("Bridge & river", "", [place("marrow bridge"), place("ilse")]), Group("<Ada>", "", [place("ada venn")])],
        [Group("All", "", [0, 1])],
    ]
    publish_knowledge(tmp_path / "store", dataclasses.replace(KNOWLEDGE, levels=levels))
    data = of_snapshot(tmp_path / "store")
    assert data == of_snapshot(tmp_path / "store")
    nodes, edges = parsed(data)
    named = {node["label"]: node for node in nodes}
    assert [node["id"] for node in nodes] == [entity_id(name) for name in KNOWLEDGE.names]
    assert named["Ada Venn"] == {
        "id": entity_id("ada venn"),
        "label": "Ada Venn",
        "type": "thing",
        "description": "all about ada venn",
        "passages": 2,
        "degree": 2,
        "community_0": 0,
        "community_1": named["Ada Venn"]["community_1"],
        "community": "<Ada>",
    }
    assert named["Ilse"]["community"] == named["Marrow Bridge"]["community"] == "Bridge & river"
    assert named["Ilse"]["community_1"] == named["Marrow Bridge"]["community_1"] == 3 - named["Ada Venn"]["community_1"]
    assert {"community", "community_0", "community_1"}.isdisjoint(named["Tallow"])
    ends = {(edge["source"], edge["target"]): edge for edge in edges}
    assert len(ends) == 4
    assert ends[entity_id("ada venn"), entity_id("tallow")] == {
        "source": entity_id("ada venn"),
        "target": entity_id("tallow"),
        "label": "was born in",
        "description": "ada venn was born in tallow",
        "weight": 1.0,
    }


def test_a_graph_needs_no_communities_but_an_extraction(tmp_path: Path) -> None:
    publish_knowledge(tmp_path / "extracted", KNOWLEDGE)
    nodes, edges = parsed(of_snapshot(tmp_path / "extracted"))
    assert (len(nodes), len(edges)) == (6, 4)
    assert not any(name.startswith("community") for node in nodes for name in node)
    publish(tmp_path / "bare")
    with pytest.raises(FamilyNotFound, match="nothing was extracted"):
        of_snapshot(tmp_path / "bare")


NODES = pa.schema(
    {"id": pa.string(), "text": pa.string(), "heavy": pa.bool_(), "weight": pa.float64(), "n": pa.int32()}
)
EDGES = pa.schema({"from": pa.string(), "to": pa.string(), "kind": pa.string()})
TEXT = st.text(st.characters(codec="utf-8"))
ROW = st.fixed_dictionaries(
    {
        "id": TEXT,
        "text": st.none() | TEXT,
        "heavy": st.none() | st.booleans(),
        "weight": st.none() | st.floats(),
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
    }
)


@examples(20, deep=100)
@given(st.lists(ROW))
def test_any_text_survives_but_for_what_xml_cannot_hold(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, NODES)
    ends = pa.table([table["id"], table["id"], table["text"]], schema=EDGES)
    data = b"".join(graphml.document(Elements(NODES, [table]), Elements(EDGES, [ends.slice(0, 1), ends.slice(1)])))
    nodes, edges = parsed(data)
    expected = [{name: held(value) for name, value in row.items() if name == "id" or is_held(value)} for row in rows]
    assert nodes == expected
    assert [edge.get("kind", "") for edge in edges] == [node.get("text", "") for node in expected]
    assert [edge["source"] for edge in edges] == [edge["target"] for edge in edges] == [node["id"] for node in expected]


def is_held(value: Any) -> bool:
    """Whether a value is written at all."""
    return value is not None and value != "" and not (isinstance(value, float) and not math.isfinite(value))


def held(value: Any) -> Any:
    """What a parser reads of a value."""
    if not isinstance(value, str):
        return value
    return "".join("\ufffd" if (one < " " and one not in "\t\n\r") or one in "\ufffe\uffff" else one for one in value)


def test_columns_that_graphml_cannot_hold_are_refused() -> None:
    good = pa.schema({"id": pa.string()})
    for nodes, edges, message in (
        (pa.schema({"id": pa.int64()}), EDGES, "'id' of nodes is int64; expected string"),
        (good, pa.schema({"source": pa.string(), "target": pa.int32()}), "'target' of edges"),
        (pa.schema({"id": pa.string(), "many": pa.list_(pa.string())}), EDGES, "'many' is list"),
    ):
        with pytest.raises(ValueError, match=message):
            next(graphml.document(Elements(nodes, []), Elements(edges, [])))
