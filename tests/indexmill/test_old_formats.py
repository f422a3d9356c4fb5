"""Snapshots that earlier code wrote are read for good, with the answers that they gave."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from indexmill.store.layout import FORMAT_VERSION
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from tests.old_formats import answers_of, extracted, formats


def test_the_current_format_is_kept() -> None:
    assert formats() == list(range(1, FORMAT_VERSION + 1))


@pytest.mark.parametrize("version", formats())
def test_a_kept_snapshot_is_whole_and_answers_as_it_did(version: int, tmp_path: Path) -> None:
    root, recorded = extracted(version, tmp_path)
    checked = verify(StoreReader(root), 1)
    assert checked.ok, checked.problems
    with indexmill.open(root, alias="prod", manifest=recorded["manifest"]) as snapshot:
        assert snapshot.methods
        found = answers_of(snapshot)
    assert found.keys() >= recorded["answers"].keys()
    for method, answers in recorded["answers"].items():
        for hits, expected in zip(found[method], answers, strict=True):
            assert [(hit["kind"], hit["id"], hit["text"]) for hit in hits] == [
                (hit["kind"], hit["id"], hit["text"]) for hit in expected
            ], method
            assert [hit["score"] for hit in hits] == pytest.approx([hit["score"] for hit in expected], abs=1e-4), method
