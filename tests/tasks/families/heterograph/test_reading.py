"""What attributes and high-level elements are made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.families.heterograph.communities import grouped
from tasks.families.heterograph.graph import attributes, decomposed, graph_of, node_id
from tasks.families.heterograph.importance import stable_order
from tasks.families.heterograph.reading import (
    Read,
    about_communities,
    about_entities,
    capped,
    first_of,
    made_of,
    reads,
)
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import attribute_table, ids, prize

MANY = {"S": 100, "R": 100, "A": 100}


def table_of(rows: list[tuple[str, str, str]]) -> pa.Table:
    names = ("owner", "node_id", "kind")
    return pa.table({name: pa.array([row[place] for row in rows], pa.string()) for place, name in enumerate(names)})


def texts_of(nodes: list[str], tokens: int = 1) -> pa.Table:
    digests = [f"text of {one}" for one in nodes]
    shown = [f"what {one} says" for one in nodes]
    columns = {"node_id": nodes, "digest": digests, "text": shown}
    strings = {name: pa.array(values, pa.string()) for name, values in columns.items()}
    return pa.table(strings | {"tokens": pa.array([tokens] * len(nodes), pa.int64())})


def rows_of(table: pa.Table) -> list[tuple[str, str, str]]:
    return list(zip(*(table[name].to_pylist() for name in ("owner", "node_id", "kind")), strict=True))


def test_an_entity_is_read_about_in_its_units_and_relations_of_either_direction() -> None:
    corpus = prize()
    graph = corpus.first()
    nobel, hinton, stockholm = ids("nobel prize", "hinton", "stockholm")
    chosen = np.array([one == nobel for one in graph.ids_of("N").to_pylist()])
    units = dict(zip(corpus.units["text"].to_pylist(), corpus.units["unit_id"].to_pylist(), strict=True))
    assert {row[1:] for row in rows_of(about_entities(graph, chosen))} == {
        (units["Hinton was awarded the Nobel Prize for inventing backpropagation."], "S"),
        (units["The Nobel Prize is awarded in Stockholm."], "S"),
        (units["So Hinton received it."], "S"),
        (node_id("relation", hinton, nobel, "received"), "R"),
        (node_id("relation", nobel, stockholm, "is awarded in"), "R"),
    }
    assert set(about_entities(graph, chosen)["owner"].to_pylist()) == {nobel}
    assert len(about_entities(graph, np.zeros(4, dtype=bool))) == 0


def test_a_community_is_read_about_in_its_units_relations_and_attributes() -> None:
    corpus = prize()
    graph = graph_of(
        decomposed(corpus.units, corpus.unit_entities, corpus.relations), attributes(attribute_table("hinton"))
    )
    members = graph.ids.to_pylist()
    table = pa.table({"node_id": sorted(members), "community_id": ["c"] * len(members)})
    found = about_communities(graph, table)
    assert {row[1] for row in rows_of(found)} == set(members) - set(graph.ids_of("N").to_pylist())
    alone = pa.table({"node_id": sorted(members), "community_id": [f"c {one}" for one in sorted(members)]})
    assert len(about_communities(graph, alone)) == 0
    assert len(about_communities(graph, alone, fewest=1)) == len(found)
    with pytest.raises(ValueError, match="is in no community"):
        about_communities(graph, table.slice(0, 0))


def test_the_first_in_the_order_of_hashes_are_read_and_shown_by_kind_and_id() -> None:
    nodes = [f"n{number}" for number in range(30)]
    pairs = table_of([("a", one, "S") for one in nodes] + [("a", f"r{one}", "R") for one in nodes])
    found = capped(pairs, texts_of([*nodes, *(f"r{one}" for one in nodes)]), {"S": 5, "R": 2}, 1000)
    every = sorted([*nodes, *(f"r{one}" for one in nodes)])
    order = [every[row] for row in stable_order(every)]
    assert found["node_id"].to_pylist() == [
        *sorted([one for one in order if one[0] == "n"][:5]),
        *sorted([one for one in order if one[0] == "r"][:2]),
    ]
    assert found["digest"].to_pylist() == [f"text of {one}" for one in found["node_id"].to_pylist()]
    assert found["text"].to_pylist() == [f"what {one} says" for one in found["node_id"].to_pylist()]
    assert len(capped(pairs, texts_of(every), {"R": 3}, 1000)) == 3


def test_tokens_are_bounded_over_all_kinds_but_one_node_is_always_read() -> None:
    pairs = table_of([("a", f"n{number}", "S") for number in range(9)] + [("b", "n1", "S")])
    nodes = [f"n{number}" for number in range(9)]
    found = capped(pairs, texts_of(nodes, tokens=10), MANY, 35)
    assert found["owner"].to_pylist() == ["a"] * 3 + ["b"]
    assert found["tokens"].to_pylist() == [10] * 4
    assert rows_of(capped(pairs, texts_of(nodes, tokens=10), MANY, 1))[-1] == ("b", "n1", "S")
    assert len(capped(pairs, texts_of(nodes, tokens=10), MANY, 1)) == 2


def test_a_node_without_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match="the node 'n1' has no text"):
        capped(table_of([("a", "n0", "S"), ("a", "n1", "S")]), texts_of(["n0"]), MANY, 100)


@examples(20, deep=100)
@given(st.sets(st.integers(0, 99), min_size=1), st.integers(0, 99), st.integers(1, 6), st.integers(3, 40))
def test_a_new_node_changes_what_is_read_only_where_it_is_read(
    held: set[int], new: int, most: int, tokens: int
) -> None:
    def read(numbers: set[int]) -> list[str]:
        nodes = [f"n{number}" for number in sorted(numbers)]
        pairs = table_of([("a", one, "S") for one in nodes])
        found: list[str] = capped(pairs, texts_of(nodes, tokens=4), {"S": most}, tokens)["node_id"].to_pylist()
        return found

    before, after = read(held), read(held | {new})
    assert f"n{new}" in after or after == before
    assert len(set(before) - set(after)) <= 1
    assert 1 <= len(after) <= max(1, min(most, tokens // 4))


def test_what_a_text_is_made_of() -> None:
    pairs = table_of([("a", "n0", "S"), ("a", "n1", "R"), ("b", "n0", "S"), ("c", "n0", "S")])
    texts = texts_of(["n0", "n1"], tokens=7)
    read = capped(pairs, texts, MANY, 100)
    made = made_of(read, {"model": "m"})
    assert made["owner"].to_pylist() == ["a", "b", "c"]
    assert (made["nodes"].to_pylist(), made["tokens"].to_pylist()) == ([2, 1, 1], [14, 7, 7])
    first, second, third = made["made_of"].to_pylist()
    assert first != second == third  # a community is not shown but for its nodes
    assert made_of(capped(pairs.slice(2), texts, MANY, 100), {"model": "m"})["made_of"].to_pylist() == [second, third]
    assert made_of(read, {"model": "other"})["made_of"][1].as_py() != second
    edited = texts.set_column(texts.column_names.index("digest"), "digest", pa.array(["another", "text of n1"]))
    assert made_of(capped(pairs, edited, MANY, 100), {"model": "m"})["made_of"][1].as_py() != second
    assert made["shown"].to_pylist() == ["", "", ""]
    owners = pa.table({"owner": ["a", "b", "c"], "shown": ["A", "B", "C"]})
    named = made_of(read, {"model": "m"}, owners)
    assert named["shown"].to_pylist() == ["A", "B", "C"]
    assert len(set(named["made_of"].to_pylist())) == 3
    with pytest.raises(ValueError, match="'c' has no displayed name"):
        made_of(read, {"model": "m"}, owners.slice(0, 2))


@examples(20, deep=100)
@given(st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.sampled_from("SRA"))), st.integers(0, 3))
def test_no_other_nodes_need_a_text_than_those_that_may_be_read(held: set[tuple[str, int, str]], most: int) -> None:
    pairs = table_of([(owner, f"{kind}{number}", kind) for owner, number, kind in sorted(held)])
    caps = {"S": most, "R": 2}
    first = first_of(pairs, caps)
    nodes = sorted(set(first["node_id"].to_pylist()))
    every = sorted(set(pairs["node_id"].to_pylist()))
    assert capped(pairs, texts_of(nodes), caps, 100).equals(capped(first, texts_of(every), caps, 100))
    assert len(capped(pairs, texts_of(nodes), caps, 100)) == len(first)


def test_the_tables_of_a_group_tell_what_each_of_its_texts_is_made_of() -> None:
    pairs = table_of([("a", "n1", "S"), ("a", "n0", "S"), ("a", "n2", "R"), ("b", "n0", "S")])
    read = capped(pairs, texts_of(["n0", "n1", "n2"]), MANY, 100)
    made = made_of(read, {}, pa.table({"owner": ["a", "b"], "shown": ["A", "B"]}))
    first, second = made["made_of"].to_pylist()
    assert list(reads(read, made)) == [
        Read("a", "A", first, {"S": ["what n0 says", "what n1 says"], "R": ["what n2 says"]}),
        Read("b", "B", second, {"S": ["what n0 says"]}),
    ]
    assert next(reads(read, made)).of("R", "S", "A") == ["what n2 says", "what n0 says", "what n1 says"]
    with pytest.raises(ValueError, match="'b' is in only one of two tables"):
        list(reads(read, made.slice(0, 1)))
    with pytest.raises(ValueError, match="'b' is in only one of two tables"):
        list(reads(read.slice(0, 3), made))


def test_nothing_is_read_of_nothing() -> None:
    read = capped(table_of([]), texts_of([]), MANY, 10)
    assert (len(read), len(made_of(read, {}))) == (0, 0)


def test_reading_a_grouped_graph_of_a_corpus() -> None:
    graph = prize().first()
    every = [*graph.ids_of("S").to_pylist(), *graph.ids_of("R").to_pylist()]
    read = capped(about_communities(graph, grouped(graph)), texts_of(every), MANY, 100)
    assert sorted(read["node_id"].to_pylist()) == sorted(every)  # no community of it has only one of these
