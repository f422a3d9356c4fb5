"""Finds the tables of a PDF page that are drawn with ruling lines, whose cells the lines divide.

Lines that cross form a grid. A cell ends where a line is drawn, so a cell over several lines of text is one cell, and a
cell over several columns or rows is one as well: over columns its text stands in the first, over rows in each.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import attrgetter

from tasks.stages.ingest.formats.page_layout import PageBlock, TextLine, joined, lines_of
from tasks.stages.ingest.formats.pdf_text import Frame, TextRun

_NEAR = 3.0  # points: lines closer than this are the same line, or touch
_MOST_LINES = 400  # of each direction, on a page
_MOST_CELLS = 20_000
_LONGEST_CELL = 2_000  # characters: a longer cell is a part of the page's layout
_LONGEST_LABEL = 80  # characters
_MOST_CELL_LINES = 5  # on average
_MOST_TABLES = 50
_IS_NUMBER = re.compile(r"\W{0,3}\d[\d\s.,:/%\u2013-]{0,20}\W{0,2}")
_START, _END = attrgetter("x0"), attrgetter("x1")
_BEYOND = 8.0  # points: lines that go on as far beyond the last crossing line have a cell there


@dataclass(slots=True)
class _Line:
    """A horizontal or vertical line. at: its position; start, end: its extent."""

    at: float
    start: float
    end: float

    def covers(self, place: float) -> bool:
        return self.start <= place <= self.end


def take_tables(frame: Frame, page: int, vocabulary: Collection[str], above: Sequence[float] = ()) -> list[PageBlock]:
    """Remove the pieces of ruled tables from a frame; return the tables, from top to bottom.

    above: where the columns of the last table of the previous page begin. A single row in such columns continues it.
    """
    if len(frame.rulings) < 3:
        return []
    across = _merged(
        [_Line((top + bottom) / 2, x0, x1) for x0, top, x1, bottom in frame.rulings if x1 - x0 > bottom - top]
    )
    down = _merged(
        [_Line((x0 + x1) / 2, top, bottom) for x0, top, x1, bottom in frame.rulings if x1 - x0 <= bottom - top]
    )
    if not 2 <= len(across) <= _MOST_LINES or len(down) > _MOST_LINES:
        return []
    tables: list[PageBlock] = []
    for grid in islice(_grids(across, down, frame.pieces), _MOST_TABLES):
        inside = [piece for piece in frame.pieces if grid.contains(piece)]
        block = grid.table(inside, page, vocabulary, above)
        if block is not None:
            of_table = set(map(id, inside))
            frame.pieces[:] = [piece for piece in frame.pieces if id(piece) not in of_table]
            tables.append(block)
    return sorted(tables, key=lambda block: (block.box[1], block.box[0]))


def _merged(lines: list[_Line]) -> list[_Line]:
    """Join the pieces of lines, such as dashes and the two strokes of a double line."""
    merged: list[_Line] = []
    cluster: list[_Line] = []
    for line in [*sorted(lines, key=lambda line: line.at), _Line(float("inf"), 0, 0)]:
        if cluster and line.at - cluster[0].at > _NEAR:
            place = sum(member.at for member in cluster) / len(cluster)
            current: _Line | None = None
            for member in sorted(cluster, key=lambda member: member.start):
                if current is not None and member.start <= current.end + _NEAR:
                    current.end = max(current.end, member.end)
                else:
                    current = _Line(place, member.start, member.end)
                    merged.append(current)
            cluster = []
        cluster.append(line)
    return [line for line in merged if line.end - line.start >= 2 * _NEAR]


def _grids(across: Sequence[_Line], down: Sequence[_Line], pieces: Sequence[TextRun]) -> Iterator[_Grid]:
    """Yield the grids that may be tables: of lines that touch each other, or of lines between rows only."""
    roots = list(range(len(across) + len(down)))

    def root(at: int) -> int:
        while roots[at] != at:
            roots[at] = roots[roots[at]]
            at = roots[at]
        return at

    for number, line in enumerate(across):
        for mate, crossing in enumerate(down, len(across)):
            touches = line.start - _NEAR <= crossing.at <= line.end + _NEAR
            if touches and crossing.start - _NEAR <= line.at <= crossing.end + _NEAR:
                roots[root(mate)] = root(number)
    members: dict[tuple[int, int], tuple[list[_Line], list[_Line]]] = {}
    crossed = {root(at) for at in range(len(across), len(roots))}
    for at in range(len(roots)):
        key = (root(at), 0)
        if key[0] not in crossed:  # a line that no line crosses: with those of the same extent
            key = (round(across[at].start / 4), -round(across[at].end / 4))
        horizontal, vertical = members.setdefault(key, ([], []))
        (horizontal.append(across[at]) if at < len(across) else vertical.append(down[at - len(across)]))
    groups = (group for group in members.values() if len(group[0]) > 1)
    for horizontal, vertical in islice(groups, _MOST_TABLES):
        grids = [_Grid(horizontal, vertical)] if vertical else []
        if not grids or grids[0].width < 2:
            grids = list(_grids_of_rows(horizontal, pieces))
        for grid in grids:
            if grid.width >= 2 and grid.width * grid.height <= _MOST_CELLS:
                yield grid


def _grids_of_rows(lines: Sequence[_Line], pieces: Sequence[TextRun]) -> Iterator[_Grid]:
    """Yield the grids of tables that have lines between their rows only: gaps divide their columns.

    Prose between two lines has no gap, and ends a table. So does a part of a table whose rows have no lines between.
    """
    if len(lines) < 4:
        return
    start, end = min(line.start for line in lines), max(line.end for line in lines)
    edges = [line.at for line in lines]
    bands: list[list[TextRun]] = [[] for _ in lines]
    for piece in pieces:
        number = bisect_right(edges, (piece.top + piece.bottom) / 2) - 1
        if number >= 0 and start - _NEAR <= piece.x0 <= end:
            bands[number].append(piece)
    bands[-1] = []  # below the last line
    first = 0
    for at, band in enumerate(bands):
        columns = _columns(band)
        if len(columns) >= 2 and not _has_rows_without_lines(columns):
            continue
        if at - first >= 3:
            columns = _columns([piece for band_pieces in bands[first:at] for piece in band_pieces])
            gaps = [(max(map(_END, left)) + min(map(_START, right))) / 2 for left, right in pairwise(columns)]
            places = [start, *gaps, max(end, *map(_END, columns[-1]))]
            down = [_Line(place, edges[first], edges[at]) for place in places]
            yield _Grid(list(lines[first : at + 1]), down)
        first = at + 1


def _columns(pieces: Sequence[TextRun]) -> list[list[TextRun]]:
    """Divide pieces at the gaps that go through all lines."""
    columns: list[list[TextRun]] = []
    reached = 0.0
    for piece in sorted(pieces, key=lambda piece: (piece.x0, piece.base)):
        if columns and piece.x0 - reached <= 0.8 * piece.size:
            columns[-1].append(piece)
            reached = max(reached, piece.x1)
        else:
            columns.append([piece])
            reached = piece.x1
    return columns


class _Grid:
    """A grid of lines. xs, ys: the positions of its lines, ascending."""

    def __init__(self, across: list[_Line], down: list[_Line]) -> None:
        self._across, self._down = across, down
        self.xs = _positions(down, across)
        self.ys = _positions(across, down)
        self.width, self.height = len(self.xs) - 1, len(self.ys) - 1

    def contains(self, piece: TextRun) -> bool:
        x, y = (piece.x0 + piece.x1) / 2, (piece.top + piece.bottom) / 2
        return self.xs[0] <= x <= self.xs[-1] and self.ys[0] <= y <= self.ys[-1]

    def table(
        self, pieces: Sequence[TextRun], page: int, vocabulary: Collection[str], above: Sequence[float]
    ) -> PageBlock | None:
        """Return the pieces in their cells; None if the grid is not a table."""
        width, height = self.width, self.height
        if not pieces:
            return None
        owners = self._owners(width, height)
        texts: dict[tuple[int, int], list[TextRun]] = {}
        for piece in pieces:
            column = min(bisect_right(self.xs, piece.x0 + min(2.0, (piece.x1 - piece.x0) / 2)), width) - 1
            row = min(bisect_right(self.ys, (piece.top + piece.bottom) / 2), height) - 1
            texts.setdefault(owners[row, max(column, 0)], []).append(piece)
        lines = {key: lines_of(of_cell) for key, of_cell in texts.items()}
        if self._is_layout(lines) or (
            height <= 3 and any(_has_rows_without_lines(_of_row(texts, row)) for row in range(height))
        ):
            return None
        rows: list[list[str]] = []
        for row in range(height):
            rows += _divided(
                [self._lines(lines, owners[row, column], row, column) for column in range(width)], vocabulary
            )
        columns = [column for column in range(width) if any(row[column] for row in rows)]
        rows = [[row[column] for column in columns] for row in rows if any(row)]
        starts = [self.xs[column] for column in columns]
        goes_on = len(starts) == len(above) and all(
            abs(start - starts[0] - place + above[0]) <= _NEAR for start, place in zip(starts, above, strict=True)
        )
        if len(columns) < 2 or sum(sum(map(bool, row)) >= 2 for row in rows) < (1 if goes_on else 2):
            return None
        box = (self.xs[0], self.ys[0], self.xs[-1], self.ys[-1])
        first = min(pieces, key=lambda piece: piece.base)
        bold = all(piece.bold for piece in pieces if piece.base < first.base + first.size)
        return PageBlock("table", [], box, first.size, page, bold, rows=rows, x0=self.xs[0], columns=starts)

    def _is_layout(self, lines: dict[tuple[int, int], list[TextLine]]) -> bool:
        """Return whether the lines frame parts of a page or a figure: they hold tables of their own, or much text."""
        every = [line for of_cell in lines.values() for line in of_cell]
        inner = sum(len(line.cells) > 1 for line in every)
        longest = max(sum(len(line.text) for line in of_cell) for of_cell in lines.values())
        return longest > _LONGEST_CELL or inner > max(2, 0.2 * len(every)) or len(every) > _MOST_CELL_LINES * len(lines)

    def _lines(
        self, lines: dict[tuple[int, int], list[TextLine]], owner: tuple[int, int], row: int, column: int
    ) -> list[str]:
        """Return the lines of a place of the grid. A cell over several rows is repeated if it is a short label."""
        texts = [line.text for line in lines.get(owner, ())] if owner[1] == column else []
        return texts if owner[0] == row or sum(map(len, texts)) <= _LONGEST_LABEL else []

    def _owners(self, width: int, height: int) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the first cell, by row and column, of the cell that each place of the grid belongs to."""
        owners: dict[tuple[int, int], tuple[int, int]] = {}
        by_x: dict[float, list[_Line]] = {}
        by_y: dict[float, list[_Line]] = {}
        for line in self._down:
            by_x.setdefault(self.xs[_nearest(self.xs, line.at)], []).append(line)
        for line in self._across:
            by_y.setdefault(self.ys[_nearest(self.ys, line.at)], []).append(line)
        for row in range(height):
            middle = (self.ys[row] + self.ys[row + 1]) / 2
            for column in range(width):
                centre = (self.xs[column] + self.xs[column + 1]) / 2
                owner = (row, column)
                if column and not any(line.covers(middle) for line in by_x.get(self.xs[column], ())):
                    owner = owners[row, column - 1]
                elif row and not any(line.covers(centre) for line in by_y.get(self.ys[row], ())):
                    owner = owners[row - 1, column]
                owners[row, column] = owner
        return owners


def _positions(lines: Sequence[_Line], crossing: Sequence[_Line]) -> list[float]:
    """Return the positions of lines, and of the ends of the crossing lines if those go on beyond the outermost."""
    places: list[float] = []
    for place in sorted(line.at for line in lines):
        if not places or place - places[-1] > _NEAR:
            places.append(place)
    start, end = min(line.start for line in crossing), max(line.end for line in crossing)
    return [start] * (start < places[0] - _BEYOND) + places + [end] * (end > places[-1] + _BEYOND)


def _nearest(places: Sequence[float], place: float) -> int:
    at = bisect_right(places, place)
    return min((near for near in (at - 1, at) if 0 <= near < len(places)), key=lambda near: abs(places[near] - place))


def _of_row(texts: dict[tuple[int, int], list[TextRun]], row: int) -> list[list[TextRun]]:
    return [texts[key] for key in sorted(texts) if key[0] == row]


def _divided(cells: Sequence[Sequence[str]], vocabulary: Collection[str]) -> list[list[str]]:
    """Return the row of these cells, each given as lines; several rows if two cells or more are columns of numbers."""
    counts = {len(cell) for cell in cells if len(cell) > 1 and all(map(_IS_NUMBER.fullmatch, cell))}
    numbers = sum(len(cell) > 1 and all(map(_IS_NUMBER.fullmatch, cell)) for cell in cells)
    if numbers >= 2 and len(counts) == 1 and all(len(cell) in (0, 1, *counts) for cell in cells):
        return [[cell[min(at, len(cell) - 1)] if cell else "" for cell in cells] for at in range(*counts)]
    return [[joined(cell, vocabulary) for cell in cells]]


def _has_rows_without_lines(cells: Sequence[Sequence[TextRun]]) -> bool:
    """Return whether the cells between two lines hold several rows: as many lines each, at the same heights."""
    bases = [{round(line.base) for line in lines_of(cell)} for cell in cells]
    many = [places for places in bases if len(places) >= 3]
    return (
        len(many) >= 2
        and many[0] is bases[0]
        and all(len(places) == len(many[0]) and len(places & many[0]) >= 0.8 * len(places) for places in many)
    )
