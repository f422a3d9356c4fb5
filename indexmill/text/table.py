"""Tables as text."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.text.printable import one_line

__all__ = ["table"]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a header and aligned columns: numbers to the right, the rest to the left."""
    cells = [[one_line(str(cell)) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    numeric = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), *(line(row) for row in cells)])
