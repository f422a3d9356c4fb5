"""Retrieval from a heterograph that a build made: what hits say is what the tables say, night after night."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from flows.export import export_snapshot
from indexmill.command import main
from indexmill.errors import CorruptBlob
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.heterograph.nodes import SHOWN
from indexmill.families.heterograph.search import KINDS
from indexmill.hits import Hit
from indexmill.snapshot import Snapshot
from indexmill.store.layout import blob_path
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage.folder import FolderStore
from tasks.core.report import Silent
from tests.corpora import Documents, documents, write_corpus
from tests.flows.children import NO_FAMILIES, build, settings
from tests.flows.readers import flip_byte

EVERY = 3000


def built(folder: Path, rows: Documents) -> Path:
    """The next version of the store of a folder."""
    families = {**NO_FAMILIES, "heterograph": {"enabled": True, "neighbours": 6, "group": 8}}
    corpus = write_corpus(folder / "corpus.jsonl", rows)
    build(settings(folder / "store", corpus, families=families, split={"tokens": 48}))
    return folder / "store"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heterograph")
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
    return snapshot.retrieve(question, method="heterograph", k=k, where=where, parameters=given)


ALL = {"units": EVERY, "attributes": EVERY, "high_level": EVERY, "relations": EVERY}


@pytest.mark.slow
def test_hits_say_what_the_tables_say(snapshot: Snapshot) -> None:
    document_of = {row["passage_id"]: row["document_id"] for row in snapshot.table("passages").to_pylist()}
    titles = {row["document_id"]: row["title"] for row in snapshot.table("documents").to_pylist()}
    surfaces = {row["entity_id"]: row["surface"] for row in snapshot.table("entities").to_pylist()}
    units = {row["unit_id"]: row for row in snapshot.table("units").to_pylist()}
    attributes = {row["attribute_id"]: row for row in snapshot.table("attributes").to_pylist()}
    elements = {row["element_id"]: row for row in snapshot.table("elements").to_pylist()}
    relations = {row["node_id"]: row for row in snapshot.table("heterograph/relations").to_pylist()}
    said: dict[tuple[str, str, str], set[str]] = {}
    for row in snapshot.table("relations").to_pylist():
        said.setdefault((row["source"], row["target"], row["text"]), set()).add(row["passage_id"])
    seen: set[str] = set()
    for question in questions(snapshot):
        for hit in found(snapshot, question, **ALL):
            seen.add(hit.kind)
            explanation = hit.explanation or {}
            passages = explanation["passages"]
            assert set(hit.document_ids) == {document_of[one] for one in passages}
            if hit.kind == "text":
                assert passages == [hit.id]
            elif hit.kind == "unit":
                row = units[hit.id]
                assert (hit.text, passages) == (row["text"], [row["passage_id"]])
                assert hit.title == titles[hit.document_ids[0]]
            elif hit.kind == "attribute":
                row = attributes[hit.id]
                assert (hit.text, hit.tokens, hit.title) == (row["text"], row["tokens"], surfaces[row["entity_id"]])
            elif hit.kind == "high-level":
                row = elements[hit.id]
                assert (hit.text, hit.tokens, hit.title) == (row["text"], row["tokens"], row["title"])
            else:
                row = relations[hit.id]
                assert hit.text == row["said"]
                assert set(passages) == said[row["source"], row["target"], row["text"]]
    assert seen == {SHOWN[kind] for kind in KINDS[:5]}


@pytest.mark.slow
def test_the_nearest_units_attributes_and_elements_are_entries(snapshot: Snapshot) -> None:
    rows = [
        (row[key], row["text"])
        for name, key in (("units", "unit_id"), ("attributes", "attribute_id"), ("elements", "element_id"))
        for row in snapshot.table(name).to_pylist()
    ]
    vectors = snapshot.encode([text for _, text in rows])
    for question in questions(snapshot):
        cosines = vectors @ snapshot.encode([question])[0]
        entries = [hit for hit in found(snapshot, question, **ALL) if (hit.explanation or {})["entry"]]
        assert len(entries) == 10
        least = np.sort(cosines)[-10]
        cosine = dict(zip([key for key, _ in rows], cosines.tolist(), strict=True))
        for hit in entries:
            assert (hit.explanation or {})["cosine"] == pytest.approx(cosine[hit.id], abs=1e-5)
            assert cosine[hit.id] >= least - 1e-5


@pytest.mark.slow
def test_a_document_that_is_gone_leaves_no_trace_in_retrieval(folder: Path, snapshot: Snapshot) -> None:
    rows = documents(30, words=90)
    asked, gone = questions(snapshot), "doc-0003"
    own = {row["passage_id"] for row in snapshot.table("passages").to_pylist() if row["document_id"] == gone}
    built(folder, {key: row for key, row in rows.items() if key != gone})
    with indexmill.open(folder / "store") as after:
        assert after.version == 2
        for question in asked:
            for hit in found(after, question, **ALL):
                assert gone not in hit.document_ids
                assert own.isdisjoint((hit.explanation or {})["passages"])
    filtered = found(snapshot, asked[0], where={"document_id": {"!=": gone}}, **ALL)
    assert filtered
    for hit in filtered:
        assert gone not in hit.document_ids
        assert own.isdisjoint((hit.explanation or {})["passages"])


@pytest.mark.slow
def test_an_evaluation_the_command_and_an_exported_folder_have_it_all(
    folder: Path, snapshot: Snapshot, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    titles = snapshot.table("documents", ["document_id", "title"]).to_pylist()
    asked = [Question(row["document_id"], f"Who is {row['title']}?", (row["document_id"],)) for row in titles[:10]]
    told = evaluate(snapshot, asked, ["heterograph", "dense"], ks=(5, len(titles))).to_dict()
    assert told["methods"]["heterograph"]["tokens_per_question"] > 0
    assert told["methods"]["heterograph"][f"recall@{len(titles)}"] == 1.0
    command = ["query", questions(snapshot)[0], "--store", str(folder / "store"), "--snapshot", "1"]
    assert main([*command, "--method", "heterograph", "-k", "400", "--relations", "2", "--explain"]) == 0
    assert "(unit)" in capsys.readouterr().out
    export_snapshot(FolderStore(folder / "store"), 1, tmp_path / "out", progress=Silent())
    with indexmill.open(tmp_path / "out") as exported:
        for question in questions(snapshot):
            pairs = zip(found(exported, question), found(snapshot, question), strict=True)
            assert all(
                (one.id, one.score, one.explanation) == (other.id, other.score, other.explanation)
                for one, other in pairs
            )


@pytest.mark.parametrize("artifact", ["graph", "names", "nodes", "edges", "relations"])
def test_a_flipped_byte_of_the_graph_is_found_by_verify_and_by_whoever_reads_it(
    folder: Path, snapshot: Snapshot, tmp_path: Path, artifact: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("INDEXMILL_CACHE", raising=False)  # what another reader has unpacked is not read again
    store = Path(shutil.copytree(folder / "store", tmp_path / "store"))
    assert verify(StoreReader(store), 1).ok
    (one,) = [one for one in snapshot.manifest.artifacts if one.name == f"heterograph/{artifact}"]
    flip_byte(store / blob_path(one.digest))
    assert [problem.what for problem in verify(StoreReader(store), 1).problems] == [one.name]

    def read(damaged: Snapshot) -> object:
        if artifact in ("nodes", "edges"):  # no question needs them
            return damaged.table(one.name)
        return found(damaged, questions(snapshot)[0])

    with indexmill.open(store, version=1) as damaged, pytest.raises(CorruptBlob, match=one.digest):
        read(damaged)
