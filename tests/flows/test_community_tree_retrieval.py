"""Retrieval from communities that a build made: what hits say is what the tables say, night after night."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.community_tree.show import statistics
from indexmill.hits import Hit
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.snapshot import Snapshot
from storage.folder import FolderStore
from tasks.core.report import Silent
from tasks.families.community_tree.reports import community_text
from tasks.stages.resolve.consolidate import entity_text
from tests.corpora import Documents, documents, write_corpus
from tests.flows.children import NO_FAMILIES, build, settings

EVERY = 1000


def built(folder: Path, rows: Documents) -> Path:
    """The next version of the store of a folder."""
    families = {**NO_FAMILIES, "community_tree": {"enabled": True, "grain": 20, "largest": 12, "group": 8, "fewest": 3}}
    corpus = write_corpus(folder / "corpus.jsonl", rows)
    build(settings(folder / "store", corpus, families=families, split={"tokens": 48}))
    return folder / "store"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("communities")
    built(path, documents(30, words=90))
    return path


@pytest.fixture
def snapshot(folder: Path) -> Iterator[Snapshot]:
    with indexmill.open(folder / "store", version=1) as opened:
        yield opened


def questions(snapshot: Snapshot) -> list[str]:
    rows = snapshot.table("documents", ["title", "text"]).to_pylist()
    return [f"Who met {row['title']}? {row['text'][:60]}" for row in rows[:8]]


def found(snapshot: Snapshot, question: str, k: int = EVERY, where: Any = None, **given: Any) -> list[Hit]:
    return snapshot.retrieve(question, method="community_tree", k=k, where=where, parameters=given)


@pytest.mark.slow
def test_hits_say_what_the_tables_say(snapshot: Snapshot) -> None:
    described = {row["entity_id"]: row for row in snapshot.table("described").to_pylist()}
    communities = {row["community_id"]: row for row in snapshot.table("communities").to_pylist()}
    members: dict[str, list[str]] = {}
    for row in snapshot.table("community_members").to_pylist():
        members.setdefault(row["community_id"], []).append(row["member_id"])
    document_of = {row["passage_id"]: row["document_id"] for row in snapshot.table("passages").to_pylist()}
    extracted: dict[str, set[str]] = {}
    for row in snapshot.table("extracted").to_pylist():
        extracted.setdefault(row["entity_id"], set()).add(document_of[row["passage_id"]])
    relations = {
        (row["source"], row["target"], row["kind"], row["description"]) for row in snapshot.table("related").to_pylist()
    }

    def documents_under(node: str) -> set[str]:
        return extracted[node] if node in extracted else set().union(*map(documents_under, members[node]))

    told = 0
    for question in questions(snapshot):
        hits = found(snapshot, question, k_level=40)
        surfaces = {hit.id: hit.title for hit in hits if hit.kind == "entity"}
        for hit in hits:
            explanation = hit.explanation or {}
            if hit.kind == "entity":
                row = described[hit.id]
                assert (hit.title, hit.tokens) == (row["surface"], row["tokens"])
                assert hit.text == (row["description"] or row["surface"])
                for one in explanation["relations"]:
                    told += 1
                    ends = (hit.id, one["entity_id"])
                    if one["source"] != surfaces[hit.id] or (*ends, one["kind"], one["description"]) not in relations:
                        ends = ends[::-1]
                    assert (*ends, one["kind"], one["description"]) in relations
            elif hit.kind == "community":
                row = communities[hit.id]
                assert (hit.title, hit.text, hit.tokens) == (row["title"], row["text"], row["tokens"])
                assert explanation["level"] == row["level"]
                assert sorted(explanation["members"]) == sorted(members[hit.id])
                assert row["members"] > 1
            if hit.kind != "passage":
                assert set(hit.document_ids) == documents_under(hit.id)
            else:
                for one in explanation["entities"]:
                    assert hit.document_ids[0] in extracted[one["entity_id"]]
                for one in explanation["communities"]:
                    assert hit.document_ids[0] in documents_under(one["community_id"])
    assert told > 0


def test_the_nearest_nodes_of_every_level_are_found(snapshot: Snapshot) -> None:
    texts = [
        (0, row["entity_id"], entity_text(row["surface"], row["type"], row["description"]))
        for row in snapshot.table("described").to_pylist()
    ]
    texts += [
        (row["level"], row["community_id"], community_text(row["title"], row["text"]))
        for row in snapshot.table("communities").to_pylist()
        if row["members"] > 1
    ]
    vectors = on_grid(snapshot.encode([text for _, _, text in texts]))
    for question in questions(snapshot):
        scores = vectors @ on_grid(snapshot.encode([question]))[0]
        hits = found(snapshot, question, passages=0, name_weight=0.0, hop_weight=0.0)
        for level in range(max(level for level, _, _ in texts) + 1):
            own = [(-float(scores[at]), key) for at, (of, key, _) in enumerate(texts) if of == level]
            expected = {key: np.float32(-score / UNIT) for score, key in sorted(own)[:5]}
            its = {hit.id: hit.score for hit in hits if (hit.explanation or {}).get("level", 0) == level}
            assert its == expected


@pytest.mark.slow
def test_a_document_that_is_gone_leaves_no_trace_in_retrieval(folder: Path, snapshot: Snapshot) -> None:
    rows = documents(30, words=90)
    asked, gone = questions(snapshot), "doc-0003"
    built(folder, {key: row for key, row in rows.items() if key != gone})
    with indexmill.open(folder / "store") as after:
        assert after.version == 2
        for question in asked:
            for hit in found(after, question, k_level=200):
                assert gone not in hit.document_ids
        known = {row["entity_id"] for row in after.table("described").to_pylist()}
        assert {hit.id for hit in found(after, asked[0], k_level=200) if hit.kind == "entity"} <= known
    filtered = found(snapshot, asked[0], where={"document_id": {"!=": gone}}, k_level=200)
    assert filtered
    assert all(gone not in hit.document_ids for hit in filtered)


@pytest.mark.slow
def test_an_evaluation_and_an_exported_folder_have_it_all(folder: Path, snapshot: Snapshot, tmp_path: Path) -> None:
    titles = snapshot.table("documents", ["document_id", "title"]).to_pylist()
    asked = [Question(row["document_id"], f"Who is {row['title']}?", (row["document_id"],)) for row in titles[:10]]
    told = evaluate(snapshot, asked, ["community_tree", "dense"]).to_dict()
    assert told["communities"] == statistics(snapshot)
    assert told["communities"]["1"]["communities"] == snapshot.manifest.families["community_tree"].counts["level_1"]
    assert told["methods"]["community_tree"]["tokens_per_question"] > 0
    export_snapshot(FolderStore(folder / "store"), 1, tmp_path / "out", progress=Silent())
    with indexmill.open(tmp_path / "out") as exported:
        for question in questions(snapshot):
            pairs = zip(found(exported, question), found(snapshot, question), strict=True)
            assert all((one.id, one.score, one.text) == (other.id, other.score, other.text) for one, other in pairs)
