"""PowerPoint presentations (.pptx, .pptm): what stands on the slides and in the speaker's notes, in Markdown.

The parts are read with `xml` over `archive` rather than with python-pptx, which markitdown calls: it loads every part
of the file, pictures too, before the first slide, without a bound, and gives no bullets, as these are inherited from
the layout.

Each slide is a section. Its text comes in reading order: by rows from the top, in a row from the left; boxes are where
shapes lie. Tables, the data of charts, and the texts of diagrams are read. Left out: hidden slides, as nobody sees them
(they count as pages, as in PowerPoint), dates, footers, slide numbers, comments, and what only stands on the layout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import Extracted, Limits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clip_title
from tasks.stages.ingest.formats.numbering import counted
from tasks.stages.ingest.formats.opc import Package, Relationship, description, open_package
from tasks.stages.ingest.formats.xml import Element, each, first, integer, parse

Box = tuple[float, float, float, float]

_EMU = 12_700
"""English metric units in a point."""
_ROW = 0.05
"""Of the height of a slide: shapes whose tops differ by less stand in one row."""
_LEFT_OUT = frozenset({"dt", "ftr", "sldNum", "hdr"})
_TITLES = frozenset({"title", "ctrTitle"})
_MAX_CHART = 200
"""Categories of a chart that are written as a table."""
_MAX_SERIES = 12
_MAX_CACHED = 10_000
_MAX_PLACEHOLDERS = 200
_FORMS = {"arabic": "decimal", "alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman"}
_FORMS["romanUc"] = "upperRoman"


def extract(file: BinaryIO, limits: Limits) -> Extracted:
    """The text of a presentation; locations are slides, with the boxes of shapes.

    Raises:
        UnreadableError: the file is no presentation, is damaged, locked or hostile, has no text, or is over a limit.
    """
    with open_package(file, limits, "a PowerPoint presentation", "ppt/presentation.xml") as package:
        title, metadata = package.properties()
        found = _Presentation(package, limits)
        text, locations = found.read()
        if not found.has_words:
            raise UnreadableError("no-text", "the slides have no text; pictures are not read")
        metadata["pages"] = found.slides
        return Extracted(text, title or found.title, metadata, locations)


@dataclass(frozen=True, slots=True)
class _Frame:
    """How coordinates in a group become those of the slide."""

    scale_x: float = 1.0
    scale_y: float = 1.0
    move_x: float = 0.0
    move_y: float = 0.0

    def box(self, placed: tuple[int, int, int, int]) -> Box:
        """left, top, width and height in the group -> left, top, right and bottom on the slide, in points."""
        left, top, width, height = placed
        x, y = left * self.scale_x + self.move_x, top * self.scale_y + self.move_y
        right, bottom = x + width * self.scale_x, y + height * self.scale_y
        return (_points(x), _points(y), _points(right), _points(bottom))


def _points(units: float) -> float:
    return round(max(-1e6, min(units / _EMU, 1e6)), 2)


@dataclass(slots=True)
class _Placeholder:
    """What a layout or a master says about a placeholder."""

    kind: str
    index: str
    placed: tuple[int, int, int, int] | None
    bullets: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A shape with something to read. order: in the file."""

    element: Element
    box: Box | None
    order: int
    kind: str  # of its placeholder; `text` for none


@dataclass(slots=True)
class _Layout:
    placeholders: list[_Placeholder] = field(default_factory=list)
    body: dict[int, str] = field(default_factory=dict)  # marks of the levels of the master's body text

    def of(self, kind: str, index: str) -> list[_Placeholder]:
        """The placeholders that one of a slide inherits from, the nearest first."""
        by_index = [one for one in self.placeholders if index and one.index == index]
        alike = {kind} | ({"title", "ctrTitle"} if kind in _TITLES else set()) | ({"body"} if kind == "obj" else set())
        return by_index + [one for one in self.placeholders if one.kind in alike and one not in by_index]


class _Presentation:
    """Reads the slides in the order in which they are shown."""

    def __init__(self, package: Package, limits: Limits) -> None:
        self._package, self._limits = package, limits
        self._writer = MarkdownWriter(limits)
        self._layouts: dict[str, _Layout] = {}
        self._height = 0
        self.slides = 0
        self.title = ""
        self.has_words = False

    def read(self) -> tuple[str, tuple[Location, ...]]:
        """The text and its locations."""
        main = self._package.main
        tree = parse(self._package.read(main), main, "p:presentation")
        size = first(tree, "p:sldSz")
        self._height = 0 if size is None else integer(size.get("cy"))
        related = self._package.relationships(main)
        parts = [
            known.target
            for one in each(tree, "p:sldIdLst/p:sldId")
            if (known := related.get(one.get("r:id", ""))) is not None and known.kind == "slide" and not known.external
        ]
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
        layout = self._layout(part)
        content = first(tree, "p:cSld/p:spTree")
        shapes = [] if content is None else list(self._shapes(content, _Frame(), layout))
        titles = [one for one in shapes if one.kind in _TITLES]
        title = next((one for one in titles if _plain_text(one.element)), None)
        self._writer.turn_to(number, None if title is None else title.box)
        if title is None:
            self._writer.heading(2, f"Slide {number}")
        else:
            self._title(title, part)
        for shape in sorted((one for one in shapes if one is not title), key=self._reading_order):
            self._writer.turn_to(number, shape.box)
            self._shape(shape, part, layout)
        self._notes(number, part)

    def _title(self, shape: _Shape, part: str) -> None:
        inline = _joined(each(shape.element, "p:txBody/a:p"), self._package.relationships(part))
        self.has_words = True
        self.title = self.title or clip_title(inline.plain())
        self._writer.heading(2, inline.markdown())

    def _reading_order(self, shape: _Shape) -> tuple[int, float, int]:
        if shape.box is None:
            return 1 << 30, 0.0, shape.order
        band = max(self._height * _ROW / _EMU, 1.0)
        return int(shape.box[1] // band), shape.box[0], shape.order

    def _shapes(self, tree: Element, frame: _Frame, layout: _Layout) -> Iterator[_Shape]:
        """The shapes of a tree and of its groups that are shown and may have something to read."""
        ahead: list[tuple[Element, _Frame]] = [(one, frame) for one in reversed(tree)]
        order = 0
        while ahead:
            element, within = ahead.pop()
            if element.tag == "mc:AlternateContent":
                chosen = next((one for one in element if len(one)), None)
                ahead += [(one, within) for one in reversed(chosen if chosen is not None else ())]
            elif element.tag == "p:grpSp":
                inner = _inner_frame(element, within)
                ahead += [(one, inner) for one in reversed(element)]
            elif element.tag in ("p:sp", "p:graphicFrame", "p:pic", "p:cxnSp"):
                about = first(element, "*/p:cNvPr")
                if about is not None and about.get("hidden") in ("1", "true"):
                    continue
                held = first(element, "*/p:nvPr/p:ph")
                kind = "text" if held is None else held.get("type", "obj")
                if kind in _LEFT_OUT:
                    continue
                placed = _placed(element)
                if placed is None and held is not None:
                    above = layout.of(kind, held.get("idx", ""))
                    placed = next((one.placed for one in above if one.placed is not None), None)
                order += 1
                yield _Shape(element, None if placed is None else within.box(placed), order, kind)

    def _shape(self, shape: _Shape, part: str, layout: _Layout) -> None:
        element = shape.element
        if element.tag == "p:sp":
            body = first(element, "p:txBody")
            if body is not None:
                self._text_body(body, shape, part, layout)
        elif element.tag == "p:graphicFrame":
            self._graphic(element, part)
        if element.tag in ("p:pic", "p:graphicFrame"):
            about = first(element, "*/p:cNvPr")
            described = "" if about is None else description(about.get("descr", ""))
            if described:
                inline = Inline()
                inline.picture(described)
                self.has_words = True
                self._writer.paragraph(inline.markdown())

    def _text_body(self, body: Element, shape: _Shape, part: str, layout: _Layout) -> None:
        links = self._package.relationships(part)
        held = first(shape.element, "*/p:nvPr/p:ph")
        marks: list[Mapping[int, str]] = [_marks(first(body, "a:lstStyle"))]
        if held is not None and shape.kind in ("obj", "body"):
            marks += [one.bullets for one in layout.of(shape.kind, held.get("idx", ""))]
            marks.append(layout.body)
        counts: dict[int, int] = {}
        for paragraph in each(body, "a:p"):
            inline = Inline()
            _text(paragraph, inline, links)
            if not inline:
                continue
            self.has_words = True
            properties = first(paragraph, "a:pPr")
            level = 0 if properties is None else max(0, min(integer(properties.get("lvl")), 8))
            mark = _mark(properties) or next((one[level] for one in marks if level in one), "none")
            for deeper in [one for one in counts if one > level]:
                del counts[deeper]
            if mark.startswith("auto"):
                _, form, start = mark.split(":")
                counts[level] = counts[level] + 1 if level in counts else integer(start, 1)
                label = counted(counts[level], _FORMS.get(form, "decimal"))
                text = inline.markdown()
                self._writer.item(level, f"{label}." if label.isdecimal() and len(label) < 10 else "-",
                                  text if label.isdecimal() else f"{label}. {text}")  # fmt: skip
                continue
            counts.pop(level, None)
            if mark == "none":
                self._writer.paragraph(inline.markdown())
            else:
                self._writer.item(level, "-", inline.markdown())

    def _graphic(self, element: Element, part: str) -> None:
        related = self._package.relationships(part)
        for inner in each(element, "a:graphic/a:graphicData/*"):
            if inner.tag == "a:tbl":
                self._table(inner, related)
            elif inner.tag == "c:chart":
                target = self._part(related, inner.get("r:id", ""))
                if target is not None:
                    self._chart(target)
            elif inner.tag == "dgm:relIds":
                target = self._part(related, inner.get("r:dm", ""))
                if target is not None:
                    self._diagram(target)

    def _part(self, related: Mapping[str, Relationship], name: str) -> str | None:
        known = related.get(name)
        return None if known is None or known.external or not self._package.has(known.target) else known.target

    def _table(self, element: Element, links: Mapping[str, Relationship]) -> None:
        rows: list[list[str]] = []
        above: dict[int, str] = {}
        for row in each(element, "a:tr"):
            shown: list[str] = []
            for place, cell in enumerate(each(row, "a:tc")):
                if cell.get("hMerge") in ("1", "true"):
                    shown.append("")
                elif cell.get("vMerge") in ("1", "true"):
                    shown.append(above.get(place, ""))
                else:
                    inline = _joined(each(cell, "a:txBody/a:p"), links)
                    text = one_line(inline.markdown())
                    above[place] = text if len(text) <= 200 else ""
                    self.has_words = self.has_words or bool(inline)
                    shown.append(text)
            rows.append(shown)
        self._writer.table(rows)

    def _chart(self, part: str) -> None:
        """The title of a chart, and its data as a table where they are few."""
        tree = parse(self._package.read(part), part)
        title = first(tree, "c:chart/c:title")
        inline = _joined(() if title is None else title.iter("a:p"), {})
        if inline:
            self.has_words = True
            self._writer.paragraph(inline.markdown())
        series = list(each(tree, "c:chart/c:plotArea/*/c:ser"))[:_MAX_SERIES]
        categories: dict[int, str] = {}
        columns: list[tuple[str, dict[int, str]]] = []
        for one in series:
            for tag in ("c:cat", "c:xVal"):
                for place, text in _cached(one.find(tag)).items():
                    categories.setdefault(place, text)
            values = _cached(first(one, "c:val")) or _cached(first(one, "c:yVal"))
            columns.append((" ".join(_cached(first(one, "c:tx")).values()), values))
        places = sorted({*categories, *(place for _, values in columns for place in values)})
        if not columns or not places or len(places) > _MAX_CHART:
            return
        rows = [["", *(Inline(name).markdown() for name, _ in columns)]]
        for place in places:
            cells = (Inline(values.get(place, "")).markdown() for _, values in columns)
            rows.append([Inline(categories.get(place, "")).markdown(), *cells])
        self.has_words = self.has_words or any(categories.values())
        self._writer.table(rows)

    def _diagram(self, part: str) -> None:
        tree = parse(self._package.read(part), part, "dgm:dataModel")
        for point in each(tree, "dgm:ptLst/dgm:pt"):
            if point.get("type", "node") not in ("node", "asst"):
                continue
            inline = _joined(each(point, "dgm:t/a:p"), {})
            if inline:
                self.has_words = True
                self._writer.item(0, "-", inline.markdown())

    def _notes(self, number: int, part: str) -> None:
        notes = self._package.related(part, "notesSlide")
        if notes is None:
            return
        tree = parse(self._package.read(notes), notes, "p:notes")
        links = self._package.relationships(notes)
        begun = False
        for shape in each(tree, "p:cSld/p:spTree/p:sp"):
            held = first(shape, "*/p:nvPr/p:ph")
            if held is None or held.get("type") != "body":
                continue
            for paragraph in each(shape, "p:txBody/a:p"):
                inline = Inline()
                _text(paragraph, inline, links)
                if inline:
                    self.has_words = True
                    self._writer.turn_to(number)
                    if not begun:
                        self._writer.paragraph("Notes:")
                        begun = True
                    self._writer.paragraph(inline.markdown())

    def _layout(self, slide: str) -> _Layout:
        part = self._package.related(slide, "slideLayout") or ""
        known = self._layouts.get(part)
        if known is None:
            known = self._layouts[part] = self._read_layout(part)
        return known

    def _read_layout(self, part: str) -> _Layout:
        found = _Layout()
        master = self._package.related(part, "slideMaster") if part else None
        for one in (part, master):
            if not one:
                continue
            tree = parse(self._package.read(one), one)
            for shape in each(tree, "p:cSld/p:spTree/p:sp"):
                held = first(shape, "*/p:nvPr/p:ph")
                if held is not None and len(found.placeholders) < _MAX_PLACEHOLDERS:
                    bullets = _marks(first(shape, "p:txBody/a:lstStyle"))
                    index = held.get("idx", "") if one == part else ""
                    found.placeholders.append(_Placeholder(held.get("type", "obj"), index, _placed(shape), bullets))
            if one == master:
                found.body = _marks(first(tree, "p:txStyles/p:bodyStyle"))
        return found


def _joined(paragraphs: Iterable[Element], links: Mapping[str, Relationship]) -> Inline:
    """The text of some paragraphs with blanks between them."""
    inline = Inline()
    for paragraph in paragraphs:
        if inline:
            inline.add(" ")
        _text(paragraph, inline, links)
    return inline


def _text(paragraph: Element, inline: Inline, links: Mapping[str, Relationship]) -> None:
    """Add the text of a paragraph."""
    for one in paragraph:
        if one.tag in ("a:r", "a:fld"):
            clicked = first(one, "a:rPr/a:hlinkClick")
            known = None if clicked is None else links.get(clicked.get("r:id", ""))
            text = first(one, "a:t")
            inline.add((text.text or "") if text is not None else "", known.target if known and known.external else "")
        elif one.tag == "a:br":
            inline.add("\n")
        elif one.tag in ("m:oMath", "m:oMathPara") or one.tag.endswith(":m"):
            inline.add("".join(found.text or "" for found in one.iter("m:t")))
        elif one.tag == "mc:AlternateContent":
            for found in one.iter("m:t"):
                inline.add(found.text or "")


def _plain_text(element: Element) -> str:
    return "".join(one.text or "" for body in each(element, "p:txBody") for one in body.iter("a:t")).strip()


def _mark(properties: Element | None) -> str:
    """The mark before a paragraph: `none`, `bullet`, `auto:FORM:START`; empty where it is inherited."""
    for one in properties if properties is not None else ():
        if one.tag == "a:buNone":
            return "none"
        if one.tag in ("a:buChar", "a:buBlip"):
            return "bullet"
        if one.tag == "a:buAutoNum":
            form = re.sub(r"(Period|Paren.*|Plain|Minus|DbPlain)$", "", one.get("type", "arabic"))
            return f"auto:{form if form.isalpha() else 'arabic'}:{integer(one.get('startAt'), 1)}"
    return ""


def _marks(styles: Element | None) -> dict[int, str]:
    """The marks of the levels, from 0, that a list of styles states."""
    found: dict[int, str] = {}
    for level in range(9):
        mark = _mark(None if styles is None else styles.find(f"a:lvl{level + 1}pPr"))
        if mark:
            found[level] = mark
    return found


def _placed(element: Element) -> tuple[int, int, int, int] | None:
    """left, top, width and height of a shape in its group; None where they are inherited."""
    place = first(element, "p:spPr/a:xfrm")
    if place is None:
        place = first(element, "p:xfrm")
    return None if place is None else _rectangle(place, "a:off", "a:ext")


def _rectangle(place: Element, offset: str, extent: str) -> tuple[int, int, int, int] | None:
    at, size = place.find(offset), place.find(extent)
    if at is None or size is None:
        return None
    return integer(at.get("x")), integer(at.get("y")), integer(size.get("cx")), integer(size.get("cy"))


def _inner_frame(group: Element, outer: _Frame) -> _Frame:
    place = first(group, "p:grpSpPr/a:xfrm")
    shown = None if place is None else _rectangle(place, "a:off", "a:ext")
    inner = None if place is None else _rectangle(place, "a:chOff", "a:chExt")
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
    """The values of a chart that are kept with it, by place."""
    found: dict[int, str] = {}
    if element is None:
        return found
    for one in element.iter("c:pt"):
        value = first(one, "c:v")
        if value is not None and value.text and len(found) < _MAX_CACHED:
            found[integer(one.get("idx"))] = _number(one_line(value.text))
    direct = first(element, "c:v")
    if not found and direct is not None and direct.text:
        found[0] = one_line(direct.text)
    return found


def _number(text: str) -> str:
    """A number without the noise of its binary form; other text as it is."""
    if len(text) < 8 or len(text) > 30 or not re.fullmatch(r"-?\d+\.\d+(E[+-]?\d{1,2})?", text):
        return text
    return f"{float(text):.12g}"
