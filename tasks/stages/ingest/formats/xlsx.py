"""Excel workbooks (.xlsx, .xlsm): the cells of each sheet as tables in Markdown.

The parts are read with `xml` over `archive` rather than with openpyxl or pandas: openpyxl loads every style and every
shared string before the first cell, fills rows up to the width that a file states, and only warns about damaged files;
pandas calls openpyxl. python-calamine is fast, but reports no number formats except dates, and reads a zip without
limits. This module reads a sheet row by row, and an empty cell costs no more memory than its bytes in the file.

Each sheet is a section; consecutive rows are a table, whose first row is its header. Cells contain the values that
Excel stores: formulas' results (empty if none is stored), ISO dates, percentages, numbers without binary rounding
noise, with the unit or currency of their format. A cell merged downwards is repeated. The texts of boxes, diagrams and
pictures follow the cells, and so do charts, without their values, which are in cells. Hidden rows and columns are
included, since filters hide them; hidden sheets and comments are omitted. What is not read is counted in the metadata
(`unread`). Formulas, macros and connections are never run.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from tasks.stages.ingest.documents import Location, WordCounts
from tasks.stages.ingest.formats.drawingml import GRAPHICS, Graphic, chosen, graphic, inline_of
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clean
from tasks.stages.ingest.formats.number_formats import NumberFormat, number_format
from tasks.stages.ingest.formats.office_words import words_in_part, words_in_sheet
from tasks.stages.ingest.formats.opc import Package, description, open_package
from tasks.stages.ingest.formats.sheet_tables import Cells, write_table
from tasks.stages.ingest.formats.symbol_fonts import SYMBOL_FONTS, shown_in
from tasks.stages.ingest.formats.word_count import count_words, words_of
from tasks.stages.ingest.formats.xml import Element, blocks, each, first, integer, parse, text_of

_COLUMNS = 16_384
_ROWS = 1_048_576
_MAX_FORMATS = 70_000
"""Excel allows 65,490 cell formats."""
_MAX_MERGES = 100_000
_MAX_REPEATED = 200
_ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
_REFERENCE = re.compile(r"([A-Z]{1,3})([1-9][0-9]{0,6})")
_PLAIN = re.compile(r"[A-Za-z0-9.,:%$€£-]+(?: [A-Za-z0-9.,:%$€£-]+)*+")
"""Cell texts that need no escapes, which are most of them."""
_DRAWN = frozenset({"xdr:sp", "xdr:grpSp", "xdr:pic", "xdr:graphicFrame", "xdr:cxnSp", "mc:AlternateContent"})
_NOT_SHOWN = frozenset({"hidden", "veryHidden"})


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the cells of a workbook; locations are sheets, by position in the workbook. See `Extractor`."""
    with open_package(file, limits, "an Excel workbook", "xl/workbook.xml") as package:
        title, metadata = package.properties()
        workbook = _Workbook(package, limits)
        text, locations = workbook.read()
        if not workbook.has_words:
            raise UnreadableError("no-text", "the sheets have no filled cell")
        metadata["sheets"] = workbook.sheets
        if unread := +workbook.unread:
            metadata["unread"] = dict(sorted(unread.items()))
        return Extracted(text, title, metadata, locations, words=workbook.words())


_EMPTY_ROW = rb'<row r="[0-9]{1,7}"[^<>]*+(?:(?<=/)>|(?<!/)>(?:<c [^<>]*+(?<=/)>)*+</row>)'
_EMPTY_ROWS = re.compile(rb"(?:%b){1,1000}(?=%b)" % (_EMPTY_ROW, _EMPTY_ROW))
"""Empty rows before another empty row: some programs write a million empty rows to style a column."""


@dataclass(slots=True)
class _Sheet:
    rows: list[tuple[int, Cells]] = field(default_factory=list)  # ascending row numbers, and cells
    merged: list[tuple[int, int, int]] = field(default_factory=list)  # first row, last row, column
    size: int = 0


class _Workbook:
    """Reads the sheets in the workbook's order."""

    def __init__(self, package: Package, limits: ExtractionLimits) -> None:
        self._package, self._limits = package, limits
        self._writer = MarkdownWriter(limits)
        self._strings: list[str] | None = None
        self._rich_strings: set[int] = set()
        self._formats: list[NumberFormat] = []
        self._symbol_fonts: dict[int, str] = {}  # by cell format
        self._since_1904 = False
        self.sheets = 0
        self.has_words = False
        self.unread: Counter[str] = Counter()
        self._not_read: list[tuple[str, str]] = []  # the reason why a part is not read, and its name
        self._words: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()  # words by reason

    def read(self) -> tuple[str, tuple[Location, ...]]:
        main = self._package.main
        tree = parse(self._package.read(main), main, "s:workbook")
        about = first(tree, "s:workbookPr")
        self._since_1904 = about is not None and about.get("date1904") in ("1", "true")
        self._formats = self._read_formats()
        parts, charts = (self._package.parts(main, kind) for kind in ("worksheet", "chartsheet"))
        sheets = list(each(tree, "s:sheets/s:sheet"))
        self.sheets = len(sheets)
        self._limits.check_pages(self.sheets, "sheets")
        seen: set[str] = set()
        for number, entry in enumerate(sheets, 1):
            part = (parts | charts).get(entry.get("r:id", ""))
            if part is None or part in seen:
                continue
            seen.add(part)
            if entry.get("state", "visible") in _NOT_SHOWN:
                self.unread["hidden_sheets"] += 1
                self._not_read.append(("hidden", part))
            elif self._package.has(part):
                for kind in ("oleObject", "package"):
                    self.unread["objects"] += len(self._package.parts(part, kind))
                self.unread["comments"] += self._package.count(part, "comments", "comment")
                self._not_read += (("comment", name) for name in self._package.parts(part, "comments").values())
                cells = self._read_sheet(part) if part not in charts.values() else _Sheet()
                self._write(number, entry.get("name", ""), cells, self._drawings(part))
        return self._writer.result()

    def words(self) -> WordCounts:
        """Return the words of the sheets, once they are read; those of a damaged part that is not read do not count."""
        words, left_out = self._words.copy(), self._left_out.copy()
        for reason, part in self._not_read:
            try:
                data = self._package.read(part)
                of_part = words_in_part(data)[0] if reason == "comment" else self._words_of_sheet(data)
            except UnreadableError:
                continue
            words.update(of_part)
            left_out[reason] += of_part.total()
        return WordCounts(words, left_out)

    def _words_of_sheet(self, data: bytes) -> Counter[str]:
        shared, words = words_in_sheet(data)
        strings = self._shared_strings() if shared else []
        for index, times in shared.items():
            for word, number in words_of(strings[index]).items() if index < len(strings) else ():
                words[word] += times * number
        return words

    def _write(self, number: int, name: str, sheet: _Sheet, drawings: Sequence[Graphic]) -> None:
        if not sheet.rows and not drawings:
            return
        self.has_words = True
        self._writer.turn_to(number)
        self._writer.heading(2, Inline(one_line(clean(name)) or f"Sheet {number}").markdown())
        _repeat_merged(sheet)
        start = 0
        for index in range(1, len(sheet.rows) + 1):
            if index == len(sheet.rows) or sheet.rows[index][0] > sheet.rows[index - 1][0] + 1:
                write_table(self._writer, [cells for _, cells in sheet.rows[start:index]])
                start = index
        for drawing in drawings:
            drawing.write(self._writer, with_values=False)

    def _drawings(self, sheet: str) -> list[Graphic]:
        """Return the texts of a sheet's boxes, pictures, charts and diagrams, from top to bottom."""
        part = self._package.related(sheet, "drawing")
        if part is None:
            return []
        anchors: list[tuple[int, int, list[Graphic]]] = []
        try:
            data = self._package.read(part)
            links, drawing = self._package.links(part), parse(data, part, "xdr:wsDr")
        except UnreadableError as error:
            if error.reason != "unreadable-file":
                raise
            self.unread["drawings"] += 1
            return []
        self._words.update(words_in_part(data)[0])
        for anchor in drawing:
            place = [integer(text_of(first(anchor, f"xdr:from/xdr:{name}"))) for name in ("row", "col")]
            anchors.append((place[0], place[1], list(self._drawn(anchor, part, links))))
        return [read for *_, graphics in sorted(anchors, key=lambda anchor: anchor[:2]) for read in graphics]

    def _drawn(self, element: Element, part: str, links: Mapping[str, str]) -> Iterator[Graphic]:
        """Yield the texts of the visible shapes in an anchor or a group."""
        about = first(element, "*/xdr:cNvPr")
        if about is not None and about.get("hidden") in ("1", "true"):
            self._left_out["hidden"] += count_words(" ".join("".join(text.itertext()) for text in element.iter("a:t")))
            return
        described = Inline()
        described.picture(description(about))
        texts = [inline_of([paragraph], links) for paragraph in each(element, "xdr:txBody/a:p")]
        captions = [inline.markdown() for inline in (described, *texts) if inline]
        if captions:
            yield Graphic(captions)
        elif element.tag == "xdr:pic":
            self.unread["pictures"] += 1
        for inner in each(element, "a:graphic/a:graphicData/*"):
            if inner.tag in GRAPHICS:
                read = graphic(inner, self._package, part)
                if read is not None:
                    yield read
                else:
                    self.unread[GRAPHICS[inner.tag]] += 1
        for child in element:
            for alternative in chosen(child) if child.tag in _DRAWN else ():
                yield from self._drawn(alternative, part, links)

    def _read_sheet(self, part: str) -> _Sheet:
        sheet = _Sheet()
        data = _without_empty_rows(self._package.read(part))
        self._words.update(self._words_of_sheet(data))
        links = self._links(data, part)
        last = 0
        for block in blocks(data, part, "s:worksheet", 3, _UNREAD):
            if block.tag == "s:row":
                number = integer(block.get("r"), last + 1)
                if len(block) == 0 or not last < number <= _ROWS:
                    last = max(last, number if number <= _ROWS else 0)
                    continue
                last = number
                cells = dict(self._cells(block, links, sheet))
                if cells:
                    sheet.rows.append((number, cells))
            elif block.tag == "s:mergeCell" and len(sheet.merged) < _MAX_MERGES:
                start, _, end = block.get("ref", "").partition(":")
                top, bottom = _position(start), _position(end)
                if top is not None and bottom is not None and bottom[0] > top[0]:
                    sheet.merged.append((top[0], bottom[0], top[1]))
        return sheet

    def _cells(self, row: Element, links: dict[str, str], sheet: _Sheet) -> Iterator[tuple[int, str]]:
        column = -1
        for cell in row:
            if cell.tag != "s:c":
                continue
            reference = cell.get("r", "")
            position = _position(reference)
            column = position[1] if position is not None else column + 1
            if len(cell) == 0 or column >= _COLUMNS:
                continue
            text = self._value(cell)
            if not text.strip():
                continue
            is_plain = _PLAIN.fullmatch(text) and not links
            shown = text if is_plain else one_line(Inline(text, links.get(reference, "")).markdown())
            sheet.size += len(shown) + 3
            if sheet.size > self._limits.text_bytes:
                message = f"a sheet has over {self._limits.text_bytes:,} bytes of text; see corpus.max_document_bytes"
                raise UnreadableError("too-large", message)
            if shown:
                yield column, shown

    def _value(self, cell: Element) -> str:
        kind, style = cell.get("t", "n"), integer(cell.get("s"))
        value_element = first(cell, "s:v")
        value = (value_element.text or "") if value_element is not None else ""
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value.strip(), "")
        if kind == "n":
            form = self._formats[style] if 0 <= style < len(self._formats) else NumberFormat()
            return form.shown(value.strip(), since_1904=self._since_1904)
        if kind == "s":
            strings, index = self._shared_strings(), integer(value, -1)
            text, is_rich = strings[index] if 0 <= index < len(strings) else "", index in self._rich_strings
        elif kind == "inlineStr":
            inline = first(cell, "s:is")
            text, is_rich = _rich_text(inline), first(inline, "s:r") is not None
        else:
            text, is_rich = _unescaped(value), False
        return text if is_rich else shown_in(self._symbol_fonts.get(style, ""), text)

    def _shared_strings(self) -> list[str]:
        if self._strings is None:
            self._strings = []
            part = self._package.related(self._package.main, "sharedStrings")
            size, most = 0, 8 * self._limits.text_bytes
            for block in blocks(self._package.read(part), part, "s:sst", 2) if part is not None else ():
                if block.tag == "s:si":
                    text = _rich_text(block)
                    size += len(text) + 8
                    if size > most:
                        raise UnreadableError("too-large", f"the texts of its cells have over {most:,} characters")
                    if first(block, "s:r") is not None:
                        self._rich_strings.add(len(self._strings))
                    self._strings.append(text)
        return self._strings

    def _read_formats(self) -> list[NumberFormat]:
        part = self._package.related(self._package.main, "styles")
        if part is None:
            return []
        codes: dict[int, str] = {}
        formats_by_id: dict[int, NumberFormat] = {}
        formats: list[NumberFormat] = []
        fonts: dict[int, str] = {}
        for block in blocks(self._package.read(part), part, "s:styleSheet", 2, _UNREAD_STYLES):
            if block.tag == "s:numFmts":
                for form in each(block, "s:numFmt"):
                    codes.setdefault(integer(form.get("numFmtId"), -1), form.get("formatCode", "")[:500])
            elif block.tag == "s:fonts":
                names = (first(font, "s:name") for font in block)
                fonts = {row: name.get("val", "") for row, name in enumerate(names) if name is not None}
            elif block.tag == "s:cellXfs":
                for form in each(block, "s:xf"):
                    if len(formats) >= _MAX_FORMATS:
                        raise UnreadableError("hostile-file", f"it has more than {_MAX_FORMATS:,} cell formats")
                    font = fonts.get(integer(form.get("fontId")), "")
                    if font.casefold() in SYMBOL_FONTS:
                        self._symbol_fonts[len(formats)] = font
                    format_id = integer(form.get("numFmtId"))
                    if format_id not in formats_by_id:
                        formats_by_id[format_id] = number_format(format_id, codes.get(format_id))
                    formats.append(formats_by_id[format_id])
        return formats

    def _links(self, data: bytes, part: str) -> dict[str, str]:
        if b"hyperlink" not in data:
            return {}
        links = self._package.links(part)
        targets: dict[str, str] = {}
        for block in blocks(data, part, "s:worksheet", 3, _UNREAD | {"s:sheetData"}):
            target = links.get(block.get("r:id", "")) if block.tag == "s:hyperlink" else None
            if target is not None:
                targets.setdefault(block.get("ref", "").partition(":")[0], target)
        return targets


_UNREAD = frozenset(
    {"s:f", "s:extLst", "s:conditionalFormatting", "s:dataValidations", "s:colBreaks", "s:rowBreaks", "s:cols"}
)
"""Parts of a sheet that contain no cell."""
_UNREAD_STYLES = frozenset({"s:fills", "s:borders", "s:cellStyleXfs", "s:cellStyles", "s:dxfs", "s:extLst"})


def _repeat_merged(sheet: _Sheet) -> None:
    """Repeat the text of cells that are merged downwards in the filled rows below."""
    if not sheet.merged:
        return
    numbers = [number for number, _ in sheet.rows]
    at = {number: index for index, number in enumerate(numbers)}
    remaining = sum(len(cells) for _, cells in sheet.rows)  # overlapping merged cells could repeat too often
    for top, bottom, column in sheet.merged:
        text = sheet.rows[at[top]][1].get(column, "") if top in at else ""
        if not text or len(text) > _MAX_REPEATED:
            continue
        index = at[top] + 1
        while index < len(numbers) and numbers[index] <= bottom and remaining > 0:
            sheet.rows[index][1].setdefault(column, text)
            index, remaining = index + 1, remaining - 1


def _position(reference: str) -> tuple[int, int] | None:
    """Return the row (from 1) and the column (from 0) of a reference such as `B7`."""
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return None
    column = 0
    for letter in match[1]:
        column = 26 * column + ord(letter) - ord("A") + 1
    return int(match[2]), column - 1


def _rich_text(element: Element | None) -> str:
    """Return the text of a string, without the phonetic guides of Japanese words."""
    if element is None:
        return ""
    parts = [text.text or "" for text in each(element, "s:t")]
    for run in each(element, "s:r"):
        font = first(run, "s:rPr/s:rFont")
        text = "".join(text.text or "" for text in each(run, "s:t"))
        parts.append(text if font is None else shown_in(font.get("val", ""), text))
    return _unescaped("".join(parts))


def _unescaped(text: str) -> str:
    """Replace escapes such as `_x000D_` in a text, and drop escapes of invisible characters."""

    def character(match: re.Match[str]) -> str:
        code = int(match[1], 16)
        return "\n" if code in (10, 13) else chr(code) if code >= 0x20 and not 0xD800 <= code <= 0xDFFF else ""

    return _ESCAPED.sub(character, text) if "_x" in text else text


def _without_empty_rows(sheet: bytes) -> bytes:
    """Drop the empty rows of a sheet's XML, except the last row of each run: later rows may be numbered from it."""
    return sheet if b"<![CDATA[" in sheet else _EMPTY_ROWS.sub(b"", sheet)
