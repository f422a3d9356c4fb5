"""Finds the tables of a PDF page that are drawn with ruling lines, whose cells the lines divide.

Lines that cross form a grid. A cell ends where a line is drawn, so a cell over several lines of text is one cell, and a
cell over several columns or rows is one as well: over columns its text stands in the first, over rows in each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tasks.stages.ingest.formats.page_layout import PageBlock, joined, lines_of
from tasks.stages.ingest.formats.pdf_text import Frame, TextRun

_NEAR = 3.0  # points: lines closer than this are the same line, or touch
_MOST_LINES = 400  # of each direction, on a page
_MOST_CELLS = 20_000
_LONGEST_CELL = 2_000  # characters: a longer cell is a part of the page's layout
_BEYOND = 8.0  # points: lines that go on as far beyond the last crossing line have a cell there


@dataclass(slots=True)
class _Line:
    """A horizontal or vertical line. at: its position; start, end: its extent."""

    at: float
    start: float
    end: float

    def covers(self, place: float) -> bool:
        return self.start <= place <= self.end


def take_tables(frame: Frame, page: int, vocabulary: Collection[str]) -> list[PageBlock]:
    """Remove the pieces of ruled tables from a frame; return the tables, from top to bottom."""
    if len(frame.rulings) < 4:
        return []
    across = _merged([_Line((top + bottom) / 2, x0, x1) for x0, top, x1, bottom in frame.rulings if x1 - x0 > bottom - top])
    down = _merged([_Line((x0 + x1) / 2, top, bottom) for x0, top, x1, bottom in frame.rulings if x1 - x0 <= bottom - top])
    if not (2 <= len(across) <= _MOST_LINES and 1 <= len(down) <= _MOST_LINES):
        return []
    tables: list[PageBlock] = []
    for row_lines, column_lines in _grids(across, down):
        grid = _Grid(row_lines, column_lines)
        if not (2 <= grid.width and 2 <= grid.height and grid.width * grid.height <= _MOST_CELLS):
            continue
        inside = [piece for piece in frame.pieces if grid.contains(piece)]
        block = grid.table(inside, page, vocabulary)
        if block is not None:
            taken = set(map(id, inside))
            frame.pieces[:] = [piece for piece in frame.pieces if id(piece) not in taken]
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


def _grids(across: Sequence[_Line], down: Sequence[_Line]) -> Iterator[tuple[list[_Line], list[_Line]]]:
    """Yield the horizontal and vertical lines of each group of lines that touch each other."""
    group = list(range(len(across) + len(down)))

    def root(at: int) -> int:
        while group[at] != at:
            group[at] = group[group[at]]
            at = group[at]
        return at

    for number, line in enumerate(across):
        for other, crossing in enumerate(down, len(across)):
            touches = line.start - _NEAR <= crossing.at <= line.end + _NEAR
            if touches and crossing.start - _NEAR <= line.at <= crossing.end + _NEAR:
                group[root(other)] = root(number)
    members: dict[int, tuple[list[_Line], list[_Line]]] = {}
    for at in range(len(group)):
        horizontal, vertical = members.setdefault(root(at), ([], []))
        (horizontal.append(across[at]) if at < len(across) else vertical.append(down[at - len(across)]))
    for horizontal, vertical in members.values():
        if len(horizontal) >= 2 and vertical:
            yield horizontal, vertical


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

    def table(self, pieces: Sequence[TextRun], page: int, vocabulary: Collection[str]) -> PageBlock | None:
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
        cells: dict[tuple[int, int], str] = {}
        for key, of_cell in texts.items():
            lines = [line.text for line in lines_of(of_cell)]
            cells[key] = joined(lines, vocabulary)
            if len(cells[key]) > _LONGEST_CELL:
                return None
        if _has_rows_without_lines(texts, height):
            return None
        rows = [[self._text(cells, owners[row, column], row, column) for column in range(width)] for row in range(height)]
        columns = [column for column in range(width) if any(row[column] for row in rows)]
        rows = [[row[column] for column in columns] for row in rows if any(row)]
        if len(columns) < 2 or sum(sum(map(bool, row)) >= 2 for row in rows) < 2:
            return None
        box = (self.xs[0], self.ys[0], self.xs[-1], self.ys[-1])
        starts = [self.xs[column] for column in columns]
        return PageBlock("table", [], box, pieces[0].size, page, rows=rows, x0=self.xs[0], columns=starts)

    def _text(self, cells: dict[tuple[int, int], str], owner: tuple[int, int], row: int, column: int) -> str:
        return cells.get(owner, "") if owner[1] == column else ""

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
    return min((other for other in (at - 1, at) if 0 <= other < len(places)), key=lambda other: abs(places[other] - place))


def _has_rows_without_lines(texts: dict[tuple[int, int], list[TextRun]], height: int) -> bool:
    """Return whether a table has lines between its columns only: its cells hold many lines at the same heights."""
    if height > 3:
        return False
    for row in range(height):
        bases = [
            {round(line.base) for line in lines_of(pieces)} for (at, _), pieces in sorted(texts.items()) if at == row
        ]
        many = [places for places in bases if len(places) >= 3]
        if len(many) >= 2 and many[0] is bases[0]:
            same = sum(len(first & second) >= 0.8 * len(first) for first, second in pairwise(many))
            gaps = [below - above for above, below in pairwise(sorted(many[0]))]
            if same == len(many) - 1 and all(len(places) == len(many[0]) for places in many) and gaps:
                return True
    return False

