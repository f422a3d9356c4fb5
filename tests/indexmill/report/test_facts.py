"""What a report says, against stores whose contents are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import indexmill
from indexmill.errors import BadInput, CorruptBlob, SnapshotNotFound
from indexmill.families.tri_graph.graph import matrices_of
from indexmill.report.comparison import QuestionChange, question_changes
from indexmill.report.facts import facts_of
from indexmill.report.history import MOST_VERSIONS
from indexmill.report.run_record import GateMeasurement
from indexmill.report.tonight import Changed, DocumentSummary, Moved
from indexmill.store import table_reader
from indexmill.store.layout import BRANCH, blob_path, ref_name
from indexmill.store.manifest import Ref
from indexmill.store.pack_checks import row_lengths
from indexmill.store.reader import StoreReader
from indexmill.text.canonical_names import entity_id
from schemas.tables import ENTITIES
from tests.indexmill.damage import flip
from tests.indexmill.report.records import end_record, new_record, promote, two_nights, withdraw, write_run
from tests.indexmill.small_snapshot import SnapshotWriter, Text, export, publish


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nights") / "store"
    two_nights(path)
    return path


def test_tonight_says_what_came_changed_and_went_and_how_much(nights: Path) -> None:
    changes = facts_of(nights).tonight.changes
    assert changes is not None
    assert (changes.version, changes.added, changes.changed, changes.moved, changes.removed) == (1, 1, 1, 0, 1)
    assert changes.unchanged == 2
    assert changes.changed_documents == (Changed("bridge", "Marrow Bridge", 66, 73),)
    assert changes.added_documents == (DocumentSummary("lamp", "Lamps", 50),)
    assert changes.removed_documents == (DocumentSummary("venn", "Ada Venn", 50),)


def test_a_moved_document_counts_once(tmp_path: Path) -> None:
    others = [Text("b", "B", "Two."), Text("c", "C", "Three.")]
    publish(tmp_path / "s", {"p": [Text("a", "A", "One."), *others]})
    publish(tmp_path / "s", {"p": [Text("new", "A", "One."), *others]}, 2)
    changes = facts_of(tmp_path / "s").tonight.changes
    assert changes is not None
    assert (changes.added, changes.changed, changes.moved, changes.removed, changes.unchanged) == (0, 0, 1, 0, 2)
    assert changes.moved_documents == (Moved("a", "new", "A"),)


def test_the_documents_whose_length_changed_most_come_first_and_ten_are_listed(tmp_path: Path) -> None:
    texts = [Text(f"d{number:02d}", "", "word.") for number in range(15)]
    publish(tmp_path / "s", {"p": texts})
    longer = [Text(one.id, "", "word. " * (5 if number % 2 else 1) + "x" * number) for number, one in enumerate(texts)]
    publish(tmp_path / "s", {"p": longer}, 2)
    changes = facts_of(tmp_path / "s").tonight.changes
    assert changes is not None
    assert changes.changed == 15
    differences = [abs(one.after - one.before) for one in changes.changed_documents]
    assert len(differences) == 10
    assert differences == sorted(differences, reverse=True)
    assert changes.changed_documents[0].id == "d13"


def test_a_version_whose_parent_is_gone_says_so(tmp_path: Path) -> None:
    withdraw(two_nights(tmp_path / "s"), 1)
    facts = facts_of(tmp_path / "s")
    assert facts.tonight.changes is None
    assert facts.tonight.unknown.startswith("Version 1, from which it was built, is no longer in the store")
    assert [one.removed for one in facts.history] == ["withdrawn", ""]
    assert facts.history[0].documents is None


def _damage(path: Path, name: str, version: int) -> None:
    """Change a bit of an artifact's blob, after which no process may have read it."""
    store = StoreReader(path)
    artifact = store.manifest(store.ref(version).manifest).artifact(name)
    assert artifact is not None
    flip(path / blob_path(artifact.digest), artifact.bytes // 2)


@pytest.mark.parametrize("table", ["passages/p0", "documents/p0"])
def test_a_damaged_table_is_told_as_damage(tmp_path: Path, table: str) -> None:
    two_nights(tmp_path / "s", new_record() | {"report": None})
    _damage(tmp_path / "s", table, 2)
    with pytest.raises(CorruptBlob):
        facts_of(tmp_path / "s")


def test_a_damaged_parent_costs_the_changes_and_nothing_else(tmp_path: Path) -> None:
    two_nights(tmp_path / "s")
    _damage(tmp_path / "s", "documents/p0", 1)
    facts = facts_of(tmp_path / "s")
    assert facts.tonight.unknown.startswith("Version 1, from which it was built, cannot be read")
    assert facts.inside.histograms


def test_titles_of_the_documents_that_missed_questions_name_are_those_of_the_version(nights: Path) -> None:
    assert facts_of(nights).tonight.titles == {"bridge": "Marrow Bridge", "ilse": "Ilse", "lamp": "Lamps"}


def test_history_has_each_version_with_what_its_run_recorded(tmp_path: Path) -> None:
    promote(two_nights(tmp_path / "s"), "prod", 1)
    first, second = facts_of(tmp_path / "s").history
    assert (first.version, first.aliases, first.recall, first.cost, first.seconds) == (
        1,
        ("prod",),
        {"fused": 0.75},
        0,
        100,
    )
    assert (second.documents, second.recall, second.cost, second.note) == (4, {"fused": 0.5}, 0.25, "night 2")
    assert second.bytes is not None


@pytest.mark.slow
def test_history_ends_with_the_reported_version_and_has_ninety_at_most(tmp_path: Path) -> None:
    for version in range(1, MOST_VERSIONS + 4):
        writer = SnapshotWriter(tmp_path / "s")
        writer.shard("p", [Text("a", "", "One.")])
        writer.publish(version=version) if version < 29 else _later(writer, version)
    found = facts_of(tmp_path / "s", MOST_VERSIONS + 2).history
    assert [found[0].version, found[-1].version, len(found)] == [3, MOST_VERSIONS + 2, MOST_VERSIONS]


def _later(writer: SnapshotWriter, version: int) -> None:
    """Publish a version beyond the days of the month that the writer's clock has."""
    ref = Ref(
        version=version,
        manifest=writer.store.put_blob(writer.manifest().to_bytes()),
        parent=version - 1,
        epoch=version,
        run_id=f"run-{version}",
        created="2026-03-01T02:00:00Z",
    )
    assert writer.store.create(ref_name(BRANCH, version), ref.to_bytes())


def test_inside_counts_what_the_tables_hold(nights: Path) -> None:
    inside = facts_of(nights).inside
    with indexmill.open(nights) as snapshot:
        tokens = snapshot.table("passages", ["tokens"])["tokens"].to_pylist()
        mentioned = snapshot.table("entities", ["surface", "passages"]).to_pylist()
        contents = matrices_of(snapshot).contents.indptr
    by_name = {one.name: one for one in inside.histograms}
    lengths = by_name["Lengths of passages, in tokens"]
    assert (lengths.total, lengths.least, lengths.most) == (5, min(tokens), max(tokens))
    assert lengths.median == sorted(tokens)[2]
    assert by_name["Entities per passage"].total == 5
    assert sum(bar.low * bar.count for bar in by_name["Entities per passage"].bars) == row_lengths(contents).sum()
    assert inside.central[0].passages == max(one["passages"] for one in mentioned)
    assert len(inside.central) == inside.entities == len(mentioned)
    assert sum(one.bytes for one in inside.sizes) == inside.bytes
    assert {one.name for one in inside.sizes} >= {"tri_graph"}


def test_a_document_that_spans_groups_of_rows_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reader, "ROWS_PER_GROUP", 2)
    texts = [Text("a", "", "\n\n".join(f"Paragraph {number}." for number in range(5))), Text("b", "", "One.")]
    publish(tmp_path / "s", {"p": texts})
    by_name = {one.name: one for one in facts_of(tmp_path / "s").inside.histograms}
    assert [bar.count for bar in by_name["Passages per document"].bars] == [1, 0, 0, 0, 1]
    assert by_name["Lengths of passages, in tokens"].total == 6


def test_a_file_that_several_artifacts_share_counts_once(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p", [Text("a", "", "One.")])
    for name in ("p", "q"):
        writer.table(f"entities/{name}", ENTITIES.empty_table(), ENTITIES)
    writer.publish()
    inside = facts_of(tmp_path / "s").inside
    names = ("entities/p", "entities/q")
    with indexmill.open(tmp_path / "s") as snapshot:
        one, other = (snapshot.manifest.artifact(name) for name in names)
    assert one is not None
    assert other is not None
    assert one.digest == other.digest
    assert sum(family.bytes for family in inside.sizes) == inside.bytes


def test_names_that_differ_in_signs_alone_are_shown_the_most_mentioned_first(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p", [Text("a", "", "One.")])
    names = {"Straße 7": 1, "strasse-7": 9, "Café Noir": 2, "Cafe-noir": 3, "Ox": 5, "O X": 5, "alone": 99}
    rows = [
        {"entity_id": entity_id(name), "name": name, "surface": name, "mentions": n, "passages": n, "documents": 1}
        for name, n in names.items()
    ]
    writer.table("entities/e", pa.Table.from_pylist(rows, ENTITIES), ENTITIES)
    writer.publish()
    inside = facts_of(tmp_path / "s").inside
    assert [one.names for one in inside.alike] == [("Cafe-noir", "Café Noir")]  # "Ox" is too short, "ß" a letter
    assert not inside.compared


def test_compare_tells_the_questions_won_and_lost(nights: Path) -> None:
    found = facts_of(nights, 2, compare=1).comparison
    assert found is not None
    (fused,) = found.quality
    assert (fused.before, fused.after, fused.won, fused.lost, fused.same) == (0.75, 0.5, 1, 1, 0)
    assert fused.won_questions == (QuestionChange("Who paid for the bridge?", 0.5, 1.0),)
    assert fused.lost_questions == (QuestionChange("Where does the Ilse rise?", 1.0, 0.5),)
    assert (found.a.version, found.b.version, found.changes.added) == (1, 2, 1)


def test_compare_goes_backwards_too(nights: Path) -> None:
    found = facts_of(nights, 1, compare=2).comparison
    assert found is not None
    assert (found.changes.added_documents[0].id, found.changes.removed_documents[0].id) == ("venn", "lamp")


def test_compare_without_recorded_questions_says_which_run_lacks_them(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        writer = publish(tmp_path / "s", version=version)
    write_run(writer.store, "run-2", end_record("run-2"), parent=1)
    write_run(writer.store, "run-3", new_record("run-3"), parent=2)
    for version, said in (
        (1, "Version 1: The store has no record of the run."),
        (2, "The run of version 2 measured no questions."),
    ):
        found = facts_of(tmp_path / "s", compare=version).comparison
        assert found is not None
        assert (found.quality, found.quality_remark) == ((), said)


def test_compare_says_where_recall_was_measured_at_different_depths(tmp_path: Path) -> None:
    end = new_record()
    end["report"]["quality"]["k"] = 10
    two_nights(tmp_path / "s", end)
    found = facts_of(tmp_path / "s", compare=1).comparison
    assert found is not None
    assert found.quality_remark.startswith("Version 1 measured recall at 5, version 2 at 10")
    assert found.quality


def test_compare_names_summaries_that_came_and_went(tmp_path: Path) -> None:
    for version, summaries in ((1, [("old", [0, 1])]), (2, [("new", [0, 1])])):
        writer = SnapshotWriter(tmp_path / "s")
        writer.shard("p", [Text("a", "", "One."), Text("b", "", "Two.")])
        writer.lsh_tree([[(f"A summary that is {name}.", members) for name, members in summaries]])
        writer.publish(version)
    found = facts_of(tmp_path / "s", compare=1).comparison
    assert found is not None
    (rows,) = found.rows
    assert (rows.table, rows.came, rows.went) == ("summaries", 1, 1)
    assert (rows.came_names, rows.went_names) == (("A summary that is new.",), ("A summary that is old.",))


def test_an_exported_folder_has_no_runs_and_no_history(nights: Path, tmp_path: Path) -> None:
    with indexmill.open(nights) as snapshot:
        export(snapshot, tmp_path / "e")
    facts = facts_of(tmp_path / "e")
    assert (facts.version, facts.history, facts.comparison, facts.documents) == (None, (), None, 4)
    assert facts.tonight.no_run == "It has no run records."
    with pytest.raises(BadInput, match="exported folder"):
        facts_of(tmp_path / "e", compare=1)


def test_a_version_cannot_be_compared_with_itself_or_one_that_is_not_there(nights: Path) -> None:
    with pytest.raises(BadInput, match="this is the version of the report"):
        facts_of(nights, compare=2)
    with pytest.raises(SnapshotNotFound, match="no version 7"):
        facts_of(nights, compare=7)


def test_facts_are_json(nights: Path) -> None:
    found = json.loads(json.dumps(facts_of(nights, compare=1).to_json(), allow_nan=False))
    assert found["tonight"]["changes"]["added"] == 1
    assert found["inside"]["histograms"][0]["bars"][0].keys() == {"low", "high", "count"}


def test_row_lengths_are_of_pointers() -> None:
    assert row_lengths(np.array([0, 2, 2, 5], np.int32)).tolist() == [2, 0, 3]


def test_questions_that_a_record_cut_to_the_same_text_are_told_apart() -> None:
    before = GateMeasurement(5, 3, 0, 0, {"fused": 0.5}, None, ("same…", "same…", "other"), {"fused": (0.0, 1.0, 1.0)})
    after = GateMeasurement(5, 3, 0, 0, {"fused": 0.5}, None, ("same…", "same…", "new"), {"fused": (1.0, 1.0, 0.0)})
    (fused,) = question_changes(before, after)
    assert (fused.won, fused.lost, fused.same) == (1, 0, 1)
