"""A build without Prefect or Dask: the promises that hold whatever runs it."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexmill
from flows.run import Outcome, build_inline, run_build
from indexmill.command import main
from indexmill.errors import BadInput, GateRefused, LeaseLost
from indexmill.models import embedder
from schemas.config import Configuration
from storage import runs
from storage.folder import init_store, open_store
from storage.lease import acquire
from tasks.core.executor import Call, InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tasks.stages.embed import embed
from tests.corpora import Documents, documents, write_corpus


def configuration(store: Path, corpus: Path, **run: object) -> Configuration:
    return Configuration.model_validate(
        {
            "store": store,
            "corpus": {"paths": [str(corpus)]},
            "embed": {"model": "hash"},
            "shards": {"document_tokens": 1_000, "entities": 64},
            "gates": {"max_shrink": 1.0},
            "run": run,
        }
    )


def build(store: Path, rows: Documents, *, cold: bool = False, **run: object) -> Outcome:
    corpus = write_corpus(store.parent / f"{store.name}.jsonl", rows)
    return build_inline(configuration(store, corpus, **run), progress=Silent(), cold=cold)


def test_a_corpus_becomes_a_snapshot_that_answers(tmp_path: Path) -> None:
    outcome = build(tmp_path / "store", documents(12))
    assert (outcome.published, outcome.version, outcome.documents) == (True, 1, 12)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.manifest.corpus.documents == 12
        assert snapshot.table("documents").num_rows == 12
        hits = snapshot.retrieve("Who built the bridge of Vell with Esme Quill?", method="tri_graph", k=3)
        assert len(hits) == 3
        assert all(hit.version == 1 for hit in hits)


def test_titles_are_indexed_and_embedded_unless_they_are_switched_off(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(12))
    plain = configuration(tmp_path / "store", corpus).model_dump()
    for split, families, expected in (
        ({}, {}, True),
        ({"title_in_passage": False}, {}, False),
        ({}, {"bm25": {"enabled": False}}, None),
    ):
        settings_ = Configuration.model_validate(plain | {"split": split, "families": families})
        version = build_inline(settings_, progress=Silent()).version
        with indexmill.open(tmp_path / "store", version=version) as snapshot:
            assert ("bm25" in snapshot.methods) == bool(snapshot.shards("bm25")) == (expected is not None)
            assert bool(snapshot.shards("titles")) == split.get("title_in_passage", True)
            if expected is not None:
                counts = snapshot.manifest.families["bm25"].counts
                assert counts["passages"] == snapshot.manifest.corpus.passages
                hits = snapshot.retrieve("7", method="bm25")  # a number that stands in one title alone
                assert [hit.document_ids for hit in hits[:1]] == [("doc-0007",)] * expected


def test_an_edit_counts_the_words_of_its_shard_alone(tmp_path: Path) -> None:
    rows = documents(30)
    build(tmp_path / "store", rows)
    title, text = rows["doc-0007"]
    build(tmp_path / "store", {**rows, "doc-0007": (title, text + " Falk left.")})
    with indexmill.open(tmp_path / "store", version=1) as old, indexmill.open(tmp_path / "store") as new:
        shards = [{one.name: one.digest for one in snapshot.shards("bm25")} for snapshot in (old, new)]
        assert len(shards[0]) > 2
        assert len(set(shards[0].items()) ^ set(shards[1].items())) == 2
        assert new.retrieve("Falk", method="bm25")[0].document_ids == ("doc-0007",)


def test_nothing_to_do_publishes_nothing_and_makes_nothing(tmp_path: Path) -> None:
    first = build(tmp_path / "store", documents(12))
    second = build(tmp_path / "store", documents(12))
    assert (second.published, second.version, second.manifest) == (False, 1, first.manifest)
    assert (second.parts_made, second.vectors_made) == (0, 0)


def test_the_order_of_the_corpus_does_not_change_a_byte(tmp_path: Path) -> None:
    rows = list(documents(30).items())
    first = build(tmp_path / "one", dict(rows))
    random.Random(3).shuffle(rows)  # noqa: S311
    assert build(tmp_path / "two", dict(rows)).manifest == first.manifest


def test_an_edit_embeds_the_touched_rows_alone(tmp_path: Path) -> None:
    rows = documents(30)
    first = build(tmp_path / "store", rows)
    title, text = rows["doc-0007"]
    rows["doc-0007"] = (title, text.replace("bridge", "tower", 1))
    second = build(tmp_path / "store", rows)
    with indexmill.open(tmp_path / "store") as snapshot:
        passages = snapshot.table("passages").to_pylist()
        sentences = snapshot.table("sentences").column("passage_id").to_pylist()
    touched = {row["passage_id"] for row in passages if row["document_id"] == "doc-0007"}
    assert second.vectors_made <= len(touched) + sum(passage in touched for passage in sentences)
    assert 0 < second.vectors_made < first.vectors_made / 10
    assert second.manifest != first.manifest
    assert build(tmp_path / "fresh", rows).manifest == second.manifest


def test_a_deleted_document_leaves_no_trace(tmp_path: Path) -> None:
    rows = documents(20)
    without = build(tmp_path / "fresh", rows).manifest
    rows["doc-9999"] = ("Zebulon Krait", "Zebulon Krait sang at Nowhere Hall. Nobody else did.")
    build(tmp_path / "store", rows)
    del rows["doc-9999"]
    outcome = build(tmp_path / "store", rows)
    assert (outcome.version, outcome.manifest) == (2, without)
    assert outcome.vectors_made == 0
    with indexmill.open(tmp_path / "store") as snapshot:
        assert "zebulon krait" not in snapshot.table("entities").column("name").to_pylist()


def test_a_cold_build_makes_every_part_and_the_same_bytes(tmp_path: Path) -> None:
    first = build(tmp_path / "store", documents(12))
    cold = build(tmp_path / "store", documents(12), cold=True)
    assert cold.parts_made == first.parts_made
    assert (cold.parts_reused, cold.parts_differing, cold.manifest) == (0, 0, first.manifest)


@settings(max_examples=8)
@given(data=st.data())
def test_update_equals_rebuild(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("update")
    pool = documents(24, seed=1, words=30)
    rows: Documents = {}
    for _ in range(data.draw(st.integers(1, 3))):
        for identity in data.draw(st.sets(st.sampled_from(sorted(pool)), min_size=1, max_size=12)):
            action = data.draw(st.sampled_from(["add", "add", "edit", "rename", "remove"]))
            if action == "add":
                rows[identity] = pool[identity]
            elif action == "edit" and identity in rows:
                rows[identity] = (rows[identity][0], rows[identity][1] + " Esme Quill returned.")
            elif action == "rename" and identity in rows:
                rows[f"{identity}-renamed"] = rows.pop(identity)
            else:
                rows.pop(identity, None)
        if not rows:
            rows["doc-0000"] = pool["doc-0000"]
        updated = build(folder / "store", rows)
    assert updated.manifest == build(folder / "fresh", rows).manifest


def test_a_second_writer_is_told_who_holds_the_lease(tmp_path: Path) -> None:
    store = init_store(tmp_path / "store")
    with acquire(store, "first"), pytest.raises(LeaseLost, match="first"):
        build(tmp_path / "store", documents(3))
    assert build(tmp_path / "store", documents(3)).published


def test_refused_rows_are_counted_kept_and_do_not_stop_the_rest(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with corpus.open("ab") as file:
        file.write(b'{"id": "a", "title": "t"}\n{"id": "b", "text": "nul \\u0000"}\nnot json\n\xff\xfe\n')
        file.write(json.dumps({"id": "doc-0001", "title": "other", "text": "Another text."}).encode() + b"\n")
    outcome = build_inline(configuration(tmp_path / "store", corpus), progress=Silent())
    assert (outcome.documents, outcome.quarantined) == (4, 5)
    run, rows = runs.quarantine_of(open_store(tmp_path / "store"))
    assert run == outcome.run
    assert sorted(rows.column("reason").to_pylist()) == ["duplicate-id", "no-text", "not-json", "not-utf8", "nul"]


def test_refused_rows_with_line_ends_are_printed_one_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    write_corpus(folder / "a.jsonl", documents(4))
    (folder / "odd\nname.jsonl").write_text(json.dumps({"id": "an\nid\x1b[31m", "title": "t"}) + "\n")
    build_inline(configuration(tmp_path / "store", folder), progress=Silent())
    assert main(["quarantine", "--store", str(tmp_path / "store")]) == 0
    _, line = capsys.readouterr().out.splitlines()
    assert line.startswith("odd name.jsonl     1  an id\ufffd[31m  no-text  field 'text'")


def test_front_matter_that_was_left_out_is_told_and_counted(tmp_path: Path) -> None:
    warned: list[str] = []

    class Kept(Silent):
        def warn(self, message: str) -> None:
            warned.append(message)

    corpus = tmp_path / "docs"
    corpus.mkdir()
    for name in ("a", "b", "c"):
        front = "title: C" if name == "c" else "title: {{ page.title }}"
        (corpus / f"{name}.md").write_text(f"---\n{front}\n---\n# The {name} Bridge\n\nIt was built by {name}.\n")
    outcome = build_inline(configuration(tmp_path / "store", corpus), progress=Kept())
    assert (outcome.documents, outcome.quarantined) == (3, 0)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.table("documents").column("title").to_pylist() == ["The a Bridge", "The b Bridge", "C"]
    (said,) = [message for message in warned if "front matter" in message]
    assert said.startswith("the front matter of a.md and 1 other was left out (not YAML, over a limit,")
    report = runs.last_report(open_store(tmp_path / "store"))
    assert report["stages"]["ingest"]["front_matter_left_out"] == 2


def test_strict_refuses_and_publishes_nothing(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with corpus.open("ab") as file:
        file.write(b"not json\n")
    with pytest.raises(BadInput, match=r"1 not-json.*such as corpus\.jsonl:5 \(not-json\)\."):
        build_inline(configuration(tmp_path / "store", corpus, strict=True), progress=Silent())
    store = open_store(tmp_path / "store")
    assert [run.state for run in runs.list_runs(store)] == ["failed"]
    assert runs.quarantine_of(store)[1].num_rows == 1
    assert not store.list("refs/")


def test_a_corpus_without_a_document_is_refused(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"id": 1, "body": "b"}\nnot json\n{"id": 2, "body": "b"}\n')
    with pytest.raises(BadInput, match="no document") as caught:
        build_inline(configuration(tmp_path / "store", corpus), progress=Silent())
    said = str(caught.value)
    assert "3 rows were refused (2 no-text, 1 not-json), such as corpus.jsonl:1 (no-text); `corpus.fields` says" in said
    corpus.write_text("")
    with pytest.raises(BadInput, match="its files hold no row"):
        build_inline(configuration(tmp_path / "store", corpus), progress=Silent())


def test_every_document_can_go(tmp_path: Path) -> None:
    build(tmp_path / "store", documents(3))
    (tmp_path / "store.jsonl").write_text("")
    outcome = run_build(
        configuration(tmp_path / "store", tmp_path / "store.jsonl"),
        InlineExecutor(),
        Build.run,
        progress=Silent(),
        allow_shrink=True,
    )
    assert (outcome.version, outcome.documents, outcome.passages) == (2, 0, 0)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.retrieve("Esme Quill?", method="dense") == []


def test_shards_that_are_made_from_the_same_share_a_part(tmp_path: Path) -> None:
    # Dates and numbers are entities without vectors: every entity shard asks for the names of none.
    rows = {
        f"d{number}": (" ", f"In {1200 + number} and {1700 + number} there were {number} km.") for number in range(300)
    }
    first = build(tmp_path / "store", rows)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert len(snapshot.shards("names")) == len(snapshot.shards("entities")) > 1
    assert not build(tmp_path / "store", rows).published
    assert build(tmp_path / "fresh", rows).manifest == first.manifest


def test_a_new_version_of_a_stage_copies_no_vector_of_the_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build(tmp_path / "store", documents(12))
    monkeypatch.setattr(embed, "STAGE", dataclasses.replace(embed.STAGE, version=99))
    second = build(tmp_path / "store", documents(12))
    assert second.vectors_made == first.vectors_made - others_made(tmp_path / "store")
    assert build(tmp_path / "fresh", documents(12)).manifest == second.manifest


def others_made(store: Path) -> int:
    """The vectors of names and titles."""
    with indexmill.open(store, version=1) as snapshot:
        titles = sum(len(np.unique(keys, axis=0)) for keys in snapshot.vectors("titles", "text_keys"))
        return titles + sum(len(vectors) for vectors in snapshot.vectors("names", "vectors"))


def test_a_cold_build_replaces_what_came_out_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path / "store", documents(12))
    monkeypatch.setattr(embedder, "_mean", lambda states: states[-1])
    cold = build(tmp_path / "store", documents(12), cold=True)
    assert cold.published
    assert cold.parts_differing > 0
    assert build(tmp_path / "fresh", documents(12)).manifest == cold.manifest
    assert not build(tmp_path / "store", documents(12)).published


def test_an_unreadable_file_takes_no_documents_away_unless_asked(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl.gz"
    write_corpus(tmp_path / "corpus.jsonl", documents(400))
    corpus.write_bytes(gzip.compress((tmp_path / "corpus.jsonl").read_bytes()))
    settings = configuration(tmp_path / "store", corpus)
    build_inline(settings, progress=Silent())
    corpus.write_bytes(corpus.read_bytes()[:-9000])
    with pytest.raises(GateRefused, match="--allow-shrink"):
        build_inline(settings, progress=Silent())
    assert [run.state for run in runs.list_runs(open_store(tmp_path / "store"))] == ["published", "refused"]
    outcome = run_build(settings, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True)
    assert (outcome.version, outcome.quarantined) == (2, 1)
    assert outcome.documents < 400


def test_a_run_that_lost_its_lease_stops_and_says_so(tmp_path: Path) -> None:
    class Stolen(InlineExecutor):
        """Another run takes the store over while this one works."""

        def run(
            self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False
        ) -> Iterator[tuple[Call, Any]]:
            for done in super().run(calls, priority=priority, keep_going=keep_going):
                yield done
                if done[0].key.startswith("scan"):
                    acquire(open_store(tmp_path / "store"), "thief", clock=lambda: time.time() + 10_000)
                    self.stop()  # what the lease's own thread does when it finds out

    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with pytest.raises(LeaseLost, match="thief"):
        run_build(configuration(tmp_path / "store", corpus), Stolen(), Build.run, progress=Silent())
    store = open_store(tmp_path / "store")
    assert runs.list_runs(store)[0].state == "superseded"
    assert not store.list("refs/")


def test_equal_passages_are_embedded_once(tmp_path: Path) -> None:
    title, text = documents(1)["doc-0000"]
    one = build(tmp_path / "one", {"a": (title, text)})
    many = build(tmp_path / "many", {f"d{number}": (title, text) for number in range(10)})
    assert many.vectors_made - one.vectors_made <= len(_names(tmp_path / "many"))


def _names(store: Path) -> list[str]:
    with indexmill.open(store) as snapshot:
        return list(snapshot.table("entities").column("name").to_pylist())


def test_an_edit_reads_the_other_documents_of_its_shard_from_the_parent(tmp_path: Path) -> None:
    rows = documents(30)
    build(tmp_path / "store", rows)
    title, text = rows["doc-0007"]
    rows["doc-0007"] = (title, text + " Falk left.")
    build(tmp_path / "store", rows)
    ended = runs.list_runs(open_store(tmp_path / "store"))[-1].end
    assert ended is not None
    made = {stage: report.get("documents_made") for stage, report in ended.report["stages"].items()}  # type: ignore[union-attr]
    assert (made["split"], made["recognise"]) == (1, 1)


def test_a_document_that_is_renamed_or_copied_keeps_its_vectors(tmp_path: Path) -> None:
    rows = documents(30)
    build(tmp_path / "store", rows)
    for number in range(8):  # some of these fall into other shards
        rows[f"copy-{number}"] = rows[f"doc-{number:04d}"]
        rows[f"moved-{number}"] = rows.pop(f"doc-{number + 8:04d}")
    made = build(tmp_path / "store", rows).vectors_made
    with indexmill.open(tmp_path / "store", version=1) as before, indexmill.open(tmp_path / "store") as after:
        named = [np.concatenate(one.vectors("names", "entity_keys")) for one in (before, after)]
    assert made == len(np.setdiff1d(named[1], named[0]))  # names that stand in two passages now
