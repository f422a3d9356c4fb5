"""Reads pages that are pictures with the program tesseract.

The program returns words with their boxes. It runs in its own process and reads the pixels of a page from standard
input; nothing is written to disk.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tasks.stages.ingest.formats.page_layout import PageBlock, around, joined
from tasks.stages.ingest.formats.pdf_text import Box
from tasks.stages.ingest.formats.tesseract import run_tesseract

_SURE = 30.0
"""The minimum confidence of a word, out of 100; below it, most results are specks."""
_WORD = 5
_COLUMNS = 12


def blocks_in_picture(
    program: str, languages: str, picture: tuple[int, int, bytes, float], page: int, vocabulary: Collection[str]
) -> list[PageBlock] | None:
    """Return the paragraphs of a page; None if the program fails or takes too long.

    picture: width, height, rows of grey pixels, and pixels per point. Raises MemoryError if the program lacks memory.
    """
    width, height, pixels, scale = picture
    arguments = ["stdin", "stdout", "-l", languages, "--dpi", str(max(70, round(72 * scale))), "tsv"]
    output = run_tesseract(program, arguments, b"P5 %d %d 255\n" % (width, height) + pixels)
    return None if output is None else _paragraphs(output.decode("utf-8", "replace"), scale, page, vocabulary)


def _paragraphs(tsv: str, scale: float, page: int, vocabulary: Collection[str]) -> list[PageBlock]:
    paragraphs: dict[tuple[str, str], dict[str, list[tuple[str, Box]]]] = {}
    for row in tsv.split("\n")[1:]:
        columns = row.rstrip("\r").split("\t")
        if len(columns) != _COLUMNS or columns[0] != str(_WORD):
            continue
        try:
            x, y, width, height = (int(value) / scale for value in columns[6:10])
            confidence = float(columns[10])
        except ValueError:
            continue
        text = re.sub(r"[\x00-\x1f\x7f-\x9f]", "", columns[11]).strip()
        if text and confidence >= _SURE:
            word = text, (x, y, x + width, y + height)
            paragraphs.setdefault((columns[2], columns[3]), {}).setdefault(columns[4], []).append(word)
    blocks = []
    for lines in paragraphs.values():
        text = joined([" ".join(word for word, _ in line) for line in lines.values()], vocabulary)
        box = around(word_box for line in lines.values() for _, word_box in line)
        if any(letter.isalnum() for letter in text):
            blocks.append(PageBlock("paragraph", [text], box, 0.0, page, x0=box[0]))
    return blocks
