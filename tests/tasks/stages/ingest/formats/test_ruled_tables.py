"""Tables of PDFs that are drawn with lines."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.tasks.stages.ingest.formats.pdf_files import HEIGHT, Paper, prose, read_pdf

COLUMNS = (60.0, 160.0, 400.0, 500.0)
HEADER = ["Pump", "What it does", "Cost"]
WRAPPED = [["P1", "moves the Water\nof the upper Basin", "100"], ["P2\nspare", "rests", "200"]]


def draw(paper: Paper, top: float, rows: Sequence[Sequence[str]], *, lines: str = "grid", bold: bool = True) -> float:
    """Draw a table with padding, and lines of a kind; returns the place below it."""
    ys = [top]
    for number, row in enumerate(rows):
        for x, cell in zip(COLUMNS, row, strict=False):
            for at, line in enumerate(cell.split("\n")):
                paper.put(
                    x + 4, ys[-1] + 12 + 12 * at, line, font="Times-Roman" if number or not bold else "Times-Bold"
                )
        ys.append(ys[-1] + 6 + 12 * max(len(cell.split("\n")) for cell in row))
    places = [HEIGHT - y for y in ys]
    if lines == "grid":
        paper.canvas.grid(list(COLUMNS), places)
    elif lines == "rows":
        for y in places:
            paper.canvas.line(COLUMNS[0], y, COLUMNS[-1], y)
    elif lines == "filled":  # as word processors draw borders
        for y in places:
            paper.canvas.rect(COLUMNS[0], y, COLUMNS[-1] - COLUMNS[0], 0.5, stroke=0, fill=1)
        for x in COLUMNS:
            paper.canvas.rect(x, places[-1], 0.5, places[0] - places[-1], stroke=0, fill=1)
    return ys[-1]


@pytest.mark.parametrize("lines", ["grid", "rows", "filled"])
def test_lines_divide_the_rows_of_a_table(lines: str) -> None:
    paper = Paper()
    paper.lines(60, 60, prose(2, width=440))
    below = draw(paper, 100, [HEADER, *WRAPPED, ["P3", "", "300"]], lines=lines)
    paper.lines(60, below + 30, prose(2, width=440, start="After"))
    text = read_pdf(paper.data()).text
    assert (
        "\n\n| Pump | What it does | Cost |\n| --- | --- | --- |\n| P1 | moves the Water of the upper Basin | 100 |\n"
        "| P2 spare | rests | 200 |\n| P3 |  | 300 |\n\nAfter " in text
    )


def test_lines_between_the_columns_only_do_not_make_one_row_of_all() -> None:
    paper = Paper()
    rows = [["P1", "rests", "100"], ["P2", "moves", "200"], ["P3", "stands", "300"]]
    draw(paper, 100, [HEADER, *rows], lines="none")
    paper.canvas.grid(list(COLUMNS), [HEIGHT - 172, HEIGHT - 118, HEIGHT - 100])
    assert "| P1 | rests | 100 |\n| P2 | moves | 200 |\n" in read_pdf(paper.data()).text


def test_a_cell_over_several_rows_or_columns_is_one() -> None:
    paper = Paper()
    for x, y, text in (
        (64, 112, "Both columns"), (404, 112, "Cost"), (64, 139, "North"),
        (164, 130, "a"), (404, 130, "1"), (164, 148, "b"), (404, 148, "2"),
    ):  # fmt: skip
        paper.put(x, y, text)
    for x0, x1, y in ((60, 500, 100), (60, 500, 118), (160, 500, 136), (60, 500, 154)):
        paper.canvas.line(x0, HEIGHT - y, x1, HEIGHT - y)
    for x, top in ((60, 100), (160, 118), (400, 100), (500, 100)):
        paper.canvas.line(x, HEIGHT - top, x, HEIGHT - 154)
    assert read_pdf(paper.data()).text == (
        "| Both columns |  | Cost |\n| --- | --- | --- |\n| North | a | 1 |\n| North | b | 2 |\n"
    )


@pytest.mark.parametrize("rows", [[HEADER, ["P3", "stands", "300"]], [["P3", "stands", "300"]]])
def test_a_table_that_goes_on_is_one_with_its_header(rows: list[list[str]]) -> None:
    paper = Paper()
    draw(paper, 740, [HEADER, *WRAPPED])
    paper.page()
    below = draw(paper, 40, rows, bold=len(rows) > 1)
    paper.lines(60, below + 30, prose(2, width=440, start="After"))
    found = read_pdf(paper.data())
    assert found.text.startswith("| Pump | What it does | Cost |\n| --- |")
    assert found.text.count("What it does") == 1
    assert "| P2 spare | rests | 200 |\n| P3 | stands | 300 |\n\nAfter" in found.text
    starts = [(location.page, found.text[location.start :][:4]) for location in found.locations]
    assert starts == [(1, "| Pu"), (2, "| P3"), (2, "Afte")]


def test_a_frame_around_text_is_no_table() -> None:
    paper = Paper()
    paper.canvas.grid([50, 300, 550], [HEIGHT - 400, HEIGHT - 200, HEIGHT - 50])
    for x in (60, 310):
        for y in (70, 220):
            paper.lines(x, y, prose(9, int(x + y)))
    text = read_pdf(paper.data()).text
    assert "|" not in text
    assert text.count("The ") == 4


def test_wrapped_rows_without_lines_are_told_by_their_distance() -> None:
    paper = Paper()
    draw(paper, 100, [["Pump", "Basic plan", "Premium"], ["Storage of", "Ten years\nin attics", "vault\nunlimited"],
                      ["Access", "from nine\nto five", "at any\nhour"]], lines="none")  # fmt: skip
    assert "| Storage of | Ten years in attics | vault unlimited |\n| Access | from nine to five | at any hour |" in (
        read_pdf(paper.data()).text
    )
