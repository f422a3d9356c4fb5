"""Word documents (.docx, .docm): the visible text, in Markdown.

The parts are read with `xml` over `archive` rather than with python-docx, mammoth or markitdown: python-docx returns no
list numbers, notes, text boxes, tracked changes or fields; mammoth, which markitdown calls, uses only style names, and
drops page breaks and the numbers that Word shows; none of them limits the expanded size of an archive. This module
reads the body paragraph by paragraph, in memory that does not grow with the document.

Included: headings by outline level, lists with the numbers that Word shows, tables, notes after the block that refers
to them, links, text boxes, charts, diagrams, alternative texts of pictures, insertions, field results, the values of
forms, formulas on one line, and embedded web pages, texts and Word documents ("chunks"), but not chunks of chunks.
Excluded: headers and footers, comments, deletions, hidden text, field codes, tables of contents, and placeholders of
forms. Macros and other embedded files are never opened. What is not read is counted in the metadata (`unread`).
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from tasks.stages.ingest.documents import Location, WordCounts
from tasks.stages.ingest.formats import html
from tasks.stages.ingest.formats.drawingml import GRAPHICS, Graphic, chosen, graphic, inline_of
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, read_text
from tasks.stages.ingest.formats.markdown_marks import PAGE_BREAK, one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter
from tasks.stages.ingest.formats.office_math import formula
from tasks.stages.ingest.formats.office_words import words_in_part
from tasks.stages.ingest.formats.opc import Package, description, open_package
from tasks.stages.ingest.formats.symbol_fonts import shown_in
from tasks.stages.ingest.formats.text_encoding import as_utf8
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import count_words
from tasks.stages.ingest.formats.word_lists import numbering_of
from tasks.stages.ingest.formats.word_notes import Notes
from tasks.stages.ingest.formats.word_styles import ParagraphStyle, is_on, styles_of, value_of
from tasks.stages.ingest.formats.xml import Element, blocks, each, first, integer

_MAX_SPAN = 64
"""The maximum number of columns of a table in Word."""
_MAX_REPEATED = 200
"""The maximum number of characters of a merged cell that is repeated in the rows below."""
_SKIP = frozenset({"w:rPrChange", "w:pPrChange", "w:tblPrChange", "w:trPrChange", "w:tcPrChange", "w:sectPrChange"})
_BESIDE = {
    "footnotes": "",
    "endnotes": "",
    "header": "header-footer",
    "footer": "header-footer",
    "comments": "comment",
}
"""The kinds of parts beside the body, and why their words are left out; empty if they are read."""
_BOXES = frozenset({"w:txbxContent", "a:txBody", *GRAPHICS})
_DOCUMENT = "wordprocessingml.document"
_CHUNKS = re.compile(rf"html|text/plain|application/txt|{re.escape(_DOCUMENT)}")
_PARAGRAPH_END = re.compile(r"\n[ \t\r]*\n")
_TARGET = re.compile(r'^\s*HYPERLINK\s+(?:\\[a-z]\s+)*"?([^"\s]+)"?', re.IGNORECASE)
_SECTIONS = re.compile(rb'<w:sectPr\b|<w:type w:val=["\'](nextPage|continuous|evenPage|oddPage|nextColumn)')


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a Word document; locations are pages if the file marks their starts. See `Extractor`."""
    with open_package(file, limits, "a Word document", "word/document.xml") as package:
        title, metadata = package.properties()
        document = _Document(package, limits)
        text, locations, pages = document.read()
        unread = dict(sorted((+document.unread).items()))
        if not text.strip():
            skipped = ", ".join(f"{name} ({count:,})" for name, count in unread.items()) or "pictures"
            raise UnreadableError("no-text", f"the document has no text; not read: {skipped}")
        language = document.styles.language
        if language and "language" not in metadata:
            metadata["language"] = language
        if pages:
            metadata["pages"] = pages
        if unread:
            metadata["unread"] = unread
        title = document.title or title or document.first_heading
        return Extracted(text, title, metadata, locations, words=document.words())


# The body.


@dataclass(slots=True)
class _Field:
    """An open field. Only its result is visible, not its code."""

    code: str = ""
    in_result: bool = False
    target: str = ""


@dataclass(slots=True)
class _Paragraph:
    """A paragraph that is being read. boxes: the text boxes, charts and diagrams anchored in it."""

    inline: Inline = field(default_factory=Inline)
    boxes: list[Element] = field(default_factory=list)


class _Document:
    """Reads the body of a document from top to bottom."""

    def __init__(self, package: Package, limits: ExtractionLimits, *, is_chunk: bool = False) -> None:
        self._package, self._limits, self._is_chunk = package, limits, is_chunk
        self._inner_bytes = limits.expanded_bytes
        self._data = package.read(package.main)
        self.styles = styles_of(package)
        self._numbering = numbering_of(package)
        self._rendered = b"lastRenderedPageBreak" in self._data
        self._writer = MarkdownWriter(limits)
        self._part = package.main  # the part being read: the body, or notes
        self._links = package.links(package.main)
        self._fields: list[_Field] = []
        self._notes = {kind: Notes(package, kind, self._note_text) for kind in ("footnote", "endnote")}
        self._due: list[tuple[str, str]] = []  # referenced footnotes still to be written
        self._due_at_end: list[tuple[str, str]] = []
        self._carried: Inline | None = None
        self._breaks = 0
        self._sections = iter(_starts_of_sections(self._data))
        self._section = next(self._sections, "")
        self._page_pending = False
        self._code: list[str] = []
        self.title = self.first_heading = ""
        self.unread: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()  # words by reason

    def words(self) -> WordCounts:
        """Return the words of the document's parts, once it is read."""
        words, deleted = words_in_part(self._data)
        left_out = self.left_out.copy()
        for kind, reason in _BESIDE.items():
            for part in sorted(set(self._package.parts(self._package.main, kind).values())):
                if self._package.has(part):
                    try:
                        of_part, deleted_there = words_in_part(self._package.read(part))
                    except UnreadableError:  # the document was read without it
                        continue
                    words.update(of_part)
                    deleted.update(deleted_there)
                    if reason:
                        left_out[reason] += of_part.total()
        left_out["deleted"] = deleted.total()
        return WordCounts(words + deleted, left_out)

    def read(self) -> tuple[str, tuple[Location, ...], int]:
        self._writer.turn_to(1)
        for element in blocks(self._data, self._package.main, "w:document", 3, _SKIP):
            self._block(element)
        if self._carried is not None:
            self._writer.paragraph(self._carried.markdown())
        self._end_code()
        self._write_notes(self._due)
        self._write_notes(self._due_at_end)
        self.unread["comments"] += self._package.count(self._package.main, "comments", "comment")
        text, locations = self._writer.result()
        stated, seen = self._package.stated_pages(), self._breaks + 1
        if self._rendered:
            return text, locations, seen
        if seen > 1 and stated <= seen:
            return text, locations, seen
        return text, (), stated if stated > 1 else 0  # more pages than breaks: it is unknown where the pages begin

    def _block(self, element: Element) -> None:
        tag = element.tag
        if tag == "w:p":
            self._paragraph(element)
        elif tag == "w:tbl":
            self._end_code()
            self._table(element)
        elif tag == "w:sdt":
            if _is_contents(element):
                self._leave_out(element, "contents")
                return
            for inner in each(element, "w:sdtContent"):
                self._blocks(inner)
        elif tag in ("w:ins", "w:moveTo", "w:customXml", "w:smartTag", "w:txbxContent"):
            self._blocks(element)
        elif tag == "mc:AlternateContent":
            for alternative in chosen(element):
                self._blocks(alternative)
        elif tag == "w:altChunk":
            self._end_code()
            self._chunk(element, self._writer)
        elif tag in GRAPHICS or tag == "a:txBody":
            self._end_code()
            self._drawn(element).write(self._writer)
        elif tag == "m:oMathPara":
            self._writer.paragraph(Inline(formula(element)).markdown())

    def _leave_out(self, element: Element, reason: str) -> None:
        paragraphs = [*element.iter("w:p")] or [element]
        texts = ("".join(text.text or "" for text in paragraph.iter("w:t")) for paragraph in paragraphs)
        self.left_out[reason] += count_words("\n".join(texts))

    def _drawn(self, element: Element) -> Graphic:
        """Return the texts of a shape, a chart or a diagram."""
        if element.tag == "a:txBody":
            inlines = (inline_of([paragraph], self._links) for paragraph in each(element, "a:p"))
            return Graphic([inline.markdown() for inline in inlines])
        read = graphic(element, self._package, self._part)
        if read is None or read.is_cut:
            self.unread[GRAPHICS[element.tag]] += 1
        return read or Graphic()

    def _chunk(self, element: Element, writer: MarkdownWriter) -> None:
        """Write a page, a text or a document that is embedded in the document. Chunks in other formats are counted."""
        part = self._package.target(self._part, element.get("r:id", ""))
        kind = _CHUNKS.search(self._package.content_type(part)) if self._package.has(part) else None
        if kind is None or (kind[0] == _DOCUMENT and self._is_chunk):
            self.unread["chunks"] += 1
            return
        file: BinaryIO = io.BytesIO(self._package.read(part))
        try:
            if kind[0] != _DOCUMENT:
                file, _ = as_utf8(file, self._limits.text_bytes)
            if kind[0] == _DOCUMENT:
                self._inner_document(file, writer)
            elif kind[0] == "html":
                html.write_page(file, self._limits, writer)
            else:
                for text in _PARAGRAPH_END.split(read_text(file, self._limits.text_bytes, "a chunk is too large")):
                    writer.paragraph(Inline(text).markdown())
        except UnreadableError as error:
            if error.reason in ("hostile-file", "too-large"):
                raise
            self.unread["chunks"] += 1

    def _inner_document(self, file: BinaryIO, writer: MarkdownWriter) -> None:
        """Write an embedded document. All of them together expand to no more bytes than the document itself may."""
        limits = replace(self._limits, expanded_bytes=self._inner_bytes)
        with open_package(file, limits, "a Word document", "word/document.xml") as package:
            try:
                document = _Document(package, limits, is_chunk=True)
                writer.markdown(document.read()[0])
            finally:
                self._inner_bytes -= package.expanded_bytes
        self.title, self.first_heading = self.title or document.title, self.first_heading or document.first_heading
        self.unread += document.unread

    def _blocks(self, element: Element) -> None:
        for inner in element:
            self._block(inner)

    def _turn_page(self, inline: Inline) -> None:
        if self._part != self._package.main:
            return
        self._breaks += 1
        if self._breaks >= self._limits.pages:
            message = f"the document has more than {self._limits.pages:,} pages; see corpus.extract.max_pages"
            raise UnreadableError("too-large", message)
        inline.page_break()

    def _paragraph(self, element: Element) -> None:
        properties = first(element, "w:pPr")
        style = value_of(properties, "w:pStyle")
        shape = self.styles.shape_of(style or self.styles.default)
        read = _Paragraph()
        if self._carried is not None:
            read.inline, self._carried = self._carried, None
        if self._page_pending or (is_on(properties, "w:pageBreakBefore") and not self._writer.is_empty):
            if not self._rendered:
                self._turn_page(read.inline)
            self._page_pending = False
        self._runs(element, read, shape.hidden)
        self._fields = [open_field for open_field in self._fields if open_field.in_result]
        for open_field in self._fields:
            open_field.target = ""
        if first(properties, "w:sectPr") is not None:
            self._section = next(self._sections, "")
            self._page_pending = self._section != "continuous"
        if first(properties, "w:rPr/w:del") is not None:
            self._carried = read.inline
        elif shape.is_contents:
            self.left_out["contents"] += count_words(read.inline.plain())
            self._writer.paragraph(PAGE_BREAK * read.inline.markdown().count(PAGE_BREAK))
        else:
            self._write(read.inline, properties, style, shape)
        for box in read.boxes:
            self._block(box)

    def _write(self, inline: Inline, properties: Element | None, style: str, shape: ParagraphStyle) -> None:
        if shape.is_code and inline:
            self._code.append(inline.plain())
            return
        self._end_code()
        outline = integer(value_of(properties, "w:outlineLvl"), -1)
        level = shape.outline if outline < 0 else outline
        number, depth = self._number(properties, style, shape)
        label = self._numbering.label(number, depth) if number else ""
        text = inline.markdown()
        if not inline:
            self._writer.paragraph(text)
        elif shape.is_title:
            self._write_notes(self._due)
            self.title = self.title or title_of(inline.plain())
            self._writer.heading(1, text)
        elif 0 <= level <= 8:
            self._write_notes(self._due)
            shown = "" if label == "•" else label
            self.first_heading = self.first_heading or title_of(inline.plain())
            self._writer.heading(level + 1, f"{shown} {text}" if shown else text)
        elif not label:
            self._writer.paragraph(text)
            self._write_notes(self._due)
        elif label == "•":
            self._writer.item(depth, "-", text)
        elif re.fullmatch(r"\d{1,9}[.)]", label):
            self._writer.item(depth, label, text)
        elif re.fullmatch(r"[\d.]+|.* .*", label):
            self._writer.paragraph(f"{label} {text}")
            self._write_notes(self._due)
        else:
            self._writer.item(depth, "-", f"{label} {text}")

    def _number(self, properties: Element | None, style: str, shape: ParagraphStyle) -> tuple[str, int]:
        """Return the id of a paragraph's list (empty if it is in no list), and the paragraph's level in the list."""
        numbering = first(properties, "w:numPr")
        if numbering is not None and first(numbering, "w:numId") is not None:
            number = value_of(numbering, "w:numId")
            level = first(numbering, "w:ilvl")
            if level is not None:
                return ("" if number == "0" else number), max(0, min(integer(level.get("w:val")), 8))
        else:
            number = shape.number
        if not number or number == "0":
            return "", 0
        for name in (style, *shape.bases):
            by_style = self._numbering.level_by_style(number, name)
            if by_style is not None:
                return number, by_style
        return number, max(0, min(shape.level, 8))

    def _end_code(self) -> None:
        if self._code:
            self._writer.code("\n".join(self._code))
            self._code = []

    # The content of a paragraph.

    def _runs(self, element: Element, read: _Paragraph, hidden: bool | None, target: str = "") -> None:
        """Add the content of an element to a paragraph. target: the URL that the content links to."""
        for child in element:
            tag = child.tag
            if tag == "w:r":
                self._run(child, read, hidden, target)
            elif tag == "w:hyperlink":
                self._runs(child, read, hidden, self._links.get(child.get("r:id", "")) or target)
            elif tag == "w:fldSimple":
                match = _TARGET.match(child.get("w:instr", ""))
                self._runs(child, read, hidden, match[1] if match is not None else target)
            elif tag in ("w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:dir", "w:bdo", "w:sdtContent"):
                self._runs(child, read, hidden, target)
            elif tag == "w:sdt":
                if _is_contents(child) or _is_placeholder(child):
                    self._leave_out(child, "contents" if _is_contents(child) else "hidden")
                else:
                    self._runs(child, read, hidden, target)
            elif tag in ("m:oMath", "m:oMathPara"):
                if self._shown():
                    read.inline.add(formula(child), target)
            elif tag == "mc:AlternateContent":
                for alternative in chosen(child):
                    self._runs(alternative, read, hidden, target)

    def _shown(self) -> bool:
        """Return whether text is visible; text in the code of a field is not."""
        return all(open_field.in_result for open_field in self._fields)

    def _run(self, element: Element, read: _Paragraph, hidden: bool | None, target: str) -> None:
        properties, font = first(element, "w:rPr"), ""
        if properties is not None:
            fonts = first(properties, "w:rFonts")
            font = "" if fonts is None else fonts.get("w:ascii", "")
            vanish = is_on(properties, "w:vanish")
            if vanish is None and (style := value_of(properties, "w:rStyle")):
                vanish = self.styles.shape_of(style).hidden
            hidden = hidden if vanish is None else vanish
        for child in element:
            self._piece(child, read, bool(hidden), target, font)

    def _piece(self, element: Element, read: _Paragraph, hidden: bool, target: str, font: str) -> None:
        tag, inline = element.tag, read.inline
        if tag == "w:lastRenderedPageBreak":
            self._turn_page(inline)
        elif tag == "w:br" and element.get("w:type") == "page":
            if not self._rendered:
                self._turn_page(inline)
        elif tag == "w:fldChar":
            if not hidden and self._shown():
                inline.add(_form_value(first(element, "w:ffData")))
            self._field(element)
        elif tag == "w:instrText":
            if self._fields and not self._fields[-1].in_result and len(self._fields[-1].code) < 5_000:
                self._fields[-1].code += element.text or ""
        elif hidden or (self._fields and not self._shown()):
            self.left_out["hidden"] += count_words(element.text or "") if tag == "w:t" else 0
        elif tag == "w:t":
            text = shown_in(font, element.text or "")
            targets = [open_field.target for open_field in self._fields if open_field.target]
            inline.add(text, target or (targets[-1] if targets else ""))
        elif tag in ("w:tab", "w:ptab"):
            inline.add(" ")
        elif tag in ("w:br", "w:cr"):
            inline.add("\n")
        elif tag == "w:noBreakHyphen":
            inline.add("-", target)
        elif tag == "w:sym":
            inline.add(_symbol(element), target)
        elif tag in ("w:footnoteReference", "w:endnoteReference"):
            self._refer(element, inline)
        elif tag in ("w:drawing", "w:pict", "w:object"):
            self._drawing(element, read)
        elif tag == "w:ruby":
            for base in each(element, "w:rubyBase"):
                self._runs(base, read, hidden, target)
            for reading in each(element, "w:rt"):
                self._leave_out(reading, "hidden")
        elif tag == "mc:AlternateContent":
            for alternative in chosen(element):
                for inner in alternative:
                    self._piece(inner, read, hidden, target, font)

    def _field(self, element: Element) -> None:
        kind = element.get("w:fldCharType")
        if kind == "begin" and len(self._fields) < 100:
            self._fields.append(_Field())
        elif kind == "separate" and self._fields:
            last = self._fields[-1]
            last.in_result = True
            match = _TARGET.match(last.code)
            last.target = match[1] if match is not None and "://" in match[1] else ""
        elif kind == "end" and self._fields:
            self._fields.pop()

    def _refer(self, element: Element, inline: Inline) -> None:
        if self._part != self._package.main:  # a note cannot refer to notes
            return
        kind = element.tag[2:].removesuffix("Reference")
        numbered_note = self._notes[kind].numbered(element.get("w:id", ""))
        if numbered_note is None:
            return
        number, note, is_new = numbered_note
        label = f"{number}" if kind == "footnote" else f"e{number}"
        inline.note(label)
        if is_new:
            due = self._due if kind == "footnote" else self._due_at_end
            due.append((f"[^{label}]", note))

    def _write_notes(self, due: list[tuple[str, str]]) -> None:
        for label, note in due:
            self._writer.paragraph(f"{label} {note}")
        due.clear()

    def _note_text(self, note: Element, part: str) -> str:
        """Return the Markdown of a note."""
        body = self._part, self._links, self._fields
        self._part, self._links, self._fields = part, self._package.links(part), []
        text = self._cell(note)
        self._part, self._links, self._fields = body
        return text

    def _drawing(self, element: Element, read: _Paragraph) -> None:
        """Add the alternative texts of pictures, and collect what is written after the paragraph."""
        texts: list[str] = []
        has_picture = False
        boxes = len(read.boxes)
        ahead = [element]
        while ahead:
            node = ahead.pop()
            if node.tag in ("wp:docPr", "pic:cNvPr") or node.tag.startswith("v:"):
                texts.append(description(node))
                read.inline.add(node.get("string", ""))  # WordArt
                has_picture = has_picture or node.tag in ("pic:cNvPr", "v:imagedata")
            elif node.tag in _BOXES:
                read.boxes.append(node)
                continue
            ahead += reversed(chosen(node) if node.tag == "mc:AlternateContent" else node)
        for text in dict.fromkeys(texts):
            read.inline.picture(text)
        if not any(texts) and len(read.boxes) == boxes and (has_picture or element.tag == "w:object"):
            self.unread["objects" if element.tag == "w:object" else "pictures"] += 1

    # Tables.

    def _table(self, element: Element) -> None:
        rows = [row for row in _children(element, "w:tr") if first(row, "w:trPr/w:del") is None]
        cells = [list(_children(row, "w:tc")) for row in rows]
        if sum(map(len, cells)) == 1:  # a frame around text
            self._blocks(next(row[0] for row in cells if row))
            return
        table: list[list[str]] = []
        above: dict[int, str] = {}
        size = 0
        for row, within in zip(rows, cells, strict=True):
            shown: list[str] = [""] * min(integer(value_of(first(row, "w:trPr"), "w:gridBefore")), _MAX_SPAN)
            for cell in within:
                properties = first(cell, "w:tcPr")
                span = max(1, min(integer(value_of(properties, "w:gridSpan"), 1), _MAX_SPAN))
                merge = first(properties, "w:vMerge")
                column = len(shown)
                if merge is not None and merge.get("w:val", "continue") == "continue":
                    text = above.get(column, "")
                else:
                    text = self._cell(cell)
                    above[column] = (
                        text.replace(PAGE_BREAK, "") if merge is not None and len(text) <= _MAX_REPEATED else ""
                    )
                shown.extend([text, *[""] * (span - 1)])
                size += len(text) + 3 * span
            if size > self._limits.text_bytes:
                raise UnreadableError("too-large", f"a table has over {self._limits.text_bytes:,} characters")
            table.append(shown)
        self._writer.table(table)
        self._write_notes(self._due)

    def _cell(self, element: Element) -> str:
        """Return the text of a cell as one line; a table inside the cell is written row by row."""
        parts: list[str] = []
        self._cell_parts(element, parts)
        return " ".join(part for part in parts if part)

    def _cell_parts(self, element: Iterable[Element], parts: list[str]) -> None:
        for child in element:
            if child.tag == "w:p":
                read = _Paragraph()
                properties = first(child, "w:pPr")
                style = value_of(properties, "w:pStyle")
                shape = self.styles.shape_of(style or self.styles.default)
                self._runs(child, read, shape.hidden)
                text = read.inline.markdown()
                number, depth = self._number(properties, style, shape)
                label = self._numbering.label(number, depth) if number and read.inline else ""
                parts.append(f"{label} {text}" if label else text)
                self._cell_parts(read.boxes, parts)
            elif child.tag == "w:tbl":
                for row in _children(child, "w:tr"):
                    inner = [self._cell(cell) for cell in _children(row, "w:tc")]
                    parts.append(", ".join(cell for cell in inner if cell) + ";")
            elif child.tag == "w:sdt":
                if not _is_placeholder(child):
                    for inner_content in each(child, "w:sdtContent"):
                        self._cell_parts(inner_content, parts)
            elif child.tag in ("w:ins", "w:customXml", "w:smartTag", "w:moveTo", "w:txbxContent"):
                self._cell_parts(child, parts)
            elif child.tag == "mc:AlternateContent":
                for alternative in chosen(child):
                    self._cell_parts(alternative, parts)
            elif child.tag in GRAPHICS or child.tag == "a:txBody":
                parts.append(self._drawn(child).line())
            elif child.tag == "w:altChunk":
                writer = MarkdownWriter(self._limits)
                self._chunk(child, writer)
                parts.append(one_line(writer.result()[0]))


def _symbol(element: Element) -> str:
    """Return the character that a symbol shows; empty if it is unknown."""
    try:
        code = int(element.get("w:char", "")[:6], 16)
    except ValueError:
        return ""
    if not 0x20 <= code <= 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        return ""
    character = shown_in(element.get("w:font", ""), chr(code))
    return "" if "\ue000" <= character <= "\uf8ff" else character


def _form_value(form: Element | None) -> str:
    """Return what a check box or a drop-down list of a form shows; empty for other fields, which have a result."""
    box, options = first(form, "w:checkBox"), first(form, "w:ddList")
    if box is not None:
        checked = is_on(box, "w:checked")
        return "☒" if (is_on(box, "w:default") if checked is None else checked) else "☐"
    entries = [entry.get("w:val", "") for entry in each(options, "w:listEntry")]
    index = integer(value_of(options, "w:result") or value_of(options, "w:default"))
    return entries[index] if 0 <= index < len(entries) else ""


def _is_contents(element: Element) -> bool:
    gallery = first(element, "w:sdtPr/w:docPartObj/w:docPartGallery")
    return gallery is not None and gallery.get("w:val") == "Table of Contents"


def _is_placeholder(element: Element) -> bool:
    return is_on(first(element, "w:sdtPr"), "w:showingPlcHdr") is True


def _children(element: Element, tag: str) -> Iterator[Element]:
    """Yield the children with a tag (rows of a table, cells of a row), including those in wrappers that Word adds."""
    for child in element:
        if child.tag == tag:
            yield child
        elif child.tag in ("w:sdt", "w:sdtContent", "w:customXml", "w:ins", "w:moveTo"):
            yield from _children(child, tag)


def _starts_of_sections(data: bytes) -> Iterator[str]:
    """Yield how each section starts: `nextPage`, `continuous` etc. A section's properties follow its content."""
    kind: str | None = None
    for match in _SECTIONS.finditer(data):
        if match[1] is None:
            if kind is not None:
                yield kind
            kind = "nextPage"
        elif kind == "nextPage":
            kind = match[1].decode("ascii")
    if kind is not None:
        yield kind
