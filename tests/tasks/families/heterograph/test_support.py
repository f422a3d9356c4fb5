"""The passages that nodes come from, and what a finished graph is checked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from indexmill.families.heterograph.search import Heterograph
from tasks.families.heterograph.graph import (
    Pieces,
    TypedGraph,
    attributes,
    decomposed,
    graph_of,
    high_level,
    node_id,
    texts,
)
from tasks.families.heterograph.support import faults, support
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import Corpus, attribute_table, element_table, ids, prize, whole_graphs


def finished() -> tuple[Corpus, TypedGraph]:
    corpus = prize()
    return corpus, graph_of(
        decomposed(corpus.units, corpus.unit_entities, corpus.relations),
        attributes(attribute_table("stockholm")),
        high_level(element_table("h")),
        texts(corpus.passages, corpus.units),
    )


def read_of(*rows: tuple[str, str]) -> pa.Table:
    return pa.table({name: pa.array([row[place] for row in rows]) for place, name in enumerate(("owner", "node_id"))})


def test_every_node_comes_from_the_passages_of_what_it_was_made_of() -> None:
    corpus, graph = finished()
    unit_of = dict(zip(corpus.units["text"].to_pylist(), corpus.units["unit_id"].to_pylist(), strict=True))
    stockholm = node_id("attribute", *ids("stockholm"))
    received = node_id("relation", *ids("hinton", "nobel prize"), "received")
    again = unit_of["So Hinton received it."]
    read = read_of((stockholm, unit_of["Stockholm is cold."]), ("h", stockholm), ("h", again))
    held = support(graph, corpus.passages["passage_id"].combine_chunks(), corpus.units, corpus.relations, read)
    names = graph.ids.to_pylist()

    def of(node: str) -> list[str]:
        row = names.index(node)
        return [f"p{column}" for column in held.indices[held.indptr[row] : held.indptr[row + 1]].tolist()]

    assert len(held) == graph.offsets[5]
    assert [of(f"p{number}") for number in range(3)] == [["p0"], ["p1"], ["p2"]]
    assert of(again) == ["p2"]
    assert of(received) == ["p0", "p2"]  # said twice
    assert of(stockholm) == ["p1"]
    assert of("h") == ["p1", "p2"]  # what its attribute was made of, too


def test_a_node_that_comes_from_no_passage_is_refused() -> None:
    corpus, graph = finished()
    with pytest.raises(ValueError, match="comes from no passage"):
        support(graph, corpus.passages["passage_id"].combine_chunks(), corpus.units, corpus.relations)
    without = corpus.relations.slice(0, 1)
    with pytest.raises(ValueError, match="comes from no passage; there are 2 such nodes"):
        support(corpus.first(), corpus.passages["passage_id"].combine_chunks(), corpus.units, without)


def test_a_filter_of_passages_leaves_out_what_comes_from_others() -> None:
    corpus, graph = finished()
    read = read_of((node_id("attribute", *ids("stockholm")), corpus.units["unit_id"][1].as_py()))
    read = pa.concat_tables([read, read_of(("h", corpus.units["unit_id"][0].as_py()))])
    held = support(graph, corpus.passages["passage_id"].combine_chunks(), corpus.units, corpus.relations, read)
    reader = Heterograph(graph.offsets, graph.links, held, graph.link_kinds)
    allowed = reader.allowed(np.array([True, False, True]))
    left_out = {graph.ids[int(row)].as_py() for row in np.flatnonzero(~allowed)}
    units = corpus.units.filter(pa.array([one == "p1" for one in corpus.units["passage_id"].to_pylist()]))
    said = node_id("relation", *ids("nobel prize", "stockholm"), "is awarded in")
    attribute = node_id("attribute", *ids("stockholm"))
    only_there = ids("stockholm")
    assert left_out == {"p1", *units["unit_id"].to_pylist(), said, attribute, *only_there}


def test_a_finished_graph_has_no_faults_and_what_is_missing_is_told() -> None:
    corpus, graph = finished()
    assert faults(graph) == []
    pieces = decomposed(corpus.units, corpus.unit_entities, corpus.relations)
    first = graph.ids_of("S")[0].as_py()
    assert faults(graph_of(pieces)) == [f"4 nodes of kind S do not have exactly one edge text: {first!r} has 0"]
    (second,) = ids("hinton")
    attribute = node_id("attribute", *ids("stockholm"))
    twice = Pieces({}, {"attribute": (pa.array([second]), pa.array([attribute]))})
    whole = [pieces, attributes(attribute_table("stockholm")), texts(corpus.passages, corpus.units)]
    assert faults(graph_of(*whole, twice)) == [
        f"1 nodes of kind A do not have exactly one edge attribute: {attribute!r} has 2"
    ]
    unnamed = Pieces({"N": pa.array(["nobody"])})
    assert faults(graph_of(*whole, unnamed)) == ["1 entity is neither named by a unit nor the subject of one"]


@examples(6, deep=30)
@given(whole_graphs())
def test_graphs_of_an_extraction_have_no_faults(drawn: tuple[Corpus, list[Pieces]]) -> None:
    assert faults(graph_of(*drawn[1])) == []
