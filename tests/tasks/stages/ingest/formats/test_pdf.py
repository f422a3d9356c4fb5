"""PDFs of every kind that documents come in, and those that are made to break a reader."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.ttfonts import TTFont

from indexmill.errors import ConfigurationError
from schemas.corpus import CorpusSettings, FileExtractSettings
from tasks.stages.ingest import shard_plan, supervisor
from tasks.stages.ingest.documents import SourceRow
from tasks.stages.ingest.formats import tesseract
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.spill import ScanResult
from tasks.text.markup import visible
from tests.tasks.stages.ingest.formats.pdf_files import (
    CATALOG,
    FONT,
    HEIGHT,
    SHOW,
    WIDTH,
    WORDS,
    Paper,
    made,
    objects,
    one_page,
    prose,
    read_pdf,
    refused,
    stream,
)

# Reading order.


def test_two_columns_are_read_one_after_the_other() -> None:
    left, right = prose(20), prose(20, 7, start="and")
    paper = Paper()
    paper.put(200, 60, "A paper in two columns", 18, "Times-Bold")
    paper.lines(60, 100, left)
    paper.lines(310, 100, right)
    found = read_pdf(paper.data())
    assert found.text == f"# A paper in two columns\n\n{' '.join(left)} {' '.join(right)}\n"


def test_a_line_across_parts_the_columns_above_it_from_those_below() -> None:
    parts = [prose(8, start=start) for start in ("first", "second", "third", "fourth")]
    paper = Paper()
    paper.lines(60, 100, parts[0])
    paper.lines(310, 100, parts[1])
    paper.put(60, 230, "Over both columns the second half of this page has a heading of its own", 14, "Times-Bold")
    paper.lines(60, 260, parts[2])
    paper.lines(310, 260, parts[3])
    text = read_pdf(paper.data()).text
    assert text == (
        f"{' '.join(parts[0] + parts[1])}\n\n"
        "# Over both columns the second half of this page has a heading of its own\n\n"
        f"{' '.join(parts[2] + parts[3])}\n"
    )


def test_three_columns_are_read_from_left_to_right() -> None:
    columns = [prose(14, width=150, start=start) for start in ("first", "second", "third")]
    paper = Paper()
    for number, column in enumerate(columns):
        paper.lines(50 + 170 * number, 100, column)
    text = read_pdf(paper.data()).text
    assert text == " ".join(line for column in columns for line in column) + "\n"


def test_columns_whose_lines_share_no_height_are_columns_even_where_they_are_ragged() -> None:
    paper = Paper()
    left = paper.lines(60, 100, [f"left {number} of the lines of this page" for number in range(12)])
    paper.lines(320, 105, [f"right {number} of the lines of this page" for number in range(12)])
    text = read_pdf(paper.data()).text
    assert left > 100
    assert text.index("left 11") < text.index("right 0")


def test_pieces_of_a_line_are_read_by_place_whatever_their_order_in_the_file() -> None:
    paper = Paper()
    paper.put(120, 100, "second")
    paper.put(60, 112, "third line of it")
    paper.put(60, 100, "First comes")
    assert read_pdf(paper.data()).text == "First comes second third line of it\n"


# Paragraphs.


def test_paragraphs_part_at_gaps_and_at_indents() -> None:
    first, second, third = prose(3), prose(3, 5), prose(3, 9)
    paper = Paper()
    y = paper.lines(60, 100, first)
    y = paper.lines(60, y + 8, second)
    paper.put(75, y, third[0])
    paper.lines(60, y + 12, third[1:])
    assert read_pdf(paper.data()).text == "\n\n".join(" ".join(part) for part in (first, second, third)) + "\n"


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        ("about the infor-", "mation that is kept", "about the information that is kept"),
        ("about the well-", "known engineer of it", "about the well-known engineer of it"),
        ("about pre-", "and postwar engines", "about pre- and postwar engines"),
        ("of Jean-", "Pierre and the others", "of Jean-Pierre and the others"),
        ("of the state-of-the-", "art engine of it", "of the state-of-the-art engine of it"),
        ("in the years 1990-", "1995 it was closed", "in the years 1990-1995 it was closed"),
        ("a dash - at", "its end", "a dash - at its end"),
    ],
)
def test_words_parted_at_line_ends_are_mended(above: str, below: str, expected: str) -> None:
    assert read_pdf(made(lambda paper: paper.lines(60, 100, [above, below]))).text == expected + "\n"


def test_the_document_itself_tells_which_words_have_a_hyphen() -> None:
    lines = [
        "the co-operation of all and the screw-driver of",
        "one who has a screw-",
        "driver and knows co-",
        "operation",
    ]
    text = read_pdf(made(lambda paper: paper.lines(60, 100, lines))).text
    assert text.endswith("a screw-driver and knows co-operation\n")


def test_ligatures_soft_hyphens_and_odd_spaces_become_plain() -> None:
    pdfmetrics.registerFont(TTFont("Vera", "Vera.ttf"))
    paper = Paper()
    paper.put(60, 100, "the \ufb01rst\u00a0\ufb02ow", font="Vera")
    assert read_pdf(paper.data()).text == "the first flow\n"


def test_a_paragraph_over_a_page_break_is_one_with_a_location_on_each_page() -> None:
    lines = prose(90, width=470)
    assert lines[50][0].islower()
    paper = Paper()
    paper.lines(60, 100, lines[:50])
    paper.page()
    paper.lines(60, 100, lines[50:])
    found = read_pdf(paper.data())
    assert found.text == " ".join(lines) + "\n"
    assert [location.page for location in found.locations] == [1, 2]
    assert found.text[found.locations[1].start :].startswith(lines[50])


def test_a_paragraph_goes_on_after_the_footnotes_of_its_page() -> None:
    paper = Paper()
    paper.lines(60, 100, prose(50, width=470))
    paper.put(60, 770, "1 A note in small letters about the pump.", 7)
    paper.page()
    paper.lines(60, 100, ["goes on with small letters on the next page."])
    text = read_pdf(paper.data()).text
    assert text.index("goes on with") < text.index("A note")


def test_a_new_sentence_on_a_new_page_is_a_new_paragraph() -> None:
    paper = Paper()
    paper.lines(60, 100, [*prose(5), "and ends here."])
    paper.page()
    paper.lines(60, 100, ["The next page begins anew.", *prose(3)])
    assert "ends here.\n\nThe next" in read_pdf(paper.data()).text


def test_text_that_is_drawn_twice_is_read_once() -> None:
    paper = Paper()
    paper.put(60, 100, "A shadow of itself")
    paper.put(60.4, 100.3, "A shadow of itself")
    assert read_pdf(paper.data()).text == "A shadow of itself\n"


def test_raised_letters_are_marked() -> None:
    paper = Paper()
    paper.put(60, 100, "Ada Lovelace")
    paper.put(60 + pdfmetrics.stringWidth("Ada Lovelace", "Times-Roman", 10), 96, "2", 6)
    assert read_pdf(paper.data()).text == "Ada Lovelace^2\n"


# Headings.


def test_headings_rank_by_the_size_of_their_letters() -> None:
    paper = Paper()
    paper.put(60, 60, "Water Works", 22, "Times-Bold")
    paper.put(60, 100, "1 Pumps", 16, "Times-Bold")
    y = paper.lines(60, 125, prose(4))
    paper.put(60, y + 14, "1.1 Small pumps", 12.5, "Times-Bold")
    y = paper.lines(60, y + 32, prose(4))
    paper.put(60, y + 16, "2 Gates", 16, "Times-Bold")
    paper.lines(60, y + 34, prose(4))
    lines = [line for line in read_pdf(paper.data()).text.split("\n") if line.startswith("#")]
    assert lines == ["# Water Works", "## 1 Pumps", "### 1.1 Small pumps", "## 2 Gates"]


def test_a_bold_line_of_the_bodys_size_is_a_heading_and_bold_words_are_none() -> None:
    paper = Paper()
    paper.put(60, 100, "Safety", 10, "Times-Bold")
    paper.lines(60, 116, prose(6))
    paper.put(60, 216, "Mind", 10, "Times-Bold")
    paper.put(60 + pdfmetrics.stringWidth("Mind ", "Times-Bold", 10), 216, "the gap between " + prose(1)[0])
    text = read_pdf(paper.data()).text
    assert text.startswith("# Safety\n\n")
    assert "\n\nMind the gap" in text


def test_a_heading_over_two_lines_is_one() -> None:
    paper = Paper()
    paper.lines(60, 80, ["The history of the water works", "in the upper valley"], 20, "Times-Bold")
    paper.lines(60, 150, prose(6))
    assert read_pdf(paper.data()).text.startswith("# The history of the water works in the upper valley\n\n")


def test_bookmarks_give_the_levels_of_headings() -> None:
    paper = Paper()
    for number, (title, level) in enumerate([("Pumps", 0), ("Valves", 1), ("Gates", 0)]):
        y = 100 + 150 * number
        paper.canvas.bookmarkPage(title)
        paper.canvas.addOutlineEntry(title, title, level)
        paper.put(60, y, title, 10, "Times-Bold")
        paper.lines(60, y + 16, prose(5))
    lines = [line for line in read_pdf(paper.data()).text.split("\n") if line.startswith("#")]
    assert lines == ["# Pumps", "## Valves", "# Gates"]


# Running heads.


@pytest.mark.slow
def test_running_heads_and_page_numbers_are_left_out() -> None:
    paper = Paper()
    for number in range(1, 9):
        paper.put(60, 40, "Annual report of the water works" if number % 2 else "Chapter 3. Pumps")
        paper.put(290, 810, f"Page {number} of 8")
        paper.lines(60, 100, [f"Page marked {number * 7} begins.", *prose(30, number, 470)])
        paper.page()
    text = read_pdf(paper.data()).text
    assert "Annual" not in text
    assert "Chapter" not in text
    assert "of 8" not in text
    assert text.count("begins.") == 8


@pytest.mark.slow
def test_heads_of_chapters_that_are_short_are_known_by_the_number_beside_them() -> None:
    paper = Paper()
    for number in range(1, 9):
        paper.put(60, 40, f"{WORDS[number].upper()} AND MORE")
        paper.put(500, 40, str(number + 20))
        paper.lines(60, 100, prose(30, number, 470))
        paper.page()
    assert "AND MORE" not in read_pdf(paper.data()).text


def test_what_stands_on_one_page_only_is_kept_in_the_margin_too() -> None:
    paper = Paper()
    for number in range(1, 6):
        if number == 3:
            paper.put(60, 40, "Confidential until March")
        paper.lines(60, 100, prose(30, number, 470))
        paper.page()
    assert "Confidential until March" in read_pdf(paper.data()).text


# Lists, tables, code.


def test_bullets_and_numbers_become_lists() -> None:
    paper = Paper()
    y = paper.lines(60, 100, ["There are these pumps:"])
    for number, name in enumerate(["a small one that serves the", "a large one"]):
        paper.put(70, y, "\u2022")
        paper.put(82, y, name)
        y += 12
        if not number:
            paper.put(82, y, "upper basin")
            y += 12
    y = paper.lines(60, y + 6, ["1. Open the gate.", "2. Start the pump."])
    paper.lines(60, y + 6, ["The end is reached then."])
    assert read_pdf(paper.data()).text == (
        "There are these pumps:\n\n- a small one that serves the upper basin\n- a large one\n"
        "1. Open the gate.\n2. Start the pump.\n\nThe end is reached then.\n"
    )


def test_items_below_an_item_are_indented() -> None:
    paper = Paper()
    for number, (x, name) in enumerate([(70, "Pumps"), (90, "small"), (90, "large"), (70, "Gates")]):
        paper.put(x, 100 + 12 * number, "\u2022")
        paper.put(x + 12, 100 + 12 * number, name)
    assert read_pdf(paper.data()).text == "- Pumps\n  - small\n  - large\n- Gates\n"


def table_of(
    paper: Paper, rows: Sequence[Sequence[str]], y: float = 150, columns: Sequence[float] = (60, 160, 260)
) -> None:
    for row in rows:
        for x, cell in zip(columns, row, strict=True):
            if cell:
                paper.put(x, y, cell)
        y += 13


def test_cells_below_each_other_become_a_table() -> None:
    rows = [
        ["Pump", "Litres", "Built"],
        ["North", "1,200", "1931"],
        ["South | West", "850", "1964"],
        ["Upper", "", "2001"],
    ]
    paper = Paper()
    paper.lines(60, 100, prose(2))
    table_of(paper, rows)
    paper.lines(60, 230, prose(2))
    assert (
        "\n\n| Pump | Litres | Built |\n| --- | --- | --- |\n| North | 1,200 | 1931 |\n"
        "| South \\| West | 850 | 1964 |\n| Upper |  | 2001 |\n\n" in read_pdf(paper.data()).text
    )


def test_a_cell_over_several_lines_is_one() -> None:
    rows = [["Pump", "What it does"], ["North", "moves the water of the upper"], ["", "basin"], ["South", "rests"]]
    paper = Paper()
    table_of(paper, rows, columns=(60, 200))
    assert "| North | moves the water of the upper basin |\n| South | rests |" in read_pdf(paper.data()).text


def test_a_table_of_contents_keeps_a_line_for_each_entry() -> None:
    paper = Paper()
    for number, (title, page) in enumerate([("1 Pumps", 3), ("2 Gates", 17), ("3 Valves", 21)]):
        paper.put(60, 100 + 12 * number, title)
        paper.put(150, 100 + 12 * number, ". " * 40 + str(page))
    assert read_pdf(paper.data()).text == "1 Pumps ... 3\n2 Gates ... 17\n3 Valves ... 21\n"


def test_monospaced_lines_are_fenced_code_with_their_indents() -> None:
    paper = Paper()
    y = paper.lines(60, 100, [*prose(3), "like this:"])
    y = paper.lines(
        60, y + 10, ["def pump(water):", "    if water:  # `all` of it", "        return *water_*"], 9, "Courier"
    )
    paper.lines(60, y + 10, prose(3))
    assert (
        "like this:\n\n```\ndef pump(water):\n    if water:  # `all` of it\n        return *water_*\n```\n\n"
        in read_pdf(paper.data()).text
    )


def test_a_document_that_is_monospaced_throughout_is_prose() -> None:
    text = read_pdf(made(lambda paper: paper.lines(60, 100, prose(8, width=400), 10, "Courier"))).text
    assert "```" not in text


@pytest.mark.parametrize(
    "line",
    [
        "# no heading",
        "*no* emphasis and _none_ here and * none",
        "1990. That was a year",
        "> no quote",
        "+ 5 degrees",
        "a [link](to) nothing and [a]: label",
        "<b>no tag</b> & &amp; no entity",
        "`no code` with \\* a backslash",
        "| no | table |",
        "--- no rule ---",
        "=====",
        "snake_case and 2 * 3",
    ],
)
def test_what_means_something_in_markdown_is_seen_as_the_page_says_it(line: str) -> None:
    text = read_pdf(made(lambda paper: paper.lines(60, 100, ["Before it.", "", line, "", "After it."]))).text
    seen = visible(text, "markdown")
    assert line in (seen.text if seen is not None else text)


# Places.


def test_a_block_has_its_page_and_its_box_from_the_upper_left_corner() -> None:
    paper = Paper()
    paper.put(60, 200, "A heading", 20, "Times-Bold")
    paper.lines(60, 240, [*prose(2), "and its end."])
    paper.page()
    paper.put(100, 700, "On the second page.")
    found = read_pdf(paper.data())
    assert [location.page for location in found.locations] == [1, 1, 2]
    assert [found.text[one.start :][:5] for one in found.locations] == ["# A h", "The t", "On th"]
    heading, body, last = (location.box for location in found.locations)
    assert heading is not None
    assert body is not None
    assert last is not None
    assert heading[0] == pytest.approx(60, abs=1)
    assert heading[1] < 200 < heading[3]
    assert heading[2] == pytest.approx(60 + pdfmetrics.stringWidth("A heading", "Times-Bold", 20), abs=2)
    assert body[1] < 240 < 264 < body[3]
    assert last[1] < 700 < last[3]


@pytest.mark.parametrize("rotation", [90, 180, 270])
def test_a_rotated_page_is_read_as_it_is_shown(rotation: int) -> None:
    lines = prose(3)
    paper = Paper(HEIGHT, WIDTH) if rotation != 180 else Paper()  # ReportLab swaps the sides itself
    canvas = paper.canvas
    canvas.setPageRotation(rotation)
    shown = (HEIGHT, WIDTH) if rotation != 180 else (WIDTH, HEIGHT)
    if rotation == 90:
        canvas.translate(WIDTH, 0)
    elif rotation == 180:
        canvas.translate(WIDTH, HEIGHT)
    else:
        canvas.translate(0, HEIGHT)
    canvas.rotate(rotation)
    paper.height = shown[1]
    paper.lines(70, 100, lines)
    found = read_pdf(paper.data())
    assert found.text == " ".join(lines) + "\n"
    box = found.locations[0].box
    assert box is not None
    assert box[0] == pytest.approx(70, abs=1)
    assert box[1] < 100 < 124 < box[3]
    assert box[3] - box[1] < 60


def test_text_that_runs_up_the_page_is_read_after_the_rest() -> None:
    paper = Paper()
    paper.lines(60, 100, prose(6))
    paper.canvas.saveState()
    paper.canvas.translate(30, 300)
    paper.canvas.rotate(90)
    paper.canvas.drawString(0, 0, "Stamped in the margin")
    paper.canvas.restoreState()
    found = read_pdf(paper.data())
    assert found.text.endswith("\n\nStamped in the margin\n")
    box = found.locations[-1].box
    assert box is not None
    assert box[0] < 30 <= box[2] < 40
    assert box[3] == pytest.approx(HEIGHT - 300, abs=2)


@pytest.mark.slow
def test_locations_ascend() -> None:
    paper = Paper()
    for number in range(5):
        paper.lines(60, 100, prose(40, number, 470))
        paper.page()
    starts = [location.start for location in read_pdf(paper.data()).locations]
    assert starts == sorted(set(starts))
    assert len(starts) >= 5


# Title and metadata.


def test_the_document_says_its_title_author_and_day() -> None:
    paper = Paper()
    paper.canvas.setTitle("The Water Works")
    paper.canvas.setAuthor("Ada  Lovelace")
    paper.lines(60, 100, prose(3))
    data = paper.data()
    stamp = b"/CreationDate (D:"
    at = data.index(stamp) + len(stamp)
    found = read_pdf(data[:at] + b"20210405" + data[at + 8 :])
    assert found.title == "The Water Works"
    assert found.metadata == {"author": "Ada Lovelace", "created": "2021-04-05", "pages": 1}


@pytest.mark.parametrize("given", ["report_final.docx", "untitled", "Microsoft Word - a.doc", "%%", ""])
def test_the_first_largest_heading_is_the_title_where_the_file_has_none(given: str) -> None:
    paper = Paper()
    paper.canvas.setTitle(given)
    paper.put(60, 60, "Contents", 24, "Times-Bold")
    paper.put(60, 90, "The Water Works", 20, "Times-Bold")
    paper.lines(60, 130, prose(5))
    assert read_pdf(paper.data()).title == "The Water Works"


@pytest.mark.parametrize(
    ("said", "expected"), [(b"D:20219905", None), (b"D:2021    ", "2021-01-01"), (b"yesterday ", None)]
)
def test_a_day_that_is_none_is_left_out(said: bytes, expected: str | None) -> None:
    data = made(lambda paper: paper.put(60, 100, "Text"))
    stamp = b"/CreationDate ("
    at = data.index(stamp) + len(stamp)
    assert read_pdf(data[:at] + said + data[at + 10 :]).metadata.get("created") == expected


# Refusals.


def test_a_locked_file_is_refused() -> None:
    paper = Paper(encrypt=StandardEncryption("secret", "owner"))
    paper.put(60, 100, "Nobody sees it")
    assert refused(paper.data()).reason == "encrypted"


def test_a_file_that_is_locked_against_printing_only_is_read() -> None:
    paper = Paper(encrypt=StandardEncryption("", "owner", canPrint=0))
    paper.put(60, 100, "Everybody sees it")
    assert read_pdf(paper.data()).text == "Everybody sees it\n"


def scanned(paper: Paper, text: str = "") -> None:
    """A page that is a picture, of words where there are some."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("L", (1240, 1754), 255)
    if text:
        font = ImageFont.load_default(40)
        draw = ImageDraw.Draw(picture)
        for number, line in enumerate(text.split("\n")):
            draw.text((150, 200 + 60 * number), line, 0, font)
    else:
        picture.paste(0, (100, 100, 400, 400))
    from reportlab.lib.utils import ImageReader

    paper.canvas.drawImage(ImageReader(picture), 0, 0, WIDTH, HEIGHT)


def test_pictures_without_text_are_refused_with_the_setting_that_reads_them() -> None:
    paper = Paper()
    scanned(paper)
    paper.page()
    scanned(paper)
    error = refused(paper.data())
    assert error.reason == "no-text-layer"
    assert "2 of 2 pages" in error.detail
    assert "corpus.extract.ocr" in error.detail


def test_a_file_with_some_scanned_pages_is_kept_and_says_how_many() -> None:
    paper = Paper()
    paper.put(60, 100, "A typed page.")
    paper.page()
    scanned(paper)
    found = read_pdf(paper.data())
    assert found.text == "A typed page.\n"
    assert found.metadata["pages_without_text"] == 1


def test_empty_pages_have_no_text() -> None:
    assert refused(made(lambda paper: paper.page())).reason == "no-text"


def test_too_many_pages_are_refused() -> None:
    paper = Paper()
    for number in range(6):
        paper.put(60, 100, f"Page {number}")
        paper.page()
    data = paper.data()
    error = refused(data, pages=5)
    assert error.reason == "too-large"
    assert "6 pages" in error.detail
    assert read_pdf(data, pages=6).metadata["pages"] == 6


def test_too_much_text_is_refused() -> None:
    data = made(lambda paper: paper.lines(60, 100, prose(40)))
    size = len(read_pdf(data).text.encode())
    assert read_pdf(data, text_bytes=size).text
    assert refused(data, text_bytes=size - 10).reason == "too-large"
    assert refused(data, text_bytes=100).reason == "too-large"


# Hostile and damaged files.


def test_a_file_written_by_hand_is_read() -> None:
    assert read_pdf(one_page(stream(SHOW))).text == "Plain words\n"


def scan_of(folder: Path, files: Mapping[str, bytes]) -> tuple[ScanResult, list[dict[str, Any]]]:
    """The result of reading a corpus of these files in a process of its own, and the documents."""
    (folder / "corpus").mkdir()
    (folder / "spill").mkdir()
    for name, data in files.items():
        (folder / "corpus" / f"{name}.pdf").write_bytes(data)
    settings = CorpusSettings(
        paths=(str(folder / "corpus"),),
        max_reading_memory_bytes=300 << 20,
        max_document_bytes=1_000_000,
        max_document_seconds=5,
    )
    result = supervisor.scan(find(settings).files, settings, folder / "spill")
    planned = shard_plan.plan([result], folder / "spill")
    documents = [
        row for shard in planned.shards for row in shard_plan.documents_of(shard, folder / "spill").to_pylist()
    ]
    return result, documents


@pytest.mark.parametrize("data", [b"", b"GIF89a", b"%PD", b"<html>", b"PK\x03\x04" * 300], ids=repr)
def test_what_is_no_pdf_is_refused(data: bytes) -> None:
    error = refused(data)
    assert error.reason == "unreadable-file"
    assert "not a PDF" in error.detail


@pytest.mark.slow
def test_every_beginning_of_a_file_is_read_or_refused(tmp_path: Path) -> None:
    data = made(lambda paper: paper.lines(60, 100, prose(10)))
    files = {f"{end:06}": data[:end] for end in range(0, len(data), 97)}
    result, documents = scan_of(tmp_path, {**files, "whole": data})
    assert set(result.refused) <= {"unreadable-file", "no-text"}
    assert result.documents + sum(result.refused.values()) == len(files) + 1
    assert documents[-1]["text"] == read_pdf(data).text


@pytest.mark.slow
def test_damaged_bytes_are_read_or_refused(tmp_path: Path) -> None:
    def draw(paper: Paper) -> None:
        paper.put(60, 60, "A heading", 20)
        paper.lines(60, 100, prose(10))
        table_of(paper, [["a", "b", "c"]] * 4, 300)

    data, files = made(draw), {}
    dice = random.Random(7)  # noqa: S311 - a seed makes the same files
    for number in range(80):
        damaged = bytearray(data)
        for _ in range(dice.randrange(1, 30)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        files[f"{number:03}"] = bytes(damaged)
    result, documents = scan_of(tmp_path, files)
    assert result.documents + sum(result.refused.values()) == len(files)
    assert "reader-failed" not in result.refused
    assert documents
    assert not any("\x00" in document["text"] for document in documents)


def test_bookmarks_that_lead_to_themselves_end() -> None:
    outline = (
        b"<< /Type /Outlines /First 7 0 R /Last 7 0 R >>",
        b"<< /Title (Round) /Parent 6 0 R /Next 8 0 R /First 7 0 R >>",
        b"<< /Title (Again) /Parent 7 0 R /Next 7 0 R /First 6 0 R >>",
    )
    catalog = b"<< /Type /Catalog /Pages 2 0 R /Outlines 6 0 R >>"
    assert read_pdf(one_page(stream(SHOW), catalog=catalog, more=outline)).text == "Plain words\n"


def test_ten_thousand_pages_are_refused_at_once() -> None:
    kids = b" ".join(b"%d 0 R" % number for number in range(3, 10_003))
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] >>"
    data = objects(CATALOG, b"<< /Type /Pages /Kids [" + kids + b"] /Count 10000 >>", *[page] * 10_000)
    error = refused(data)
    assert error.reason == "too-large"
    assert "10,000 pages" in error.detail


def test_a_page_of_very_many_letters_is_refused() -> None:
    data = one_page(stream(b"BT /F1 1 Tf " + b"(%b) Tj " % (b"a" * 1000) * 1500 + b"ET"))
    assert refused(data).reason == "too-large"


def test_control_characters_and_halves_of_pairs_never_reach_the_text() -> None:
    cmap = stream(
        b"begincmap 1 begincodespacerange <00> <ff> endcodespacerange 5 beginbfchar <61> <0000> <62> <d800> "
        b"<63> <0007> <64> <ffff> <65> <d83dde00> endbfchar endcmap"
    )
    font = FONT.replace(b" >>", b" /ToUnicode 6 0 R >>")
    data = one_page(stream(b"BT /F1 12 Tf 72 700 Td (xabcdexyz) Tj ET"), font=font, more=[cmap])
    text = read_pdf(data).text
    text.encode("utf-8")
    assert set(text) <= set("xyz\U0001f600 \n")
    assert text.startswith("x")


# In the reading process.


@pytest.mark.slow
def test_the_same_bytes_give_the_same_document_in_another_process() -> None:
    data = made(
        lambda paper: (
            paper.put(60, 60, "A heading", 20),
            paper.lines(60, 100, prose(30)),
            table_of(paper, [["a", "b", "c"]] * 5, 600),
        )
    )
    program = (
        "import io, sys; from tasks.stages.ingest.formats.pdf import extract;"
        "from tasks.stages.ingest.formats.extraction import ExtractionLimits;"
        "print(ascii(extract(io.BytesIO(sys.stdin.buffer.read()), ExtractionLimits())))"
    )
    outputs = set()
    for seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "TZ": "Asia/Tokyo",
            "LC_ALL": "C",
            "PYTHONPATH": str(Path.cwd()),
        }
        done = subprocess.run(
            [sys.executable, "-c", program], input=data, capture_output=True, check=True, env=environment
        )
        outputs.add(done.stdout)
    assert outputs == {(ascii(read_pdf(data)) + "\n").encode()}


def test_a_pdf_of_a_corpus_is_a_document_with_places(tmp_path: Path) -> None:
    folder = tmp_path / "manuals"
    (folder / "deep").mkdir(parents=True)
    paper = Paper()
    paper.put(60, 60, "The Pump", 20, "Times-Bold")
    paper.lines(60, 100, prose(4))
    (folder / "deep" / "pump.PDF").write_bytes(paper.data())
    (folder / "locked.pdf").write_bytes(b"%PDF-1.4 damaged")
    settings = CorpusSettings(paths=(str(folder),))
    rows = [row for file in find(settings).files for row in read(file, settings)]
    document, refusal = rows
    assert isinstance(document, SourceRow)
    assert document.record["id"] == "deep/pump.PDF"
    assert document.record["metadata"]["format"] == "pdf"
    assert document.record["title"] == "The Pump"
    assert [location.page for location in document.locations] == [1, 1]
    assert not isinstance(refusal, SourceRow)
    assert (refusal.reason, refusal.document_id) == ("unreadable-file", "locked.pdf")


# OCR.


def test_ocr_without_the_program_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    paper = Paper()
    scanned(paper)
    with pytest.raises(ConfigurationError, match="apt-get install tesseract-ocr"):
        read_pdf(paper.data(), ocr="eng")


def test_ocr_is_not_looked_for_where_every_page_has_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert read_pdf(one_page(stream(SHOW)), ocr="eng").text == "Plain words\n"


needs_tesseract = pytest.mark.skipif(shutil.which("tesseract") is None, reason="the program tesseract is not installed")


@needs_tesseract
def test_a_scanned_page_is_read_with_its_place() -> None:
    paper = Paper()
    paper.put(60, 100, "A typed page.")
    paper.page()
    scanned(paper, "The pump was opened in 1931\nby the engineers of the valley.")
    found = read_pdf(paper.data(), ocr="eng")
    assert found.text == "A typed page.\n\nThe pump was opened in 1931 by the engineers of the valley.\n"
    assert found.metadata == {**found.metadata, "pages_read_by_ocr": 1}
    assert "pages_without_text" not in found.metadata
    assert [location.page for location in found.locations] == [1, 2]
    box = found.locations[1].box
    assert box is not None
    assert 60 < box[0] < 90
    assert 90 < box[1] < 115


@needs_tesseract
def test_a_picture_without_a_word_stays_refused() -> None:
    paper = Paper()
    scanned(paper)
    assert refused(paper.data(), ocr="eng").reason == "no-text-layer"


@needs_tesseract
def test_a_language_that_is_not_installed_is_named() -> None:
    paper = Paper()
    scanned(paper)
    with pytest.raises(ConfigurationError, match="no language xyz"):
        read_pdf(paper.data(), ocr="eng+xyz")


def test_ocr_that_takes_too_long_leaves_the_page_without_text(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "tesseract"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = --list-langs ]; then printf "List\\neng\\n"; else exec /bin/sleep 60; fi\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(tesseract, "_SECONDS", 0.5)
    paper = Paper()
    paper.put(60, 100, "A typed page.")
    paper.page()
    scanned(paper)
    found = read_pdf(paper.data(), ocr="eng")
    assert found.metadata["pages_without_text"] == 1


def test_the_setting_of_the_corpus_reaches_the_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paper = Paper()
    scanned(paper)
    (tmp_path / "scan.pdf").write_bytes(paper.data())
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    settings = CorpusSettings(paths=(str(tmp_path),), extract=FileExtractSettings(ocr="eng"))
    with pytest.raises(ConfigurationError):
        list(read(find(settings).files[0], settings))


@needs_tesseract
def test_a_page_of_a_billion_points_is_drawn_small() -> None:
    picture = stream(
        zlib.compress(bytes(10_000)),
        b"/Type /XObject /Subtype /Image /Width 100 /Height 100 /ColorSpace /DeviceGray /BitsPerComponent 8 "
        b"/Filter /FlateDecode",
    )
    page = (
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 1000000000 1000000000] /Contents 4 0 R "
        b"/Resources << /XObject << /I 5 0 R >> >> >>"
    )
    pages = b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>"
    drawn = stream(b"q 1000000000 0 0 1000000000 0 0 cm /I Do Q")
    assert refused(objects(CATALOG, pages, page, drawn, picture), ocr="eng").reason == "no-text-layer"
