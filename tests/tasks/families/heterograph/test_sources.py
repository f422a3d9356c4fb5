"""The passages that a text is about."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.tables import HETERO_SOURCES
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.sources import by_owner, passages_of, passages_that_show, sources_of
from tests.tasks.families.heterograph.graphs import ids, prize


def pairs(table: pa.Table) -> list[tuple[str, ...]]:
    return list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))


def strings(**columns: list[str]) -> pa.Table:
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def test_a_unit_is_one_passages_and_a_relation_that_of_all_that_say_it() -> None:
    corpus = prize()
    found = pairs(passages_of(corpus.units, corpus.relations))
    assert len(found) == len(set(found)) == 4 + 4
    said = node_id("relation", *ids("hinton", "nobel prize"), "received")
    assert sorted(source for node, source in found if node == said) == ["p0", "p2"]
    units = dict(zip(corpus.units["unit_id"].to_pylist(), corpus.units["passage_id"].to_pylist(), strict=True))
    assert {node: source for node, source in found if node in units} == units


def test_the_least_passage_of_any_file_that_writes_an_entity_as_it_is_shown(tmp_path: Path) -> None:
    mentions = strings(entity_id=["a", "a", "b"], surface=["A.", "A", "b"], passage_id=["p0", "p2", "p0"])
    extracted = strings(entity_id=["a", "a"], surface=["A", "A"], passage_id=["p3", "p1"])
    files = []
    for name, table in (("mentions", mentions), ("extracted", extracted)):
        files.append(tmp_path / name)
        pq.write_table(table, files[-1])
    shown = strings(entity_id=["a", "b"], surface=["A", "B"])
    assert pairs(passages_that_show(shown, files)) == [("a", "p1")]
    assert passages_that_show(shown, []).num_rows == 0


def test_a_text_is_about_what_is_read_for_it_and_what_shows_its_names() -> None:
    read = strings(owner=["y", "x", "x"], node_id=["u2", "u1", "r"])
    nodes = strings(node_id=["u1", "u2", "u3", "r", "r"], source_id=["p1", "p2", "p3", "p1", "p4"])
    named = strings(owner=["x", "x", "y"], entity_id=["a", "b", "c"])
    showing = strings(entity_id=["a", "b"], source_id=["p9", "p4"])
    found = sources_of(read, nodes, named, showing)
    assert found.schema.equals(HETERO_SOURCES)
    assert pairs(found) == [("x", "p1"), ("x", "p4"), ("x", "p9"), ("y", "p2")]
    with pytest.raises(ValueError, match="the node 'u1' comes from nowhere"):
        sources_of(read, nodes.slice(1), named, showing)


def test_of_the_sources_of_a_group_each_owner_is_given_its_own() -> None:
    table = strings(owner=["x", "x", "y", "z"], source_id=["p1", "p4", "p1", "p2"])
    assert by_owner(table, ["z", "x"]) == {"x": ["p1", "p4"], "z": ["p2"]}
    assert by_owner(table, []) == {}
