"""Writes the cells of spreadsheets, of whatever format, as tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tasks.stages.ingest.formats.markdown_text import MarkdownWriter

_SPARSE = 8
"""A table of more than _MAX_TABLE cells is written row by row if fewer than one cell in _SPARSE is filled."""
_MAX_TABLE = 1_000

Cells = dict[int, str]
"""The Markdown of a row's filled cells, by column from 0."""


def write_sheet(writer: MarkdownWriter, rows: Iterable[Sequence[str]]) -> None:
    """Write rows of Markdown cells as tables, which empty rows separate."""
    table: list[Cells] = []
    for row in rows:
        cells = {column: text for column, text in enumerate(row) if text}
        if cells:
            table.append(cells)
        else:
            write_table(writer, table)
            table = []
    write_table(writer, table)


def write_table(writer: MarkdownWriter, rows: Sequence[Cells]) -> None:
    """Write consecutive rows as a table; leading rows with one cell are its caption."""
    begin = 0
    while begin < len(rows) and len(rows[begin]) == 1:
        begin += 1
    if begin == len(rows) and begin > 1 and len({column for row in rows for column in row}) == 1:
        begin = 0  # a list in one column
    for row in rows[:begin]:
        for text in row.values():
            writer.paragraph(text)
    rows = rows[begin:]
    columns = sorted({column for row in rows for column in row})
    filled = sum(map(len, rows))
    if len(rows) * len(columns) > max(_MAX_TABLE, _SPARSE * filled):
        for row in rows:
            writer.paragraph("; ".join(text for _, text in sorted(row.items())))
        return
    writer.table([[row.get(column, "") for column in columns] for row in rows])
