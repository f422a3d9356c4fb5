"""The communities of a heterograph, night after night: where they start from, and when there is nothing to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from indexmill.store.layout import blob_path
from storage.folder import FolderStore, init_store
from tasks.core.estimate import Range
from tasks.core.part_runner import WHOLE
from tasks.families.heterograph.communities import STAGE, clusters_before, estimate
from tasks.families.heterograph.community_graph import graph_of_pack
from tasks.families.heterograph.groups import grouped
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


def test_a_cold_run_ignores_what_was_before(store: FolderStore, quick: Path) -> None:
    cold = second(store, first(store), cold=True)
    fresh = second(init_store(quick / "fresh"), None)
    assert "start" not in cold.outputs("hetero_groups")
    assert cold.outputs("hetero_groups") == fresh.outputs("hetero_groups")
    assert second(store, cold).parts_made() == 0


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
        fresh = Night(init_store(quick / "fresh"), towns(*names), names_of(*names)).group()
        assert made.outputs("hetero_groups") == fresh.outputs("hetero_groups")
    else:
        assert "start" in made.outputs("hetero_groups")  # it is told from the communities, not from their start


def test_the_clustering_goes_on_from_the_start(store: FolderStore) -> None:
    """The part is what `grouped` makes of the graph and the labels of the input, whatever these say."""
    made = second(store, first(store))
    inputs = made.parts.inputs(STAGE, made.groups_want())
    digest = inputs.job.inputs["start"]
    labels = np.asarray(inputs.pack(digest)["labels"]).astype(np.int64)
    graph = made.corpus.first()
    assert len(labels) == len(graph) + 1  # and the attribute
    table = made.table("hetero_groups", "hetero_communities")
    whole = graph_of_pack(inputs.pack(inputs.job.inputs["graph"]))
    assert grouped(whole, labels, **GROUPING).equals(table)


def test_other_settings_of_the_clustering_start_from_the_same_communities(store: FolderStore) -> None:
    before = first(store)
    made = Night(store, towns(*TOWNS), names_of(*TOWNS), ["ada vell"], before, grouping={"largest": 4}).group()
    assert "start" in made.outputs("hetero_groups")
    sizes = np.unique(list(made.membership().values()), return_counts=True)[1]
    assert sizes.max() <= 4


def test_the_estimate_bounds_the_part(store: FolderStore) -> None:
    made = second(store, first(store))
    receipt = made.made["hetero_groups"][WHOLE].receipt
    inputs = made.parts.inputs(STAGE, made.groups_want())
    nodes = receipt.rows["hetero_communities"]
    for expected in ({}, {"graph": Range(0, nodes)}):
        told = estimate(inputs, expected)
        assert set(told.bytes) == set(receipt.outputs) == {"hetero_communities", "start"}
        for name in told.bytes:
            assert told.bytes[name].low <= receipt.bytes[name] <= told.bytes[name].high
            assert told.rows[name].low <= nodes <= told.rows[name].high
