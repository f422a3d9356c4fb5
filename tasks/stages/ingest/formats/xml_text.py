"""XML files (.xml) that the corpus asks for, since most are settings or data: web pages, articles and books, or others.

Pages in XHTML, articles in JATS and books in FictionBook are read as such. Of other files, an element with text between
its children is a paragraph, and an element of fields a paragraph of lines such as `capital: Ottawa`. Attributes are not
read.
"""

from __future__ import annotations

import io
import re
from typing import BinaryIO

from tasks.stages.ingest.formats import by_xberg, html
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, read_bytes
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter
from tasks.stages.ingest.formats.xml import Element, parse, text_of, without_declaration

_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]{0,100}:)?([A-Za-z_][\w.-]{0,100})")
_JATS = re.compile(rb"JATS|//NLM//|article-type=")
_HEAD = 4_096


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a file. See `Extractor`."""
    most = 3 * limits.text_bytes + 65_536
    data = without_declaration(bytes(read_bytes(file, most, f"the file has more than {most:,} bytes")))
    root = _ROOT.search(data[:_HEAD])
    name = root[1].lower() if root is not None else b""
    if name == b"html":
        return html.extract(io.BytesIO(data), limits)
    dialect = {b"article": "jats", b"fictionbook": "fictionbook"}.get(name)
    if dialect is not None and (dialect != "jats" or _JATS.search(data[:_HEAD])):
        return by_xberg.extract(io.BytesIO(data), limits, dialect=dialect)
    writer = MarkdownWriter(limits)
    _write(parse(data, "the file"), writer)
    if writer.is_empty:
        raise UnreadableError("no-text", "its elements have no text")
    return Extracted(writer.result()[0])


def _write(element: Element, writer: MarkdownWriter) -> None:
    texts = [element.text, *(child.tail for child in element)]
    if any(text and not text.isspace() for text in texts):
        writer.paragraph(Inline(one_line(text_of(element))).markdown())
    elif not any(len(child) for child in element):
        fields = ((str(child.tag).rpartition(":")[2], one_line(text_of(child))) for child in element)
        writer.paragraph("\n".join(Inline(f"{name}: {value}").markdown() for name, value in fields if value))
    else:
        for child in element:
            _write(child, writer)
