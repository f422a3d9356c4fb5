"""Faults that people reported of other systems, made anew as small inputs: each stands for its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.corpus import CorpusSettings
from tasks.stages.ingest.documents import RejectedRow, SourceRow
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find

REPORTED = Path(__file__).resolve().parents[5] / "shared" / "data" / "documents" / "reported"

EXPECTED: dict[str, list[str]] = {
    # new formats, encodings and CSV
    "csv-misleading-messages/csv_utf16/a.csv": ["Hello Crail"],
    "csv-misleading-messages/csv_trailing/a.csv": ["Hello Burntisland"],
    "csv-misleading-messages/csv_sep/a.csv": ["Hello Kirkcaldy"],
    # web pages
    "html-class-names-drop-content/accordion.html": ["### Refund Sturry"],
    "html-class-names-drop-content/sidebar_named.html": ["## Comments API", "POST /comments", "Bekesbourne"],
    "html-headings-lists-lost/alert.html": ["Camber", "Dunster", "Exmoor"],
    "html-headings-lists-lost/docs_list_code.html": [
        "- Use the `corvane fetch` utility",
        "Ilmarin",
        "- Also",
        "Oresund",
    ],
    "html-headings-lists-lost/figure.html": ["Arundel", "Bodiam"],
    "html-headings-lists-lost/h2_hr.html": [
        "## Stone age Korvald",
        "- Bone hook Lysander",
        "Marbod",
        "## Iron age Nidhogg",
    ],
    "html-headings-lists-lost/nested_list.html": ["- Outer Ulfberht", "  - Inner Valdemar", "- Outer Xanten", "Ysolde"],
    "html-headings-lists-lost/wiki_team.html": [
        "## About Ostrava",
        "## Mission and vision Padua",
        "## Onboarding Qasr",
    ],
    "html-list-in-table/list_in_table.html": ["| Mon | 10:00 to 20:00 Lydd |", "Rye"],
    "html-sphinx-pilcrow/sphinx.html": ["# Module frob\n", "frob.run(timeout=5)\n"],
}
"""What the text of a file must contain."""

TITLES = {"html-sphinx-pilcrow/sphinx.html": "Module frob"}


def row_of(name: str) -> SourceRow:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    settings = CorpusSettings(paths=(str(REPORTED / name),))
    (file,) = find(settings).files
    row = next(iter(read(file, settings)))
    assert isinstance(row, SourceRow), row
    return row


@pytest.mark.parametrize("name", EXPECTED)
def test_what_was_lost_elsewhere_is_read(name: str) -> None:
    text = row_of(name).record["text"]
    assert [words for words in EXPECTED[name] if words not in text] == []


@pytest.mark.parametrize("name", TITLES)
def test_the_title_is_that_of_the_document(name: str) -> None:
    assert row_of(name).record["title"] == TITLES[name]


def test_a_row_with_another_delimiter_names_the_setting() -> None:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    settings = CorpusSettings(paths=(str(REPORTED / "csv-misleading-messages/csv_semicolon/a.csv"),))
    (row,) = read(find(settings).files[0], settings)
    assert isinstance(row, RejectedRow)
    assert "corpus.csv_delimiter" in row.detail


def test_the_lock_file_of_an_open_document_is_passed_over() -> None:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    names = [file.name for file in find(CorpusSettings(paths=(str(REPORTED / "word-lock-files"),))).files]
    assert names == ["expect.md"]
