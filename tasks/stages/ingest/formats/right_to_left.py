"""Puts Hebrew and Arabic text of a PDF page into logical order, the order in which it is read and typed.

A page says where letters stand, not in which order they are read, and PDFium's own order breaks at digits and quotation
marks. So the letters of a line are sorted by position, and the Unicode bidirectional algorithm is applied backwards, by
a rule for each of its cases that occurs in print: words of either direction, and numbers with their signs.
python-bidi and ICU only know the way from logical to visual order, so they cannot do it.

A page that is mostly written from right to left is mirrored, so that its columns, indents and tables are found by the
same layout analysis as all others; `Frame.on_page` mirrors the boxes back.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from tasks.stages.ingest.formats.page_layout import rows_of
from tasks.stages.ingest.formats.pdf_text import RIGHT_TO_LEFT, SPACE_GAP, WIDE_GAP, Dividers, Frame, TextRun

_LEFT_TO_RIGHT = re.compile(r"[^\W\d_\u0590-\u08ff\ufb1d-\ufefc]")
_FORMS = re.compile(r"[\ufb1d-\ufdff\ufe70-\ufefc]")
_ALEF = frozenset("\u0622\u0623\u0625\u0627")
_LAM = "\u0644"
_WITHIN = frozenset(".,:/-\u2212\u066b\u066c")  # between two digits: part of the number
_BESIDE = frozenset("%$\u20ac\u00a3\u20aa#+-\u2212\u00b0\u066a")  # next to a digit: part of the number
_ENDS = frozenset(".,:;!?\u060c\u061b\u061f")
_BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"), ("\u00ab", "\u00bb"))


@dataclass(slots=True)
class _Unit:
    """What keeps its own order: a letter with its marks, a word from left to right, a sign. kind: R, L, N, S or ''."""

    text: str
    kind: str


def in_logical_order(frame: Frame) -> Frame:
    """Return the frame with its lines in logical order; the frame itself if no line is written from right to left."""
    letters = sum(len(RIGHT_TO_LEFT.findall(piece.text)) for piece in frame.pieces)
    if not letters:
        return frame
    mirrored = letters > sum(len(_LEFT_TO_RIGHT.findall(piece.text)) for piece in frame.pieces)
    dividers, rulings = Dividers(frame.rulings), frame.rulings
    pieces: list[TextRun] = []
    for row in rows_of(frame.pieces):
        is_plain = not any(RIGHT_TO_LEFT.search(piece.text) for piece in row)
        pieces += row if is_plain else _runs(row, dividers, mirrored=mirrored)
    if mirrored:
        for piece in pieces:
            piece.x0, piece.x1 = frame.width - piece.x1, frame.width - piece.x0
        rulings = [(frame.width - x1, top, frame.width - x0, bottom) for x0, top, x1, bottom in rulings]
    return Frame(frame.turns, frame.width, frame.height, pieces, mirrored, rulings)


def _runs(row: Sequence[TextRun], dividers: Dividers, *, mirrored: bool) -> list[TextRun]:
    """Join the pieces of a line, which are sorted from left to right, up to wide gaps and ruling lines."""
    text = "".join(piece.text for piece in row)
    right, left = len(RIGHT_TO_LEFT.findall(text)), len(_LEFT_TO_RIGHT.findall(text))
    ends_at_right = text[-1] in _ENDS and text[0] not in _ENDS  # no line begins with such a sign
    from_right = (right > left or (mirrored and right == left)) and not ends_at_right
    groups: list[list[TextRun]] = []
    end = 0.0
    for piece in row:
        near = groups and piece.x0 - end < WIDE_GAP * max(piece.size, groups[-1][-1].size)
        if near and not (piece.x0 - end > SPACE_GAP * piece.size and dividers.part(end, piece.x0, piece.base)):
            groups[-1].append(piece)
            end = max(end, piece.x1)
        else:
            groups.append([piece])
            end = piece.x1
    return [_run(group, from_right=from_right) for group in groups]


def _run(group: Sequence[TextRun], *, from_right: bool) -> TextRun:
    units: list[_Unit] = []
    end = group[0].x0
    for piece in group:
        if piece.x0 - end > SPACE_GAP * piece.size:
            units.append(_Unit(" ", ""))
        of_piece = _units(piece.text)
        if units and of_piece and unicodedata.combining(of_piece[0].text[0]) and units[-1].kind == "R":
            units[-1].text += of_piece[0].text
            del of_piece[0]
        units += of_piece
        end = max(end, piece.x1)
    longest = max(group, key=lambda piece: (len(piece.text), -piece.x0))
    letters = sum(len(piece.text) for piece in group)
    return TextRun(
        unicodedata.normalize("NFC", logical(units, from_right=from_right)),
        group[0].x0,
        min(piece.top for piece in group),
        end,
        max(piece.bottom for piece in group),
        longest.base,
        longest.size,
        2 * sum(len(piece.text) for piece in group if piece.bold) > letters,
        2 * sum(len(piece.text) for piece in group if piece.mono) > letters,
    )


def _units(text: str) -> list[_Unit]:
    """Divide a piece, in the order of the page from left to right."""
    if RIGHT_TO_LEFT.match(text):  # the letters of one glyph, perhaps with marks
        letters = _FORMS.sub(lambda form: unicodedata.normalize("NFKC", form[0]), text)
        if 2 <= len(letters) <= 4 and letters[0] in _ALEF and letters[-1] == _LAM:
            letters = letters[::-1]  # PDFium reverses the letters of a ligature
        return [_Unit(letters, "R")]
    units: list[_Unit] = []
    for letter in text:
        kind = "N" if letter.isdecimal() else "L" if letter.isalnum() else ""
        if units and kind and units[-1].kind == kind:
            units[-1].text += letter
        else:
            units.append(_Unit(letter, kind))
    return units


def logical(units: list[_Unit], *, from_right: bool) -> str:
    """Return the text of a line whose units are given from left to right."""
    units = _numbers(units)
    if from_right:
        units = units[::-1]
        _reverse_runs(units, "L")
    else:
        _reverse_runs(units, "R")
    return _paired("".join(unit.text for unit in units))


def _numbers(units: Sequence[_Unit]) -> list[_Unit]:
    """Join digits with the signs that belong to them, and with a word from left to right that they touch."""
    joined: list[_Unit] = []
    for at, unit in enumerate(units):
        last = joined[-1] if joined else None
        following = units[at + 1].kind if at + 1 < len(units) else ""
        if last is not None and last.kind in ("N", "L") and unit.kind in ("N", "L"):
            last.text, last.kind = last.text + unit.text, "L" if "L" in (last.kind, unit.kind) else "N"
        elif (
            last is not None
            and last.kind == "N"
            and (unit.text in _BESIDE or (unit.text in _WITHIN and following == "N"))
        ):
            last.text += unit.text
        elif unit.text in _BESIDE and following == "N":
            joined.append(_Unit(unit.text, "N"))
        else:
            joined.append(_Unit(unit.text, unit.kind))
    return joined


def _reverse_runs(units: list[_Unit], kind: str) -> None:
    """Reverse the order of each run of units from the first of this kind to the last before one of the other kind."""
    opposite = "R" if kind == "L" else "L"
    start = last = -1
    for at, unit in enumerate([*units, _Unit("", opposite)]):
        if unit.kind == opposite:
            if start >= 0:
                units[start : last + 1] = units[start : last + 1][::-1]
            start = -1
        elif unit.kind == kind or (unit.kind == "N" and start >= 0):
            start, last = (at if start < 0 else start), at


def _paired(text: str) -> str:
    """Turn brackets the right way: PDFium mirrors some of them."""
    for opening, closing in _BRACKETS:
        places = [at for at, letter in enumerate(text) if letter in (opening, closing)]
        depths = list(accumulate(1 if text[at] == opening else -1 for at in places))
        if len(places) % 2 == 0 and places and (min(depths) < 0 or depths[-1] != 0):
            letters = list(text)
            for number, at in enumerate(places):
                letters[at] = closing if number % 2 else opening
            text = "".join(letters)
    return text
