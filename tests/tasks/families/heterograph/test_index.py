"""heterograph through builds: what is made, what is made again, and what is kept."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from flows.plan import make_plan
from flows.run import Outcome, backfill_inline, run_build
from indexmill.diff import diff
from indexmill.families.heterograph.name_words import NameWords
from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.retrieve.grid import on_grid
from indexmill.snapshot import Snapshot
from indexmill.store.layout import blob_path
from indexmill.store.packs import open_pack
from indexmill.text.names import canonical_name
from schemas.config import Configuration
from storage import lineage, runs
from storage.folder import open_store
from storage.tables import read_table
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.families.heterograph.graph import ENDS, relation_ids
from tasks.families.heterograph.vector_edges import clusters_of
from tasks.pipeline.backfill import Waves
from tasks.pipeline.build import Build
from tests.corpora import Documents, documents, told_of, write_corpus
from tests.flows.children import build, settings
from tests.storage.quick import quick_folder

OTHERS: dict[str, Any] = {name: {"enabled": False} for name in ("lsh_tree", "zoom_graph", "tri_graph", "bm25")}
SMALL: dict[str, Any] = {"enabled": True, "neighbours": 4, "units": 6, "relations": 6}
SMALL |= {"grain": 0, "largest": 12, "group": 4}
STAGES = ("hetero_units", "hetero_first", "attributes", "hetero_graph", "hetero_groups", "hetero_elements_read")
STAGES += ("elements", "heterograph")


@pytest.fixture
def quick() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def chosen(store: Path, rows: Documents, **changes: Any) -> dict[str, Any]:
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", rows)
    return settings(store, corpus, families={**OTHERS, "heterograph": {**SMALL, **changes}})


def counts_of(plain: dict[str, Any], outcome: Outcome, stage: str) -> dict[str, int]:
    end = runs.read_run(open_store(plain["store"]), outcome.run).end
    assert end is not None
    found: Any = end.report["stages"]
    return found.get(stage, {})  # type: ignore[no-any-return]


def parts(store: Path) -> dict[tuple[str, str], Mapping[str, str]]:
    """What the newest version was made of, by stage and shard."""
    opened = open_store(store)
    with indexmill.open(store) as snapshot:
        entries = lineage.read(opened, snapshot.manifest.lineage).entries
    return {(entry.stage, entry.shard): entry.outputs for entry in entries}


def edited(rows: Documents) -> Documents:
    title, text = rows["doc-0007"]
    return {**rows, "doc-0007": (title, f"{text} Then Zed Vex came to Krait Hall.")}


def rows_of(snapshot: Snapshot, table: str) -> list[dict[str, Any]]:
    return snapshot.table(table).to_pylist()


def read_of(store: Path, stage: str, prefix: str) -> dict[str, set[str]]:
    """The nodes that each entity's attribute, or each community's elements, are made of."""
    found: dict[str, set[str]] = {}
    for (made_by, _), outputs in parts(store).items():
        for name, digest in outputs.items():
            if made_by == stage and name.startswith(prefix + "/"):
                for row in read_table(open_store(store), digest).to_pylist():
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


def test_every_edge_says_what_the_tables_say(quick: Path) -> None:
    build(chosen(quick / "store", told_of(24)))
    with indexmill.open(quick / "store") as snapshot:
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


def test_vectors_make_the_edges_that_the_algorithm_says(quick: Path) -> None:
    build(chosen(quick / "store", told_of(24)))
    with indexmill.open(quick / "store") as snapshot:
        edges, vectors = edges_of(snapshot), vectors_of(snapshot)
        nodes = [row for row in rows_of(snapshot, "heterograph/nodes") if row["kind"] in "TSAH"]
        elements = {row["element_id"]: row["community_id"] for row in rows_of(snapshot, "elements")}
    outputs = parts(quick / "store")["hetero_groups", "all"]
    grouped = read_table(open_store(quick / "store"), outputs["hetero_communities"]).to_pylist()
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


def test_the_arrays_say_what_the_tables_say(quick: Path) -> None:
    build(chosen(quick / "store", told_of(24)))
    with indexmill.open(quick / "store") as snapshot:
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
        assert row in words.find(name, 1000)


def _bounds(indptr: np.ndarray) -> tuple[list[int], list[int]]:
    return indptr[:-1].tolist(), indptr[1:].tolist()


def test_a_node_comes_from_the_passages_of_all_that_was_read_for_it(quick: Path) -> None:
    build(chosen(quick / "store", told_of(24)))
    read_for = read_of(quick / "store", "hetero_first", "attribute_read")
    read_for_groups = read_of(quick / "store", "hetero_elements_read", "element_read")
    with indexmill.open(quick / "store") as snapshot:
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


def test_a_night_redoes_what_changed_and_a_night_without_a_change_nothing(quick: Path) -> None:
    rows = told_of(40)
    plain = chosen(quick / "store", rows)
    first = build(plain)
    redone = {name: counts_of(plain, first, name)[f"{name}_redone"] for name in ("attributes", "elements")}
    assert min(redone.values()) > 2
    assert all(counts_of(plain, first, name)[f"{name}_kept"] == 0 for name in redone)
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)
    for name, count in redone.items():
        counts = counts_of(plain, again, name)
        assert (counts[f"{name}_redone"], counts[f"{name}_kept"]) == (0, count)

    plain = chosen(quick / "store", edited(rows))
    second = build(plain)
    for name, count in redone.items():
        counts = counts_of(plain, second, name)
        assert counts[f"{name}_redone"] <= count / 2 <= counts[f"{name}_kept"]
        assert counts[f"{name}_made"] == counts[f"{name}_redone"]
    assert counts_of(plain, second, "elements")["elements_redone"] > 0
    changed = diff(quick / "store").extracted
    assert changed["elements"][0] >= counts_of(plain, second, "elements")["elements_redone"]
    came, went = changed["units"]
    assert came == went + 1 > 1
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)
    assert build(plain, cold=True).manifest == build(chosen(quick / "fresh", edited(rows))).manifest
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)


def test_clustering_starts_from_the_version_before_and_the_start_tells_of_no_node_that_is_gone(quick: Path) -> None:
    rows = told_of(24)
    build(chosen(quick / "store", rows))
    before = parts(quick / "store")["hetero_groups", "all"]
    assert "start" not in before
    build(chosen(quick / "store", edited(rows)))
    outputs, store = parts(quick / "store")["hetero_groups", "all"], open_store(quick / "store")
    old, new = (read_table(store, one["hetero_communities"]).to_pylist() for one in (before, outputs))
    start = open_pack(store.open_local(outputs["start"]))
    assert set(start) == {"labels"}
    known = {row["node_id"]: row["community_id"] for row in old}
    gone = known.keys() - {row["node_id"] for row in new}
    assert len(start["labels"]) == len(new)
    fresh = [row for row in new if row["node_id"] not in known]
    assert np.count_nonzero(start["labels"] == -1) == len(fresh) >= 2  # Zed Vex, Krait Hall
    held = {one for node, one in known.items() if node not in gone}
    assert len(set(start["labels"].tolist()) - {-1}) == len(held)


@pytest.mark.parametrize("change", [{"neighbours": 0}, {"neighbours": 9}, {"element_tokens": 40}, {"fewest": 4}])
def test_other_settings_of_what_follows_keep_the_communities(quick: Path, change: dict[str, Any]) -> None:
    rows = told_of(24)
    build(chosen(quick / "store", rows))
    build(chosen(quick / "store", edited(rows)))
    before = parts(quick / "store")["hetero_groups", "all"]
    plain = chosen(quick / "store", edited(rows), **change)
    second = build(plain)
    assert second.published
    assert parts(quick / "store")["hetero_groups", "all"] == before
    assert counts_of(plain, second, "attributes").get("attributes_made", 0) == 0
    assert build(plain).published is False
    with indexmill.open(quick / "store") as snapshot:
        near = snapshot.manifest.families["heterograph"].counts["edges_near"]
    assert (near == 0) == (change.get("neighbours") == 0)


@pytest.mark.parametrize("group", [1, 3, 1000])
def test_other_groups_copy_every_element(quick: Path, group: int) -> None:
    rows = told_of(24)
    build(chosen(quick / "store", rows))
    plain = chosen(quick / "store", rows, group=group)
    moved = build(plain)
    assert counts_of(plain, moved, "elements").get("elements_made", 0) == 0
    assert moved.manifest == build(chosen(quick / "fresh", rows, group=group)).manifest


@pytest.mark.parametrize(
    ("texts", "units", "entities"),
    [
        ([], 0, 0),
        (["nothing here but small words, and no more of them."], 0, 0),
        (["Ada Venn slept."], 1, 1),
        (["Ada Venn slept.", "Rook Falk slept.", "Vell Orrin slept."], 3, 3),
        (["Ada Venn saw Rook Falk. Rook Falk saw Vell Orrin. Vell Orrin saw Ada Venn."] * 3, 9, 3),
    ],
)
def test_nothing_one_node_isolated_nodes_and_one_component(
    quick: Path, texts: list[str], units: int, entities: int
) -> None:
    rows = {f"doc-{number}": ("", text) for number, text in enumerate(texts)}
    build(chosen(quick / "store", {"doc": ("", "Ada Venn saw Rook Falk.")}))
    configuration = Configuration.model_validate(chosen(quick / "store", rows))
    outcome = run_build(configuration, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True)
    assert outcome.published
    with indexmill.open(quick / "store") as snapshot:
        counts = snapshot.manifest.families["heterograph"].counts
    assert (counts["texts"], counts["entities"]) == (len(texts), entities)
    assert counts["units"] >= units
    assert build(chosen(quick / "store", rows)).published is False


def test_names_that_are_nearly_the_same_are_linked_where_they_are_looked_for(quick: Path) -> None:
    alike = {"one": ("", "Zedkin Harrow built the ferry."), "other": ("", "Zedkin Harrows left the ferry.")}
    plain = chosen(quick / "store", documents(6) | alike)
    plain["resolve"] = {"description": {"enabled": True}, "same_as": {"cosine": -1, "likeness": 0.7, "neighbours": 64}}
    build(plain)
    with indexmill.open(quick / "store") as snapshot:
        same, edges = rows_of(snapshot, "same_as"), edges_of(snapshot)
        named = {row["entity_id"] for row in rows_of(snapshot, "unit_entities")}
    pairs = {(row["entity_id"], row["other_id"]) for row in same}
    assert edges["same_as"] == {pair for pair in pairs if set(pair) <= named} != set()
    assert build(plain).published is False


def test_without_the_family_there_is_nothing_of_it(quick: Path) -> None:
    plain = chosen(quick / "store", documents(10), enabled=False)
    build(plain | {"extract": {"enabled": True}})
    with indexmill.open(quick / "store") as snapshot:
        names = {one.name.partition("/")[0] for one in snapshot.manifest.artifacts}
        assert "units" in names
        assert not names & {"unit_vectors", "attributes", "elements", "heterograph"}
        assert "heterograph" not in snapshot.manifest.families
        assert not {"attributes", "elements"} & snapshot.manifest.models.keys()


def test_the_family_published_what_readers_read_and_nothing_else(quick: Path) -> None:
    build(chosen(quick / "store", documents(20)))
    with indexmill.open(quick / "store") as snapshot:
        held = {(one.name.partition("/")[0], one.kind) for one in snapshot.manifest.artifacts}
        own = {one.name: one.kind for one in snapshot.manifest.under("heterograph")}
    assert own == {
        "heterograph/edges": "table",
        "heterograph/graph": "arrays",
        "heterograph/names": "arrays",
        "heterograph/nodes": "table",
        "heterograph/relations": "table",
    }
    assert {("attributes", "table"), ("elements", "table"), ("unit_vectors", "arrays")} <= held
    assert {("attribute_vectors", "arrays"), ("element_vectors", "arrays")} <= held
    names = {name for name, _ in held}
    assert not names & {"hetero_communities", "attribute_read", "attribute_made", "element_read", "element_made"}
    assert len(KINDS) == 7


def test_a_backfill_in_waves_publishes_what_a_build_does(quick: Path) -> None:
    rows = told_of(24)
    plain = chosen(quick / "store", rows)
    outcome = backfill_inline(Configuration.model_validate(plain), progress=Silent(), waves=Waves(shards=1))
    assert outcome.manifest == build(chosen(quick / "fresh", rows)).manifest
    assert counts_of(plain, outcome, "hetero_units")["parts_made"] > 2
    assert build(plain).published is False


def test_a_lost_start_is_none(quick: Path) -> None:
    rows = told_of(24)
    build(chosen(quick / "store", rows))
    store = open_store(quick / "store")
    store.delete(blob_path(parts(quick / "store")["hetero_groups", "all"]["hetero_communities"]))
    second = build(chosen(quick / "store", edited(rows)))
    assert second.manifest == build(chosen(quick / "fresh", edited(rows))).manifest
    build(chosen(quick / "store", rows))
    store.delete(blob_path(parts(quick / "store")["hetero_groups", "all"]["start"]))
    assert build(chosen(quick / "store", rows)).parts_made > 0
    assert build(chosen(quick / "store", rows)).published is False


def test_a_plan_of_the_heterograph_holds(quick: Path) -> None:
    rows = told_of(24)
    for now in (rows, edited(rows), {name: rows[name] for name in list(rows)[10:]}):
        plain = chosen(quick / "store", now)
        plan = make_plan(Configuration.model_validate(plain), progress=Silent())
        blobs = {path.name for path in (quick / "store" / "blobs").rglob("*")}
        outcome = build(plain)
        for stage in STAGES:
            made = counts_of(plain, outcome, stage)["parts_made"]
            assert plan.stages[stage].certain <= made <= plan.stages[stage].made, stage
        assert plan.parts.vectors_made == outcome.vectors_made
        with indexmill.open(quick / "store") as snapshot:
            new = sum(one.bytes for one in snapshot.manifest.artifacts if one.digest not in blobs)
        assert plan.bytes.snapshot.low <= new <= plan.bytes.snapshot.high
    plan = make_plan(Configuration.model_validate(plain), progress=Silent())
    assert (plan.publishes, plan.parts.made) == (False, 0)
    changed = chosen(quick / "store", now, attribute_tokens=60)
    plan = make_plan(Configuration.model_validate(changed), progress=Silent())
    assert plan.stages["attributes"].causes.keys() <= {"model", "settings"}
    assert plan.stages["hetero_units"].made == 0
