"""community_tree through builds: what is found, what is made again, and what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.retrieve.grid import on_grid
from indexmill.snapshot import Snapshot
from indexmill.store.packs import open_pack
from tasks.core.communities.augment import codicil
from tasks.core.communities.clusterings import Stops
from tasks.core.communities.graph import graph_of
from tasks.core.communities.leiden import leiden
from tasks.core.communities.measures import calinski_harabasz, cosine_to_centre
from tests.corpora import documents
from tests.tasks.core.communities.reference import Level, levels_over
from tests.tasks.indexes import Index, edited, only


@pytest.fixture
def index(quick: Path) -> Index:
    small = {"fewest": 3, "grain": 20, "largest": 12, "group": 4}
    families = only("community_tree", enabled=True, **small)
    return Index(quick / "store", "families.community_tree", families=families)


def clusters_of(index: Index) -> Mapping[str, str]:
    return index.outputs()["community_clusters", "k1"]


def memberships(snapshot: Snapshot) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in snapshot.table("community_members").to_pylist():
        found.setdefault(row["community_id"], []).append(row["member_id"])
    return found


@pytest.mark.slow
def test_the_levels_are_those_of_the_algorithm(index: Index) -> None:
    index.build(documents(60))
    with index.snapshot() as snapshot:
        found, reports = memberships(snapshot), snapshot.table("communities").to_pylist()
        described = snapshot.table("described").to_pylist()
        ids = [row["entity_id"] for row in described]
        pairs = [(row["source"], row["target"]) for row in snapshot.table("related").to_pylist()]
        pairs += [(row["entity_id"], row["other_id"]) for row in snapshot.table("same_as").to_pylist()]
    vectors = index.vectors("describe", "description_vectors", "e")
    links = np.array([(ids.index(one), ids.index(other)) for one, other in pairs])
    levels = "stuvwxyz"

    def summarise(level: Level) -> np.ndarray:
        made = index.vectors("community_reports", "community_vectors", levels[level.number - 1])
        known = [row["community_id"] for row in reports if row["level"] == level.number]
        return made[[known.index(one) for one in level.ids]]

    wanted = levels_over(
        graph_of(ids, vectors, links), summarise, codicil, partial(leiden, grain=20, largest=12), Stops(4, 3)
    )
    assert len(wanted) >= 2
    assert found == {one: members for level in wanted for one, members in level.members()}
    texts = {row["entity_id"]: row["digest"] for row in described} | {r["community_id"]: r["digest"] for r in reports}
    with index.snapshot() as snapshot:
        for row in snapshot.table("community_members").to_pylist():
            assert row["member_digest"] == texts[row["member_id"]]


@pytest.mark.slow
def test_the_arrays_say_what_the_tables_say(index: Index) -> None:
    index.build(documents(60))
    with index.snapshot() as snapshot:
        tree, links = (dict(snapshot.arrays(f"community_tree/{name}")) for name in ("tree", "index"))
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
    vectors = [index.vectors("describe", "description_vectors", "e")]
    vectors += [
        index.vectors("community_reports", "community_vectors", letter) for letter in "stuvwxyz"[: len(offsets) - 2]
    ]
    for level, own in enumerate(vectors[:-1]):
        labels = tree["parents"][offsets[level] : offsets[level + 1]] - offsets[level + 1]
        for value, measure in zip(tree["quality"][level], (calinski_harabasz, cosine_to_centre), strict=True):
            assert value == pytest.approx(measure(own, labels.astype(np.int64)) or np.nan, rel=1e-5, nan_ok=True)
    assert links["rows"].tolist() == list(range(len(ids)))  # shards and groups are in the order of ids
    held_index = Chnsw.of(links)
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


@pytest.mark.slow
def test_a_community_of_one_member_has_its_members_text(index: Index) -> None:
    index.build(documents(60), augmentation="none", grain=0)
    with index.snapshot() as snapshot:
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


@pytest.mark.slow
def test_a_night_redoes_what_changed(index: Index) -> None:
    rows = documents(60)
    first = index.build(rows)
    counts = index.counts(first, "community_reports")
    redone = [counts[f"reports_redone_l{level}"] for level in (1, 2)]
    assert counts["reports_made"] >= sum(redone) > 4
    assert (counts["reports_kept_l1"], counts["reports_reused"]) == (0, 0)
    assert index.counts(first, "community_clusters")["modularity_thousandths_l1"] > 300
    counts = index.counts(index.build(rows), "community_reports")
    assert counts["reports_redone_l1"] == 0
    assert counts["reports_kept_l1"] == redone[0]

    counts = index.counts(index.build(edited(rows)), "community_reports")
    assert 1 <= counts["reports_redone_l1"] <= redone[0] / 2 <= counts["reports_kept_l1"]


@pytest.mark.slow
def test_leiden_starts_from_the_version_before_and_the_start_tells_of_no_node_that_is_gone(index: Index) -> None:
    rows = documents(60)
    index.build(rows)
    assert "start" not in clusters_of(index)
    before = clusters_of(index)["clusters"]
    index.build(edited(rows))
    outputs = clusters_of(index)
    store = index.store()
    old, new = (open_pack(store.open_local(digest)) for digest in (before, outputs["clusters"]))
    start = open_pack(store.open_local(outputs["start"]))
    assert set(start) == {"labels"}
    known = {node.tobytes(): label for node, label in zip(old["nodes"], old["labels"].tolist(), strict=True)}
    expected = [known.get(node.tobytes(), -1) for node in new["nodes"]]
    assert expected.count(-1) >= 2  # Zed Vex, Krait Hall
    assert [label == -1 for label in start["labels"]] == [label == -1 for label in expected]
    assert len({*zip(start["labels"].tolist(), expected, strict=True)}) == len(set(expected))


@pytest.mark.slow
def test_other_settings_of_reports_and_index_keep_the_communities_of_entities(index: Index) -> None:
    rows = edited(documents(60))
    index.build(documents(60))
    index.build(rows)
    before = clusters_of(index)
    for change in ({"report_tokens": 60}, {"m": 4}, {"input_tokens": 400}):
        outcome = index.build(rows, **change)
        assert outcome.published
        assert clusters_of(index) == before
        assert index.counts(outcome, "community_reports").get("reports_made", 0) > 0 or "m" in change
    assert index.build(rows, **change).published is False


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"augmentation": "knn", "threshold": 0.3},
        {"augmentation": "none", "grain": 0},
        pytest.param({"largest": 0, "grain": 0}, marks=pytest.mark.slow),
        pytest.param({"levels": 1}, marks=pytest.mark.slow),
        {"group": 1},
    ],
)
def test_every_way_to_find_communities_makes_a_tree(index: Index, change: dict[str, Any]) -> None:
    rows = documents(24)
    index.build(edited(rows), **change)
    fresh = index.beside().build(rows, **change)
    assert index.build(rows, cold=True, **change).manifest == fresh.manifest
    levels = index.beside().family("community_tree").counts["levels"]
    assert levels == 1 if "levels" in change else levels >= 1


@pytest.mark.slow
def test_more_documents_are_the_cause_of_more_levels_and_groups(index: Index) -> None:
    stages = {f"community_{name}" for name in ("graph", "clusters", "levels", "reports", "tree")}
    index.build(documents(12))
    before = index.labels(*stages)
    plan, _ = index.planned(documents(100))
    assert {"k2", "t"} <= before
    assert {"k3", "u"} <= index.labels(*stages) - before
    for stage in stages:
        assert set(plan.stages[stage].causes) == {"corpus"}, stage
