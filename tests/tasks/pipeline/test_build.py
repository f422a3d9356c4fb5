"""A build without Prefect or Dask: the promises that hold whatever runs it."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from flows import build_run
from flows.build_run import BuildOutcome, build_inline, run_build
from flows.rollback import resume, roll_back
from indexmill.command import main
from indexmill.errors import BadInput, GateRefused, LeaseLost
from indexmill.models import embedder
from indexmill.store.canonical import digest_of
from indexmill.store.layout import blob_path, receipt_prefix
from schemas.config import Configuration
from storage import runs
from storage.folder import init_folder
from storage.lease import acquire
from tasks.core.executor import Call, InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tasks.stages.embed import embed
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.tasks.indexes import Index, edited


@pytest.fixture
def index(quick: Path) -> Index:
    return Index(quick / "store")


def built(store: Path, corpus: Path, **sections: Any) -> BuildOutcome:
    """A build of a corpus that a test has written itself."""
    return build(settings(store, corpus, **sections))


def test_a_corpus_becomes_a_snapshot_that_answers(index: Index) -> None:
    outcome = index.build(documents(12))
    assert (outcome.published, outcome.version, outcome.documents) == (True, 1, 12)
    with index.snapshot() as snapshot:
        assert snapshot.manifest.corpus.documents == 12
        assert snapshot.table("documents").num_rows == 12
        hits = snapshot.retrieve("Who built the bridge of Vell with Esme Quill?", method="tri_graph", k=3)
        assert len(hits) == 3
        assert all(hit.version == 1 for hit in hits)


def test_titles_are_indexed_and_embedded_unless_they_are_switched_off(index: Index) -> None:
    for split, families, expected in (
        ({}, {}, True),
        ({"title_in_passage": False}, {}, False),
        ({}, {"bm25": {"enabled": False}}, None),
    ):
        index.build(documents(12), split=split, families=families)
        with index.snapshot() as snapshot:
            assert ("bm25" in snapshot.methods) == bool(snapshot.shards("bm25")) == (expected is not None)
            assert bool(snapshot.shards("titles")) == split.get("title_in_passage", True)
            if expected is not None:
                counts = snapshot.manifest.families["bm25"].counts
                assert counts["passages"] == snapshot.manifest.corpus.passages
                hits = snapshot.retrieve("7", method="bm25")  # a number that stands in one title alone
                assert [hit.document_ids for hit in hits[:1]] == [("doc-0007",)] * expected


@pytest.mark.slow
def test_an_edit_counts_the_words_of_its_shard_alone(index: Index) -> None:
    rows = documents(30)
    index.build(rows)
    index.build(edited(rows, "Falk left."))
    with indexmill.open(index.root, version=1) as old, index.snapshot() as new:
        shards = [{one.name: one.digest for one in snapshot.shards("bm25")} for snapshot in (old, new)]
        assert len(shards[0]) > 2
        assert len(set(shards[0].items()) ^ set(shards[1].items())) == 2
        assert new.retrieve("Falk", method="bm25")[0].document_ids == ("doc-0007",)


def test_the_order_of_the_corpus_does_not_change_a_byte(index: Index) -> None:
    rows = list(documents(30).items())
    first = index.beside("one").build(dict(rows))
    random.Random(3).shuffle(rows)  # noqa: S311
    assert index.beside("two").build(dict(rows)).manifest == first.manifest


def test_an_edit_embeds_the_touched_rows_alone(index: Index) -> None:
    rows = documents(30)
    first = index.build(rows)
    title, text = rows["doc-0007"]
    rows["doc-0007"] = (title, text.replace("bridge", "tower", 1))
    second = index.build(rows)
    with index.snapshot() as snapshot:
        passages = snapshot.table("passages").to_pylist()
        sentences = snapshot.table("sentences").column("passage_id").to_pylist()
    touched = {row["passage_id"] for row in passages if row["document_id"] == "doc-0007"}
    assert second.vectors_made <= len(touched) + sum(passage in touched for passage in sentences)
    assert 0 < second.vectors_made < first.vectors_made / 10
    assert second.manifest != first.manifest
    assert index.beside().build(rows).manifest == second.manifest


def test_a_deleted_document_leaves_no_trace(index: Index) -> None:
    rows = documents(20)
    without = index.beside().build(rows).manifest
    rows["doc-9999"] = ("Zebulon Krait", "Zebulon Krait sang at Nowhere Hall. Nobody else did.")
    index.build(rows)
    del rows["doc-9999"]
    outcome = index.build(rows)
    assert (outcome.version, outcome.manifest) == (2, without)
    assert outcome.vectors_made == 0
    with index.snapshot() as snapshot:
        assert "zebulon krait" not in snapshot.table("entities").column("name").to_pylist()


def test_a_cold_build_makes_every_part_and_the_same_bytes(index: Index) -> None:
    first = index.build(documents(12))
    cold = index.build(documents(12), cold=True)
    assert cold.parts_made == first.parts_made
    assert (cold.parts_reused, cold.parts_differing, cold.manifest) == (0, 0, first.manifest)


@pytest.mark.slow
def test_a_second_writer_is_told_who_holds_the_lease(index: Index) -> None:
    store = init_folder(index.root)
    with acquire(store, "first"), pytest.raises(LeaseLost, match="first"):
        index.build(documents(3))
    assert index.build(documents(3)).published


def test_refused_rows_are_counted_kept_and_do_not_stop_the_rest(index: Index, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with corpus.open("ab") as file:
        file.write(b'{"id": "a", "title": "t"}\n{"id": "b", "text": "nul \\u0000"}\nnot json\n\xff\xfe\n')
        file.write(json.dumps({"id": "doc-0001", "title": "other", "text": "Another text."}).encode() + b"\n")
    outcome = built(index.root, corpus)
    assert (outcome.documents, outcome.quarantined) == (4, 5)
    run, rows = runs.quarantine_of(index.store())
    assert run == outcome.run
    assert sorted(rows.column("reason").to_pylist()) == ["duplicate-id", "no-text", "not-json", "not-utf8", "nul"]


@pytest.mark.slow
def test_refused_rows_with_line_ends_are_printed_one_a_line(
    index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_corpus(folder / "a.jsonl", documents(4))
    (folder / "odd\nname.jsonl").write_text(json.dumps({"id": "an\nid\x1b[31m", "title": "t"}) + "\n")
    built(index.root, folder)
    assert main(["quarantine", "--store", str(index.root)]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("odd\\nname.jsonl     1  an\\nid\\x1b[31m  no-text  field 'text'")


def test_front_matter_that_was_left_out_is_told_and_counted(index: Index, tmp_path: Path) -> None:
    warned: list[str] = []

    class Kept(Silent):
        def warn(self, message: str) -> None:
            warned.append(message)

    corpus = tmp_path / "docs"
    corpus.mkdir()
    for name in ("a", "b", "c"):
        front = "title: C" if name == "c" else "title: {{ page.title }}"
        (corpus / f"{name}.md").write_text(f"---\n{front}\n---\n# The {name} Bridge\n\nIt was built by {name}.\n")
    outcome = build_inline(Configuration.model_validate(settings(index.root, corpus)), progress=Kept())
    assert (outcome.documents, outcome.quarantined) == (3, 0)
    with index.snapshot() as snapshot:
        assert sorted(snapshot.table("documents").column("title").to_pylist()) == ["C", "The a Bridge", "The b Bridge"]
    (said,) = [message for message in warned if "front matter" in message]
    assert said.startswith("metadata in a.md and 1 other were left out (front matter that is not YAML")
    report = runs.last_report(index.store())
    assert report["stages"]["ingest"]["metadata_left_out"] == 2


@pytest.mark.slow
def test_pages_without_text_are_listed_and_no_failure(index: Index, tmp_path: Path) -> None:
    corpus = tmp_path / "docs"
    corpus.mkdir()
    for number in range(15):
        (corpus / f"{number}.md").write_text(f"---\ntitle: Section {number}\n---\n")
    (corpus / "a.md").write_text("# The Bridge\n\nIt was built by Ada Venn.\n")
    for _ in range(2):  # the second build carries them over
        outcome = built(index.root, corpus, run={"strict": True})
        assert (outcome.documents, outcome.quarantined) == (1, 0)
        assert runs.last_report(index.store())["stages"]["ingest"]["empty_files"] == 15
        (corpus / "a.md").write_text("# The Bridge\n\nIt was built by Orrin Falk.\n")
    assert set(runs.quarantine_of(index.store())[1].column("reason").to_pylist()) == {"empty-file"}


@pytest.mark.slow
def test_touching_files_embeds_nothing_anew(index: Index, tmp_path: Path) -> None:
    corpus = tmp_path / "docs"
    corpus.mkdir()
    for name, (title, words) in documents(12).items():
        (corpus / f"{name}.md").write_text(f"# {title}\n\n{words}\n")
    chosen = settings(index.root, corpus)
    chosen["corpus"]["file_metadata"] = ["modified"]
    configuration = Configuration.model_validate(chosen)
    assert build_inline(configuration, progress=Silent()).vectors_made
    for file in corpus.iterdir():
        os.utime(file, (1.7e9, 1.7e9))
    outcome = build_inline(configuration, progress=Silent())
    assert (outcome.published, outcome.vectors_made) == (True, 0)


def test_strict_refuses_and_publishes_nothing(index: Index, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with corpus.open("ab") as file:
        file.write(b"not json\n")
    with pytest.raises(BadInput, match=r"1 not-json.*such as corpus\.jsonl:5 \(not-json\)\."):
        built(index.root, corpus, run={"strict": True})
    store = index.store()
    assert [run.state for run in runs.list_runs(store)] == ["failed"]
    assert runs.quarantine_of(store)[1].num_rows == 1
    assert not store.list("refs/")


def test_a_corpus_without_a_document_is_refused(index: Index, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": 1, "body": "b"}\nnot json\n{"id": 2, "body": "b"}\n')
    with pytest.raises(BadInput, match="no document") as caught:
        built(index.root, corpus)
    said = str(caught.value)
    assert (
        "3 rows were refused (2 no-text, 1 not-json), such as corpus.jsonl:1 (no-text); `corpus.fields` names" in said
    )
    corpus.write_text("")
    with pytest.raises(BadInput, match="its files contain no row"):
        built(index.root, corpus)


@pytest.mark.slow
def test_every_document_can_go(index: Index) -> None:
    index.build(documents(3))
    outcome = index.build({})
    assert (outcome.version, outcome.documents, outcome.passages) == (2, 0, 0)
    with index.snapshot() as snapshot:
        assert snapshot.retrieve("Esme Quill?", method="dense") == []


@pytest.mark.slow
def test_shards_that_are_made_from_the_same_share_a_part(index: Index) -> None:
    # Dates and numbers are entities without vectors: every entity shard asks for the names of none.
    rows = {
        f"d{number}": (" ", f"In {1200 + number} and {1700 + number} there were {number} km.") for number in range(300)
    }
    first = index.build(rows)
    with index.snapshot() as snapshot:
        assert len(snapshot.shards("names")) == len(snapshot.shards("entities")) > 1
    assert not index.build(rows).published
    assert index.beside().build(rows).manifest == first.manifest


@pytest.mark.slow
def test_a_new_version_of_a_stage_copies_no_vector_of_the_old(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    first = index.build(documents(12))
    monkeypatch.setattr(embed, "STAGE", dataclasses.replace(embed.STAGE, version=99, rows_version=0))
    second = index.build(documents(12))
    assert second.vectors_made == first.vectors_made - others_made(index)
    assert index.beside().build(documents(12)).manifest == second.manifest


def others_made(index: Index) -> int:
    """The vectors of names and titles."""
    with indexmill.open(index.root, version=1) as snapshot:
        titles = sum(len(np.unique(keys, axis=0)) for keys in snapshot.vectors("titles", "text_keys"))
        return titles + sum(len(vectors) for vectors in snapshot.vectors("names", "vectors"))


def test_a_cold_build_replaces_what_came_out_different(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.build(documents(12))
    monkeypatch.setattr(embedder, "mean", lambda states: states[-1])
    cold = index.build(documents(12), cold=True)
    assert cold.published
    assert cold.parts_differing > 0
    assert index.beside().build(documents(12)).manifest == cold.manifest
    assert not index.build(documents(12)).published


@pytest.mark.slow
@pytest.mark.parametrize("ended", ["killed", "rolled back"])
def test_a_build_goes_on_from_a_cold_one_that_does_not_stand(
    index: Index, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    rows = documents(12)
    index.build(rows)
    monkeypatch.setattr(embedder, "mean", lambda states: states[-1])
    expected = index.beside().build(rows).manifest
    if ended == "killed":
        with monkeypatch.context() as patched:
            patched.setattr(build_run, "publish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                index.build(rows, cold=True)
    else:
        index.build(rows, cold=True)
        roll_back(index.store(), 1)
        resume(index.store())
    assert index.build(rows).manifest == expected


def interrupted(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.slow
def test_an_unreadable_file_takes_no_documents_away_unless_asked(index: Index, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl.gz"
    write_corpus(tmp_path / "corpus.jsonl", documents(200))
    corpus.write_bytes(gzip.compress((tmp_path / "corpus.jsonl").read_bytes()))
    chosen = settings(index.root, corpus)
    build(chosen)
    corpus.write_bytes(corpus.read_bytes()[:-4500])
    with pytest.raises(GateRefused, match="--allow-shrink"):
        build(chosen)
    assert [run.state for run in runs.list_runs(index.store())] == ["published", "refused"]
    read = Configuration.model_validate(chosen)
    outcome = run_build(read, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True)
    assert (outcome.version, outcome.quarantined) == (2, 1)
    assert outcome.documents < 200


def test_a_run_that_lost_its_lease_stops_and_says_so(index: Index, tmp_path: Path) -> None:
    class Stolen(InlineExecutor):
        """Another run takes the store over while this one works."""

        def run(
            self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False
        ) -> Iterator[tuple[Call, Any]]:
            for done in super().run(calls, priority=priority, keep_going=keep_going):
                yield done
                if done[0].key.startswith("scan"):
                    acquire(index.store(), "thief", clock=lambda: time.time() + 10_000)
                    self.stop()  # what the lease's own thread does when it finds out

    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with pytest.raises(LeaseLost, match="thief"):
        run_build(Configuration.model_validate(settings(index.root, corpus)), Stolen(), Build.run, progress=Silent())
    store = index.store()
    assert runs.list_runs(store)[0].state == "superseded"
    assert not store.list("refs/")


@pytest.mark.slow
def test_equal_passages_are_embedded_once(index: Index) -> None:
    title, text = documents(1)["doc-0000"]
    one = index.beside("one").build({"a": (title, text)})
    many = index.beside("many").build({f"d{number}": (title, text) for number in range(10)})
    assert many.vectors_made - one.vectors_made <= len(index.beside("many").rows("entities"))


@pytest.mark.slow
def test_an_edit_reads_the_other_documents_of_its_shard_from_the_parent(index: Index) -> None:
    rows = documents(30)
    index.build(rows)
    index.build(edited(rows, "Falk left."))
    ended = runs.list_runs(index.store())[-1].end
    assert ended is not None
    made = {stage: report.get("documents_made") for stage, report in ended.report["stages"].items()}  # type: ignore[union-attr]
    assert (made["split"], made["recognise"]) == (1, 1)


@pytest.mark.slow
def test_parts_of_the_parent_are_found_without_their_receipts(index: Index) -> None:
    rows = documents(30)
    index.build(rows)
    for stage in ("embed", "recognise", "embed_names"):
        shutil.rmtree(index.root / receipt_prefix(stage))
    made = index.build(edited(rows, "Falk left."))
    assert [index.counts(made, stage)["parts_made"] for stage in ("embed", "recognise", "embed_names")] == [1, 1, 0]


@pytest.mark.slow
def test_a_part_of_the_parent_without_its_blobs_is_made_again(index: Index) -> None:
    rows = documents(30)
    first = index.build(rows)
    (*_, digest), *_ = (outputs.values() for (stage, _), outputs in index.outputs().items() if stage == "embed")
    path = index.root / blob_path(digest)
    path.unlink()
    again = index.build(rows)
    assert index.counts(again, "embed")["parts_made"] == 1
    assert again.manifest == first.manifest
    assert digest_of(path.read_bytes()) == digest


@pytest.mark.slow
def test_a_document_that_is_renamed_or_copied_keeps_its_vectors(index: Index) -> None:
    rows = documents(30)
    index.build(rows)
    for number in range(8):  # some of these fall into other shards
        rows[f"copy-{number}"] = rows[f"doc-{number:04d}"]
        rows[f"moved-{number}"] = rows.pop(f"doc-{number + 8:04d}")
    made = index.build(rows).vectors_made
    with indexmill.open(index.root, version=1) as before, index.snapshot() as after:
        named = [np.concatenate(one.vectors("names", "entity_keys")) for one in (before, after)]
    assert made == len(np.setdiff1d(named[1], named[0]))  # names that stand in two passages now
