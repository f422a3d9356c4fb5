"""Communities: cold and from an earlier build, night after night, and when there is nothing to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.store.layout import blob_path
from storage.folder import FolderStore, init_folder
from tasks.families.heterograph.communities import (
    STAGE,
    clusters_before,
    communities_of,
    community_rows,
    grouped,
)
from tasks.families.heterograph.community_graph import graph_of_pack
from tasks.families.heterograph.graph import TypedGraph, attributes, decomposed, graph_of
from tasks.stages.extract.extraction_tables import Unit
from tests.tasks.core.communities.reference import start_from
from tests.tasks.families.heterograph.graphs import Corpus, attribute_table, corpora, corpus_of, ids, prize, unit
from tests.tasks.families.heterograph.nights import GROUPING, Night
from tests.tasks.families.heterograph.towns import TOWNS, names_of, towns

NEW = {"vell": ("Rook came to Vell.",)}


def first(store: FolderStore) -> Night:
    return Night(store, towns(*TOWNS), names_of(*TOWNS), ["ada vell"]).group()


def second(store: FolderStore, before: Night | None, *, cold: bool = False, names: tuple[str, ...] = TOWNS) -> Night:
    """A night after which a passage is new, and perhaps a town is gone."""
    return Night(store, towns(*names, more=NEW), names_of(*names), ["ada vell"], before, cold).group()


def test_the_communities_are_those_of_the_graph_in_the_order_of_ids(store: FolderStore) -> None:
    made = first(store)
    assert set(made.outputs("hetero_groups")) == {"hetero_communities"}
    table = made.table("hetero_groups", "hetero_communities")
    assert table["node_id"].to_pylist() == sorted(table["node_id"].to_pylist())
    assert made.count("communities", "hetero_groups") == len(set(made.membership().values())) == len(TOWNS)


def test_the_start_is_an_output_that_says_where_each_node_was_and_nothing_of_nodes_that_are_gone(
    store: FolderStore,
) -> None:
    before = first(store)
    made = second(store, before, names=TOWNS[:-1])
    start = made.pack(made.outputs("hetero_groups")["start"])
    graph = made.pack(made.outputs("hetero_graph")["graph"])
    assert start is not None
    assert graph is not None
    assert set(start) == {"labels"}
    nodes = [node.tobytes().hex() for node in graph["ids"]]
    was = [before.membership().get(node) for node in nodes]
    assert was.count(None) == 1  # the unit about Rook, who is not named as an entity
    assert [label == -1 for label in start["labels"].tolist()] == [one is None for one in was]
    assert len({*zip(start["labels"].tolist(), was, strict=True)}) == len(set(was)) == len(TOWNS)
    wanted = clusters_before(before.table("hetero_groups", "hetero_communities"))
    assert len(start["labels"]) < len(wanted.nodes)


@pytest.mark.parametrize("lost", ["hetero_communities", "start"])
@pytest.mark.parametrize("damaged", [False, True])
def test_a_start_that_was_lost_or_damaged_is_none(store: FolderStore, quick: Path, lost: str, damaged: bool) -> None:
    warm = second(store, first(store))
    path = quick / "store" / blob_path(warm.outputs("hetero_groups")[lost])
    if damaged:
        path.chmod(0o644)
        path.write_bytes(b"x" * path.stat().st_size)
    else:
        path.unlink()
    names = TOWNS[1:]  # another graph, so that there is something to start
    made = Night(store, towns(*names), names_of(*names), [], warm).group()
    if lost == "hetero_communities":
        assert "start" not in made.outputs("hetero_groups")
        fresh = Night(init_folder(quick / "fresh"), towns(*names), names_of(*names)).group()
        assert made.outputs("hetero_groups") == fresh.outputs("hetero_groups")
    else:
        assert "start" in made.outputs("hetero_groups")  # it is told from the communities, not from their start


def test_the_clustering_goes_on_from_the_start(store: FolderStore) -> None:
    """The part is what `grouped` makes of the graph and the labels of the input, whatever these say."""
    made = second(store, first(store))
    inputs = made.parts.inputs(STAGE, made.groups_want())
    digest = inputs.job.inputs["start"]
    labels = np.asarray(inputs.pack_at(digest)["labels"]).astype(np.int64)
    graph = made.corpus.first()
    assert len(labels) == len(graph) + 1  # and the attribute
    table = made.table("hetero_groups", "hetero_communities")
    whole = graph_of_pack(inputs.pack("graph"))
    assert grouped(whole, labels, **GROUPING).equals(table)


def test_other_settings_of_the_clustering_start_from_the_same_communities(store: FolderStore) -> None:
    before = first(store)
    made = Night(store, towns(*TOWNS), names_of(*TOWNS), ["ada vell"], before, grouping={"largest": 4}).group()
    assert "start" in made.outputs("hetero_groups")
    sizes = np.unique(list(made.membership().values()), return_counts=True)[1]
    assert sizes.max() <= 4


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
