"""Excel workbooks (.xlsx, .xlsm): the cells of each sheet as tables in Markdown.

The parts are read with `xml` over `archive` rather than with openpyxl or pandas: openpyxl keeps every style and every
shared string before the first cell, fills rows up to the width that a file states, and warns its way through damaged
files; pandas calls it. python-calamine is fast, but tells no formats of numbers but dates, and reads a zip as it comes.
Here a sheet is read row by row, and an empty cell costs nothing but its bytes.

Each sheet is a section, and rows without an empty row between them are a table, whose first row is its head. Cells are
what Excel keeps: the results of formulas (empty where there is none), dates in ISO form, per cents, numbers without the
noise of their binary form. A cell merged downwards is repeated. Hidden rows and columns are read, as filters hide them;
hidden sheets, comments, charts and pictures are left out. Formulas, macros and connections are never run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import Extracted, Limits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clip_title
from tasks.stages.ingest.formats.number_formats import NumberFormat, number_format
from tasks.stages.ingest.formats.opc import Package, open_package
from tasks.stages.ingest.formats.xml import Element, blocks, each, first, integer, parse

_COLUMNS = 16_384
_ROWS = 1_048_576
_MAX_FORMATS = 70_000
"""Excel allows 65,490 formats of cells."""
_MAX_MERGES = 100_000
_SPARSE = 8
"""A table of more than a thousand places of which fewer than one in so many are filled is written row by row."""
_MAX_TABLE = 1_000
_MAX_REPEATED = 200
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_REFERENCE = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})")
_PLAIN = re.compile(r"[A-Za-z0-9.,:%-]+(?: [A-Za-z0-9.,:%-]+)*+")
"""Texts that need no escape: most cells."""
_NOT_SHOWN = frozenset({"hidden", "veryHidden"})


def extract(file: BinaryIO, limits: Limits) -> Extracted:
    """The cells of a workbook; locations are sheets, by their place among all.

    Raises:
        UnreadableError: the file is no workbook, is damaged, locked or hostile, has no cells, or is over a limit.
    """
    with open_package(file, limits, "an Excel workbook", "xl/workbook.xml") as package:
        title, metadata = package.properties()
        workbook = _Workbook(package, limits)
        text, locations = workbook.read()
        if not workbook.has_words:
            raise UnreadableError("no-text", "the sheets have no filled cell")
        metadata["sheets"] = workbook.sheets
        return Extracted(text, title, metadata, locations)


_EMPTY_ROW = rb'<row r="[0-9]{1,7}"[^<>]*+(?:(?<=/)>|(?<!/)>(?:<c [^<>]*+(?<=/)>)*+</row>)'
_EMPTY_ROWS = re.compile(rb"(?:%b){1,1000}(?=%b)" % (_EMPTY_ROW, _EMPTY_ROW))
"""Rows of cells without a value, before another one: programs write a million of them for the style of a column."""

Cells = dict[int, str]
"""The filled cells of a row: column, from 0 -> Markdown."""


@dataclass(slots=True)
class _Sheet:
    rows: list[tuple[int, Cells]] = field(default_factory=list)  # by number, ascending
    merged: list[tuple[int, int, int]] = field(default_factory=list)  # first row, last row, column
    size: int = 0


class _Workbook:
    """Reads the sheets in their order."""

    def __init__(self, package: Package, limits: Limits) -> None:
        self._package, self._limits = package, limits
        self._writer = MarkdownWriter(limits)
        self._strings: list[str] | None = None
        self._formats: list[NumberFormat] = []
        self._since_1904 = False
        self.sheets = 0
        self.has_words = False

    def read(self) -> tuple[str, tuple[Location, ...]]:
        """The text and its locations."""
        main = self._package.main
        tree = parse(self._package.read(main), main, "s:workbook")
        about = first(tree, "s:workbookPr")
        self._since_1904 = about is not None and about.get("date1904") in ("1", "true")
        self._formats = self._read_formats()
        related = self._package.relationships(main)
        sheets = list(each(tree, "s:sheets/s:sheet"))
        self.sheets = len(sheets)
        self._limits.check_pages(self.sheets, "sheets")
        seen: set[str] = set()
        for number, one in enumerate(sheets, 1):
            known = related.get(one.get("r:id", ""))
            if known is None or known.kind != "worksheet" or known.external or known.target in seen:
                continue
            seen.add(known.target)
            if one.get("state", "visible") not in _NOT_SHOWN and self._package.has(known.target):
                self._sheet(number, one.get("name", ""), known.target)
        return self._writer.result()

    def _sheet(self, number: int, name: str, part: str) -> None:
        sheet = self._read_sheet(part)
        if not sheet.rows:
            return
        self.has_words = True
        self._writer.turn_to(number)
        self._writer.heading(2, Inline(clip_title(name) or f"Sheet {number}").markdown())
        _repeat_merged(sheet)
        start = 0
        for place in range(1, len(sheet.rows) + 1):
            if place == len(sheet.rows) or sheet.rows[place][0] > sheet.rows[place - 1][0] + 1:
                self._table([cells for _, cells in sheet.rows[start:place]])
                start = place

    def _table(self, rows: Sequence[Cells]) -> None:
        """Write rows that stand together; those with one cell before the others are their caption."""
        begin = 0
        while begin < len(rows) and len(rows[begin]) == 1:
            begin += 1
        if begin == len(rows) and begin > 1 and len({column for row in rows for column in row}) == 1:
            begin = 0  # a list in one column
        for row in rows[:begin]:
            for text in row.values():
                self._writer.paragraph(text)
        rows = rows[begin:]
        columns = sorted({column for row in rows for column in row})
        filled = sum(map(len, rows))
        if len(rows) * len(columns) > max(_MAX_TABLE, _SPARSE * filled):
            for row in rows:
                self._writer.paragraph("; ".join(text for _, text in sorted(row.items())))
            return
        self._writer.table([[row.get(column, "") for column in columns] for row in rows])

    def _read_sheet(self, part: str) -> _Sheet:
        sheet = _Sheet()
        data = _without_empty_rows(self._package.read(part))
        links = self._links(data, part)
        last = 0
        for one in blocks(data, part, "s:worksheet", 3, _UNREAD):
            if one.tag == "s:row":
                number = integer(one.get("r"), last + 1)
                if len(one) == 0 or not last < number <= _ROWS:
                    last = max(last, number if number <= _ROWS else 0)
                    continue
                last = number
                cells = dict(self._cells(one, number, links, sheet))
                if cells:
                    sheet.rows.append((number, cells))
            elif one.tag == "s:mergeCell" and len(sheet.merged) < _MAX_MERGES:
                start, _, end = one.get("ref", "").partition(":")
                top, bottom = _place(start), _place(end)
                if top is not None and bottom is not None and bottom[0] > top[0]:
                    sheet.merged.append((top[0], bottom[0], top[1]))
        return sheet

    def _cells(self, row: Element, number: int, links: dict[str, str], sheet: _Sheet) -> Iterator[tuple[int, str]]:
        column = -1
        for one in row:
            if one.tag != "s:c":
                continue
            reference = one.get("r", "")
            place = _place(reference)
            column = place[1] if place is not None else column + 1
            if len(one) == 0 or column >= _COLUMNS:
                continue
            text = self._value(one)
            if not text.strip():
                continue
            shown = text if _PLAIN.fullmatch(text) and not links else _shown(text, links.get(reference, ""))
            sheet.size += len(shown) + 3
            if sheet.size > self._limits.text_bytes:
                found = f"a sheet of more than {self._limits.text_bytes:,} bytes of text; see corpus.max_document_bytes"
                raise UnreadableError("too-large", found)
            if shown:
                yield column, shown

    def _value(self, cell: Element) -> str:
        """What a cell shows."""
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return _rich_text(first(cell, "s:is"))
        held = first(cell, "s:v")
        value = (held.text or "") if held is not None else ""
        if kind == "s":
            strings = self._shared_strings()
            place = integer(value, -1)
            return strings[place] if 0 <= place < len(strings) else ""
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value.strip(), "")
        if kind != "n":
            return _unescaped(value)
        style = integer(cell.get("s"))
        form = self._formats[style] if 0 <= style < len(self._formats) else NumberFormat()
        return form.shown(value.strip(), since_1904=self._since_1904)

    def _shared_strings(self) -> list[str]:
        if self._strings is None:
            self._strings = []
            part = self._package.related(self._package.main, "sharedStrings")
            size, most = 0, 8 * self._limits.text_bytes
            for one in blocks(self._package.read(part), part, "s:sst", 2) if part is not None else ():
                if one.tag == "s:si":
                    text = _rich_text(one)
                    size += len(text) + 8
                    if size > most:
                        raise UnreadableError("too-large", f"the texts of the cells have more than {most:,} characters")
                    self._strings.append(text)
        return self._strings

    def _read_formats(self) -> list[NumberFormat]:
        part = self._package.related(self._package.main, "styles")
        if part is None:
            return []
        own: dict[int, str] = {}
        known: dict[int, NumberFormat] = {}
        found: list[NumberFormat] = []
        for one in blocks(self._package.read(part), part, "s:styleSheet", 2, _UNREAD_STYLES):
            if one.tag == "s:numFmts":
                for form in each(one, "s:numFmt"):
                    own.setdefault(integer(form.get("numFmtId"), -1), form.get("formatCode", "")[:500])
            elif one.tag == "s:cellXfs":
                for form in each(one, "s:xf"):
                    if len(found) >= _MAX_FORMATS:
                        raise UnreadableError("hostile-file", f"more than {_MAX_FORMATS:,} formats of cells")
                    name = integer(form.get("numFmtId"))
                    if name not in known:
                        known[name] = number_format(name, own.get(name))
                    found.append(known[name])
        return found

    def _links(self, data: bytes, part: str) -> dict[str, str]:
        """The URLs that cells link to."""
        if b"hyperlink" not in data:
            return {}
        related = self._package.relationships(part)
        found: dict[str, str] = {}
        for one in blocks(data, part, "s:worksheet", 3, _UNREAD | {"s:sheetData"}):
            known = related.get(one.get("r:id", "")) if one.tag == "s:hyperlink" else None
            if known is not None and known.external:
                found.setdefault(one.get("ref", "").partition(":")[0], known.target)
        return found


def _shown(text: str, target: str) -> str:
    inline = Inline()
    inline.add(text, target)
    return one_line(inline.markdown())


_UNREAD = frozenset(
    {"s:f", "s:extLst", "s:conditionalFormatting", "s:dataValidations", "s:colBreaks", "s:rowBreaks", "s:cols"}
)
"""Parts of a sheet that hold no cell."""
_UNREAD_STYLES = frozenset({"s:fonts", "s:fills", "s:borders", "s:cellStyleXfs", "s:cellStyles", "s:dxfs", "s:extLst"})


def _repeat_merged(sheet: _Sheet) -> None:
    """Repeat the text of cells that are merged downwards in the filled rows below."""
    if not sheet.merged:
        return
    numbers = [number for number, _ in sheet.rows]
    at = {number: place for place, number in enumerate(numbers)}
    left = sum(len(cells) for _, cells in sheet.rows)  # merged cells that overlap could repeat without end
    for top, bottom, column in sheet.merged:
        text = sheet.rows[at[top]][1].get(column, "") if top in at else ""
        if not text or len(text) > _MAX_REPEATED:
            continue
        place = at[top] + 1
        while place < len(numbers) and numbers[place] <= bottom and left > 0:
            sheet.rows[place][1].setdefault(column, text)
            place, left = place + 1, left - 1


def _place(reference: str) -> tuple[int, int] | None:
    """Row, from 1, and column, from 0, of a reference such as `B7`."""
    found = _REFERENCE.fullmatch(reference)
    if found is None:
        return None
    column = 0
    for letter in found[1]:
        column = 26 * column + ord(letter) - ord("A") + 1
    return int(found[2]), column - 1


def _rich_text(element: Element | None) -> str:
    """The text of a string, without readings of Japanese words."""
    if element is None:
        return ""
    parts = [one.text or "" for one in each(element, "s:t")] + [one.text or "" for one in each(element, "s:r/s:t")]
    return _unescaped("".join(parts))


def _unescaped(text: str) -> str:
    """Text with the characters that `_x000D_` stands for, without those that nobody sees."""

    def character(found: re.Match[str]) -> str:
        code = int(found[1], 16)
        return "\n" if code in (10, 13) else chr(code) if code >= 0x20 and not 0xD800 <= code <= 0xDFFF else ""

    return _ESCAPED.sub(character, text) if "_x" in text else text


def _without_empty_rows(sheet: bytes) -> bytes:
    """The XML of a sheet without its empty rows, except the last of each run: rows after it may count from there."""
    return sheet if b"<![CDATA[" in sheet else _EMPTY_ROWS.sub(b"", sheet)
