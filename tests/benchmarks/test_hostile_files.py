"""Hostile files of the formats of documents: some of each kind, and what the benchmark does not let pass."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.hostile_documents import ATTACKS
from benchmarks.hostile_files import measure, report
from tasks.stages.ingest.documents import REASONS
from tasks.stages.ingest.formats.registry import FORMATS
from tests.tasks.stages.ingest.formats.office_files import docx, paragraph

BY_NAME = {attack.name: attack for attack in ATTACKS}


def test_every_format_is_attacked_and_every_reason_is_one_of_the_quarantine() -> None:
    assert len(BY_NAME) == len(ATTACKS) > 70
    suffixes = {Path(name).suffix for name in BY_NAME}
    assert all(suffixes & {*one.suffixes} for one in FORMATS if one.module != "code")
    assert len(suffixes & {suffix for one in FORMATS if one.module == "code" for suffix in one.suffixes}) >= 5
    assert {reason for attack in ATTACKS for reason in attack.expected} <= {"document", *REASONS}


@pytest.mark.slow
def test_hostile_files_harm_nothing() -> None:
    names = ("actions.pdf", "overlapping.docx", "entity.docx", "macros.xlsm", "spine-outside.epub", "include.rst")
    found = list(measure([BY_NAME[name] for name in names], mebibytes=2048))
    assert [one.wrong for one in found] == [()] * len(names), "\n".join(report(found))
    assert {one.outcome for one in found} == {"document", "hostile-file"}
    assert all(one.mebibytes > 20 for one in found)


@pytest.mark.slow
def test_what_should_not_have_happened_is_told() -> None:
    first = Path("/etc/passwd").read_text(encoding="utf-8").splitlines()[0]
    leaks = replace(BY_NAME["macros.docm"], make=lambda _: docx(paragraph(first)), expected=("hostile-file",))
    (found,) = measure([leaks])
    assert found.wrong == (
        "document instead of hostile-file",
        "the document lacks what the file says",
        "a file outside of the corpus is read",
    )
    assert "**document instead of hostile-file**" in list(report([found]))[-1]
