"""Communities of the graph of units, relations, entities and attributes, cold and from an earlier build."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.clusterings.levels import start_from
from tasks.families.heterograph.graph import TypedGraph, attributes, decomposed, graph_of
from tasks.families.heterograph.groups import communities_of, community_rows, grouped
from tasks.stages.extract.tables import Unit
from tests.tasks.families.heterograph.graphs import Corpus, attribute_table, corpora, corpus_of, ids, prize, unit


def world(letter: str) -> list[Unit]:
    """Four units that name the same six entities."""
    return [unit(f"{letter} {place}", *(f"{letter}{number}" for number in range(6))) for place in range(4)]


def two_worlds() -> Corpus:
    """Two such sets of entities, and one unit that names one of each."""
    return corpus_of(world("a"), world("b"), [unit("both", "a0", "b0")])


def of_world(letter: str) -> list[str]:
    return ids(*(f"{letter}{number}" for number in range(6)))


def membership(table: pa.Table) -> dict[str, str]:
    return dict(zip(table["node_id"].to_pylist(), table["community_id"].to_pylist(), strict=True))


def test_what_is_named_together_is_one_community() -> None:
    graph = two_worlds().first()
    found = membership(grouped(graph))
    assert set(found) == set(graph.ids.to_pylist())
    for letter in "ab":
        assert len({found[one] for one in of_world(letter)}) == 1
    assert len(set(found.values())) == 2


def test_an_attribute_belongs_with_its_entity() -> None:
    corpus = two_worlds()
    pieces = decomposed(corpus.units, corpus.unit_entities, corpus.relations)
    graph = graph_of(pieces, attributes(attribute_table("b3")))
    found = membership(grouped(graph))
    assert found[graph.ids_of("A")[0].as_py()] == found[ids("b3")[0]]


def started(graph: TypedGraph, before: pa.Table) -> pa.Table:
    """The communities of a graph, from those of an earlier build."""
    return grouped(graph, start_from(graph.ids.to_pylist(), membership(before)))


def test_communities_start_from_those_of_an_earlier_build() -> None:
    graph = two_worlds().first()
    before = grouped(graph)
    assert started(graph, before).equals(before)
    labels = start_from(graph.ids.to_pylist(), membership(before))
    assert grouped(graph, 1 - labels).equals(before)  # named by their members, whatever they were called
    apart = grouped(graph, np.arange(len(graph)) % 7)  # a start that is far from good leads to no worse communities
    assert len(communities_of(apart)) == len(communities_of(before))


def test_a_small_change_leaves_the_communities_as_they_were() -> None:
    before = grouped(corpus_of(world("a"), world("b")).first())
    more = corpus_of(world("a"), world("b"), [unit("new", "a0", "a9")])
    then, now = membership(before), membership(started(more.first(), before))
    assert {one: now[one] for one in then} == then  # what is new is a community of its own, not worth two changed ones
    assert set(now.values()) - set(then.values()) == {now[ids("a9")[0]]}


def test_rows_of_communities() -> None:
    table = pa.table({"node_id": ["a", "b", "c"], "community_id": ["y", "x", "y"]})
    communities = communities_of(table)
    assert communities.to_pylist() == ["x", "y"]
    found = community_rows(table, pa.array(["c", "nobody", "b"]), communities)
    assert found.tolist() == [1, -1, 0]
    assert community_rows(table, pa.array(["c", "b"]), pa.array(["x"])).tolist() == [-1, 0]


@settings(max_examples=30)
@given(corpora(), st.integers(0, 2**16))
def test_communities_are_a_function_of_the_set(corpus: Corpus, seed: int) -> None:
    found = grouped(corpus.first())
    assert found.equals(grouped(corpus.shuffled(seed).first()))
    assert found["node_id"].to_pylist() == sorted(corpus.first().ids.to_pylist())


def test_no_nodes_no_communities() -> None:
    assert len(grouped(graph_of())) == 0
    nothing = community_rows(grouped(graph_of()), prize().first().ids, pa.array([], pa.string()))
    assert nothing.tolist() == [-1] * 11
