"""PowerPoint presentations (.pptx, .pptm): the text of slides and speaker's notes, in Markdown.

The parts are read with `xml` over `archive` rather than with python-pptx, which markitdown calls: it loads every part
of the file, including pictures, before the first slide, without a limit, and returns no bullets, which are inherited
from the layout.

Each slide is a section. Its shapes are read in rows from top to bottom, and within a row from left to right; locations
include the shapes' boxes. Tables, chart data and diagram texts are included. Excluded: hidden slides (they count as
pages, as in PowerPoint), dates, footers, slide numbers, comments, and text of the layout. What is not read is counted
in the metadata (`unread`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from tasks.stages.ingest.documents import Location, WordCounts
from tasks.stages.ingest.formats.drawingml import GRAPHICS, chosen, graphic, inline_of
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter
from tasks.stages.ingest.formats.numbering import counted
from tasks.stages.ingest.formats.office_words import words_in_part
from tasks.stages.ingest.formats.opc import Package, description, open_package
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import count_words
from tasks.stages.ingest.formats.xml import Element, each, first, integer, parse

Box = tuple[float, float, float, float]

_EMU = 12_700
"""English metric units in a point."""
_ROW = 0.05
"""Shapes of one row differ by less in their tops, relative to the slide's height, and overlap by half their height."""
_SKIPPED = frozenset({"dt", "ftr", "sldNum", "hdr"})
_TITLES = frozenset({"title", "ctrTitle"})
_MAX_PLACEHOLDERS = 200
_FORMS = {"arabic": "decimal", "alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman"}
_FORMS["romanUc"] = "upperRoman"


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a presentation; locations are slides, with the boxes of shapes. See `Extractor`."""
    with open_package(file, limits, "a PowerPoint presentation", "ppt/presentation.xml") as package:
        title, metadata = package.properties()
        presentation = _Presentation(package, limits)
        text, locations = presentation.read()
        if not presentation.has_words:
            raise UnreadableError("no-text", "the slides have no text; pictures are not read")
        metadata["pages"] = presentation.slides
        if unread := +presentation.unread:
            metadata["unread"] = dict(sorted(unread.items()))
        words = WordCounts(presentation.words, presentation.left_out)
        return Extracted(text, title or presentation.title, metadata, locations, words=words)


@dataclass(frozen=True, slots=True)
class _Frame:
    """Maps coordinates in a group to coordinates on the slide."""

    scale_x: float = 1.0
    scale_y: float = 1.0
    move_x: float = 0.0
    move_y: float = 0.0

    def box(self, placed: tuple[int, int, int, int]) -> Box:
        """Map left, top, width and height in the group to left, top, right and bottom on the slide, in points."""
        group_x, group_y, width, height = placed
        x, y = group_x * self.scale_x + self.move_x, group_y * self.scale_y + self.move_y
        right, bottom = x + width * self.scale_x, y + height * self.scale_y
        return (_points(x), _points(y), _points(right), _points(bottom))


def _points(units: float) -> float:
    return round(max(-1e6, min(units / _EMU, 1e6)), 2)


@dataclass(slots=True)
class _Placeholder:
    kind: str
    index: str
    placed: tuple[int, int, int, int] | None
    bullets: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Shape:
    element: Element
    box: Box | None
    kind: str  # the placeholder's kind; `text` if the shape is not a placeholder


@dataclass(slots=True)
class _Layout:
    placeholders: list[_Placeholder] = field(default_factory=list)
    body: dict[int, str] = field(default_factory=dict)  # the bullets of the master's body text, by level

    def of(self, kind: str, index: str) -> list[_Placeholder]:
        """Return the placeholders that a slide's placeholder inherits from, the nearest first."""
        by_index = [placeholder for placeholder in self.placeholders if index and placeholder.index == index]
        alike = {kind} | ({"title", "ctrTitle"} if kind in _TITLES else set()) | ({"body"} if kind == "obj" else set())
        return by_index + [
            placeholder
            for placeholder in self.placeholders
            if placeholder.kind in alike and placeholder not in by_index
        ]


class _Presentation:
    """Reads the slides in the order in which they are shown."""

    def __init__(self, package: Package, limits: ExtractionLimits) -> None:
        self._package, self._limits = package, limits
        self._writer = MarkdownWriter(limits)
        self._layouts: dict[str, _Layout] = {}
        self._part = ""  # the slide's
        self._links: dict[str, str] = {}
        self._height = 0
        self.slides = 0
        self.title = ""
        self.has_words = False
        self.unread: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()  # words by reason

    def read(self) -> tuple[str, tuple[Location, ...]]:
        main = self._package.main
        tree = parse(self._package.read(main), main, "p:presentation")
        size = first(tree, "p:sldSz")
        self._height = 0 if size is None else integer(size.get("cy"))
        slides = self._package.parts(main, "slide")
        names = (slide.get("r:id", "") for slide in each(tree, "p:sldIdLst/p:sldId"))
        parts = [slides[name] for name in names if name in slides]
        self.slides = len(parts)
        self._limits.check_pages(self.slides, "slides")
        seen: set[str] = set()
        for number, part in enumerate(parts, 1):
            if part not in seen:  # a slide that is listed twice is read once
                seen.add(part)
                self._slide(number, part)
        return self._writer.result()

    def _count(self, data: bytes, reason: str = "") -> None:
        """Count the words of a part. reason: why they are left out; empty if they are read."""
        words, _ = words_in_part(data)
        self.words.update(words)
        if reason:
            self.left_out[reason] += words.total()

    def _leave_out(self, element: Element, reason: str) -> None:
        texts = (paragraph.itertext() for paragraph in element.iter("a:p"))
        self.left_out[reason] += count_words("\n".join(map("".join, texts)))

    def _slide(self, number: int, part: str) -> None:
        data = self._package.read(part)
        tree = parse(data, part, "p:sld")
        if tree.get("show") in ("0", "false"):
            self.unread["hidden_slides"] += 1
            self._count(data, "hidden")
            return
        self._count(data)
        if (comments := self._package.related(part, "comments")) is not None:
            self._count(self._package.read(comments), "comment")
        self._part, self._links = part, self._package.links(part)
        self.unread["comments"] += self._package.count(part, "comments", "cm")
        layout = self._layout(part)
        content = first(tree, "p:cSld/p:spTree")
        shapes = [] if content is None else list(self._shapes(content, _Frame(), layout))
        titles = [shape for shape in shapes if shape.kind in _TITLES]
        title = next((shape for shape in titles if _plain_text(shape.element)), None)
        self._writer.turn_to(number, None if title is None else title.box)
        if title is None:
            self._writer.heading(2, f"Slide {number}")
        else:
            self._title(title)
        for shape in self._in_reading_order(shape for shape in shapes if shape is not title):
            self._writer.turn_to(number, shape.box)
            self._shape(shape, layout)
        self._notes(number, part)

    def _title(self, shape: _Shape) -> None:
        inline = self._inline(each(shape.element, "p:txBody/a:p"), self._links)
        self.has_words = True
        self.title = self.title or title_of(inline.plain())
        self._writer.heading(2, inline.markdown())

    def _in_reading_order(self, shapes: Iterable[_Shape]) -> Iterator[_Shape]:
        """Yield shapes row by row; shapes without a place come last."""
        unplaced: list[_Shape] = []
        rows: list[list[tuple[Box, _Shape]]] = []
        for shape in sorted(shapes, key=lambda shape: shape.box[1] if shape.box is not None else 0.0):
            if shape.box is None:
                unplaced.append(shape)
            elif rows and self._is_in_row(shape.box, rows[-1][0][0]):
                rows[-1].append((shape.box, shape))
            else:
                rows.append([(shape.box, shape)])
        for row in rows:
            yield from (shape for _, shape in sorted(row, key=lambda placed: placed[0][0]))
        yield from unplaced

    def _is_in_row(self, box: Box, start: Box) -> bool:
        """Return whether a box is in the row of a box that begins above it."""
        overlap = min(box[3], start[3]) - box[1]
        band = max(self._height * _ROW / _EMU, 1.0)
        return box[1] - start[1] < band and overlap >= min(box[3] - box[1], start[3] - start[1]) / 2

    def _shapes(self, tree: Element, frame: _Frame, layout: _Layout) -> Iterator[_Shape]:
        """Yield the visible shapes in a tree and its groups, if they may contain text."""
        ahead: list[tuple[Element, _Frame]] = [(child, frame) for child in reversed(tree)]
        while ahead:
            element, within = ahead.pop()
            if element.tag == "mc:AlternateContent":
                ahead += [(child, within) for alternative in chosen(element) for child in reversed(alternative)]
            elif element.tag == "p:grpSp":
                inner = _inner_frame(element, within)
                ahead += [(child, inner) for child in reversed(element)]
                placed = _placed(element)
                if description(first(element, "p:nvGrpSpPr/p:cNvPr")):
                    yield _Shape(element, None if placed is None else within.box(placed), "text")
            elif element.tag in ("p:sp", "p:graphicFrame", "p:pic", "p:cxnSp"):
                about = first(element, "*/p:cNvPr")
                if about is not None and about.get("hidden") in ("1", "true"):
                    self._leave_out(element, "hidden")
                    continue
                placeholder = first(element, "*/p:nvPr/p:ph")
                kind = "text" if placeholder is None else placeholder.get("type", "obj")
                if kind in _SKIPPED:
                    self._leave_out(element, "header-footer")
                    continue
                placed = _placed(element)
                if placed is None and placeholder is not None:
                    above = layout.of(kind, placeholder.get("idx", ""))
                    placed = next((inherited.placed for inherited in above if inherited.placed is not None), None)
                yield _Shape(element, None if placed is None else within.box(placed), kind)

    def _shape(self, shape: _Shape, layout: _Layout) -> None:
        element = shape.element
        if element.tag == "p:sp":
            body = first(element, "p:txBody")
            if body is not None:
                self._text_body(body, shape, layout)
        elif element.tag == "p:graphicFrame":
            self._graphic(element)
        described = description(first(element, "*/p:cNvPr"))
        if described and (element.tag in ("p:pic", "p:graphicFrame") or not _plain_text(element)):
            inline = Inline()
            inline.picture(described)
            self.has_words = True
            self._writer.paragraph(inline.markdown())
        elif element.tag == "p:pic":
            self.unread["pictures"] += 1

    def _text_body(self, body: Element, shape: _Shape, layout: _Layout) -> None:
        placeholder = first(shape.element, "*/p:nvPr/p:ph")
        bullets: list[Mapping[int, str]] = [_bullets(first(body, "a:lstStyle"))]
        if placeholder is not None and shape.kind in ("obj", "body"):
            bullets += [inherited.bullets for inherited in layout.of(shape.kind, placeholder.get("idx", ""))]
            bullets.append(layout.body)
        counts: dict[int, int] = {}
        for paragraph in each(body, "a:p"):
            inline = self._inline([paragraph], self._links)
            if not inline:
                continue
            properties = first(paragraph, "a:pPr")
            level = 0 if properties is None else max(0, min(integer(properties.get("lvl")), 8))
            bullet = _bullet(properties) or next((levels[level] for levels in bullets if level in levels), "none")
            counts = {counted_level: count for counted_level, count in counts.items() if counted_level <= level}
            if bullet.startswith("auto"):
                _, form, start = bullet.split(":")
                counts[level] = counts[level] + 1 if level in counts else integer(start, 1)
                label = counted(counts[level], _FORMS.get(form, "decimal"))
                text = inline.markdown()
                self._writer.item(level, f"{label}." if label.isdecimal() and len(label) < 10 else "-",
                                  text if label.isdecimal() else f"{label}. {text}")  # fmt: skip
                continue
            counts.pop(level, None)
            if bullet == "none":
                self._writer.paragraph(inline.markdown())
            else:
                self._writer.item(level, "-", inline.markdown())

    def _graphic(self, element: Element) -> None:
        for inner in each(element, "a:graphic/a:graphicData/*"):
            if inner.tag == "a:tbl":
                self._table(inner)
            elif inner.tag in GRAPHICS:
                read = graphic(inner, self._package, self._part)
                if read is None or read.is_cut:
                    self.unread[GRAPHICS[inner.tag]] += 1
                if read is not None:
                    self.has_words = self.has_words or read.has_words
                    read.write(self._writer)
            elif any(child.tag == "p:oleObj" for child in inner.iter()):
                self.unread["objects"] += 1

    def _table(self, element: Element) -> None:
        rows: list[list[str]] = []
        above: dict[int, str] = {}
        for row in each(element, "a:tr"):
            shown: list[str] = []
            for column, cell in enumerate(each(row, "a:tc")):
                if cell.get("hMerge") in ("1", "true"):
                    shown.append("")
                elif cell.get("vMerge") in ("1", "true"):
                    shown.append(above.get(column, ""))
                else:
                    text = one_line(self._inline(each(cell, "a:txBody/a:p"), self._links).markdown())
                    above[column] = text if len(text) <= 200 else ""
                    shown.append(text)
            rows.append(shown)
        self._writer.table(rows)

    def _inline(self, paragraphs: Iterable[Element], links: Mapping[str, str]) -> Inline:
        inline = inline_of(paragraphs, links)
        self.has_words = self.has_words or bool(inline)
        return inline

    def _notes(self, number: int, part: str) -> None:
        notes = self._package.related(part, "notesSlide")
        if notes is None:
            return
        data = self._package.read(notes)
        self._count(data)
        tree = parse(data, notes, "p:notes")
        links = self._package.links(notes)
        begun = False
        for shape in each(tree, "p:cSld/p:spTree/p:sp"):
            placeholder = first(shape, "*/p:nvPr/p:ph")
            if placeholder is None or placeholder.get("type") != "body":
                self._leave_out(shape, "header-footer")
                continue
            for paragraph in each(shape, "p:txBody/a:p"):
                inline = self._inline([paragraph], links)
                if inline:
                    self._writer.turn_to(number)
                    if not begun:
                        self._writer.paragraph("Notes:")
                        begun = True
                    self._writer.paragraph(inline.markdown())

    def _layout(self, slide: str) -> _Layout:
        part = self._package.related(slide, "slideLayout") or ""
        if part not in self._layouts:
            self._layouts[part] = self._read_layout(part)
        return self._layouts[part]

    def _read_layout(self, part: str) -> _Layout:
        layout = _Layout()
        master = self._package.related(part, "slideMaster") if part else None
        for source in (part, master):
            if not source:
                continue
            tree = parse(self._package.read(source), source)
            for shape in each(tree, "p:cSld/p:spTree/p:sp"):
                placeholder = first(shape, "*/p:nvPr/p:ph")
                if placeholder is not None and len(layout.placeholders) < _MAX_PLACEHOLDERS:
                    bullets = _bullets(first(shape, "p:txBody/a:lstStyle"))
                    index = placeholder.get("idx", "") if source == part else ""
                    layout.placeholders.append(
                        _Placeholder(placeholder.get("type", "obj"), index, _placed(shape), bullets)
                    )
            if source == master:
                layout.body = _bullets(first(tree, "p:txStyles/p:bodyStyle"))
        return layout


def _plain_text(element: Element) -> str:
    return "".join(run.text or "" for body in each(element, "p:txBody") for run in body.iter("a:t")).strip()


def _bullet(properties: Element | None) -> str:
    """Return the bullet of a paragraph: `none`, `bullet`, `auto:FORM:START`; empty if it is inherited."""
    for child in properties if properties is not None else ():
        if child.tag == "a:buNone":
            return "none"
        if child.tag in ("a:buChar", "a:buBlip"):
            return "bullet"
        if child.tag == "a:buAutoNum":
            form = re.sub(r"(Period|Paren.*|Plain|Minus|DbPlain)$", "", child.get("type", "arabic"))
            return f"auto:{form if form.isalpha() else 'arabic'}:{integer(child.get('startAt'), 1)}"
    return ""


def _bullets(styles: Element | None) -> dict[int, str]:
    bullets: dict[int, str] = {}
    for level in range(9):
        bullet = _bullet(None if styles is None else styles.find(f"a:lvl{level + 1}pPr"))
        if bullet:
            bullets[level] = bullet
    return bullets


def _placed(element: Element) -> tuple[int, int, int, int] | None:
    """Return left, top, width and height of a shape in its group; None if they are inherited."""
    for path in ("p:spPr/a:xfrm", "p:grpSpPr/a:xfrm", "p:xfrm"):
        transform = first(element, path)
        if transform is not None:
            return _rectangle(transform, "a:off", "a:ext")
    return None


def _rectangle(transform: Element, offset: str, extent: str) -> tuple[int, int, int, int] | None:
    at, size = transform.find(offset), transform.find(extent)
    if at is None or size is None:
        return None
    return integer(at.get("x")), integer(at.get("y")), integer(size.get("cx")), integer(size.get("cy"))


def _inner_frame(group: Element, outer: _Frame) -> _Frame:
    transform = first(group, "p:grpSpPr/a:xfrm")
    shown = None if transform is None else _rectangle(transform, "a:off", "a:ext")
    inner = None if transform is None else _rectangle(transform, "a:chOff", "a:chExt")
    if shown is None or inner is None or not inner[2] or not inner[3]:
        return outer
    scale_x, scale_y = _bounded(shown[2] / inner[2]), _bounded(shown[3] / inner[3])
    return _Frame(
        _bounded(outer.scale_x * scale_x),
        _bounded(outer.scale_y * scale_y),
        _bounded(outer.move_x + (shown[0] - inner[0] * scale_x) * outer.scale_x),
        _bounded(outer.move_y + (shown[1] - inner[1] * scale_y) * outer.scale_y),
    )


def _bounded(value: float) -> float:
    return max(-1e12, min(value, 1e12))
