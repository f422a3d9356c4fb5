"""The names in what is read of an owner, and the passages that it comes from."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.families.heterograph.graph import TypedGraph, attributes, decomposed, graph_of, node_id
from tasks.families.heterograph.tables import HETERO_SOURCES
from tasks.families.heterograph.text_sources import named, passages_of, passages_that_show, sources_of, titles
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import attribute_table, ids, prize


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
    with pytest.raises(ValueError, match="the node 'u1' has no source"):
        sources_of(read, nodes.slice(1), named, showing)


NAMES = ("hinton", "nobel prize", "backpropagation", "stockholm")


def graph() -> TypedGraph:
    corpus = prize()
    return graph_of(
        decomposed(corpus.units, corpus.unit_entities, corpus.relations), attributes(attribute_table("stockholm"))
    )


def reading(rows: list[tuple[str, str, str]]) -> pa.Table:
    names = ("owner", "node_id", "kind")
    return pa.table({name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(names)})


def surfaces() -> pa.Table:
    return pa.table({"entity_id": ids(*NAMES), "surface": [name.title() for name in NAMES]})


def every(owner: str) -> pa.Table:
    """One owner that reads all there is."""
    held = graph()
    return reading([(owner, one, kind) for kind in "SAR" for one in held.ids_of(kind).to_pylist()])


def test_a_unit_names_what_it_mentions_a_relation_its_ends_and_an_attribute_its_entity() -> None:
    corpus, held = prize(), graph()
    hinton, nobel, _, stockholm = ids(*NAMES)
    unit = dict(zip(corpus.units["text"].to_pylist(), corpus.units["unit_id"].to_pylist(), strict=True))[
        "The Nobel Prize is awarded in Stockholm."
    ]
    relation = node_id("relation", hinton, nobel, "received")
    rows = [("c", unit, "S"), ("c", node_id("attribute", stockholm), "A"), ("d", relation, "R")]
    found = named(held, reading(rows))
    assert sorted(map(tuple, (row.values() for row in found.to_pylist()))) == sorted(
        [
            ("c", unit, "S", nobel),
            ("c", unit, "S", stockholm),
            ("c", node_id("attribute", stockholm), "A", stockholm),
            ("d", relation, "R", hinton),
            ("d", relation, "R", nobel),
        ]
    )


def test_a_community_is_called_after_the_three_that_most_texts_name() -> None:
    """Four units, three relations and an attribute: nobel prize 3 + 2, hinton 2 + 2, stockholm 2 + 1 + 1, ..."""
    names = named(graph(), every("c"))
    found = titles(names, surfaces(), pa.array(["c", "nobody"]))
    assert found.to_pylist()[1] == {"owner": "nobody", "shown": ""}
    first, *others = found["shown"][0].as_py().split(", ")
    assert first == "Nobel Prize"
    by_id = sorted(ids("hinton", "stockholm"))
    assert others == [{one: name.title() for one, name in zip(ids(*NAMES), NAMES, strict=True)}[one] for one in by_id]


def test_two_entities_that_are_shown_alike_are_told_once() -> None:
    alike = surfaces().set_column(1, "surface", pa.array(["Prize", "Prize", "Backpropagation", "Stockholm"]))
    assert titles(named(graph(), every("c")), alike, pa.array(["c"]))["shown"].to_pylist() in (
        ["Prize, Stockholm"],
        ["Prize, Stockholm, Backpropagation"],
    )


def test_what_is_not_there_is_named_in_the_error() -> None:
    with pytest.raises(ValueError, match="the node 'gone' that is read is not in the graph"):
        named(graph(), reading([("c", "gone", "S")]))
    with pytest.raises(ValueError, match=f"the entity {ids('nobel prize')[0]!r} has no surface"):
        titles(named(graph(), every("c")), surfaces().take([0, 2, 3]), pa.array(["c"]))


@examples(6, deep=30)
@given(st.data())
def test_a_title_is_a_function_of_what_is_read(data: st.DataObject) -> None:
    held = graph()
    nodes = [(one, kind) for kind in "SAR" for one in held.ids_of(kind).to_pylist()]
    some = data.draw(st.lists(st.sampled_from(nodes), unique=True))
    other = data.draw(st.lists(st.sampled_from(nodes), unique=True))
    alone = titles(named(held, reading([("c", *one) for one in some])), surfaces(), pa.array(["c"]))
    both = [("c", *one) for one in data.draw(st.permutations(some))] + [("d", *one) for one in other]
    beside = titles(named(held, reading(both)), surfaces(), pa.array(["c", "d"]))
    assert beside["shown"][0] == alone["shown"][0]
    assert len(alone["shown"][0].as_py().split(", ")) <= 3


def test_of_nothing_nothing_is_named() -> None:
    empty = named(graph(), reading([]))
    assert empty.column_names == ["owner", "node_id", "kind", "entity_id"]
    assert len(titles(empty, surfaces(), pa.array([], pa.string()))) == 0
