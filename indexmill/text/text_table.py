"""Formatting of text tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from indexmill.text.printable import isolated, one_line
from indexmill.text.terminal import PLAIN, TerminalStyle, display_width, fitted, padded


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    *,
    right: Collection[str] = (),
    columns: int | None = None,
    style: TerminalStyle = PLAIN,
) -> str:
    """Format a table with a header and aligned columns: numbers to the right, others to the left.

    right: titles of additional columns to align to the right, such as formatted numbers. columns: the width of
    the table; the last column is cut to fit. None for no limit.
    """
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(display_width(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    numeric = [
        title in right or (bool(rows) and all(isinstance(row[i], (int, float)) for row in rows))
        for i, title in enumerate(header)
    ]
    if columns is not None:
        room = columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
        least = max(display_width(header[-1]), 12)
        cells = [[*row[:-1], fitted(row[-1], max(room, least))] for row in cells]

    def line(row: Sequence[str]) -> str:
        parts = (
            padded(isolated(cell), width, right=right) for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([style.bold(line(header)), *(line(row) for row in cells)])
