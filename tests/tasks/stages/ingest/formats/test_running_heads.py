"""Lines at the edges of pages: what repeats but for the page's number is left out, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.tasks.stages.ingest.formats.pdf_files import Paper, prose, read_pdf


def pages_with(count: int, draw: Callable[[Paper, int], object]) -> Paper:
    paper = Paper()
    for number in range(1, count + 1):
        draw(paper, number)
        paper.lines(60, 100, prose(3, number, 470))
        paper.page()
    return paper


@pytest.mark.parametrize(
    "foot",
    [
        "Page {} of 6",
        "{} / 6",
        "\u2013 {} \u2013",
        "{}",
        "ACME Corp report {}",
        "ACME Corp \u2013 Confidential \u2013 {}",
        "{} | ACME Corp report",
    ],
)
def test_a_foot_that_differs_in_the_pages_number_is_left_out_and_counted(foot: str) -> None:
    found = read_pdf(pages_with(6, lambda paper, number: paper.put(60, 810, foot.format(number))).data())
    assert "6" not in found.text
    assert "ACME" not in found.text
    assert found.metadata["words_in_running_heads"] == 6 * len(re.findall(r"\w+", foot.replace("{}", "1")))


@pytest.mark.parametrize(
    ("y", "size", "font", "head"),
    [
        (60, 24, "Times-Roman", "Fleet plan {}"),
        (60, 24, "Times-Roman", "Agenda"),
        (70, 10, "Times-Bold", "Question {}"),
        (70, 10, "Times-Roman", "Invoice 2024-10{:02}"),
        (780, 10, "Times-Roman", "Total due: {}17.50 crowns"),
        (40, 10, "Times-Roman", "Printed 2024-01-0{}"),
    ],
)
def test_titles_and_numbers_that_are_not_the_pages_are_kept(y: float, size: float, font: str, head: str) -> None:
    text = read_pdf(pages_with(6, lambda paper, number: paper.put(60, y, head.format(number), size, font)).data()).text
    assert [number for number in range(1, 7) if head.format(number) not in text] == []


def test_a_value_beside_its_label_is_no_page_number() -> None:
    def draw(paper: Paper, number: int) -> None:
        paper.put(60, 70, "Invoice No")
        paper.put(400, 70, str(1000 + number))

    assert "Invoice No 1004" in read_pdf(pages_with(6, draw).data()).text


def test_large_type_on_most_pages_of_a_long_document_is_kept_once() -> None:
    text = read_pdf(pages_with(9, lambda paper, _: paper.put(60, 40, "Data sheet", 14)).data()).text
    assert text.count("# Data sheet\n") == 1


def test_a_watermark_is_neither_a_heading_nor_repeated() -> None:
    def draw(paper: Paper, _: int) -> None:
        paper.canvas.saveState()
        paper.canvas.translate(200, 300)
        paper.canvas.rotate(50)
        paper.canvas.setFont("Times-Roman", 60)
        paper.canvas.drawString(0, 0, "DRAFT")
        paper.canvas.restoreState()

    found = read_pdf(pages_with(3, draw).data())
    assert found.title == ""
    assert found.text.split("\n").count("DRAFT") == 1


def test_a_level_watermark_amid_most_pages_is_left_out() -> None:
    found = read_pdf(pages_with(3, lambda paper, _: paper.put(150, 400, "DRAFT", 60)).data())
    assert "DRAFT" not in found.text + found.title


@pytest.mark.parametrize("foot", ["Strana {} z 6", "Sayfa {} / 6", "Sidan {} av 6", "Hoja {} de 6"])
def test_page_numbers_are_known_in_many_languages(foot: str) -> None:
    found = read_pdf(pages_with(6, lambda paper, number: paper.put(60, 810, foot.format(number))).data())
    assert foot[:4] not in found.text


def test_a_box_with_the_head_of_the_document_is_left_out() -> None:
    def draw(paper: Paper, number: int) -> None:
        paper.canvas.grid([60, 200, 340], [770, 790, 810])
        for x, y, cell in ((70, 45, "Doc"), (210, 45, "QM-7"), (70, 65, "Sheet"), (210, 65, f"Page {number} of 4")):
            paper.put(x, y, cell)

    found = read_pdf(pages_with(4, draw).data())
    assert "QM-7" not in found.text
    assert found.metadata["words_in_running_heads"] == 4 * 8  # QM-7 counts as two


def test_pages_of_a_table_alone_lose_their_heads_as_well() -> None:
    paper = Paper()
    for number in range(1, 4):
        paper.put(60, 30, "ACME price list", 9)
        paper.canvas.grid([60, 200, 340], [720, 740, 760])
        for x, y, cell in ((70, 95, "Item"), (210, 95, "Price"), (70, 115, f"I{number}"), (210, 115, f"{number}00")):
            paper.put(x, y, cell)
        paper.put(290, 820, str(number), 9)
        paper.page()
    assert read_pdf(paper.data()).text == (
        "| Item | Price |\n| --- | --- |\n| I1 | 100 |\n| I2 | 200 |\n| I3 | 300 |\n"
    )
