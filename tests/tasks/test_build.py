"""A build without Prefect or Dask: the promises that hold whatever runs it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import indexmill
from flows.run import Outcome, build_inline
from indexmill.errors import BadInput, LeaseLost
from schemas.config import Configuration
from storage import runs
from storage.folder import init_store, open_store
from storage.lease import acquire
from tasks.report import Silent
from tests.corpora import Documents, documents, write_corpus


def configuration(store: Path, corpus: Path, **run: object) -> Configuration:
    return Configuration.model_validate(
        {
            "store": store,
            "corpus": {"paths": [str(corpus)]},
            "embed": {"model": "hash"},
            "resolve": {"entities_per_shard": 64},
            "run": {"shard_tokens": 1_000, **run},
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


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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


def test_strict_refuses_and_publishes_nothing(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(4))
    with corpus.open("ab") as file:
        file.write(b"not json\n")
    with pytest.raises(BadInput, match="1 not-json"):
        build_inline(configuration(tmp_path / "store", corpus, strict=True), progress=Silent())
    store = open_store(tmp_path / "store")
    assert [run.state for run in runs.list_runs(store)] == ["failed"]
    assert runs.quarantine_of(store)[1].num_rows == 1
    assert not store.list("refs/")


def test_a_corpus_without_a_document_is_refused(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text("not json\n")
    with pytest.raises(BadInput, match="no document"):
        build_inline(configuration(tmp_path / "store", tmp_path / "corpus.jsonl"), progress=Silent())


def test_every_document_can_go(tmp_path: Path) -> None:
    build(tmp_path / "store", documents(3))
    (tmp_path / "store.jsonl").write_text("")
    outcome = build_inline(configuration(tmp_path / "store", tmp_path / "store.jsonl"), progress=Silent())
    assert (outcome.version, outcome.documents, outcome.passages) == (2, 0, 0)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.retrieve("Esme Quill?", method="dense") == []
