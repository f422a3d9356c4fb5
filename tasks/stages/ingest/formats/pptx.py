"""PowerPoint presentations (.pptx, .pptm): the text of slides and speaker's notes, in Markdown.

The parts are read with `xml` over `archive` rather than with python-pptx, which markitdown calls: it loads every part
of the file, including pictures, before the first slide, without a limit, and returns no bullets, which are inherited
from the layout.

Each slide is a section. Its shapes are read in rows from top to bottom, and within a row from left to right; locations
include the shapes' boxes. Tables, chart data and diagram texts are included. Excluded: hidden slides (they count as
pages, as in PowerPoint), dates, footers, slide numbers, comments, and text of the layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter
from tasks.stages.ingest.formats.numbering import counted
from tasks.stages.ingest.formats.opc import Package, description, open_package
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.xml import Element, each, first, integer, parse

Box = tuple[float, float, float, float]

_EMU = 12_700
"""English metric units in a point."""
_ROW = 0.05
"""The height of a row, relative to the slide's height: shapes whose tops differ by less are in one row."""
_SKIPPED = frozenset({"dt", "ftr", "sldNum", "hdr"})
_TITLES = frozenset({"title", "ctrTitle"})
_MAX_CHART = 200
"""The maximum number of categories of a chart that is written as a table."""
_MAX_SERIES = 12
_MAX_CACHED = 10_000
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
        return Extracted(text, title or presentation.title, metadata, locations)


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
        self._parts: dict[str, str] = {}  # the parts that the slide refers to, by id
        self._links: dict[str, str] = {}
        self._height = 0
        self.slides = 0
        self.title = ""
        self.has_words = False

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

    def _slide(self, number: int, part: str) -> None:
        tree = parse(self._package.read(part), part, "p:sld")
        if tree.get("show") in ("0", "false"):
            return
        self._parts, self._links = self._package.parts(part), self._package.links(part)
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
        for shape in sorted((shape for shape in shapes if shape is not title), key=self._reading_order):
            self._writer.turn_to(number, shape.box)
            self._shape(shape, layout)
        self._notes(number, part)

    def _title(self, shape: _Shape) -> None:
        inline = self._inline(each(shape.element, "p:txBody/a:p"), self._links)
        self.has_words = True
        self.title = self.title or title_of(inline.plain())
        self._writer.heading(2, inline.markdown())

    def _reading_order(self, shape: _Shape) -> tuple[int, float]:
        if shape.box is None:
            return 1 << 30, 0.0
        band = max(self._height * _ROW / _EMU, 1.0)
        return int(shape.box[1] // band), shape.box[0]

    def _shapes(self, tree: Element, frame: _Frame, layout: _Layout) -> Iterator[_Shape]:
        """Yield the visible shapes in a tree and its groups, if they may contain text."""
        ahead: list[tuple[Element, _Frame]] = [(child, frame) for child in reversed(tree)]
        while ahead:
            element, within = ahead.pop()
            if element.tag == "mc:AlternateContent":
                chosen = next((child for child in element if len(child)), None)
                ahead += [(child, within) for child in reversed(chosen if chosen is not None else ())]
            elif element.tag == "p:grpSp":
                inner = _inner_frame(element, within)
                ahead += [(child, inner) for child in reversed(element)]
            elif element.tag in ("p:sp", "p:graphicFrame", "p:pic", "p:cxnSp"):
                about = first(element, "*/p:cNvPr")
                if about is not None and about.get("hidden") in ("1", "true"):
                    continue
                placeholder = first(element, "*/p:nvPr/p:ph")
                kind = "text" if placeholder is None else placeholder.get("type", "obj")
                if kind in _SKIPPED:
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
        if element.tag in ("p:pic", "p:graphicFrame"):
            about = first(element, "*/p:cNvPr")
            described = "" if about is None else description(about.get("descr", ""))
            if described:
                inline = Inline()
                inline.picture(described)
                self.has_words = True
                self._writer.paragraph(inline.markdown())

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
            part = self._parts.get(inner.get("r:dm" if inner.tag == "dgm:relIds" else "r:id", ""), "")
            if inner.tag == "c:chart" and self._package.has(part):
                self._chart(part)
            elif inner.tag == "dgm:relIds" and self._package.has(part):
                self._diagram(part)

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

    def _chart(self, part: str) -> None:
        """Write the title of a chart, and its data as a table unless there are too many categories."""
        tree = parse(self._package.read(part), part)
        title = first(tree, "c:chart/c:title")
        inline = self._inline(() if title is None else title.iter("a:p"), {})
        if inline:
            self._writer.paragraph(inline.markdown())
        series = list(each(tree, "c:chart/c:plotArea/*/c:ser"))[:_MAX_SERIES]
        categories: dict[int, str] = {}
        columns: list[tuple[str, dict[int, str]]] = []
        for plotted in series:
            for tag in ("c:cat", "c:xVal"):
                for index, text in _cached(plotted.find(tag)).items():
                    categories.setdefault(index, text)
            values = _cached(first(plotted, "c:val")) or _cached(first(plotted, "c:yVal"))
            columns.append((" ".join(_cached(first(plotted, "c:tx")).values()), values))
        indices = sorted({*categories, *(index for _, values in columns for index in values)})
        if not columns or not indices or len(indices) > _MAX_CHART:
            return
        rows = [["", *(Inline(name).markdown() for name, _ in columns)]]
        for index in indices:
            cells = (Inline(values.get(index, "")).markdown() for _, values in columns)
            rows.append([Inline(categories.get(index, "")).markdown(), *cells])
        self.has_words = self.has_words or any(categories.values())
        self._writer.table(rows)

    def _diagram(self, part: str) -> None:
        tree = parse(self._package.read(part), part, "dgm:dataModel")
        for point in each(tree, "dgm:ptLst/dgm:pt"):
            if point.get("type", "node") not in ("node", "asst"):
                continue
            inline = self._inline(each(point, "dgm:t/a:p"), {})
            if inline:
                self._writer.item(0, "-", inline.markdown())

    def _inline(self, paragraphs: Iterable[Element], links: Mapping[str, str]) -> Inline:
        inline = Inline()
        for paragraph in paragraphs:
            if inline:
                inline.add(" ")
            _text(paragraph, inline, links)
        self.has_words = self.has_words or bool(inline)
        return inline

    def _notes(self, number: int, part: str) -> None:
        notes = self._package.related(part, "notesSlide")
        if notes is None:
            return
        tree = parse(self._package.read(notes), notes, "p:notes")
        links = self._package.links(notes)
        begun = False
        for shape in each(tree, "p:cSld/p:spTree/p:sp"):
            placeholder = first(shape, "*/p:nvPr/p:ph")
            if placeholder is None or placeholder.get("type") != "body":
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


def _text(paragraph: Element, inline: Inline, links: Mapping[str, str]) -> None:
    for child in paragraph:
        if child.tag in ("a:r", "a:fld"):
            clicked = first(child, "a:rPr/a:hlinkClick")
            target = "" if clicked is None else links.get(clicked.get("r:id", ""), "")
            text = first(child, "a:t")
            inline.add((text.text or "") if text is not None else "", target)
        elif child.tag == "a:br":
            inline.add("\n")
        elif child.tag in ("m:oMath", "m:oMathPara") or child.tag.endswith(":m"):
            inline.add("".join(math_text.text or "" for math_text in child.iter("m:t")))
        elif child.tag == "mc:AlternateContent":
            for math_text in child.iter("m:t"):
                inline.add(math_text.text or "")


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
    transform = first(element, "p:spPr/a:xfrm")
    if transform is None:
        transform = first(element, "p:xfrm")
    return None if transform is None else _rectangle(transform, "a:off", "a:ext")


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


def _cached(element: Element | None) -> dict[int, str]:
    values: dict[int, str] = {}
    if element is None:
        return values
    for point in element.iter("c:pt"):
        value = first(point, "c:v")
        if value is not None and value.text and len(values) < _MAX_CACHED:
            values[integer(point.get("idx"))] = _number(one_line(value.text))
    direct = first(element, "c:v")
    if not values and direct is not None and direct.text:
        values[0] = one_line(direct.text)
    return values


def _number(text: str) -> str:
    """Return a number without binary rounding noise; other text is returned unchanged."""
    if len(text) < 8 or len(text) > 30 or not re.fullmatch(r"-?\d+\.\d+(E[+-]?\d{1,2})?", text):
        return text
    return f"{float(text):.12g}"
