"""Word documents (.docx, .docm): the text that a reader sees, in Markdown.

The parts are read with `xml` over `archive` rather than with python-docx, mammoth or markitdown: python-docx gives
neither numbers of lists, notes, text boxes, tracked changes nor fields; mammoth and markitdown (which calls it) drop
outline levels of styles, the numbers and page breaks; all of them parse a whole hostile part with entities and depth as
it comes. Here the body is read paragraph by paragraph, in memory that does not grow with the document.

Kept: headings by outline level, lists with the numbers that Word shows, tables, notes behind the block that refers to
them, links, text boxes, alternative texts of pictures, insertions, results of fields, formulas as a line. Left out:
headers and footers, comments, deletions, hidden text, codes of fields, tables of contents, and placeholders of forms.
Macros and embedded files are never opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO

from tasks.stages.ingest.formats.archive import open_archive
from tasks.stages.ingest.formats.extraction import Extracted, Limits, UnreadableError
from tasks.stages.ingest.formats.markdown_text import PAGE_BREAK, Inline, MarkdownWriter, clip_title, one_line
from tasks.stages.ingest.formats.numbering import counted
from tasks.stages.ingest.formats.opc import Package
from tasks.stages.ingest.formats.xml import Element, blocks, each, first, integer

__all__ = ["extract"]

_MAX_STYLES = 50_000
_MAX_BASES = 30
"""The maximum length of a chain of styles; Word allows 11."""
_MAX_SPAN = 64
"""The maximum number of columns that Word gives a table."""
_MAX_REPEATED = 200
"""Characters of a merged cell that is repeated in the rows below."""
_MAX_NOTE = 20_000
_MAX_LABEL = 60
_SKIP = frozenset({"w:rPrChange", "w:pPrChange", "w:tblPrChange", "w:trPrChange", "w:tcPrChange", "w:sectPrChange"})
_HEADING_NAMES = re.compile(
    r"(?i)(?:heading|überschrift|titre|título|titulo|titolo|kop|rubrik|overskrift|otsikko|nagłówek|nadpis|címsor|"
    r"başlık|naslov|заголовок|标题|標題|見出し|제목) ?([1-9])"
)
_TITLE_NAMES = frozenset(
    {"title", "titel", "titre", "título", "titolo", "tytuł", "otsikko", "rubrik", "название", "标题"}
)
_CONTENTS = re.compile(r"(?i)toc( ?\d| heading)|contents (heading )?\d|table of (figures|authorities)|verzeichnis \d")
_CODE_NAMES = re.compile(r"(?i).*(source ?code|code ?block|preformatted|verbatim|macro ?text).*|code|listing")
_TARGET = re.compile(r'^\s*HYPERLINK\s+(?:\\[a-z]\s+)*"?([^"\s]+)"?', re.IGNORECASE)
_SECTIONS = re.compile(rb'<w:sectPr\b|<w:type w:val="(nextPage|continuous|evenPage|oddPage|nextColumn)"')
_OFF = frozenset({"0", "false", "off", "none"})
_MADE_BY_PROGRAMS = re.compile(r"(?i).*(automatically generated|\.(png|jpe?g|gif|bmp|emf|wmf|tiff?|svg))\W*")
_SYMBOLS = {0xB7: "•", 0xA7: "▪", 0xD8: "➢", 0xFC: "✓", 0xE0: "→", 0xDF: "←", 0xA8: "☐", 0xFE: "☑", 0x6F: "☐"}


def extract(file: BinaryIO, limits: Limits) -> Extracted:
    """The text of a Word document; locations are pages, where the file says where they begin.

    Raises:
        UnreadableError: the file is no such document, is damaged, locked or hostile, has no text, or is over a limit.
    """
    with open_archive(file, limits, "a Word document") as archive:
        package = Package(archive, "word/document.xml")
        title, metadata = package.properties()
        document = _Document(package, limits)
        text, locations, pages = document.read()
        if not text.strip():
            raise UnreadableError("no-text", "the document has no text; pictures are not read")
        language = document.styles.language
        if language and "language" not in metadata:
            metadata["language"] = language
        if pages:
            metadata["pages"] = pages
        return Extracted(text, document.title or title or document.first_heading, metadata, locations)


# Styles and numbers of lists.


@dataclass(frozen=True, slots=True)
class _Style:
    name: str = ""
    based_on: str = ""
    outline: int = -1  # -1: not stated; 9: body text
    number: str = ""  # of a list; empty for not stated
    level: int = 0
    hidden: bool | None = None


@dataclass(slots=True)
class _Styles:
    by_id: dict[str, _Style] = field(default_factory=dict)
    default: str = ""
    language: str = ""

    def chain(self, style: str) -> Iterator[_Style]:
        """A style and those it is based on."""
        seen: set[str] = set()
        while style in self.by_id and style not in seen and len(seen) < _MAX_BASES:
            seen.add(style)
            yield self.by_id[style]
            style = self.by_id[style].based_on


def _styles(package: Package) -> _Styles:
    found = _Styles()
    part = package.related(package.main, "styles")
    if part is None:
        return found
    for one in blocks(package.read(part), part, "w:styles", 2):
        if one.tag == "w:docDefaults":
            language = first(one, "w:rPrDefault/w:rPr/w:lang")
            found.language = language.get("w:val", "") if language is not None else ""
            if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", found.language):
                found.language = ""
        if one.tag != "w:style":
            continue
        if len(found.by_id) >= _MAX_STYLES:
            raise UnreadableError("hostile-file", f"more than {_MAX_STYLES:,} styles")
        properties = first(one, "w:pPr")
        number = None if properties is None else first(properties, "w:numPr")
        style = _Style(
            one_line(_value(one, "w:name")),
            _value(one, "w:basedOn"),
            -1 if properties is None else integer(_value(properties, "w:outlineLvl"), -1),
            "" if number is None else _value(number, "w:numId"),
            0 if number is None else integer(_value(number, "w:ilvl")),
            _switch(first(one, "w:rPr"), "w:vanish"),
        )
        name = one.get("w:styleId", "")
        found.by_id.setdefault(name, style)
        if one.get("w:type") == "paragraph" and one.get("w:default", "0") not in _OFF:
            found.default = found.default or name
    return found


@dataclass(slots=True)
class _Level:
    start: int = 1
    form: str = "decimal"
    text: str = ""
    style: str = ""
    legal: bool = False


@dataclass(slots=True)
class _Numbering:
    """The lists of a document, and how far each has counted."""

    levels: dict[str, dict[int, _Level]] = field(default_factory=dict)  # of abstract lists
    abstract: dict[str, str] = field(default_factory=dict)  # of a list
    restarts: dict[str, dict[int, int]] = field(default_factory=dict)
    own_levels: dict[str, dict[int, _Level]] = field(default_factory=dict)
    by_style: dict[str, str] = field(default_factory=dict)  # an abstract list that is kept in a style's
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)
    _begun: set[tuple[str, int]] = field(default_factory=set)

    def level_of(self, number: str, level: int) -> _Level | None:
        """How a level of a list is numbered; None for an unknown list."""
        own = self.own_levels.get(number, {}).get(level)
        return own or self.levels.get(self.abstract.get(number, ""), {}).get(level)

    def level_by_style(self, number: str, style: str) -> int | None:
        """The level of a list that is kept for a style."""
        for level, one in self.levels.get(self.abstract.get(number, ""), {}).items():
            if one.style == style:
                return level
        return None

    def label(self, number: str, level: int) -> str:
        """Count one item, and return what Word shows before it; empty for none, `•` for a bullet."""
        shape = self.level_of(number, level)
        if shape is None:
            return ""
        if shape.form == "bullet":
            return "•"
        counts = self._counts.setdefault(self.abstract[number], {})
        restart = self.restarts.get(number, {}).get(level)
        if restart is not None and (number, level) not in self._begun:
            counts[level] = restart
        else:
            counts[level] = counts[level] + 1 if level in counts else shape.start
        self._begun.add((number, level))
        for deeper in [one for one in counts if one > level]:
            del counts[deeper]

        def shown(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            inner = self.level_of(number, at)
            start = inner.start if inner is not None else 1
            form = inner.form if inner is not None and not shape.legal else "decimal"
            return counted(counts.setdefault(at, start) if at <= level else start, form)

        if shape.form == "none" and "%" not in shape.text:
            return Inline(one_line(shape.text)[:_MAX_LABEL]).markdown()
        return Inline(one_line(re.sub(r"%([1-9])", shown, shape.text))[:_MAX_LABEL]).markdown()


def _numbering(package: Package, styles: _Styles) -> _Numbering:
    found = _Numbering()
    part = package.related(package.main, "numbering")
    if part is None:
        return found
    linked: dict[str, str] = {}  # an abstract list -> the style that has its levels
    kept_in: dict[str, str] = {}  # a style -> its abstract list
    for one in blocks(package.read(part), part, "w:numbering", 2):
        if one.tag == "w:abstractNum":
            name = one.get("w:abstractNumId", "")
            found.levels[name] = dict(_levels(one))
            if link := _value(one, "w:numStyleLink"):
                linked[name] = link
            if link := _value(one, "w:styleLink"):
                kept_in.setdefault(link, name)
        elif one.tag == "w:num":
            number = one.get("w:numId", "")
            found.abstract[number] = _value(one, "w:abstractNumId")
            for override in each(one, "w:lvlOverride"):
                level = integer(override.get("w:ilvl"))
                restart = first(override, "w:startOverride")
                if restart is not None:
                    found.restarts.setdefault(number, {})[level] = integer(restart.get("w:val"), 1)
                found.own_levels.setdefault(number, {}).update(_levels(override))
    for name, style in linked.items():
        if not found.levels.get(name):  # one step alone: a list that is kept in a list that is kept elsewhere is none
            found.levels[name] = found.levels.get(kept_in.get(style, ""), {})
    return found


def _levels(element: Element) -> Iterator[tuple[int, _Level]]:
    for one in each(element, "w:lvl"):
        level = integer(one.get("w:ilvl"))
        if 0 <= level <= 8:
            form = _value(one, "w:numFmt") or "decimal"
            text, style = _value(one, "w:lvlText"), _value(one, "w:pStyle")
            yield level, _Level(integer(_value(one, "w:start"), 1), form, text, style, _switch(one, "w:isLgl") is True)


# The body.


@dataclass(slots=True)
class _Field:
    """A field that has begun. It shows its result, not its code."""

    code: str = ""
    in_result: bool = False
    target: str = ""


@dataclass(slots=True)
class _Paragraph:
    """A paragraph as it is read. boxes: the text boxes that are anchored in it; notes: what it refers to."""

    inline: Inline = field(default_factory=Inline)
    boxes: list[Element] = field(default_factory=list)
    runs_on: bool = False  # its mark has been deleted: the next paragraph goes on in it


class _Document:
    """Reads the body from top to bottom."""

    def __init__(self, package: Package, limits: Limits) -> None:
        self._package, self._limits = package, limits
        self._data = package.read(package.main)
        self.styles = _styles(package)
        self._numbering = _numbering(package, self.styles)
        self._rendered = b"lastRenderedPageBreak" in self._data
        self._writer = MarkdownWriter(limits)
        self._links = package.relationships(package.main)
        self._fields: list[_Field] = []
        self._notes = {kind: _Notes(package, kind) for kind in ("footnote", "endnote")}
        self._due: list[tuple[str, str]] = []  # footnotes referred to and not yet written
        self._due_at_end: list[tuple[str, str]] = []
        self._carried: Inline | None = None
        self._breaks = 0
        self._sections = iter(_starts_of_sections(self._data))
        self._section = next(self._sections, "")
        self._page_pending = False
        self._code: list[str] = []
        self._style_of = cache(self._resolve_style)
        self.title = self.first_heading = ""

    def read(self) -> tuple[str, tuple[Any, ...], int]:
        """The text, its locations, and the number of pages (0 for unknown)."""
        self._writer.turn_to(1)
        for element in blocks(self._data, self._package.main, "w:document", 3, _SKIP):
            self._block(element)
        if self._carried is not None:
            self._writer.paragraph(self._carried.markdown())
        self._end_code()
        self._write_notes(self._due)
        self._write_notes(self._due_at_end)
        text, locations = self._writer.result()
        stated, seen = self._package.stated_pages(), self._breaks + 1
        if self._rendered:
            return text, locations, seen
        if seen > 1 and stated <= seen:
            return text, locations, seen
        return text, (), stated if stated > 1 else 0  # more pages than breaks: where they begin is unknown

    def _block(self, element: Element) -> None:
        tag = element.tag
        if tag == "w:p":
            self._paragraph(element)
        elif tag == "w:tbl":
            self._end_code()
            self._table(element)
        elif tag == "w:sdt":
            if not _is_contents(element):
                for inner in each(element, "w:sdtContent"):
                    self._blocks(inner)
        elif tag in ("w:ins", "w:moveTo", "w:customXml", "w:smartTag", "m:oMathPara"):
            self._blocks(element)
        elif tag == "mc:AlternateContent":
            chosen = _chosen(element)
            if chosen is not None:
                self._blocks(chosen)

    def _blocks(self, element: Element) -> None:
        for inner in element:
            self._block(inner)

    def _turn_page(self, inline: Inline) -> None:
        self._breaks += 1
        if self._breaks >= self._limits.pages:
            found = f"more than {self._limits.pages:,} pages; see corpus.extract.max_pages"
            raise UnreadableError("too-large", found)
        inline.page_break()

    def _paragraph(self, element: Element) -> None:
        properties = first(element, "w:pPr")
        style = _value(properties, "w:pStyle") if properties is not None else ""
        shape = self._style_of(style or self.styles.default)
        read = _Paragraph()
        if self._carried is not None:
            read.inline, self._carried = self._carried, None
        if self._page_pending or (_switch(properties, "w:pageBreakBefore") and not self._writer.is_empty):
            if not self._rendered:
                self._turn_page(read.inline)
            self._page_pending = False
        self._runs(element, read, shape.hidden)
        self._fields = [one for one in self._fields if one.in_result]
        for one in self._fields:
            one.target = ""
        if properties is not None and first(properties, "w:sectPr") is not None:
            self._section = next(self._sections, "")
            self._page_pending = self._section != "continuous"
        if first(properties, "w:rPr/w:del") is not None:
            self._carried = read.inline
        elif shape.is_contents:
            self._writer.paragraph(PAGE_BREAK * read.inline.markdown().count(PAGE_BREAK))
        else:
            self._write(read.inline, properties, style, shape)
        for box in read.boxes:
            self._blocks(box)

    def _write(self, inline: Inline, properties: Element | None, style: str, shape: _Shape) -> None:
        if shape.is_code and inline:
            self._code.append(inline.plain())
            return
        self._end_code()
        outline = -1 if properties is None else integer(_value(properties, "w:outlineLvl"), -1)
        level = shape.outline if outline < 0 else outline
        number, depth = self._number(properties, style, shape)
        label = self._numbering.label(number, depth) if number else ""
        text = inline.markdown()
        if not inline:
            self._writer.paragraph(text)
        elif shape.is_title:
            self._write_notes(self._due)
            self.title = self.title or clip_title(inline.plain())
            self._writer.heading(1, text)
        elif 0 <= level <= 8:
            self._write_notes(self._due)
            shown = "" if label == "•" else label
            self.first_heading = self.first_heading or clip_title(inline.plain())
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

    def _number(self, properties: Element | None, style: str, shape: _Shape) -> tuple[str, int]:
        """The list that a paragraph is an item of, and its level; an empty name for none."""
        own = None if properties is None else first(properties, "w:numPr")
        if own is not None and first(own, "w:numId") is not None:
            number = _value(own, "w:numId")
            level = first(own, "w:ilvl")
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

    def _resolve_style(self, style: str) -> _Shape:
        shape = _Shape()
        chain = list(self.styles.chain(style)) or [_Style(style)]  # a style that is not declared goes by its id
        is_subtitle = "sub" in chain[0].name.casefold()
        for place, one in enumerate(chain):
            if shape.outline == -1:
                shape.outline = one.outline
                named = _HEADING_NAMES.fullmatch(one.name)
                if shape.outline == -1 and named is not None:
                    shape.outline = int(named[1]) - 1
            if not shape.number and one.number:
                shape.number, shape.level = one.number, one.level
            if shape.hidden is None:
                shape.hidden = one.hidden
            shape.is_title = shape.is_title or (one.name.casefold() in _TITLE_NAMES and not is_subtitle)
            shape.is_contents = shape.is_contents or (place == 0 and _CONTENTS.fullmatch(one.name) is not None)
            shape.is_code = shape.is_code or _CODE_NAMES.fullmatch(one.name) is not None
            shape.bases = (*shape.bases, one.based_on)
        return shape

    def _end_code(self) -> None:
        if self._code:
            self._writer.code("\n".join(self._code))
            self._code = []

    # What stands in a paragraph.

    def _runs(self, element: Element, read: _Paragraph, hidden: bool | None, target: str = "") -> None:
        """Add what stands in an element to a paragraph. target: the URL that it links to."""
        for one in element:
            tag = one.tag
            if tag == "w:r":
                self._run(one, read, hidden, target)
            elif tag == "w:hyperlink":
                self._runs(one, read, hidden, self._linked(one) or target)
            elif tag == "w:fldSimple":
                found = _TARGET.match(one.get("w:instr", ""))
                self._runs(one, read, hidden, found[1] if found is not None else target)
            elif tag in ("w:ins", "w:moveTo", "w:smartTag", "w:customXml", "w:dir", "w:bdo", "w:sdtContent"):
                self._runs(one, read, hidden, target)
            elif tag == "w:sdt":
                if not _is_contents(one) and not _is_placeholder(one):
                    self._runs(one, read, hidden, target)
            elif tag in ("m:oMath", "m:oMathPara"):
                if self._shown():
                    read.inline.add(_formula(one), target)
            elif tag == "mc:AlternateContent":
                chosen = _chosen(one)
                if chosen is not None:
                    self._runs(chosen, read, hidden, target)

    def _linked(self, element: Element) -> str:
        known = self._links.get(element.get("r:id", ""))
        return known.target if known is not None and known.external else ""

    def _shown(self) -> bool:
        """False within the code of a field."""
        return all(one.in_result for one in self._fields)

    def _run(self, element: Element, read: _Paragraph, hidden: bool | None, target: str) -> None:
        properties = first(element, "w:rPr")
        if properties is not None:
            own = _switch(properties, "w:vanish")
            if own is None and (style := _value(properties, "w:rStyle")):
                own = self._style_of(style).hidden
            hidden = hidden if own is None else own
        for one in element:
            self._piece(one, read, bool(hidden), target)

    def _piece(self, one: Element, read: _Paragraph, hidden: bool, target: str) -> None:
        tag, inline = one.tag, read.inline
        if tag == "w:lastRenderedPageBreak":
            self._turn_page(inline)
        elif tag == "w:br" and one.get("w:type") == "page":
            if not self._rendered:
                self._turn_page(inline)
        elif tag == "w:fldChar":
            self._field(one)
        elif tag == "w:instrText":
            if self._fields and not self._fields[-1].in_result and len(self._fields[-1].code) < 5_000:
                self._fields[-1].code += one.text or ""
        elif hidden or (self._fields and not self._shown()):
            return
        elif tag == "w:t":
            text = one.text or ""
            fields = [known.target for known in self._fields if known.target]
            inline.add(text, target or (fields[-1] if fields else ""))
        elif tag in ("w:tab", "w:ptab"):
            inline.add(" ")
        elif tag in ("w:br", "w:cr"):
            inline.add("\n")
        elif tag == "w:noBreakHyphen":
            inline.add("-", target)
        elif tag == "w:sym":
            inline.add(_symbol(one), target)
        elif tag in ("w:footnoteReference", "w:endnoteReference"):
            self._refer(one, inline)
        elif tag in ("w:drawing", "w:pict", "w:object"):
            self._drawing(one, read)
        elif tag == "w:ruby":
            for base in each(one, "w:rubyBase"):
                self._runs(base, read, hidden, target)
        elif tag == "mc:AlternateContent":
            chosen = _chosen(one)
            for inner in chosen if chosen is not None else ():
                self._piece(inner, read, hidden, target)

    def _field(self, element: Element) -> None:
        kind = element.get("w:fldCharType")
        if kind == "begin" and len(self._fields) < 100:
            self._fields.append(_Field())
        elif kind == "separate" and self._fields:
            last = self._fields[-1]
            last.in_result = True
            found = _TARGET.match(last.code)
            last.target = found[1] if found is not None and "://" in found[1] else ""
        elif kind == "end" and self._fields:
            self._fields.pop()

    def _refer(self, element: Element, inline: Inline) -> None:
        kind = element.tag[2:].removesuffix("Reference")
        known = self._notes[kind].numbered(element.get("w:id", ""))
        if known is None:
            return
        number, note, is_new = known
        inline.add(f"[^{number}]" if kind == "footnote" else f"[^e{number}]")
        if is_new:
            due = self._due if kind == "footnote" else self._due_at_end
            due.append((f"[^{number}]" if kind == "footnote" else f"[^e{number}]", note))

    def _write_notes(self, due: list[tuple[str, str]]) -> None:
        for label, note in due:
            self._writer.paragraph(f"{label} {note}")
        due.clear()

    def _drawing(self, element: Element, read: _Paragraph) -> None:
        """Take the alternative text of a picture and the text boxes, which are written behind the paragraph."""
        ahead = [element]
        while ahead:
            one = ahead.pop()
            if one.tag == "wp:docPr":
                text = one.get("descr", "")
                if text.strip() and not _MADE_BY_PROGRAMS.fullmatch(one_line(text)):
                    read.inline.picture(text)
            elif one.tag == "w:txbxContent":
                read.boxes.append(one)
                continue
            elif one.tag == "mc:AlternateContent":
                chosen = _chosen(one)
                if chosen is not None:
                    ahead.append(chosen)
                continue
            ahead.extend(reversed(one))

    # Tables.

    def _table(self, element: Element) -> None:
        rows = [row for row in _rows(element) if not _is_deleted_row(row)]
        cells = [[cell for cell in _cells(row)] for row in rows]
        if sum(map(len, cells)) == 1:  # a frame around text
            self._blocks(next(row[0] for row in cells if row))
            return
        table: list[list[str]] = []
        above: dict[int, str] = {}
        size = 0
        for row, within in zip(rows, cells, strict=True):
            shown: list[str] = [""] * min(integer(_value(first(row, "w:trPr"), "w:gridBefore")), _MAX_SPAN)
            for cell in within:
                properties = first(cell, "w:tcPr")
                span = max(1, min(integer(_value(properties, "w:gridSpan"), 1), _MAX_SPAN))
                merge = None if properties is None else first(properties, "w:vMerge")
                place = len(shown)
                if merge is not None and merge.get("w:val", "continue") == "continue":
                    text = above.get(place, "")
                else:
                    text = self._cell(cell)
                    above[place] = text.replace(PAGE_BREAK, "") if merge is not None and len(text) <= _MAX_REPEATED else ""
                shown.extend([text, *[""] * (span - 1)])
                size += len(text) + 3
            if size > self._limits.text_bytes:
                raise UnreadableError("too-large", f"a table of more than {self._limits.text_bytes:,} characters")
            table.append(shown)
        self._writer.table(table)
        self._write_notes(self._due)

    def _cell(self, element: Element) -> str:
        """The text of a cell in one line; a table in it is written row by row."""
        parts: list[str] = []
        self._cell_parts(element, parts)
        return " ".join(part for part in parts if part)

    def _cell_parts(self, element: Element, parts: list[str]) -> None:
        for one in element:
            if one.tag == "w:p":
                read = _Paragraph()
                properties = first(one, "w:pPr")
                style = _value(properties, "w:pStyle")
                shape = self._style_of(style or self.styles.default)
                self._runs(one, read, shape.hidden)
                text = read.inline.markdown()
                number, depth = self._number(properties, style, shape)
                label = self._numbering.label(number, depth) if number and read.inline else ""
                parts.append(f"{label} {text}" if label else text)
                for box in read.boxes:
                    self._cell_parts(box, parts)
            elif one.tag == "w:tbl":
                for row in _rows(one):
                    inner = [self._cell(cell) for cell in _cells(row)]
                    parts.append(", ".join(cell for cell in inner if cell) + ";")
            elif one.tag == "w:sdt":
                if not _is_placeholder(one):
                    for inner_content in each(one, "w:sdtContent"):
                        self._cell_parts(inner_content, parts)
            elif one.tag in ("w:ins", "w:customXml", "w:smartTag", "w:moveTo"):
                self._cell_parts(one, parts)


@dataclass(slots=True)
class _Shape:
    """What a style says about its paragraphs, with all that it is based on."""

    outline: int = -1
    number: str = ""
    level: int = 0
    hidden: bool | None = None
    is_title: bool = False
    is_contents: bool = False
    is_code: bool = False
    bases: tuple[str, ...] = ()


class _Notes:
    """Footnotes or endnotes, in the order in which the text refers to them."""

    def __init__(self, package: Package, kind: str) -> None:
        self._package, self._kind = package, kind
        self._texts: dict[str, str] | None = None
        self._numbers: dict[str, int] = {}

    def numbered(self, name: str) -> tuple[int, str, bool] | None:
        """The number of a note, its text, and whether it is referred to for the first time; None without text."""
        if self._texts is None:
            self._texts = dict(self._read())
        text = self._texts.get(name)
        if not text:
            return None
        is_new = name not in self._numbers
        return self._numbers.setdefault(name, len(self._numbers) + 1), text, is_new

    def _read(self) -> Iterator[tuple[str, str]]:
        part = self._package.related(self._package.main, f"{self._kind}s")
        if part is None:
            return
        links = self._package.relationships(part)
        for one in blocks(self._package.read(part), part, f"w:{self._kind}s", 2, _SKIP):
            if one.get("w:type", "normal") != "normal":
                continue
            inline = Inline()
            for paragraph in one.iter("w:p"):
                if inline:
                    inline.add(" ")
                _note_text(paragraph, inline, links, "")
            text = one_line(inline.markdown())
            if len(text) > _MAX_NOTE:
                text = text[:_MAX_NOTE].rpartition(" ")[0] + " …"
            yield one.get("w:id", ""), text


def _note_text(element: Element, inline: Inline, links: Any, target: str) -> None:
    for one in element:
        if one.tag == "w:t":
            inline.add(one.text or "", target)
        elif one.tag in ("w:tab", "w:br", "w:cr"):
            inline.add(" ")
        elif one.tag == "w:noBreakHyphen":
            inline.add("-")
        elif one.tag == "w:hyperlink":
            known = links.get(one.get("r:id", ""))
            _note_text(one, inline, links, known.target if known is not None and known.external else "")
        elif one.tag in ("w:r", "w:ins", "w:moveTo", "w:smartTag", "w:fldSimple", "w:sdt", "w:sdtContent"):
            if _switch(first(one, "w:rPr"), "w:vanish") is not True:
                _note_text(one, inline, links, target)


def _starts_of_sections(data: bytes) -> Iterator[str]:
    """How each section begins: on the next page, or `continuous`. A section's properties stand behind it."""
    kind: str | None = None
    for found in _SECTIONS.finditer(data):
        if found[1] is None:
            if kind is not None:
                yield kind
            kind = "nextPage"
        elif kind == "nextPage":
            kind = found[1].decode("ascii")
    if kind is not None:
        yield kind


def _value(element: Element | None, tag: str) -> str:
    """What `w:val` of a child states."""
    child = first(element, tag)
    return "" if child is None else child.get("w:val", "")


def _switch(element: Element | None, tag: str) -> bool | None:
    """Whether a child switches something on; None where there is none."""
    child = first(element, tag)
    return None if child is None else child.get("w:val", "1") not in _OFF


def _chosen(element: Element) -> Element | None:
    """Of what a file offers to different programs, the first that has anything."""
    for one in element:
        if one.tag in ("mc:Choice", "mc:Fallback") and len(one):
            return one
    return None


def _is_contents(element: Element) -> bool:
    gallery = first(element, "w:sdtPr/w:docPartObj/w:docPartGallery")
    return gallery is not None and gallery.get("w:val") == "Table of Contents"


def _is_placeholder(element: Element) -> bool:
    return _switch(first(element, "w:sdtPr"), "w:showingPlcHdr") is True


def _is_deleted_row(row: Element) -> bool:
    properties = first(row, "w:trPr")
    return properties is not None and first(properties, "w:del") is not None


def _rows(table: Element) -> Iterator[Element]:
    for one in table:
        if one.tag == "w:tr":
            yield one
        elif one.tag in ("w:sdt", "w:sdtContent", "w:customXml", "w:ins", "w:moveTo"):
            yield from _rows(one)


def _cells(row: Element) -> Iterator[Element]:
    for one in row:
        if one.tag == "w:tc":
            yield one
        elif one.tag in ("w:sdt", "w:sdtContent", "w:customXml", "w:ins", "w:moveTo"):
            yield from _cells(one)


def _symbol(element: Element) -> str:
    try:
        code = int(element.get("w:char", "")[:6], 16)
    except ValueError:
        return ""
    if 0xF000 <= code <= 0xF0FF:
        return _SYMBOLS.get(code - 0xF000, "")
    return chr(code) if code >= 0x20 and not 0xD800 <= code <= 0xF8FF and code <= 0x10FFFF else ""


def _formula(element: Element) -> str:
    """A formula in one line, such as `(a+b)/2`."""
    parts: list[str] = []
    for one in element:
        tag = one.tag
        if tag == "m:t":
            parts.append(one.text or "")
        elif tag == "m:f":
            parts.append(f"{_grouped(one, 'm:num')}/{_grouped(one, 'm:den')}")
        elif tag in ("m:sSup", "m:sSub", "m:sSubSup"):
            below = f"_{_grouped(one, 'm:sub')}" if tag != "m:sSup" else ""
            above = f"^{_grouped(one, 'm:sup')}" if tag != "m:sSub" else ""
            parts.append(f"{_inner(one, 'm:e')}{below}{above}")
        elif tag == "m:rad":
            parts.append(f"{_inner(one, 'm:deg')}√({_inner(one, 'm:e')})")
        elif tag == "m:nary":
            sign = first(one, "m:naryPr/m:chr")
            low, high = _inner(one, "m:sub"), _inner(one, "m:sup")
            bounds = (f"_({low})" if low else "") + (f"^({high})" if high else "")
            parts.append(f"{'∫' if sign is None else sign.get('m:val', '')}{bounds} {_inner(one, 'm:e')}")
        elif tag == "m:d":
            parts.append("(" + ", ".join(_formula(inner) for inner in each(one, "m:e")) + ")")
        elif not tag.endswith("Pr"):
            parts.append(_formula(one))
    return "".join(parts)


def _inner(element: Element, tag: str) -> str:
    child = first(element, tag)
    return "" if child is None else _formula(child)


def _grouped(element: Element, tag: str) -> str:
    text = _inner(element, tag)
    return text if len(text) == 1 or text.isalnum() else f"({text})"

