"""Excel workbooks of 1997 to 2003 (.xls), read with calamine, and Word files of that time (.doc), which are not read.

Many programs write other formats under these names, which are read as what they are. Of a workbook, the values are
read as calamine gives them, without number formats except dates; hidden sheets are omitted.

calamine is written in Rust. Of 1,500 damaged workbooks, it rejects 689, and 16 crash their process, which costs only
the file (`supervisor`). Of readers of .doc, xberg found 69 to 83 % of the words.
"""

from __future__ import annotations

import datetime
from typing import Any, BinaryIO

from indexmill.extras import not_installed
from tasks.stages.ingest.formats import by_xberg, docx, html, xlsx
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clean
from tasks.stages.ingest.formats.sheet_tables import write_sheet
from tasks.stages.ingest.formats.text_encoding import as_utf8

_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def extract(file: BinaryIO, limits: ExtractionLimits, *, dialect: str) -> Extracted:
    """Extract a workbook (`xls`), or reject a Word file (`doc`). See `Extractor`."""
    head = file.read(512)
    file.seek(0)
    if head.startswith(b"PK"):
        return docx.extract(file, limits) if dialect == "doc" else xlsx.extract(file, limits)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<":
        return html.extract(as_utf8(file, limits.text_bytes)[0], limits)
    if dialect == "doc":
        if head.startswith(b"{\\rtf"):
            return by_xberg.extract(file, limits, dialect="rtf")
        if not head.startswith(_COMPOUND):
            raise UnreadableError("unreadable-file", "it is not a Word file")
        message = "Word files of 1997 to 2003 are not read: convert it, such as by `soffice --convert-to docx`"
        raise UnreadableError("old-format", message)
    if not head.startswith(_COMPOUND):
        raise UnreadableError("unreadable-file", "it is not an Excel workbook")
    return _workbook(file, limits)


def _workbook(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    try:
        from python_calamine import CalamineError, CalamineWorkbook, PasswordError, SheetTypeEnum, SheetVisibleEnum
    except ImportError as error:
        raise not_installed("reading xls", "python_calamine", error) from error
    writer = MarkdownWriter(limits)
    hidden = 0
    try:
        workbook = CalamineWorkbook.from_filelike(file)
        sheets = workbook.sheets_metadata
        limits.check_pages(len(sheets), "sheets")
        for number, sheet in enumerate(sheets, 1):
            if sheet.visible != SheetVisibleEnum.Visible or sheet.typ != SheetTypeEnum.WorkSheet:
                hidden += sheet.visible != SheetVisibleEnum.Visible
                continue
            rows = workbook.get_sheet_by_name(sheet.name).iter_rows()
            cells = [[Inline(_shown(value)).markdown() for value in row] for row in rows]
            if any(map(any, cells)):
                writer.turn_to(number)
                writer.heading(2, Inline(one_line(clean(sheet.name))).markdown())
                write_sheet(writer, cells)
    except PasswordError as error:
        raise UnreadableError("encrypted", "the file is locked with a password; save it without one") from error
    except (CalamineError, ValueError) as error:
        raise UnreadableError("unreadable-file", f"it is damaged: {type(error).__name__}") from error
    if writer.is_empty:
        raise UnreadableError("no-text", "the sheets have no filled cell")
    text, locations = writer.result()
    unread = {"unread": {"hidden_sheets": hidden}} if hidden else {}
    return Extracted(text, metadata={"sheets": len(sheets), **unread}, locations=locations)


def _shown(value: Any) -> str:
    """Return a cell's value as text, without the noise of binary fractions."""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        return format(value, ".15g")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat().replace("T", " ").removesuffix(" 00:00:00")
    return str(value)
