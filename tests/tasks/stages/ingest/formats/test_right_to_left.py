"""Hebrew and Arabic: a page says where letters stand, the text in which order they are read."""

from __future__ import annotations

from pathlib import Path

import pytest
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from tests.tasks.stages.ingest.formats.pdf_files import Paper, read_pdf

FONT_FILE = Path("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf")
pytestmark = pytest.mark.skipif(
    not FONT_FILE.exists(), reason=f"{FONT_FILE} is missing; it has Hebrew and Arabic letters"
)


@pytest.fixture
def paper() -> Paper:
    pdfmetrics.registerFont(TTFont("DejaVuSans", str(FONT_FILE)))
    return Paper()


def put(paper: Paper, end: float, y: float, visual: str) -> None:
    """Draw letters as they stand on the page from left to right, up to a right edge."""
    paper.canvas.setFont("DejaVuSans", 10)
    paper.canvas.drawRightString(end, paper.height - y, visual)


@pytest.mark.parametrize(
    ("visual", "logical"),
    [
        ("םולש", "שלום"),
        (".12 ,ףינס ,םולש", "שלום, סניף, 12."),
        ("3.14% (םלוע) םולש", "שלום (עולם) 3.14%"),
        ('ח"ש 1,500', '1,500 ש"ח'),
        ("New York-ב םלועה םולש", "שלום העולם ב-New York"),
        ("abc (םולש) def", "abc (שלום) def"),
        ("The word םולש is Hebrew.", "The word שלום is Hebrew."),
        ("\ufee1\ufefc\ufeb3", "سلام"),
    ],
)
def test_a_line_is_in_the_order_in_which_it_is_read(paper: Paper, visual: str, logical: str) -> None:
    put(paper, 500, 100, visual)
    assert read_pdf(paper.data()).text == f"{logical}\n"


def test_letters_drawn_from_right_to_left_are_the_same(paper: Paper) -> None:
    x = 500.0
    for letter in "ניין בבית":
        put(paper, x, 100, letter)
        x -= pdfmetrics.stringWidth(letter, "DejaVuSans", 10)
    assert read_pdf(paper.data()).text == "ניין בבית\n"


def test_a_page_from_right_to_left_has_paragraphs_lists_and_tables_as_any_other(paper: Paper) -> None:
    line = "המשאבה מעבירה מים מן האגן התחתון אל האגן העליון כאשר"
    for number, text in enumerate((line, line, "השער סגור.")):
        put(paper, 535, 100 + 12 * number, text[::-1])
    for number, text in enumerate(("ראשון", "שני")):
        put(paper, 535, 170 + 12 * number, f"{text[::-1]} \u2022")
    for number, (name, value) in enumerate((("צפון", "1,200"), ("דרום", "850"), ("מזרח", "77"))):
        put(paper, 535, 230 + 12 * number, name[::-1])
        put(paper, 400, 230 + 12 * number, value)
    found = read_pdf(paper.data())
    assert found.text == (
        f"{line} {line} השער סגור.\n\n- ראשון\n- שני\n\n"
        "| צפון | 1,200 |\n| --- | --- |\n| דרום | 850 |\n| מזרח | 77 |\n"
    )
    box = found.locations[0].box
    assert box is not None
    assert box[2] == pytest.approx(535, abs=1)
