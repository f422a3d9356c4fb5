"""The graph that the communities of a heterograph are found in, as a part."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given

from schemas.tables import SAME_AS
from storage.folder import FolderStore
from tasks.families.heterograph.community_graph import STAGE, graph_of_pack, graph_pack
from tasks.families.heterograph.graph import attributes, decomposed, graph_of
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import Corpus, corpora, ids, pairs
from tests.tasks.families.heterograph.nights import Night, attribute_rows
from tests.tasks.families.heterograph.towns import names_of, towns


def night(store: FolderStore, same_as: pa.Table | None = None) -> Night:
    made = Night(store, towns("vell", "orrin"), names_of("vell", "orrin"), ["ada vell"], same_as=same_as)
    made.make(STAGE, made.graph_want())
    return made


def test_the_part_holds_units_relations_entities_and_attributes(store: FolderStore) -> None:
    made = night(store)
    pack = made.pack(made.outputs("hetero_graph")["graph"])
    assert pack is not None
    found = graph_of_pack(pack)
    corpus = made.corpus
    wanted = graph_of(
        decomposed(corpus.units, corpus.unit_entities, corpus.relations), attributes(attribute_rows("ada vell"))
    )
    assert found.ids.equals(wanted.ids)
    assert found.tables()[1].equals(wanted.tables()[1])
    counts = found.counts()
    assert [counts[kind] for kind in "TSAHRNO"] == [0, 8, 1, 0, 8, 10, 0]
    assert made.count("nodes", "hetero_graph") == counts["nodes"] == 27
    assert made.count("links", "hetero_graph") == counts["edges"] == 24 + 16 + 1
    assert found.ids_of("A").to_pylist() == attribute_rows("ada vell")["attribute_id"].to_pylist()


def test_names_that_are_nearly_the_same_are_linked_where_that_is_looked_for(store: FolderStore) -> None:
    one, other = sorted(ids("ada vell", "ada orrin"))
    rows = [{"entity_id": one, "other_id": other, "cosine": 0.9, "likeness": 0.9}]
    made = night(store, pa.Table.from_pylist(rows, SAME_AS))
    pack = made.pack(made.outputs("hetero_graph")["graph"])
    assert pack is not None
    assert pairs(graph_of_pack(pack), "same_as") == {(one, other)}
    assert made.outputs("hetero_graph") != night(store).outputs("hetero_graph")


@examples(6, deep=30)
@given(corpora())
def test_a_pack_holds_its_graph(corpus: Corpus) -> None:
    graph = corpus.first()
    found = graph_of_pack(graph_pack(graph))
    assert found.ids.equals(graph.ids)
    assert found.offsets.tolist() == graph.offsets.tolist()
    assert found.tables()[1].equals(graph.tables()[1])
