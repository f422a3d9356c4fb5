"""community_tree through builds: what is found, what is made again, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

import indexmill
from benchmarks.clusterings.levels import Level, levels_over
from flows.plan import make_plan
from flows.run import Outcome, run_build
from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.retrieve.grid import on_grid
from indexmill.snapshot import Snapshot
from indexmill.store.layout import blob_path
from indexmill.store.packs import open_pack
from schemas.config import Configuration
from storage import lineage, refs, runs
from storage.folder import open_store
from tasks.core.communities.augment import codicil
from tasks.core.communities.graph import graph_of
from tasks.core.communities.leiden import leiden
from tasks.core.communities.levels import Stops
from tasks.core.communities.measures import calinski_harabasz, cosine_to_centre
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.families.community_tree.report_writer import community_text
from tasks.pipeline.build import Build
from tests.corpora import Documents, documents, write_corpus
from tests.flows.children import build, settings
from tests.storage.quick import quick_folder

OTHERS: dict[str, Any] = {name: {"enabled": False} for name in ("lsh_tree", "zoom_graph", "tri_graph", "bm25")}
SMALL: dict[str, Any] = {"enabled": True, "fewest": 3, "grain": 20, "largest": 12, "group": 4}
STAGES = ("community_graph", "community_clusters", "community_levels", "community_reports", "community_tree")


@pytest.fixture
def quick() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


def chosen(store: Path, rows: Documents, **changes: Any) -> dict[str, Any]:
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", rows)
    return settings(store, corpus, families={**OTHERS, "community_tree": {**SMALL, **changes}})


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


def vectors_of(store: Path, stage: str, name: str, letter: str) -> np.ndarray:
    """The vectors of a private pack, all groups or shards whose label begins with a letter."""
    opened = open_store(store)
    found = [
        open_pack(opened.open_local(outputs[name]))["vectors"]
        for (made_by, shard), outputs in sorted(parts(store).items())
        if made_by == stage and shard.startswith(letter)
    ]
    return np.concatenate(found)


def edited(rows: Documents) -> Documents:
    title, text = rows["doc-0007"]
    return {**rows, "doc-0007": (title, f"{text} Then Zed Vex came to Krait Hall.")}


def memberships(snapshot: Snapshot) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in snapshot.table("community_members").to_pylist():
        found.setdefault(row["community_id"], []).append(row["member_id"])
    return found


def test_the_levels_are_those_of_the_algorithm(quick: Path) -> None:
    build(chosen(quick / "store", documents(60)))
    with indexmill.open(quick / "store") as snapshot:
        found, reports = memberships(snapshot), snapshot.table("communities").to_pylist()
        described = snapshot.table("described").to_pylist()
        ids = [row["entity_id"] for row in described]
        pairs = [(row["source"], row["target"]) for row in snapshot.table("related").to_pylist()]
        pairs += [(row["entity_id"], row["other_id"]) for row in snapshot.table("same_as").to_pylist()]
    vectors = vectors_of(quick / "store", "describe", "description_vectors", "e")
    links = np.array([(ids.index(one), ids.index(other)) for one, other in pairs])
    levels = "stuvwxyz"

    def summarise(level: Level) -> np.ndarray:
        made = vectors_of(quick / "store", "community_reports", "community_vectors", levels[level.number - 1])
        known = [row["community_id"] for row in reports if row["level"] == level.number]
        return made[[known.index(one) for one in level.ids]]

    wanted = levels_over(
        graph_of(ids, vectors, links), summarise, codicil, partial(leiden, grain=20, largest=12), Stops(4, 3)
    )
    assert len(wanted) >= 2
    assert found == {one: members for level in wanted for one, members in level.members()}
    texts = {row["entity_id"]: row["digest"] for row in described} | {r["community_id"]: r["digest"] for r in reports}
    with indexmill.open(quick / "store") as snapshot:
        for row in snapshot.table("community_members").to_pylist():
            assert row["member_digest"] == texts[row["member_id"]]


def test_the_arrays_say_what_the_tables_say(quick: Path) -> None:
    build(chosen(quick / "store", documents(60)))
    with indexmill.open(quick / "store") as snapshot:
        tree, index = (dict(snapshot.arrays(f"community_tree/{name}")) for name in ("tree", "index"))
        entities = snapshot.table("described")["entity_id"].to_pylist()
        reports = snapshot.table("communities").to_pylist()
        passages = snapshot.table("passages")["passage_id"].to_pylist()
        extracted, related = snapshot.table("extracted").to_pylist(), snapshot.table("related").to_pylist()
        mentions = snapshot.table("mentions").to_pylist()
        found, family = memberships(snapshot), snapshot.manifest.families["community_tree"]
    ids = [*entities, *(row["community_id"] for row in reports)]
    offsets = tree["level_offsets"].tolist()
    assert [row["level"] for row in reports] == np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[
        len(entities) :
    ].tolist()
    for number, row in enumerate(reports):
        low, high = tree["children.indptr"][number : number + 2]
        members = [ids[child] for child in tree["children.indices"][low:high]]
        assert members == found[row["community_id"]]
        assert row["members"] == len(members)
        assert {ids[tree["parents"][ids.index(one)]] for one in members} == {row["community_id"]}
    assert (tree["parents"][offsets[-2] :] == -1).all()
    about = {(one["entity_id"], one["passage_id"]) for one in mentions if one["kind"] == "title"}
    for passage in passages:
        opening = [one for one in mentions if (one["passage_id"], one["sentence"]) == (passage, 0)]
        opening = [one for one in opening if one["entity_id"] in entities]
        first = sorted(opening, key=lambda one: (one["start"], -one["end"], entities.index(one["entity_id"])))[:1]
        about |= {(one["entity_id"], passage) for one in first}
    assert tree["entity_keys"].tolist() == [int(one[:16], 16) for one in entities]
    assert 0 < tree["passages.about"].sum() < len(tree["passages.about"])
    for row, entity in enumerate(entities):
        low, high = tree["passages.indptr"][row : row + 2]
        telling = [(entity, passages[one]) in about for one in tree["passages.indices"][low:high]]
        assert tree["passages.about"][low:high].tolist() == telling
        own = {one["passage_id"] for one in extracted if one["entity_id"] == entity}
        assert tree["passages.indices"][low:high].tolist() == sorted(passages.index(one) for one in own)
        low, high = tree["relations.indptr"][row : row + 2]
        ends = [(one["source"], one["target"]) for one in related]
        own_ends = [(at, other) for at, (one, other) in enumerate(ends) if one == entity]
        own_ends += [(at, one) for at, (one, other) in enumerate(ends) if other == entity]
        held = zip(tree["relations.rows"][low:high].tolist(), tree["relations.indices"][low:high].tolist(), strict=True)
        assert sorted(held) == sorted((at, entities.index(other)) for at, other in own_ends)
    vectors = [vectors_of(quick / "store", "describe", "description_vectors", "e")]
    vectors += [
        vectors_of(quick / "store", "community_reports", "community_vectors", letter)
        for letter in "stuvwxyz"[: len(offsets) - 2]
    ]
    for level, own in enumerate(vectors[:-1]):
        labels = tree["parents"][offsets[level] : offsets[level + 1]] - offsets[level + 1]
        for value, measure in zip(tree["quality"][level], (calinski_harabasz, cosine_to_centre), strict=True):
            assert value == pytest.approx(measure(own, labels.astype(np.int64)) or np.nan, rel=1e-5, nan_ok=True)
    assert index["rows"].tolist() == list(range(len(ids)))  # shards and groups are in the order of ids
    held_index = Chnsw.of(index)
    assert np.array_equal(held_index.vectors, on_grid(np.concatenate(vectors)))
    assert held_index.level_offsets.tolist() == offsets
    counts = family.counts
    assert (counts["entities"], counts["communities"], counts["relations"]) == (
        len(entities),
        len(reports),
        len(related),
    )
    assert (counts["levels"], counts["roots"]) == (len(offsets) - 2, offsets[-1] - offsets[-2])
    assert family.history_dependent


def test_a_community_of_one_member_has_its_members_text(quick: Path) -> None:
    build(chosen(quick / "store", documents(60), augmentation="none", grain=0))
    with indexmill.open(quick / "store") as snapshot:
        described = {row["entity_id"]: row for row in snapshot.table("described").to_pylist()}
        reports = {row["community_id"]: row for row in snapshot.table("communities").to_pylist()}
        alone = {one: held[0] for one, held in memberships(snapshot).items() if len(held) == 1}
    assert {reports[one]["level"] for one in alone} >= {1, 2}
    for one, member in alone.items():
        row = reports[one]
        if row["level"] == 1:
            told = described[member]
            assert (row["title"], row["text"]) == (told["surface"], told["description"] or told["surface"])
        else:
            assert (row["title"], row["text"]) == (reports[member]["title"], reports[member]["text"])
        assert (row["findings"], row["rating"], row["stand_in"]) == ([], 0.0, False)


def test_a_night_redoes_what_changed_and_a_night_without_a_change_nothing(quick: Path) -> None:
    rows = documents(60)
    plain = chosen(quick / "store", rows)
    first = build(plain)
    counts = counts_of(plain, first, "community_reports")
    redone = [counts[f"reports_redone_l{level}"] for level in (1, 2)]
    assert counts["reports_made"] >= sum(redone) > 4
    assert (counts["reports_kept_l1"], counts["reports_reused"]) == (0, 0)
    assert counts_of(plain, first, "community_clusters")["modularity_thousandths_l1"] > 300
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)
    counts = counts_of(plain, again, "community_reports")
    assert counts["reports_redone_l1"] == 0
    assert counts["reports_kept_l1"] == redone[0]

    plain = chosen(quick / "store", edited(rows))
    second = build(plain)
    counts = counts_of(plain, second, "community_reports")
    assert 1 <= counts["reports_redone_l1"] <= redone[0] / 2 <= counts["reports_kept_l1"]
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)
    assert build(plain, cold=True).manifest == build(chosen(quick / "fresh", edited(rows))).manifest
    again = build(plain)
    assert (again.published, again.parts_made) == (False, 0)


def test_leiden_starts_from_the_version_before_and_the_start_tells_of_no_node_that_is_gone(quick: Path) -> None:
    rows = documents(60)
    build(chosen(quick / "store", rows))
    assert "start" not in parts(quick / "store")["community_clusters", "k1"]
    before = parts(quick / "store")["community_clusters", "k1"]["clusters"]
    build(chosen(quick / "store", edited(rows)))
    outputs = parts(quick / "store")["community_clusters", "k1"]
    store = open_store(quick / "store")
    old, new = (open_pack(store.open_local(digest)) for digest in (before, outputs["clusters"]))
    start = open_pack(store.open_local(outputs["start"]))
    assert set(start) == {"labels"}
    known = {node.tobytes(): label for node, label in zip(old["nodes"], old["labels"].tolist(), strict=True)}
    expected = [known.get(node.tobytes(), -1) for node in new["nodes"]]
    assert expected.count(-1) >= 2  # Zed Vex, Krait Hall
    assert [label == -1 for label in start["labels"]] == [label == -1 for label in expected]
    assert len({*zip(start["labels"].tolist(), expected, strict=True)}) == len(set(expected))


@pytest.mark.parametrize("change", [{"report_tokens": 60}, {"m": 4}, {"input_tokens": 400}])
def test_other_settings_of_reports_and_index_keep_the_communities_of_entities(
    quick: Path, change: dict[str, Any]
) -> None:
    rows = documents(60)
    build(chosen(quick / "store", rows))
    build(chosen(quick / "store", edited(rows)))
    before = parts(quick / "store")["community_clusters", "k1"]
    plain = chosen(quick / "store", edited(rows), **change)
    second = build(plain)
    assert second.published
    assert parts(quick / "store")["community_clusters", "k1"] == before
    assert counts_of(plain, second, "community_reports").get("reports_made", 0) > 0 or "m" in change
    assert build(plain).published is False


@pytest.mark.parametrize(
    "change",
    [
        {"augmentation": "knn", "threshold": 0.3},
        {"augmentation": "none", "grain": 0},
        {"largest": 0, "grain": 0},
        {"levels": 1},
        {"group": 1},
    ],
)
def test_every_way_to_find_communities_makes_a_tree(quick: Path, change: dict[str, Any]) -> None:
    rows = documents(40)
    build(chosen(quick / "store", edited(rows), **change))
    plain = chosen(quick / "store", rows, **change)
    build(plain)
    fresh = build(chosen(quick / "fresh", rows, **change))
    with indexmill.open(quick / "fresh") as snapshot:
        family = snapshot.manifest.families["community_tree"]
    assert family.history_dependent
    assert build(plain, cold=True).manifest == fresh.manifest
    assert family.counts["levels"] == 1 if "levels" in change else family.counts["levels"] >= 1


@pytest.mark.parametrize("group", [1, 3, 1000])
def test_other_groups_copy_every_report(quick: Path, group: int) -> None:
    rows = documents(60)
    build(chosen(quick / "store", rows))
    plain = chosen(quick / "store", rows, group=group)
    moved = build(plain)
    assert counts_of(plain, moved, "community_reports").get("reports_made", 0) == 0
    assert moved.manifest == build(chosen(quick / "fresh", rows, group=group)).manifest


@pytest.mark.parametrize(
    ("texts", "entities"),
    [
        ([], 0),
        (["nothing here but small words, and no more of them."], 0),
        (["Ada Venn slept."], 1),
        (["Ada Venn slept.", "Rook Falk slept.", "Vell Orrin slept."], 3),
        (["Ada Venn saw Rook Falk. Rook Falk saw Vell Orrin. Vell Orrin saw Ada Venn."] * 3, 3),
    ],
)
def test_nothing_one_node_isolated_nodes_and_one_component(quick: Path, texts: list[str], entities: int) -> None:
    rows = {f"doc-{number}": ("", text) for number, text in enumerate(texts)}
    build(chosen(quick / "store", {"doc": ("", "Ada Venn saw Rook Falk.")}))
    configuration = Configuration.model_validate(chosen(quick / "store", rows))
    outcome = run_build(configuration, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True)
    assert outcome.published
    with indexmill.open(quick / "store") as snapshot:
        counts = snapshot.manifest.families["community_tree"].counts
        tree = snapshot.arrays("community_tree/tree")
    assert counts["entities"] == entities
    assert len(tree["parents"]) == entities + counts["communities"]
    assert counts["levels"] <= 1
    assert build(chosen(quick / "store", rows)).published is False


def test_without_the_family_there_is_nothing_of_it(quick: Path) -> None:
    build(chosen(quick / "store", documents(10), enabled=False))
    with indexmill.open(quick / "store") as snapshot:
        names = {one.name.partition("/")[0] for one in snapshot.manifest.artifacts}
        assert not names & {"communities", "community_members", "community_tree", "described"}
        assert "community_tree" not in snapshot.manifest.families
        assert "reports" not in snapshot.manifest.models


def test_a_lost_start_is_none(quick: Path) -> None:
    rows = documents(60)
    build(chosen(quick / "store", rows))
    store = open_store(quick / "store")
    store.delete(blob_path(parts(quick / "store")["community_clusters", "k1"]["clusters"]))
    second = build(chosen(quick / "store", edited(rows)))
    assert second.manifest == build(chosen(quick / "fresh", edited(rows))).manifest
    build(chosen(quick / "store", rows))
    store.delete(blob_path(parts(quick / "store")["community_clusters", "k1"]["start"]))
    assert build(chosen(quick / "store", rows)).parts_made > 0
    assert build(chosen(quick / "store", rows)).published is False


def test_reports_name_the_most_related_and_tell_their_relations(quick: Path) -> None:
    build(chosen(quick / "store", documents(60)))
    with indexmill.open(quick / "store") as snapshot:
        reports = snapshot.table("communities")
        related = snapshot.table("related").to_pylist()
    said = {row["description"] for row in related}
    findings = [one for row in reports.to_pylist() if row["level"] == 1 for one in row["findings"]]
    assert findings
    assert all(any(text.startswith(one["explanation"]) for text in said) for one in findings)
    assert pc.max(reports["rating"]).as_py() <= 10 > 0 <= pc.min(reports["rating"]).as_py()
    assert all(row["title"] and row["text"] and row["tokens"] for row in reports.to_pylist())
    assert all(community_text(row["title"], row["text"]).startswith(row["title"]) for row in reports.to_pylist())


def test_a_plan_of_communities_holds(quick: Path) -> None:
    rows = documents(100)
    for now in (rows, edited(rows), {name: rows[name] for name in list(rows)[10:]}):
        plain = chosen(quick / "store", now)
        plan = make_plan(Configuration.model_validate(plain), progress=Silent())
        outcome = build(plain)
        for stage in STAGES:
            made = counts_of(plain, outcome, stage)["parts_made"]
            assert plan.stages[stage].certain <= made <= plan.stages[stage].made, stage
        reader = open_store(quick / "store")
        assert refs.history(reader)[-1].version == outcome.version
    plan = make_plan(Configuration.model_validate(plain), progress=Silent())
    assert (plan.publishes, plan.parts.made) == (False, 0)
    changed = chosen(quick / "store", now, report_tokens=60)
    plan = make_plan(Configuration.model_validate(changed), progress=Silent())
    assert plan.stages["community_reports"].causes.keys() <= {"model", "settings"}
    assert plan.stages["community_graph"].causes.keys() <= {"model", "settings"}


def test_more_documents_are_the_cause_of_more_levels_and_groups(quick: Path) -> None:
    build(chosen(quick / "store", documents(12)))
    plain = chosen(quick / "store", documents(100))
    plan = make_plan(Configuration.model_validate(plain), progress=Silent())
    before = {shard for stage, shard in parts(quick / "store") if stage.startswith("community")}
    build(plain)
    now = {shard for stage, shard in parts(quick / "store") if stage.startswith("community")}
    assert {"k2", "t"} <= before
    assert {"k3", "u"} <= now - before
    for stage in STAGES:
        assert set(plan.stages[stage].causes) == {"corpus"}, stage
