"""Faults that people reported of other systems, made anew as small inputs: each stands for its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.corpus import CorpusSettings
from tasks.stages.ingest.documents import SourceRow
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find

REPORTED = Path(__file__).resolve().parents[5] / "shared" / "data" / "documents" / "reported"

EXPECTED: dict[str, list[str]] = {
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
    # PDF
    "pdf-anonymous-title/attachment_title.pdf": "Crew shares",
    "pdf-anonymous-title/table_plain.pdf": "Crew shares",
    "pdf-numbered-heads-dropped/deck.pdf": "Fleet plan 2024",
    "pdf-watermark-title/fake_bold.pdf": "Notice of Ingimund",
}


def row_of(name: str) -> SourceRow:
    if not REPORTED.exists():
        pytest.skip(f"{REPORTED} is missing")
    settings = CorpusSettings(paths=(str(REPORTED / name),))
    (file,) = find(settings).files
    (row,) = read(file, settings)
    assert isinstance(row, SourceRow), row
    return row


@pytest.mark.parametrize("name", EXPECTED)
def test_what_was_lost_elsewhere_is_read(name: str) -> None:
    text = row_of(name).record["text"]
    assert [words for words in EXPECTED[name] if words not in text] == []


@pytest.mark.parametrize("name", TITLES)
def test_the_title_is_that_of_the_document(name: str) -> None:
    assert row_of(name).record["title"] == TITLES[name]
