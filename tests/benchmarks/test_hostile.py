"""Hostile files: nothing dies of them, nothing stalls, and every row is a document or a refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hostile import KINDS, measure, report, write
from tests.deep import WHOLE

LIMIT = 60.0
"""Processor seconds of one row, and seconds of the stages of one document: far more than any takes."""


def harmless(folder: Path, files: int, largest: int) -> None:
    """Take so many files through the readers and the stages of documents, and hold them to the promises."""
    found = measure(folder, write(folder, files, largest=largest), LIMIT)
    told = "\n".join(report(found))
    assert found.unaccounted == [], told
    assert {name for name, kind in found.kinds.items() if kind.files} == {*KINDS, "links", "their stages"}, told
    reasons = {reason for kind in found.kinds.values() for reason in kind.refused}
    assert not reasons & {"reader-failed", "too-slow"}, told
    stages = found.kinds["their stages"]
    assert (stages.files, stages.refused.total()) == (found.documents, 0), told


@pytest.mark.slow
def test_150_hostile_files_become_documents_or_refusals(tmp_path: Path) -> None:
    harmless(tmp_path / "files", 150, 10_000)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_2000_hostile_files_become_documents_or_refusals(tmp_path: Path) -> None:
    harmless(tmp_path / "files", 2000 if WHOLE else 500, 100_000)
