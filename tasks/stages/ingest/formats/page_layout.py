"""Turns pieces of lines into blocks in reading order: headings, paragraphs, list items, tables, code.

Columns are detected by the gutters between pieces at the same height: if several consecutive lines share a gutter with
prose on both sides, the left side is read before the right. Within a column, paragraphs are separated by the distances,
indents and ends of lines; lines with vertically aligned pieces form tables.
"""

from __future__ import annotations

import bisect
import math
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tasks.stages.ingest.formats.pdf_text import Box, Frame, TextRun

_DEPTH = 12
_LARGE = 1.12  # times the body's size: a heading is at least this large
_CELL_GAP = 1.05  # em: the minimum gap between cells
_LEADING = 1.32  # times the usual line distance: a larger distance begins a paragraph
_INDENT = 0.8  # em
_TABS = 60  # the maximum number of columns of a table
_MOST_ROWS = 400  # the maximum number of lines of a table; further lines form another table
_INITIAL = re.compile(r"[\"'\u201c\u2018\u201e\u00ab\u00bf\u00a1]?\s?[^\W\d_]")
_MOST_INITIALS = 20  # of a page
_LONG_CELL = 25  # characters: a cell that may fill its line
_TRIES = 12  # the maximum number of ends tried for a table

_BULLET = re.compile(
    r"^(?:[\u2022\u2023\u25aa\u25ab\u25cf\u25cb\u25a0\u25a1\u25e6\u27a2\u25b6\u25ba\u25b8](?:\s*)"
    r"|[\u2043\u2219\u2756\u2713\u2714\u2217\u25c6\u00b7](?:\s+|$))"
)
_DASH = re.compile(r"^[-\u2013\u2014*]\s+(?=\S)")
_NUMBER = re.compile(r"^(?:(\d{1,3})([.)])|(\(\d{1,3}\)|\(?[a-z]\)|\(?[ivx]{1,5}\)|\[\d{1,3}\]))(?:\s+|$)")
_LEADERS = re.compile(r"\s*(?:\.\s?){4,}\s*|\s*(?:\s\.){3,}\s*|\s*(?:\s\.){2}\s*(?=\d{1,4}$)")
_ENDS = (".", "!", "?", ":", ";", "\u2026", ".\u201d", '."', ".)", "\u3002", "\uff01", "\uff1f")
_SECTION = re.compile(r"(?:\d{1,3}|[A-Z])(?:\.\d{1,3}){0,4}\.?")
_HYPHENS = "-\u2010\u00ad"
_WORD_END = re.compile(r"([^\W\d_]+)[-\u2010\u00ad]$")
_WORD_START = re.compile(r"^([^\W\d_]+)")
_AND = frozenset({"and", "or", "und", "oder", "et", "ou", "y", "e", "o", "to", "bis"})
_WIDE_SCRIPT = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]")  # Korean has spaces between words


@dataclass(frozen=True, slots=True)
class BodyStyle:
    """The style of a document's body text. size: the font size in points. mono: whether the font is monospaced."""

    size: float
    bold: bool = False
    mono: bool = False

    def is_exceeded_by(self, size: float) -> bool:
        """Return whether letters of a size are large, as those of headings."""
        return size >= _LARGE * self.size and size - self.size >= 0.8


@dataclass(slots=True)
class TextLine:
    """The text of one line, from left to right, as cells separated by wide gaps."""

    cells: list[TextRun]
    gap: float = 0.0  # the distance to the previous baseline in the column

    @property
    def x0(self) -> float:
        return self.cells[0].x0

    @property
    def x1(self) -> float:
        return self.cells[-1].x1

    @property
    def base(self) -> float:
        return max(self.cells, key=lambda cell: (cell.size, len(cell.text))).base

    @property
    def size(self) -> float:
        return max(self.cells, key=lambda cell: len(cell.text)).size

    @property
    def bold(self) -> bool:
        return all(cell.bold for cell in self.cells)

    @property
    def mono(self) -> bool:
        return all(cell.mono for cell in self.cells)

    @property
    def text(self) -> str:
        return " ".join(cell.text for cell in self.cells)

    @property
    def box(self) -> Box:
        return around(cell.box for cell in self.cells)


@dataclass(slots=True)
class PageBlock:
    """A part of a page. kind: paragraph, item, table, code. box: its box on the page as shown.

    bold: of a table, whether its first row is. lines: the lines of code, or of a paragraph or an item with `\\n` at
    intentional line ends. marker, depth: an item's Markdown marker and level. page: counted from 1. parts: the second
    and later parts of a block that spans several columns or pages: the number of lines or rows before each part, and
    the part's page and box.
    """

    kind: str
    lines: list[str]
    box: Box
    size: float
    page: int
    bold: bool = False
    rows: list[list[str]] = field(default_factory=list)
    marker: str = ""
    depth: int = 0
    x0: float = 0.0
    parts: list[tuple[int, int, Box]] = field(default_factory=list)
    apart: bool = False  # its reading direction differs from the page's
    full: bool = False  # its last line reaches the right edge of its column
    fits: bool = False  # its first line begins at the left edge of its column
    columns: list[float] = field(default_factory=list)  # where the columns of a table begin
    end: tuple[int, float] | None = None  # the page and bottom of the last part, if there are several parts


def around(boxes: Iterable[Box]) -> Box:
    """Return the smallest box that contains all boxes."""
    left, top, right, bottom = zip(*boxes, strict=True)
    return min(left), min(top), max(right), max(bottom)


def rows_of(pieces: Iterable[TextRun]) -> list[list[TextRun]]:
    """Group pieces into lines, from top to bottom; the pieces of a line are sorted from left to right."""
    rows: list[list[TextRun]] = []
    spans: list[tuple[float, float, float, float]] = []  # top, bottom, base, size
    for piece in sorted(pieces, key=lambda piece: (round(piece.base, 1), piece.x0, piece.text)):
        for at in range(len(rows) - 1, max(-1, len(rows) - 4), -1):
            top, bottom, base, size = spans[at]
            shared = min(bottom, piece.bottom) - max(top, piece.top)
            least = min(bottom - top, piece.bottom - piece.top)
            small, large = sorted((size, piece.size))
            near = abs(piece.base - base) <= 0.25 * small
            raised = shared >= 0.55 * least and abs(piece.base - base) <= 0.6 * large and large <= 2 * small
            if near or raised:
                rows[at].append(piece)
                if piece.size > size:
                    top, bottom, base, size = piece.top, piece.bottom, piece.base, piece.size
                spans[at] = (top, bottom, base, size)
                break
        else:
            rows.append([piece])
            spans.append((piece.top, piece.bottom, piece.base, piece.size))
    order = sorted(range(len(rows)), key=lambda at: (spans[at][2], at))
    return [sorted(rows[at], key=lambda piece: (piece.x0, piece.x1, piece.text)) for at in order]


def lines_of(pieces: Iterable[TextRun]) -> list[TextLine]:
    """Return the lines of one column, with neighbouring pieces joined."""
    return [TextLine(_cells(row)) for row in rows_of(pieces)]


def _cells(row: Sequence[TextRun]) -> list[TextRun]:
    cells: list[TextRun] = []
    lengths: list[tuple[int, int]] = []  # the numbers of bold and monospaced letters of each cell
    for piece in row:
        letter_count = sum(map(str.isalpha, piece.text))
        if cells:
            last = cells[-1]
            gap, em = piece.x0 - last.x1, min(max(piece.size, 1.0), max(last.size, 1.0))
            wide = _CELL_GAP * max(piece.size, last.size)
            is_marker = _is_marker(last.text) and len(cells) == 1
            leads = _LEADERS.fullmatch(piece.text) is not None or _LEADERS.search(last.text[-8:]) is not None
            if gap < wide or (is_marker and gap < 4 * em) or leads:
                space = "" if gap <= 0.12 * em or last.text.endswith(" ") or piece.text.startswith(" ") else " "
                if piece.size < 0.85 * last.size and last.base - piece.base > 0.2 * last.size and not space:
                    space = "^" if last.text[-1:].isalnum() and piece.text[:1].isalnum() else space
                if space and _WIDE_SCRIPT.match(piece.text) and _WIDE_SCRIPT.match(last.text[-1]) and gap < 0.5 * em:
                    space = ""
                bold, mono = lengths[-1]
                lengths[-1] = (bold + letter_count * piece.bold, mono + letter_count * piece.mono)
                larger = piece if len(piece.text) > len(last.text) else last
                cells[-1] = TextRun(
                    last.text + space + piece.text,
                    last.x0,
                    min(last.top, piece.top),
                    max(last.x1, piece.x1),
                    max(last.bottom, piece.bottom),
                    larger.base,
                    larger.size,
                )
                continue
        cells.append(TextRun(piece.text, piece.x0, piece.top, piece.x1, piece.bottom, piece.base, piece.size))
        lengths.append((letter_count * piece.bold, letter_count * piece.mono))
    for cell, (bold, mono) in zip(cells, lengths, strict=True):
        letters = sum(map(str.isalpha, cell.text))
        if letters:
            cell.bold, cell.mono = bold >= 0.8 * letters, mono >= 0.85 * letters
        else:
            cell.bold, cell.mono = row[0].bold, all(piece.mono for piece in row)
    return cells


def _is_marker(text: str) -> bool:
    return _BULLET.fullmatch(text) is not None or text in "-\u2013*" or _NUMBER.fullmatch(text) is not None


def blocks_of(
    frame: Frame, page: int, style: BodyStyle, vocabulary: Collection[str], tables: Sequence[PageBlock] = ()
) -> list[PageBlock]:
    """Return the blocks of a frame in reading order, with their boxes on the page. tables: found by their rulings."""
    blocks: list[PageBlock] = []
    beside: list[PageBlock] = []
    pieces = _with_initials(frame.pieces, style)
    for table in tables:
        top, bottom = table.box[1], table.box[3]
        above = [piece for piece in pieces if piece.base <= top + 0.3 * piece.size]
        below = [piece for piece in pieces if piece.top >= bottom - 0.3 * piece.size]
        if len(above) + len(below) < len(pieces):
            beside.append(table)
            continue
        blocks += _blocks(above, frame, page, style, vocabulary)
        blocks.append(table)
        pieces = below
    blocks += _blocks(pieces, frame, page, style, vocabulary)
    for table in beside:
        blocks.insert(_place_of(table, blocks), table)
    for block in blocks:
        block.box = frame.on_page(block.box)
    return blocks


def _with_initials(pieces: list[TextRun], style: BodyStyle) -> list[TextRun]:
    """Join initials over several lines, such as a large O, to the line beside their top."""
    initials = [piece for piece in pieces if piece.size >= 1.8 * style.size and _INITIAL.fullmatch(piece.text)]
    merged: set[int] = set()
    for initial in initials[:_MOST_INITIALS]:
        beside = [
            piece
            for piece in pieces
            if piece.size < 0.6 * initial.size
            and -0.3 * initial.size < piece.x0 - initial.x1 < 2 * piece.size
            and initial.top < piece.base <= initial.base + 0.3 * piece.size
        ]
        first = min(beside, key=lambda piece: (piece.base, piece.x0), default=None)
        if first is None or first.base > initial.base - 0.7 * first.size or not first.text[0].isalpha():
            continue
        first.text = initial.text.strip() + first.text
        for piece in beside:
            piece.x0 = initial.x0
        merged.add(id(initial))
    return [piece for piece in pieces if id(piece) not in merged] if merged else pieces


def _blocks(
    pieces: list[TextRun], frame: Frame, page: int, style: BodyStyle, vocabulary: Collection[str]
) -> list[PageBlock]:
    return [
        block
        for column in _columns(pieces, frame, 0)
        for block in _Column(lines_of(column), page, style, vocabulary).blocks()
    ]


def _place_of(table: PageBlock, blocks: Sequence[PageBlock]) -> int:
    """Return where a table belongs that has text beside it: before the first block below it in its column."""
    left, top, right, bottom = table.box
    for at, block in enumerate(blocks):
        if block.box[1] >= bottom - 0.3 * block.size and min(block.box[2], right) > max(block.box[0], left):
            return at
    return next((at for at, block in enumerate(blocks) if block.box[1] > top), len(blocks))


# Columns.


def _columns(pieces: list[TextRun], frame: Frame, depth: int) -> list[list[TextRun]]:
    if depth >= _DEPTH or len(pieces) < 6:
        return [pieces] if pieces else []
    rows = rows_of(pieces)
    x0, x1 = min(piece.x0 for piece in pieces), max(piece.x1 for piece in pieces)
    for gutter in _gutters(rows, x0, x1):
        band = _band(rows, gutter, frame.width)
        if band is None:
            continue
        first, last = band
        parts = [
            [piece for row in rows[:first] for piece in row],
            [piece for row in rows[first:last] for piece in row if piece.x1 <= gutter + 1],
            [piece for row in rows[first:last] for piece in row if piece.x1 > gutter + 1],
            [piece for row in rows[last:] for piece in row],
        ]
        return [column for part in parts for column in _columns(part, frame, depth + 1)]
    return [pieces]


def _gutters(rows: Sequence[Sequence[TextRun]], x0: float, x1: float) -> list[float]:
    """Return candidates for gutters between columns: the x positions where the most rows have a gap."""
    width = int(x1 - x0) + 2
    if not 60 < width < 20_000:
        return []
    votes = [0] * (width + 1)
    for row in rows:
        end = row[0].x1
        for piece in row[1:]:
            gap = piece.x0 - end
            if gap >= max(6.0, 0.7 * piece.size):
                votes[int(end - x0) + 1] += 1
                votes[int(piece.x0 - x0)] -= 1
            end = max(end, piece.x1)
    total, level = [], 0
    for vote in votes:
        level += vote
        total.append(level)
    peaks: list[tuple[int, float]] = []
    at = int(0.1 * width)
    while at < 0.9 * width:
        stop = at
        while stop < width and total[stop] == total[at]:
            stop += 1
        if total[at] >= 3 and (at == 0 or total[at - 1] < total[at]) and (stop >= width or total[stop] < total[at]):
            peaks.append((-total[at], x0 + (at + stop) / 2))
        at = stop
    return [gutter for _, gutter in sorted(peaks)[:5]]


def _band(rows: Sequence[Sequence[TextRun]], gutter: float, page_width: float) -> tuple[int, int] | None:
    """Return the longest run of rows that a gutter divides into columns of prose, as (first, last + 1)."""
    best: tuple[int, int, int] | None = None
    first = 0
    for at in range(len(rows) + 1):
        crosses = at == len(rows) or any(piece.x0 < gutter - 1 and piece.x1 > gutter + 1 for piece in rows[at])
        if not crosses:
            continue
        if at - first >= 4 and (best is None or at - first > best[0]) and _is_prose(rows[first:at], gutter, page_width):
            best = (at - first, first, at)
        first = at + 1
    if best is None:
        return None
    _, first, last = best
    while first < last and all(piece.x1 <= gutter for piece in rows[first]) and _is_title(rows, first):
        first += 1
    return first, last


def _is_title(rows: Sequence[Sequence[TextRun]], at: int) -> bool:
    """Return whether a row has a larger font than the row below, and so may be a title of both columns."""
    if at + 1 >= len(rows):
        return False
    return max(piece.size for piece in rows[at]) > 1.5 * max(piece.size for piece in rows[at + 1])


def _is_prose(rows: Sequence[Sequence[TextRun]], gutter: float, page_width: float) -> bool:
    """Return whether both sides of a gutter contain lines of text rather than cells of a table."""
    sides: tuple[list[list[TextRun]], list[list[TextRun]]] = ([], [])
    for row in rows:
        for number, side in enumerate(sides):
            side_row = [piece for piece in row if (piece.x1 > gutter + 1) == bool(number)]
            if side_row:
                side.append(side_row)
    if min(map(len, sides)) < 3:
        return False
    both = sum(1 for row in rows if row[0].x1 <= gutter + 1 and row[-1].x1 > gutter + 1)
    if both < 2:
        return False
    widths = [max(side_row[-1].x1 for side_row in side) - min(side_row[0].x0 for side_row in side) for side in sides]
    if min(widths) >= 0.2 * page_width and _is_misaligned(sides[0], sides[1]):
        return True
    if min(map(len, sides)) >= 12 and _is_half(sides, gutter, page_width):
        return True
    if any(_gaps_wide(side) for side in sides):
        return False
    for side in sides:
        cells = statistics.median(sum(1 for _ in _parted(side_row)) for side_row in side)
        start, end = min(side_row[0].x0 for side_row in side), max(side_row[-1].x1 for side_row in side)
        width = max(end - start, 1.0)
        pieces = [piece for side_row in side for piece in side_row]
        letters = sum(len(piece.text) for piece in pieces)
        if len(side) < 15 and sum(len(piece.text) for piece in pieces if piece.mono) > 0.5 * letters:
            return False  # a code listing, whose lines are aligned as well
        filled = statistics.median(sum(piece.x1 - piece.x0 for piece in side_row) / width for side_row in side)
        long = statistics.median(sum(len(piece.text) for piece in side_row) for side_row in side)
        if filled < 0.5 or long < (14 if cells <= 1 else 20 * cells) or width < 60:
            return False
    return True


def _parted(row: Sequence[TextRun]) -> Iterator[TextRun]:
    """Yield the pieces of a row that begin a cell."""
    end = -math.inf
    for piece in row:
        if piece.x0 - end > _CELL_GAP * piece.size:
            yield piece
        end = max(end, piece.x1)


def _is_half(sides: Sequence[Sequence[Sequence[TextRun]]], gutter: float, page_width: float) -> bool:
    """Return whether the two sides are columns of equal width that fill the page, which cells of tables rarely do."""
    starts = [min(row[0].x0 for row in side) for side in sides]
    ends = [max(row[-1].x1 for row in side) for side in sides]
    left_width, right_width = starts[1] - starts[0], ends[1] - starts[1]
    even = abs((ends[0] - starts[0]) - right_width) < 0.12 * right_width
    return even and abs(gutter - page_width / 2) < 0.04 * page_width and left_width > 0.3 * page_width


def _gaps_wide(side: Sequence[Sequence[TextRun]]) -> bool:
    """Return whether many lines are far below the previous line, as in a table with cells of different heights."""
    close = sum(below[0].base - row[0].base <= 1.7 * row[0].size for row, below in pairwise(side))
    return close < 0.6 * (len(side) - 1)


def _is_misaligned(left_side: Sequence[Sequence[TextRun]], right_side: Sequence[Sequence[TextRun]]) -> bool:
    """Return whether most lines of the two sides are at different heights, which never occurs in a table."""
    if min(len(left_side), len(right_side)) < 8:
        return False
    bases = sorted(piece.base for row in left_side for piece in row)
    others = sorted({round(piece.base, 1) for row in right_side for piece in row})
    same = 0
    for base in others:
        at = bisect.bisect_left(bases, base - 0.6)
        same += at < len(bases) and bases[at] <= base + 0.6
    return same < 0.5 * len(others)


# Blocks of a column.


class _Column:
    """The lines of a column, to be grouped into blocks."""

    def __init__(self, lines: list[TextLine], page: int, style: BodyStyle, vocabulary: Collection[str]) -> None:
        self._lines, self._page, self._style, self._vocabulary = lines, page, style, vocabulary
        gaps: Counter[float] = Counter()
        for above, line in pairwise(lines):
            line.gap = line.base - above.base
            if 0 < line.gap < 3 * line.size and abs(line.size - above.size) < 0.1 * line.size:
                gaps[round(line.gap / line.size, 1)] += min(len(line.text), 80)
        self._leading = min(max(gaps.items(), key=lambda item: (item[1], -item[0]))[0], 2.2) if gaps else 1.2
        ends = sorted(line.x1 for line in lines if len(line.cells) == 1)
        self._right_edge = ends[int(0.9 * (len(ends) - 1))] if ends else max((line.x1 for line in lines), default=0.0)
        starts = sorted(line.x0 for line in lines)
        self._left_edge = starts[int(0.1 * (len(starts) - 1))] if starts else 0.0
        self._table_ends: dict[int, int] = {}
        self._hanging = self._hangs()

    def blocks(self) -> list[PageBlock]:
        blocks: list[PageBlock] = []
        at = 0
        while at < len(self._lines):
            if self._is_code(at):
                stop = at + 1
                while (
                    stop < len(self._lines)
                    and self._is_code(stop)
                    and self._lines[stop].gap < 3.2 * self._lines[stop].size
                ):
                    stop += 1
                blocks.append(self._code(self._lines[at:stop]))
            elif (stop := self._table_end(at)) > at:
                blocks.append(self._table(self._lines[at:stop]))
            else:
                stop = at + 1
                while stop < len(self._lines) and not (
                    self._is_code(stop) or self._begins(at, stop) or self._table_end(stop) > stop
                ):
                    stop += 1
                blocks.append(self._prose(self._lines[at:stop]))
            at = stop
        self._nest(blocks)
        return blocks

    def _is_code(self, at: int) -> bool:
        return self._lines[at].mono and not self._style.mono and not self._is_within_prose(at)

    def _is_within_prose(self, at: int) -> bool:
        """Return whether a monospaced line is not code but part of a paragraph that happens to fill the line."""
        lines = self._lines
        if at + 1 < len(lines) and lines[at + 1].mono:
            return False
        line = lines[at]
        above = lines[at - 1] if at else None
        if above is None or above.mono or not 0 < line.gap <= 1.15 * self._leading * line.size:
            return False
        return (
            not self._is_short(above, line)
            and not above.text.endswith(":")
            and line.x0 < self._left_edge + 4 * line.size
        )

    def _code(self, lines: Sequence[TextLine]) -> PageBlock:
        margin = min(line.x0 for line in lines)
        letters = sum(len(cell.text) for line in lines for cell in line.cells)
        widths = sum(cell.x1 - cell.x0 for line in lines for cell in line.cells)
        pitch = max(widths / max(letters, 1), 0.1)
        usual = statistics.median(line.gap for line in lines[1:]) if len(lines) > 1 else 0.0
        texts: list[str] = []
        for number, line in enumerate(lines):
            if number and usual > 0 and line.gap > 1.6 * usual:
                texts += [""] * min(int(line.gap / usual - 0.4), 3)
            text = ""
            for cell in line.cells:
                column = round((cell.x0 - margin) / pitch)
                text += " " * min(max(column - len(text), 1 if text else 0), 200) + cell.text
            texts.append(text)
        return PageBlock("code", texts, _box_of(lines), lines[0].size, self._page, x0=margin)

    def _begins(self, first: int, at: int) -> bool:
        """Return whether a line begins a new block, given that the current block begins at `first`."""
        above, line = self._lines[at - 1], self._lines[at]
        em = max(line.size, 1.0)
        small, large = sorted((above.size, line.size))
        if large > 1.1 * small and abs(large - small) > 0.7:
            return True
        usual = max(self._leading, 1.0) * max(large, 1.0)
        if line.gap > _LEADING * usual or line.gap < 0:
            goes_on = line.text[:1].islower() and not above.text.endswith(_ENDS) and not self._is_short(above, line)
            return not (goes_on and 0 < line.gap < 1.6 * usual)
        if above.bold != line.bold and (self._is_short(above, line) or self._is_short(line, None)):
            return True
        if _is_item(line.text):
            return True
        if _LEADERS.search(line.text) or _LEADERS.search(above.text):
            return False
        start = self._lines[first]
        if _is_item(start.text):
            if line.x0 < start.x0 - 0.3 * em:
                return True
            if line.x0 > start.x0 + 0.5 * em:
                return False
            hung = at - first >= 2 and above.x0 > start.x0 + 0.5 * em
            return hung or self._is_short(above, line, self._edge(at - 1))
        if self._is_centred(above) and self._is_centred(line):
            return False
        indent = line.x0 - above.x0
        if self._hanging:
            return line.x0 < self._left_edge + 0.5 * em and above.x0 > self._left_edge + _INDENT * em
        if _INDENT * em < indent < 6 * em:
            spaced = at - first == 1 and first > 0 and above.gap > 1.15 * line.gap
            return not (spaced and (at + 1 == len(self._lines) or self._lines[at + 1].gap > 1.15 * line.gap))
        if indent < -_INDENT * em and at - first > 1:
            return True
        if line.size > 1.1 * self._style.size:
            return False  # a heading over several lines
        return above.text.endswith(_ENDS) and self._is_short(above, line, self._edge(at - 1))

    def _hangs(self) -> bool:
        """Return whether paragraphs have a hanging indent, as references do."""
        votes = 0
        for first, second, third in zip(self._lines, self._lines[1:], self._lines[2:], strict=False):
            em = max(first.size, 1.0)
            if abs(second.x0 - third.x0) > 1 or third.gap > _LEADING * self._leading * em:
                continue
            if second.gap <= _LEADING * self._leading * em and not _is_item(first.text):
                indent = second.x0 - first.x0
                votes += (_INDENT * em < indent < 6 * em) - (-6 * em < indent < -_INDENT * em)
        return votes >= 2

    def _edge(self, at: int) -> float:
        """Return the right edge of the closely spaced lines around a line, or of the column if they are too few."""
        lines, first, last = self._lines, at, at
        while first > max(0, at - 3) and 0 < lines[first].gap <= _LEADING * self._leading * lines[first].size:
            first -= 1
        while last < min(len(lines) - 1, at + 3) and (
            0 < lines[last + 1].gap <= _LEADING * self._leading * lines[last + 1].size
        ):
            last += 1
        return max(line.x1 for line in lines[first : last + 1]) if last - first >= 2 else self._right_edge

    def _is_short(self, line: TextLine, below: TextLine | None, edge: float | None = None) -> bool:
        """Return whether the first word of the next line would have fitted at the end of a line."""
        word = 3 * line.size
        if below is not None:
            first = below.cells[0]
            head = first.text.split(" ", 1)[0]
            word = (first.x1 - first.x0) * len(head) / max(len(first.text), 1)
        return line.x1 + word + 1.2 * line.size < (self._right_edge if edge is None else edge)

    def _is_centred(self, line: TextLine) -> bool:
        middle = (self._left_edge + self._right_edge) / 2
        indent = line.x0 - self._left_edge
        return indent > 2 * line.size and abs((line.x0 + line.x1) / 2 - middle) < line.size

    def _prose(self, lines: Sequence[TextLine]) -> PageBlock:
        texts = []
        edge = max(line.x1 for line in lines) if len(lines) > 2 else self._right_edge
        for number, line in enumerate(lines):
            text = _LEADERS.sub(" ... ", line.text).strip()
            below = lines[number + 1] if number + 1 < len(lines) else None
            meant = below is not None and (
                (self._is_short(line, below, edge) and not text.endswith(tuple(_HYPHENS))) or " ... " in text
            )
            texts.append(text + "\n" * meant)
        size = max(lines, key=lambda line: len(line.text)).size
        bold = all(line.bold for line in lines)
        block = PageBlock("paragraph", texts, _box_of(lines), size, self._page, bold, x0=lines[0].x0)
        block.full = lines[-1].x1 > self._right_edge - 1.5 * lines[-1].size
        block.fits = lines[0].x0 < self._left_edge + 0.5 * lines[0].size
        _mark(block)
        return block

    def _nest(self, blocks: Sequence[PageBlock]) -> None:
        stack: list[float] = []
        for block in blocks:
            if block.kind != "item":
                if block.kind != "code":
                    stack = []
                continue
            while stack and block.x0 < stack[-1] - 3:
                stack.pop()
            if not stack or block.x0 > stack[-1] + 5:
                stack.append(block.x0)
            block.depth = min(len(stack) - 1, 5)

    # Tables.

    def _table_end(self, at: int) -> int:
        """Return the line after the table that begins at `at`; `at` itself if no table begins there."""
        if at not in self._table_ends:
            self._table_ends[at] = self._find_table_end(at)
        return self._table_ends[at]

    def _find_table_end(self, at: int) -> int:
        lines = self._lines
        if len(lines[at].cells) < 2 or self._is_code(at) or _LEADERS.search(lines[at].text):
            return at
        if (
            len(lines[at].cells) == 2
            and _SECTION.fullmatch(lines[at].cells[0].text)
            and (lines[at].bold or lines[at].size > 1.1 * self._style.size)
        ):
            return at
        stop, last = at + 1, at + 1
        second = lines[at].cells[1].x0
        while (
            stop < min(len(lines), at + _MOST_ROWS)
            and lines[stop].gap < 2.6 * max(lines[stop].size, lines[stop - 1].size)
            and lines[stop].gap >= 0
        ):
            if _LEADERS.search(lines[stop].text) or self._is_code(stop):
                break
            if len(lines[stop].cells) >= 2:
                last = stop + 1
            elif lines[stop].x0 > second - 3 and lines[stop].gap < _LEADING * self._leading * lines[stop].size:
                last = stop + 1  # continues a later cell
            elif stop + 1 - last > 2 or (lines[stop].x0 <= lines[at].x0 + 1 and lines[stop].x1 > self._right_edge - 1):
                break
            stop += 1
        for _ in range(_TRIES):
            if last <= at + 1:
                break
            bounds = _bounds(lines[at:last])
            wide = [line for line in lines[at:last] if len(line.cells) >= 2]
            enough = len(wide) >= 3 or (len(wide) >= 2 and len(bounds) >= 3)
            if not enough:
                return at
            if len(bounds) >= 2 and self._is_grid(lines[at:last], bounds):
                return last
            last -= 1
            while last > at + 1 and len(lines[last - 1].cells) < 2:
                last -= 1
        return at

    def _is_grid(self, lines: Sequence[TextLine], bounds: Sequence[tuple[float, float]]) -> bool:
        """Return whether cells form columns: few cells span two, and most have aligned starts, middles or ends."""
        if len(bounds) > _TABS:
            return False
        below = [line.gap for line in lines[1:]]
        if statistics.median(below) < 0.9 * self._style.size or (len(lines) == 2 and below[0] < 1.05 * lines[0].size):
            return False  # a formula over several lines
        if len(lines) == 2 and len({len(line.cells) for line in lines}) > 1:
            return False
        across = aligned = cells = 0
        for column in range(len(bounds)):
            column_cells = [
                cell
                for line in lines
                for cell in line.cells
                if len(line.cells) > 1 and _column_of(cell, bounds) == column
            ]
            cells += len(column_cells)
            best = 0
            starts, ends = [cell.x0 for cell in column_cells], [cell.x1 for cell in column_cells]
            middles = [(start + end) / 2 for start, end in zip(starts, ends, strict=True)]
            for places in (starts, ends, middles):
                counted = Counter(round(place / 3) for place in places)
                most = max((counted[place] + counted[place + 1] for place in counted), default=0)
                best = max(best, most)
            aligned += best
        for line in lines:
            across += any(
                sum(min(cell.x1, end) - max(cell.x0, start) > 1 for start, end in bounds) > 1 for cell in line.cells
            )
        return aligned >= 0.7 * cells and across <= 0.34 * len(lines)

    def _table(self, lines: Sequence[TextLine]) -> PageBlock:
        bounds = _bounds(lines)
        rows = [self._row(band, bounds) for band in self._bands(lines, bounds)] or self._rows(lines, bounds)
        columns = [start for start, _ in bounds]
        first, box = lines[0], _box_of(lines)
        return PageBlock("table", [], box, first.size, self._page, first.bold, rows=rows, x0=first.x0, columns=columns)

    def _bands(self, lines: Sequence[TextLine], bounds: Sequence[tuple[float, float]]) -> list[list[TextLine]]:
        """Return the rows of a table whose cells are over several lines; empty if its rows are not further apart.

        The rows of other tables may stand in groups: there the second line of a cell does not continue a sentence.
        """
        close = min(line.gap for line in lines[1:])
        if close > 1.5 * lines[0].size or any(1.1 * close < line.gap < 1.25 * close for line in lines[1:]):
            return []
        bands: list[list[TextLine]] = []
        for line in lines:
            if bands and line.gap <= 1.1 * close:
                bands[-1].append(line)
            else:
                bands.append([line])
        further = small = 0
        for band in bands:
            seen: set[int] = set()
            for line in band:
                for cell in line.cells:
                    column = _column_of(cell, bounds)
                    further += column in seen
                    small += column in seen and cell.text[:1].islower()
                    seen.add(column)
        return bands if len(bands) >= 2 and further and small >= 0.5 * further else []

    def _row(self, lines: Sequence[TextLine], bounds: Sequence[tuple[float, float]]) -> list[str]:
        texts: list[list[str]] = [[] for _ in bounds]
        for line in lines:
            for cell in line.cells:
                texts[_column_of(cell, bounds)].append(cell.text)
        return [joined(text, self._vocabulary) for text in texts]

    def _rows(self, lines: Sequence[TextLine], bounds: Sequence[tuple[float, float]]) -> list[list[str]]:
        rows: list[list[str]] = []
        filled_first = sum(_column_of(line.cells[0], bounds) == 0 for line in lines)
        for number, line in enumerate(lines):
            row = self._row([line], bounds)
            goes_on = (
                rows
                and not row[0]
                and number
                and filled_first > 0.15 * len(lines)
                and line.gap < _LEADING * self._leading * line.size
                and sum(map(bool, row)) < len(bounds)
                and _continues(rows[-1], row)
            )
            if goes_on:
                rows[-1] = [
                    joined([above, below], self._vocabulary) if above and below else above or below
                    for above, below in zip(rows[-1], row, strict=True)
                ]
            else:
                rows.append(row)
        return rows


def _continues(row: Sequence[str], below: Sequence[str]) -> bool:
    """Return whether the cells below may be the second lines of a row: a sentence goes on, or a cell was long."""
    pairs = [(cell, rest) for cell, rest in zip(row, below, strict=True) if cell and rest]
    return not pairs or any(
        rest[0].islower()
        or rest[0] in "(["
        or cell[-1] in ",&/-"
        or cell.count("(") > cell.count(")")
        or len(cell) >= _LONG_CELL
        for cell, rest in pairs
    )


def _mark(block: PageBlock) -> None:
    """Turn a paragraph that begins with a bullet or a number into an item."""
    first_line = block.lines[0]
    if match := _BULLET.match(first_line) or _DASH.match(first_line):
        rest = first_line[match.end() :]
        if rest.strip() or len(block.lines) > 1:
            block.kind, block.marker, block.lines[0] = "item", "-", rest
            if not rest.strip():
                del block.lines[0]
    elif (match := _NUMBER.match(first_line)) and (first_line[match.end() :].strip() or len(block.lines) > 1):
        if match[1] and first_line[match.end() :].strip():
            block.kind, block.marker, block.lines[0] = "item", f"{int(match[1])}{match[2]}", first_line[match.end() :]
        else:
            block.kind, block.marker = "item", "-"


def _is_item(text: str) -> bool:
    return _BULLET.match(text) is not None or _DASH.match(text) is not None or _NUMBER.match(text) is not None


def _box_of(lines: Sequence[TextLine]) -> Box:
    return around(line.box for line in lines)


def _bounds(lines: Sequence[TextLine]) -> list[tuple[float, float]]:
    """Return the bounds of a table's columns: the x ranges of cells in lines that have the usual number of cells."""
    counts = Counter(len(line.cells) for line in lines if len(line.cells) > 1)
    if not counts:
        return []
    usual = max(counts.items(), key=lambda item: (item[1] * item[0], item[0]))[0]
    spans = sorted((cell.x0, cell.x1) for line in lines if len(line.cells) >= usual for cell in line.cells)
    bounds: list[tuple[float, float]] = []
    for start, end in spans:
        if bounds and start < bounds[-1][1] - 1:
            bounds[-1] = (bounds[-1][0], max(bounds[-1][1], end))
        else:
            bounds.append((start, end))
    return bounds


def _column_of(cell: TextRun, bounds: Sequence[tuple[float, float]]) -> int:
    """Return the column that a cell overlaps most, or the nearest column."""
    shared = [min(cell.x1, end) - max(cell.x0, start) for start, end in bounds]
    return max(range(len(bounds)), key=lambda at: (shared[at], -at))


def joined(lines: Sequence[str], vocabulary: Collection[str]) -> str:
    """Join lines into one text with spaces, and rejoin words that are hyphenated at line ends.

    vocabulary: the words of the document in lower case, including words with hyphens. It distinguishes "infor-mation"
    from "well-known". Unknown words are joined without a hyphen.
    """
    text = ""
    for line in lines:
        stripped = line.lstrip()
        if not text or text.endswith("\n"):
            text += stripped
            continue
        text = text.rstrip(" ")
        end, start = _WORD_END.search(text), _WORD_START.match(stripped)
        if text.endswith(tuple(_HYPHENS)) and end and start:
            first, second = end[1], start[1]
            if second.lower() in _AND and text[-1] != "\u00ad":
                text = f"{text} {stripped}"
            elif text[-1] == "\u00ad" or (second[0].islower() and not _is_compound(first, second, text, vocabulary)):
                text = text[:-1] + stripped
            else:
                text += stripped
        elif text.endswith(tuple(_HYPHENS)) and stripped[:1].isalnum() and text[-2:-1].isalnum():
            text = text.rstrip("\u00ad") + stripped
        elif stripped and _WIDE_SCRIPT.match(stripped) and _WIDE_SCRIPT.match(text[-1]):
            text += stripped
        else:
            text = f"{text} {stripped}"
    return text.replace("\u00ad", "").strip()


def _is_compound(first: str, second: str, text: str, vocabulary: Collection[str]) -> bool:
    """Return whether the hyphen at a line's end belongs to the word."""
    whole, hyphenated = (first + second).lower(), f"{first}-{second}".lower()
    if whole in vocabulary:
        return False
    if hyphenated in vocabulary:
        return True
    before = text[: -1 - len(first)]
    if before.endswith("-") and before[-2:-1].isalpha():
        return True
    return first.lower() in _PREFIXES or first.isupper()


_PREFIXES = frozenset(
    {"self", "non", "well", "cross", "half", "high", "low", "real", "so", "built", "user", "ex", "all"}
)
