"""heterograph through builds: what is made, what is made again, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.diff import diff
from indexmill.families.heterograph.name_words import NameWords
from indexmill.families.heterograph.search import Heterograph
from indexmill.retrieve.grid import on_grid
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import canonical_name
from storage.table_blobs import read_table
from tasks.families.heterograph.graph import ENDS, relation_ids
from tasks.families.heterograph.vector_edges import clusters_of
from tests.corpora import documents, told_of
from tests.tasks.indexes import Index, edited, only


@pytest.fixture
def index(quick: Path) -> Index:
    small = {"neighbours": 4, "units": 6, "relations": 6, "grain": 0, "largest": 12, "group": 4}
    families = only("heterograph", enabled=True, **small)
    return Index(quick / "store", "families.heterograph", families=families)


def groups_of(index: Index) -> Mapping[str, str]:
    return index.outputs()["hetero_groups", "all"]


def rows_of(snapshot: Snapshot, table: str) -> list[dict[str, Any]]:
    return snapshot.table(table).to_pylist()


def read_of(index: Index, stage: str, prefix: str) -> dict[str, set[str]]:
    """The nodes that each entity's attribute, or each community's elements, are made of."""
    found: dict[str, set[str]] = {}
    for (made_by, _), outputs in index.outputs().items():
        for name, digest in outputs.items():
            if made_by == stage and name.startswith(prefix + "/"):
                for row in read_table(index.store(), digest).to_pylist():
                    found.setdefault(row["owner"], set()).add(row["node_id"])
    return found


def edges_of(snapshot: Snapshot) -> dict[str, set[tuple[str, str]]]:
    """The edges of each kind, by ids."""
    found: dict[str, set[tuple[str, str]]] = {kind: set() for kind in ENDS}
    for row in rows_of(snapshot, "heterograph/edges"):
        assert row["weight"] == 1
        found[row["kind"]].add((row["source"], row["target"]))
    return found


def vectors_of(snapshot: Snapshot) -> dict[str, np.ndarray]:
    """The vector of every text, unit, attribute and high-level element."""
    found: dict[str, np.ndarray] = {}
    for table, key, packs, array in (
        ("passages", "passage_id", "vectors", "passages"),
        ("units", "unit_id", "unit_vectors", "vectors"),
        ("attributes", "attribute_id", "attribute_vectors", "vectors"),
        ("elements", "element_id", "element_vectors", "vectors"),
    ):
        rows = np.concatenate(snapshot.vectors(packs, array))
        found |= dict(zip((row[key] for row in rows_of(snapshot, table)), rows, strict=True))
    return found


@pytest.mark.slow
def test_every_edge_says_what_the_tables_say(index: Index) -> None:
    index.build(told_of(24))
    with index.snapshot() as snapshot:
        edges = edges_of(snapshot)
        units, relations = rows_of(snapshot, "units"), snapshot.table("relations")
        named = rows_of(snapshot, "unit_entities")
        attributes, elements = rows_of(snapshot, "attributes"), rows_of(snapshot, "elements")
    assert attributes
    assert elements
    assert edges["mention"] == {(row["unit_id"], row["entity_id"]) for row in named}
    ids = relation_ids(relations).to_pylist()
    assert edges["source"] == set(zip(relations["source"].to_pylist(), ids, strict=True))
    assert edges["target"] == set(zip(ids, relations["target"].to_pylist(), strict=True))
    assert edges["attribute"] == {(row["entity_id"], row["attribute_id"]) for row in attributes}
    assert edges["overview"] == {(row["element_id"], row["overview_id"]) for row in elements}
    assert edges["text"] == {(row["passage_id"], row["unit_id"]) for row in units}
    assert edges["same_as"] == set()  # nothing is described


@pytest.mark.slow
def test_vectors_make_the_edges_that_the_algorithm_says(index: Index) -> None:
    index.build(told_of(24))
    with index.snapshot() as snapshot:
        edges, vectors = edges_of(snapshot), vectors_of(snapshot)
        nodes = [row for row in rows_of(snapshot, "heterograph/nodes") if row["kind"] in "TSAH"]
        elements = {row["element_id"]: row["community_id"] for row in rows_of(snapshot, "elements")}
    outputs = groups_of(index)
    grouped = read_table(index.store(), outputs["hetero_communities"]).to_pylist()
    community = {row["node_id"]: row["community_id"] for row in grouped} | elements
    matched = [row["node_id"] for row in nodes if row["kind"] in "SAH"]
    labels = clusters_of(matched, np.stack([vectors[one] for one in matched]))
    assert len(set(labels.tolist())) <= math.isqrt(len(matched))
    cluster = dict(zip(matched, labels.tolist(), strict=True))
    wanted = {
        (one, high)
        for one in matched
        for high in elements
        if one not in elements and (community[one], cluster[one]) == (community[high], cluster[high])
    }
    assert edges["match"] == wanted != set()

    ids = [row["node_id"] for row in nodes]
    held = on_grid(np.stack([vectors[one] for one in ids]))
    products = held @ held.T
    np.fill_diagonal(products, -np.inf)
    near = set()
    for row, one in enumerate(products):
        best = np.lexsort((np.arange(len(ids)), -one))[:4]
        near |= {tuple(sorted((row, int(other)))) for other in best if one[other] > 0}
    pairs = {(ids[one], ids[other]) for one, other in near}
    linked = {pair for kind in ENDS if kind != "near" for pair in edges[kind]}
    assert edges["near"] == {(one, other) for one, other in pairs if not {(one, other), (other, one)} & linked}


@pytest.mark.slow
def test_the_arrays_say_what_the_tables_say(index: Index) -> None:
    index.build(told_of(24))
    with index.snapshot() as snapshot:
        pack, family = snapshot.arrays("heterograph/graph"), snapshot.manifest.families["heterograph"]
        words = NameWords.of(snapshot.arrays("heterograph/names"))
        nodes, edges = rows_of(snapshot, "heterograph/nodes"), edges_of(snapshot)
        tables = {"T": "passages", "S": "units", "A": "attributes", "H": "elements", "N": "entities", "O": "elements"}
        tables["R"] = "heterograph/relations"
        held = {kind: rows_of(snapshot, table) for kind, table in tables.items()}
        counts = family.counts
    assert family.history_dependent
    graph = Heterograph.of(pack)
    ids = [row["node_id"] for row in nodes]
    keys = {"T": "passage_id", "S": "unit_id", "A": "attribute_id", "H": "element_id", "R": "node_id"}
    keys |= {"N": "entity_id", "O": "overview_id"}
    assert graph.kinds(np.arange(len(ids))) == [row["kind"] for row in nodes]
    for one, row, place in zip(ids, nodes, pack["rows"].tolist(), strict=True):
        assert held[row["kind"]][place][keys[row["kind"]]] == one
    indices = graph.links.indices
    linked = [set(indices[low:high].tolist()) for low, high in zip(*_bounds(graph.links.indptr), strict=True)]
    place_of = {one: place for place, one in enumerate(ids)}
    wanted: list[set[int]] = [set() for _ in ids]
    for pairs in edges.values():
        for one, other in pairs:
            wanted[place_of[one]].add(place_of[other])
            wanted[place_of[other]].add(place_of[one])
    assert linked == wanted
    assert pack["edges"].tolist() == [len(edges[kind]) for kind in ENDS]
    assert counts["nodes"] == len(ids)
    assert counts["edges_near"] == len(edges["near"])
    assert counts["attributes"] == len(held["A"]) > 0
    assert counts["stand_ins"] == 0  # nobody was asked
    texts = [row["said"] for row in held["R"]]
    assert pack["relation_tokens"].tolist() == [len(text.encode()) // 4 + 1 for text in texts]
    first = int(graph.offsets[5])
    names = [held["N"][row]["name"] for row in pack["rows"][graph.rows("N")].tolist()]
    names += [canonical_name(held["O"][row]["title"]) for row in pack["rows"][graph.rows("O")].tolist()]
    assert len(names) == len(ids) - first
    for row, name in enumerate(names):
        assert row in words.find_each([name], 1000)[0]


def _bounds(indptr: np.ndarray) -> tuple[list[int], list[int]]:
    return indptr[:-1].tolist(), indptr[1:].tolist()


@pytest.mark.slow
def test_a_node_comes_from_the_passages_of_all_that_was_read_for_it(index: Index) -> None:
    index.build(told_of(24))
    read_for = read_of(index, "hetero_first", "attribute_read")
    read_for_groups = read_of(index, "hetero_elements_read", "element_read")
    with index.snapshot() as snapshot:
        graph = Heterograph.of(snapshot.arrays("heterograph/graph"))
        ids = [row["node_id"] for row in rows_of(snapshot, "heterograph/nodes")]
        passages = [row["passage_id"] for row in rows_of(snapshot, "passages")]
        comes: dict[str, set[str]] = {one: {one} for one in passages}
        comes |= {row["unit_id"]: {row["passage_id"]} for row in rows_of(snapshot, "units")}
        relations = snapshot.table("relations")
        attributes, elements = rows_of(snapshot, "attributes"), rows_of(snapshot, "elements")
    for one, passage in zip(relation_ids(relations).to_pylist(), relations["passage_id"].to_pylist(), strict=True):
        comes.setdefault(one, set()).add(passage)
    for row in attributes:
        comes[row["attribute_id"]] = {one for node in read_for[row["entity_id"]] for one in comes[node]}
    for row in elements:
        comes[row["element_id"]] = {one for node in read_for_groups[row["community_id"]] for one in comes[node]}
    assert graph.passages is not None
    for row, (low, high) in enumerate(zip(*_bounds(graph.passages.indptr), strict=True)):
        assert {passages[one] for one in graph.passages.indices[low:high].tolist()} == comes[ids[row]]


@pytest.mark.slow
def test_a_night_redoes_what_changed(index: Index) -> None:
    rows = told_of(40)
    first = index.build(rows)
    redone = {name: index.counts(first, name)[f"{name}_redone"] for name in ("attributes", "elements")}
    assert min(redone.values()) > 2
    assert all(index.counts(first, name)[f"{name}_kept"] == 0 for name in redone)
    again = index.build(rows)
    for name, count in redone.items():
        counts = index.counts(again, name)
        assert (counts[f"{name}_redone"], counts[f"{name}_kept"]) == (0, count)

    second = index.build(edited(rows))
    for name, count in redone.items():
        counts = index.counts(second, name)
        assert counts[f"{name}_redone"] <= count / 2 <= counts[f"{name}_kept"]
        assert counts[f"{name}_made"] == counts[f"{name}_redone"]
    assert index.counts(second, "elements")["elements_redone"] > 0
    changed = diff(index.root).rows
    assert changed["elements"][0] >= index.counts(second, "elements")["elements_redone"]
    came, went = changed["units"]
    assert came == went + 1 > 1


@pytest.mark.slow
def test_other_settings_of_what_follows_keep_the_communities(index: Index) -> None:
    rows = edited(told_of(24))
    index.build(told_of(24))
    index.build(rows)
    before = groups_of(index)
    for change in ({"neighbours": 0}, {"neighbours": 9}, {"element_tokens": 40}, {"fewest": 4}):
        outcome = index.build(rows, **change)
        assert outcome.published
        assert groups_of(index) == before
        assert index.counts(outcome, "attributes").get("attributes_made", 0) == 0
        assert (index.family("heterograph").counts["edges_near"] == 0) == (change.get("neighbours") == 0)
    assert index.build(rows, **change).published is False


@pytest.mark.slow
def test_names_that_are_nearly_the_same_are_linked_where_they_are_looked_for(index: Index) -> None:
    alike = {"one": ("", "Zedkin Harrow built the ferry."), "other": ("", "Zedkin Harrows left the ferry.")}
    index.sections["resolve"] = {"description": {"enabled": True}}
    index.sections["resolve"]["same_as"] = {"cosine": -1, "likeness": 0.7, "neighbours": 64}
    index.build(documents(6) | alike)
    with index.snapshot() as snapshot:
        same, edges = rows_of(snapshot, "same_as"), edges_of(snapshot)
        named = {row["entity_id"] for row in rows_of(snapshot, "unit_entities")}
    pairs = {(row["entity_id"], row["other_id"]) for row in same}
    assert edges["same_as"] == {pair for pair in pairs if set(pair) <= named} != set()
    assert index.build(documents(6) | alike).published is False
