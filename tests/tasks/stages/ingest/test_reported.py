"""Faults that people reported of other systems, made anew as small inputs: each stands for its kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import BadInput
from schemas.corpus import CorpusSettings
from tasks.stages.ingest.documents import FILE_FIELDS, Document, RejectedRow, SourceRow, document_of
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find
from tasks.text.markup import visible

REPORTED = Path(__file__).resolve().parents[5] / "shared" / "data" / "documents" / "reported"

EXPECTED: dict[str, list[str]] = {
    # new formats, encodings and CSV
    "csv-misleading-messages/csv_utf16/a.csv": ["Hello Crail"],
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
    # office files
    "docx-altchunk/altchunk.docx": ["Report head.", "# Findings", "Gantry of Mullbridge", "Report tail."],
    "docx-footnote-formula/footnote_formula.docx": ["By Ohm: U=RI with coefficient η Florrick1977 end."],
    "docx-formula-structure/absvalue.docx": ["E=|a-b|"],
    "docx-formula-structure/accent_func.docx": ["(n→∞) a q\u0302"],
    "docx-formula-structure/eqarr.docx": ["x=7; y=9"],
    "docx-formula-structure/matrix.docx": ["K=[12, 34; 56, 78]"],
    "pptx-row-jitter/row_jitter.pptx": ["Alpha1\n\nBeta2\n\nGamma3\n\nDelta4"],
    "xlsx-textbox/textbox.xlsx": ["tariff by Lindqvist"],
    "xlsx-units-in-format/dates_money.xlsx": ["€1234.50 |", "£1234.50 |", "| 12 kg |", "| 1.2M |", "minus 3", "3.75%"],
    # PDF
    "pdf-dropcap/dropcap.pdf": ["Once upon a time", "dark, and no ship came"],
    "pdf-freetext-annotations/annotated.pdf": ["Approved stamp by Ragnheid"],
    "pdf-numbered-heads-dropped/chapters.pdf": ["# 2 Lights of the Skerries\n", "# 4 Charts and Pilots\n"],
    "pdf-numbered-heads-dropped/deck.pdf": ["# Fleet plan 2026\n", "# Fleet plan 2027\n"],
    "pdf-numbered-heads-dropped/invoices.pdf": ["Invoice 2024-1003\nCustomer: Osterley Wharf"],
    "pdf-numbered-heads-dropped/records.pdf": ["Patient file 4401\n", "the knee is swollen"],
    "pdf-numbered-heads-dropped/steps.pdf": ["# Step 1\n", "# Step 3\n"],
    "pdf-numbered-heads-dropped/totals.pdf": ["Total due: 1517.50 crowns"],
    "pdf-rtl-reversed/rt.pdf": ["פסקה בעברית עם מילה English באמצע המשפט ומספר 2024 בסופו."],
    "pdf-rtl-reversed/rtl.pdf": [
        "# דוח רבעוני של הנמל\n",
        'סניף 42, הגיש הצעה בסך 1500 ש"ח.',
        "ميناء الإسكندرية 2024.",
    ],
    "pdf-table-wrapped-cells/rt.pdf": ["left burning overnight by the watch on duty | Check all lamps", "| Halvor |"],
    "pdf-table-wrapped-cells/table_middle.pdf": [
        "| Station | Keeper | Remark |\n| --- | --- | --- |\n| ST00 |",
        "| ST03 | Keeper D | Lamp number 3 replaced and the gallery painted in the spring by hands of team T3 and",
    ],
    "pdf-table-wrapped-cells/table_pages.pdf": ["| ST23 | Keeper X23 | Lamp replaced", "|\n| ST24 | Keeper Y24 |"],
    "pdf-table-wrapped-cells/table_top.pdf": ["| ST07 | Keeper H | Lamp number 7 replaced"],
    "pdf-table-wrapped-cells/table_wrapped_all.pdf": [
        "| Access for pilots | Weekdays from nine to five | At any hour with a brass key from Eldrid |"
    ],
    "pdf-watermark-title/fake_bold.pdf": ["# Notice of Ingimund\n", "DRAFT"],
}
"""What the text of a file must contain."""

TITLES = {
    "html-sphinx-pilcrow/sphinx.html": "Module frob",
    # text, titles and front matter
    "markdown-heading-ids/heading_ids.md": "Install",
    "notebook-raw-front-matter/quarto.ipynb": "Quarto Sheldwich",
    # PDF
    "pdf-anonymous-title/attachment_title.pdf": "Crew shares",
    "pdf-anonymous-title/table_plain.pdf": "Crew shares",
    "pdf-numbered-heads-dropped/deck.pdf": "Fleet plan 2024",
    "pdf-watermark-title/fake_bold.pdf": "Notice of Ingimund",
}

# text, titles and front matter
SEARCHED = {
    "markdown-heading-ids/heading_ids.md": ["Install", "Configure the Loom", "Set the warp to nine."],
    "markdown-one-word-footnote/footnotes.md": ["[^1]: Cooperage", "Smithwick for proof.", '[^p]: "Merriweather"'],
    "zero-width-space/softhyphen.md": ["Halberstadt", "Donaudampfschiff", "Zerowidth"],
}
"""What a document's visible text, which is searched, must contain, up to the end of a line."""


def rows_of(name: str) -> list[Any]:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    settings = CorpusSettings(paths=(str(REPORTED / name),))
    (file,) = find(settings).files
    return list(read(file, settings))


def row_of(name: str) -> SourceRow:
    (row,) = rows_of(name)
    assert isinstance(row, SourceRow), row
    return row


@pytest.mark.parametrize("name", EXPECTED)
def test_what_was_lost_elsewhere_is_read(name: str) -> None:
    text = row_of(name).record["text"]
    assert [words for words in EXPECTED[name] if words not in text] == []


@pytest.mark.parametrize("name", TITLES)
def test_the_title_is_that_of_the_document(name: str) -> None:
    assert row_of(name).record["title"] == TITLES[name]


def test_a_folder_of_a_delta_table_is_refused_before_a_deleted_row_is_read() -> None:
    folder = REPORTED / "delta-folder-as-path"
    if not folder.exists():
        pytest.skip(f"{folder} is missing")
    for path in (folder, folder / "delta_sample", folder / "*/*.parquet"):
        with pytest.raises(BadInput, match=rf"add {{kind: table, format: delta, url: {folder}/delta_sample}} to"):
            find(CorpusSettings(paths=(str(path),)))


@pytest.mark.parametrize("name", SEARCHED)
def test_what_was_hidden_elsewhere_is_searched(name: str) -> None:
    document = document_of(row_of(name), FILE_FIELDS, 10_000)
    assert isinstance(document, Document)
    seen = visible(document.text, "markdown")
    assert seen is not None
    lines = seen.text.split("\n")
    assert [words for words in SEARCHED[name] if not any(words in line for line in lines)] == []
    if name == "markdown-heading-ids/heading_ids.md":
        assert [seen.text[start:end] for start, end, _ in seen.headings] == SEARCHED[name][:2]
        assert [document.text[slice(*span)] for span in seen.originals([seen.headings[1][:2]])] == SEARCHED[name][1:2]


def test_pages_of_front_matter_alone_are_no_documents() -> None:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    settings = CorpusSettings(paths=(str(REPORTED / "front-matter-only-pages-stop-build" / "hugo_sample"),))
    rows = [(file.name, *read(file, settings)) for file in find(settings).files]
    empty = {name for name, row in rows if isinstance(row, RejectedRow) and row.reason == "empty-file"}
    assert (len(rows), len(empty)) == (132, 12)
    assert all(name.endswith("_index.md") for name in empty)


def test_rows_that_end_in_a_delimiter_are_read() -> None:
    texts = [row.record["text"] for row in rows_of("csv-misleading-messages/csv_trailing/a.csv")]
    assert texts == ["Hello Burntisland", "Hello Kinghorn"]


def test_a_row_with_another_delimiter_names_the_setting() -> None:
    (row,) = rows_of("csv-misleading-messages/csv_semicolon/a.csv")
    assert isinstance(row, RejectedRow)
    assert "corpus.csv_delimiter" in row.detail


def test_the_lock_file_of_an_open_document_is_passed_over() -> None:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    names = [file.name for file in find(CorpusSettings(paths=(str(REPORTED / "word-lock-files"),))).files]
    assert names == ["expect.md"]
