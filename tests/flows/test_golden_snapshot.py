"""The golden snapshot is whole, gives the answers that it gave, and a build over it makes only what changed."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from indexmill.snapshot import Snapshot
from indexmill.store.layout import FORMAT_VERSION, READER_VERSION
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.golden_snapshot import DOCUMENTS, SETTINGS, answers_of, extracted


def test_it_is_whole_and_answers_as_it_did(tmp_path: Path) -> None:
    root, recorded = extracted(tmp_path)
    checked = verify(StoreReader(root), 1)
    assert checked.ok, checked.problems
    with indexmill.open(root, alias="prod", manifest=recorded["manifest"]) as snapshot:
        versions = (snapshot.manifest.format_version, snapshot.manifest.minimum_reader_version)
        assert versions == (FORMAT_VERSION, READER_VERSION)
        found = answers_of(snapshot)
    assert found.keys() == recorded["answers"].keys()
    for method, answers in recorded["answers"].items():
        for hits, expected in zip(found[method], answers, strict=True):
            assert [(hit["kind"], hit["id"], hit["text"]) for hit in hits] == [
                (hit["kind"], hit["id"], hit["text"]) for hit in expected
            ], method
            assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in expected], abs=1e-4), method


@pytest.mark.slow
def test_a_build_over_it_makes_only_what_changed(quick: Path) -> None:
    root, _ = extracted(quick)
    changed = DOCUMENTS | {"doc-0003": documents(12, seed=1, words=80)["doc-0003"]}
    made = build(settings(root, write_corpus(quick / "corpus.jsonl", changed), **SETTINGS))
    assert made.published
    assert 0 < made.vectors_made < made.vectors_reused / 2
    with indexmill.open(root, version=1) as before, indexmill.open(root, version=2) as after:
        for table in ("documents", "passages", "vectors", "mention_links"):
            assert len(digests(before, table) - digests(after, table)) == 1, table


def digests(snapshot: Snapshot, table: str) -> set[str]:
    return {one.digest for one in snapshot.shards(table)}
