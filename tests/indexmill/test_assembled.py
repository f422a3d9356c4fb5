"""A snapshot whose assembled arrays are kept in a cache answers as one that assembles them, and opens fewer files."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import indexmill
from flows.build_run import build_inline
from indexmill.errors import CorruptBlob
from indexmill.retrieve.artifacts import CacheKey
from indexmill.retrieve.entity_labels import EntityLabels
from indexmill.snapshot import Snapshot
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus

WHOLE = ("mention_links", "passage_codes", "bm25", "document_vectors", "names", "titles")
"""Artifacts of which a reader needs every shard."""

MAPPED = ("vectors", "passages", "documents", "sentences", "entities", "summaries")
"""Artifacts that a reader with a cache takes unpacked from there, or maps without a check."""


def build(store: Path, corpus: Path) -> None:
    settings = {
        "store": store,
        "corpus": {"paths": [str(corpus)]},
        "embed": {"model": "hash"},
        "split": {"tokens": 48},
        "shards": {"document_tokens": 1_000, "entities": 64},
        "families": {"community_tree": {"enabled": True}, "heterograph": {"enabled": True}},
    }
    build_inline(Configuration.model_validate(settings), progress=Silent())


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assembled")
    corpus = write_corpus(folder / "corpus.jsonl", documents(60, words=90))
    build(folder / "store", corpus)
    return folder / "store"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The artifacts that are opened from now on."""
    names: list[str] = []
    file = Snapshot.file

    def noted(self: Snapshot, name: str) -> Path:
        names.append(name)
        return file(self, name)

    monkeypatch.setattr(Snapshot, "file", noted)
    return names


def questions(snapshot: Snapshot) -> list[str]:
    rows = snapshot.table("documents", ["title", "text"]).to_pylist()
    return [f"Who met {row['title']}? {row['text'][:60]}" for row in rows[:12]]


@pytest.mark.slow
def test_hits_are_the_same_and_only_the_first_reader_opens_every_shard(
    store: Path, tmp_path: Path, opened: list[str]
) -> None:
    with indexmill.open(store) as snapshot:
        asked, methods = questions(snapshot), snapshot.methods
        expected = {method: snapshot.retrieve_batch(asked, method=method, k=7) for method in methods}
    shards = {name: {one.name for one in snapshot.manifest.under(name)} for name in (*WHOLE, *MAPPED)}
    assert all(shards.values())
    assert len(shards["mention_links"]) > 3
    for number in range(2):
        opened.clear()
        with indexmill.open(store, cache=tmp_path / "cache") as snapshot:
            for method in methods:
                assert snapshot.retrieve_batch(asked, method=method, k=7) == expected[method], method
        for name, names in shards.items():
            if number:
                assert not names & set(opened), name
            else:
                assert names <= set(opened), name


def test_nothing_is_kept_unless_a_cache_is_named(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("INDEXMILL_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    with indexmill.open(store) as snapshot:
        snapshot.retrieve("Who met the mayor?", method="fused")
        assert not snapshot.has_cache
    assert not (tmp_path / "home").exists()
    monkeypatch.setenv("INDEXMILL_CACHE", str(tmp_path / "named"))
    with indexmill.open(store) as snapshot:
        snapshot.retrieve("Who met the mayor?", method="fused")
        assert snapshot.has_cache
        assert {path.parent.name for path in (tmp_path / "named").glob("assembled/*/*.json")} == {
            snapshot.ref.manifest if snapshot.ref else ""
        }


@pytest.mark.slow
def test_the_reader_of_the_next_version_opens_what_changed(store: Path, tmp_path: Path, opened: list[str]) -> None:
    folder = copied(store, tmp_path / "store")
    with indexmill.open(folder, cache=tmp_path / "cache") as snapshot:
        asked = questions(snapshot)
        for method in snapshot.methods:
            snapshot.retrieve_batch(asked, method=method, k=7)
        before = {one.digest for one in snapshot.manifest.artifacts}
    rows = documents(60, words=90)
    rows["doc-0007"] = (rows["doc-0007"][0], rows["doc-0008"][1])
    corpus = write_corpus(tmp_path / "corpus.jsonl", rows)
    build(folder, corpus)
    with indexmill.open(folder) as snapshot:
        expected = {method: snapshot.retrieve_batch(asked, method=method, k=7) for method in snapshot.methods}
        new = {one.name for one in snapshot.manifest.artifacts if one.digest not in before}
        shards = {one.name for name in MAPPED for one in snapshot.manifest.under(name)}
    opened.clear()
    with indexmill.open(folder, cache=tmp_path / "cache") as snapshot:
        for method in snapshot.methods:
            assert snapshot.retrieve_batch(asked, method=method, k=7) == expected[method], method
    assert shards & new
    assert len(shards & new) < len(shards) / 2
    assert shards & set(opened) == shards & new


def copied(store: Path, to: Path) -> Path:
    shutil.copytree(store, to)
    return to


@pytest.mark.slow
def test_a_copy_of_a_store_is_checked_on_its_own(store: Path, tmp_path: Path, opened: list[str]) -> None:
    with indexmill.open(store, cache=tmp_path / "cache") as snapshot:
        asked = questions(snapshot)
        expected = snapshot.retrieve_batch(asked, method="fused", k=7)
        vectors = {one.name for one in snapshot.manifest.under("vectors")}
    opened.clear()
    with indexmill.open(copied(store, tmp_path / "copy"), cache=tmp_path / "cache") as snapshot:
        assert snapshot.retrieve_batch(asked, method="fused", k=7) == expected
    assert vectors & set(opened)


@pytest.mark.parametrize("cached", [True, False])
def test_a_damaged_shard_fails_the_questions_that_need_it(store: Path, tmp_path: Path, cached: bool) -> None:
    damaged = copied(store, tmp_path / "copy")
    with indexmill.open(damaged) as snapshot:
        asked, lost = questions(snapshot), snapshot.manifest.under("passages")[-1]
        expected = [snapshot.retrieve(one, method="dense", k=2) for one in asked]
    blob = damaged / "blobs" / "sha256" / lost.digest[:2] / lost.digest
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-1] + b"\xff")
    blob.chmod(0o444)
    os.utime(blob, ns=(1, blob.stat().st_mtime_ns + 1))  # clocks of files are coarse
    errors = []
    for _ in range(2):
        with indexmill.open(damaged, cache=tmp_path / "cache" if cached else None) as snapshot:
            for one, hits in zip(asked, expected, strict=True):
                try:
                    assert snapshot.retrieve(one, method="dense", k=2) == hits
                except CorruptBlob as error:
                    errors.append(str(error))
    assert 0 < len(errors) < 2 * len(asked)
    assert all(lost.digest in error for error in errors)


def test_who_unpacks_tables_and_who_opens_artifacts_do_not_wait_for_each_other(store: Path, tmp_path: Path) -> None:
    with indexmill.open(store, cache=tmp_path / "cache") as snapshot:
        labels, opening = EntityLabels(snapshot), threading.Event()
        rows = np.arange(3)

        def open_slowly() -> int:  # as `once` does while a retriever is opened
            opening.set()
            time.sleep(0.3)
            return len(labels.ids(rows))

        asking = [
            threading.Thread(target=lambda: snapshot.once(CacheKey[int]("opened slowly"), open_slowly), daemon=True),
            threading.Thread(target=lambda: (opening.wait(), labels.shown(rows, None)), daemon=True),
            threading.Thread(target=lambda: (opening.wait(), labels.passages()), daemon=True),
        ]
        for one in asking:
            one.start()
        for one in asking:
            one.join(60)
        assert not any(one.is_alive() for one in asking)


def test_kept_arrays_cannot_be_written(store: Path, tmp_path: Path) -> None:
    def make() -> dict[str, np.ndarray]:
        return {"rows": np.arange(3)}

    with indexmill.open(store, cache=tmp_path / "cache") as snapshot:
        rows = snapshot.assembled("test.1", make)["rows"]
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 1
