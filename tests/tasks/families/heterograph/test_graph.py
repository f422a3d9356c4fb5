"""The heterograph's nodes and edges: by hand, and what holds for every graph (NodeRAG, section 2)."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.families.heterograph.search import EDGES, KINDS
from tasks.families.heterograph.graph import (
    ENDS,
    Pieces,
    TypedGraph,
    attributes,
    decomposed,
    graph_of,
    graph_of_tables,
    high_level,
    linked,
    node_id,
    relation_nodes,
    subjects,
    texts,
)
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import (
    Corpus,
    attribute_table,
    element_table,
    ids,
    pairs,
    prize,
    whole_graphs,
)


def strings(*values: str) -> pa.Array:
    return pa.array(values, pa.string())


def same(one: TypedGraph, other: TypedGraph) -> bool:
    arrays = (("offsets", "edges", "kinds"), ("indptr", "indices"))
    return (
        one.ids == other.ids
        and all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays[0])
        and all(np.array_equal(getattr(one.links, name), getattr(other.links, name)) for name in arrays[1])
    )


def test_edges_are_counted_in_the_order_in_which_readers_know_them() -> None:
    assert tuple(ENDS) == EDGES


def test_units_name_entities_and_relations_stand_between_two_of_them() -> None:
    corpus = prize()
    graph = corpus.first()
    assert {kind: count for kind, count in graph.counts().items() if count} == {
        "S": 4,
        "R": 3,  # hinton received the nobel prize is said twice, and one node
        "N": 4,
        "mention": 8,
        "source": 3,
        "target": 3,
        "nodes": 11,
        "edges": 14,
    }
    hinton, nobel, stockholm = ids("hinton", "nobel prize", "stockholm")
    received = node_id("relation", hinton, nobel, "received")
    assert (hinton, received) in pairs(graph, "source")
    assert (received, nobel) in pairs(graph, "target")
    cold = corpus.units["unit_id"].to_pylist()[corpus.units["text"].to_pylist().index("Stockholm is cold.")]
    assert [pair for pair in pairs(graph, "mention") if pair[0] == cold] == [(cold, stockholm)]


def test_a_relation_keeps_its_direction_and_wording() -> None:
    columns = {"source": ["a", "b", "a", "a"], "target": ["b", "a", "b", "b"], "text": ["met", "met", "saw", "met"]}
    nodes = relation_nodes(pa.table(columns))
    assert sorted(zip(*(nodes[name].to_pylist() for name in ("source", "text", "target")), strict=True)) == [
        ("a", "met", "b"),
        ("a", "saw", "b"),
        ("b", "met", "a"),
    ]
    assert nodes["node_id"].to_pylist() == sorted(nodes["node_id"].to_pylist())


def test_each_step_adds_its_nodes_and_edges() -> None:
    """Attributes, high-level elements with overviews, and texts: sections 2.3 and 2.4."""
    corpus = prize()
    graph = graph_of(
        decomposed(corpus.units, corpus.unit_entities, corpus.relations),
        attributes(attribute_table("hinton")),
        high_level(element_table("h1", "h2")),
        texts(corpus.passages, corpus.units),
        Pieces({}, {"match": (strings(node_id("attribute", *ids("hinton"))), strings("h1"))}),
    )
    assert np.diff(graph.offsets).tolist() == [3, 4, 1, 2, 3, 4, 2]  # T, S, A, H, R, N, O
    assert pairs(graph, "attribute") == {(*ids("hinton"), node_id("attribute", *ids("hinton")))}
    assert pairs(graph, "overview") == {(one, node_id("overview", one)) for one in ("h1", "h2")}
    assert pairs(graph, "text") == set(
        zip(corpus.units["passage_id"].to_pylist(), corpus.units["unit_id"].to_pylist(), strict=True)
    )
    assert graph.ids_of("T").to_pylist() == ["p0", "p1", "p2"]


def test_two_nodes_are_linked_once_by_the_first_kind_that_links_them() -> None:
    corpus = prize()
    one, other = corpus.units["passage_id"][0].as_py(), corpus.units["unit_id"][0].as_py()
    far = corpus.units["unit_id"][3].as_py()
    near = Pieces({}, {"near": (strings(other, one, far), strings(one, far, one))})
    pieces = [
        decomposed(corpus.units, corpus.unit_entities, corpus.relations),
        texts(corpus.passages, corpus.units),
        near,
    ]
    before, graph = graph_of(*pieces[:2]), graph_of(*pieces)
    assert len(graph.edges) == len(before.edges) + 1
    assert pairs(graph, "near") == {(one, far)}  # texts come before units
    assert pairs(graph, "text") == pairs(before, "text")


def test_same_names_are_edges_of_their_own_kind_between_entities_that_units_name() -> None:
    hinton, nobel = sorted(ids("hinton", "nobel prize"))
    same_as = pa.table({"entity_id": [hinton, hinton], "other_id": [nobel, "f" * 32]})
    assert pairs(prize().first(same_as), "same_as") == {(hinton, nobel)}


def test_a_unit_is_linked_to_what_its_passage_is_about_unless_it_names_it() -> None:
    corpus = prize()
    first = corpus.passages["passage_id"].to_pylist()
    about = [(first[1], *ids("stockholm"), "title"), (first[1], *ids("sweden"), "title")]
    about += [(first[1], *ids("sweden"), "title"), (first[0], *ids("oslo"), "name")]
    columns = zip(("passage_id", "entity_id", "kind"), zip(*about, strict=True), strict=True)
    mentions = pa.table({name: strings(*values) for name, values in columns})
    pieces = decomposed(corpus.units, corpus.unit_entities, corpus.relations), subjects(corpus.units, mentions)
    graph = graph_of(*pieces)
    said = [row["unit_id"] for row in corpus.units.to_pylist() if row["passage_id"] == first[1]]
    assert len(said) == 2
    assert pairs(graph, "subject") == {(one, *ids("sweden")) for one in said}  # both name Stockholm
    assert set(ids("sweden")) <= set(graph.ids_of("N").to_pylist())
    assert not set(ids("oslo")) & set(graph.ids_of("N").to_pylist())


def test_every_link_has_the_kind_of_its_edge() -> None:
    graph = prize().first()
    owners = np.arange(len(graph)).repeat(np.diff(graph.links.indptr))
    kind_of = {frozenset(ends): kind for ends, kind in zip(graph.edges.tolist(), graph.kinds.tolist(), strict=True)}
    every = zip(owners.tolist(), graph.links.indices.tolist(), strict=True)
    assert graph.link_kinds.tolist() == [kind_of[frozenset(ends)] for ends in every]


def test_what_may_be_no_edge_is_refused() -> None:
    corpus = prize()
    first = decomposed(corpus.units, corpus.unit_entities, corpus.relations)
    entity, unit = *ids("hinton"), corpus.units["unit_id"][0].as_py()
    with pytest.raises(ValueError, match="attribute: 'nobody' is not a node of kind N"):
        graph_of(first, attributes(pa.table({"attribute_id": ["a"], "entity_id": ["nobody"]})))
    with pytest.raises(ValueError, match=f"match: {entity!r} is not a node of kind S or A"):
        graph_of(first, high_level(element_table("h")), Pieces({}, {"match": (strings(entity), strings("h"))}))
    with pytest.raises(ValueError, match=r"near: .* is linked to itself"):
        graph_of(first, Pieces({}, {"near": (strings(unit), strings(unit))}))
    with pytest.raises(ValueError, match=f"two kinds of nodes have the id {unit!r}"):
        graph_of(first, Pieces({"T": strings(unit)}))
    with pytest.raises(ValueError, match=r"kinds of nodes or edges \['Z'\] are unknown"):
        graph_of_tables(pa.table({"node_id": ["a"], "kind": ["Z"]}), graph_of(first).tables()[1])


def test_no_nodes_are_a_graph() -> None:
    graph = graph_of()
    assert (len(graph), graph.edges.shape, graph.counts()["nodes"]) == (0, (0, 2), 0)
    assert same(graph_of_tables(*graph.tables()), graph)


def test_links_by_hand() -> None:
    """0 -> 1, 2 -> 1, 0 -> 3."""
    links = linked(4, np.array([[0, 1], [2, 1], [0, 3]]))
    assert (links.indptr.tolist(), links.indices.tolist()) == ([0, 2, 4, 5, 6], [1, 3, 0, 2, 1, 0])


@examples(8, deep=40)
@given(whole_graphs())
def test_ends_are_of_the_kinds_that_they_may_be_and_no_two_nodes_are_linked_twice(
    drawn: tuple[Corpus, list[Pieces]],
) -> None:
    corpus, pieces = drawn
    graph = graph_of(*pieces)
    nodes, edges = graph.tables()
    kind_of = dict(zip(nodes["node_id"].to_pylist(), nodes["kind"].to_pylist(), strict=True))
    assert len(kind_of) == len(graph)  # no id twice
    ends = list(zip(*(edges[name].to_pylist() for name in ("source", "target", "kind")), strict=True))
    for source, target, kind in ends:  # a dangling id would be no key
        assert kind_of[source] in ENDS[kind][0]
        assert kind_of[target] in ENDS[kind][1]
    assert len({frozenset((source, target)) for source, target, _ in ends}) == len(ends)
    assert set(edges["weight"].to_pylist()) <= {1.0}

    def partners(kind: str, side: int) -> Counter[str]:
        return Counter(end[side] for end in ends if end[2] == kind)

    every = {kind: graph.ids_of(kind).to_pylist() for kind in KINDS}
    assert partners("text", 1) == Counter(every["S"])  # every unit has one text,
    assert partners("attribute", 1) == Counter(every["A"])  # every attribute one entity,
    assert partners("overview", 1) == Counter(every["O"])  # every overview one element,
    assert partners("overview", 0) == Counter(every["H"])  # every element one overview,
    assert partners("source", 1) == partners("target", 0) == Counter(every["R"])  # every relation two ends,
    assert set(partners("mention", 1)) == set(every["N"])  # and every entity a unit
    assert set(every["T"]) == set(corpus.passages["passage_id"].to_pylist())


@examples(13, deep=40)
@given(whole_graphs(), st.integers(0, 2**16))
def test_a_graph_is_a_function_of_the_sets(drawn: tuple[Corpus, list[Pieces]], seed: int) -> None:
    corpus, pieces = drawn
    other = corpus.shuffled(seed)
    again = [
        texts(other.passages, other.units),
        *pieces[:0:-1],
        decomposed(other.units, other.unit_entities, other.relations),
    ]
    graph = graph_of(*pieces)
    assert same(graph_of(*again), graph)
    assert same(graph_of_tables(*graph.tables()), graph)
    nodes, edges = graph.tables()
    draw = np.random.default_rng(seed)
    nodes, edges = (table.take(draw.permutation(len(table))) for table in (nodes, edges))
    assert same(graph_of_tables(nodes, edges), graph)


@examples(12, deep=40)
@given(whole_graphs())
def test_links_are_the_edges_both_ways(drawn: tuple[Corpus, list[Pieces]]) -> None:
    graph = graph_of(*drawn[1])
    dense = np.zeros((len(graph), len(graph)), dtype=int)
    for source, target in graph.edges.tolist():
        dense[source, target] = dense[target, source] = 1
    for row in range(len(graph)):
        own = graph.links.indices[graph.links.indptr[row] : graph.links.indptr[row + 1]]
        assert own.tolist() == np.flatnonzero(dense[row]).tolist()
