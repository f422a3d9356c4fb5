"""Texts, charts and diagrams in DrawingML, which Word, PowerPoint and Excel files share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tasks.stages.ingest.formats.extraction import UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter
from tasks.stages.ingest.formats.number_formats import number_format
from tasks.stages.ingest.formats.office_math import formula
from tasks.stages.ingest.formats.opc import Package
from tasks.stages.ingest.formats.symbol_fonts import shown_in
from tasks.stages.ingest.formats.xml import Element, each, first, integer, parse

GRAPHICS = {"c:chart": "charts", "cx:chart": "charts", "dgm:relIds": "diagrams"}
"""The elements that refer to a chart or a diagram, and the names by which those that are not read are counted."""

_MAX_CATEGORIES = 200
"""The maximum number of categories of a chart that is written as a table."""
_MAX_SERIES = 12
_MAX_POINTS = 10_000


def inline_of(paragraphs: Iterable[Element], links: Mapping[str, str] | None = None) -> Inline:
    """Return the text of paragraphs (`a:p`). links: the URLs that the part refers to, by id."""
    inline = Inline()
    for paragraph in paragraphs:
        if inline:
            inline.add(" ")
        for child in paragraph:
            if child.tag in ("a:r", "a:fld"):
                _add_run(child, inline, links or {})
            elif child.tag == "a:br":
                inline.add("\n")
            elif child.tag == "mc:AlternateContent" or child.tag.endswith((":m", "m:oMath", "m:oMathPara")):
                inline.add("".join(map(formula, chosen(child))))
    return inline


def _add_run(run: Element, inline: Inline, links: Mapping[str, str]) -> None:
    text, target = first(run, "a:t"), ""
    shown = "" if text is None else text.text or ""
    for properties in each(run, "a:rPr/*"):
        if properties.tag == "a:hlinkClick":
            target = links.get(properties.get("r:id", ""), "")
        elif properties.tag in ("a:latin", "a:sym"):
            shown = shown_in(properties.get("typeface", ""), shown, private_only=properties.tag == "a:sym")
    inline.add(shown, target)


def chosen(element: Element) -> list[Element]:
    """Return the first non-empty alternative of `mc:AlternateContent`, as a list; any other element as it is."""
    if element.tag != "mc:AlternateContent":
        return [element]
    return [child for child in element if child.tag in ("mc:Choice", "mc:Fallback") and len(child)][:1]


@dataclass(slots=True)
class Graphic:
    """The texts of a chart or diagram, in Markdown.

    captions: a chart's title and the texts in it. rows: its categories and values, below the names of its series.
    items: a diagram's texts. is_cut: whether there are too many categories, so that `rows` has only the names.
    """

    captions: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    items: list[str] = field(default_factory=list)

    is_cut: bool = False

    @property
    def has_words(self) -> bool:
        """Whether there is a text other than the names of series."""
        return bool(self.captions or self.items or any(row[0] for row in self.rows[1:]))

    def write(self, writer: MarkdownWriter, *, with_values: bool = True) -> None:
        """Write the texts. with_values: whether a chart is written as a table, rather than as its categories."""
        for caption in self.captions:
            writer.paragraph(caption)
        if with_values and len(self.rows) > 1:
            writer.table(self.rows)
        else:
            categories = [row[0] for row in self.rows if any(map(str.isalpha, row[0]))]
            for names in (*self.rows[:1], categories):
                writer.paragraph("; ".join(filter(None, names)))
        for item in self.items:
            writer.item(0, "-", item)

    def line(self) -> str:
        """Return the texts as one line."""
        rows = (", ".join(filter(None, row)) for row in self.rows)
        return "; ".join(filter(None, (*map(one_line, self.captions), *rows, *map(one_line, self.items))))


def graphic(element: Element, package: Package, part: str) -> Graphic | None:
    """Read what one of GRAPHICS in a part refers to; None if the package lacks it, or it is damaged."""
    name = package.target(part, element.get("r:dm" if element.tag == "dgm:relIds" else "r:id", ""))
    if not package.has(name):
        return None
    try:
        tree = parse(package.read(name), name)
    except UnreadableError as error:
        if error.reason != "unreadable-file":
            raise
        return None
    if element.tag == "dgm:relIds":
        points = (point for point in each(tree, "dgm:ptLst/dgm:pt") if point.get("type", "node") in ("node", "asst"))
        return Graphic(items=_texts(inline_of(each(point, "dgm:t/a:p")) for point in points))
    columns = _chart_data(tree) or _extended_chart_data(tree)
    categories: dict[int, str] = {}
    for _, names, _ in columns:
        categories = names | categories
    indices = sorted({*categories, *(index for _, _, values in columns for index in values)})
    rows = [["", *(name for name, _, _ in columns)]]
    is_cut = len(indices) > _MAX_CATEGORIES
    for index in () if is_cut else indices:
        rows.append([categories.get(index, ""), *(values.get(index, "") for _, _, values in columns)])
    cells = [[Inline(cell).markdown() for cell in row] for row in rows]
    return Graphic(list(_captions(tree, package, name)), cells, is_cut=is_cut)


def _texts(inlines: Iterable[Inline]) -> list[str]:
    return [inline.markdown() for inline in inlines if inline]


def _captions(tree: Element, package: Package, part: str) -> Iterator[str]:
    """Yield a chart's title, and the texts of its axes, labels and text boxes."""
    for title in (*each(tree, "c:chart/c:title"), *each(tree, "cx:chart/cx:title")):
        text = inline_of(title.iter("a:p")) or Inline(" ".join(_points(title).values()))
        yield from _texts([text])
    for area in (*each(tree, "c:chart/c:plotArea"), *each(tree, "cx:chart/cx:plotArea")):
        yield from _texts(inline_of([paragraph]) for paragraph in area.iter("a:p"))
    drawing = package.related(part, "chartUserShapes")
    if drawing is not None:
        shapes = parse(package.read(drawing), drawing)
        yield from _texts(inline_of([paragraph]) for paragraph in shapes.iter("a:p"))


_Series = tuple[str, dict[int, str], dict[int, str]]
"""The name of a series, and its categories and values by index."""


def _chart_data(tree: Element) -> list[_Series]:
    about = first(tree, "c:date1904")
    since_1904 = about is not None and about.get("val", "1") in ("1", "true")
    return [
        (
            " ".join(_points(first(series, "c:tx")).values()),
            _points(first(series, "c:cat")) or _points(first(series, "c:xVal"), since_1904),
            _points(first(series, "c:val"), since_1904) or _points(first(series, "c:yVal"), since_1904),
        )
        for series in list(each(tree, "c:chart/c:plotArea/*/c:ser"))[:_MAX_SERIES]
    ]


def _extended_chart_data(tree: Element) -> list[_Series]:
    """Read the kinds of charts that Office 2016 introduced, such as waterfalls."""
    data = {element.get("id"): element for element in each(tree, "cx:chartData/cx:data")}
    series = list(each(tree, "cx:chart/cx:plotArea/cx:plotAreaRegion/cx:series"))[:_MAX_SERIES]
    return [
        (
            " ".join(_points(first(one, "cx:tx")).values()),
            _points(first(data.get(_id_of(one)), "cx:strDim")),
            _points(first(data.get(_id_of(one)), "cx:numDim")),
        )
        for one in series
    ]


def _id_of(series: Element) -> str | None:
    about = first(series, "cx:dataId")
    return None if about is None else about.get("val")


def _points(element: Element | None, since_1904: bool = False) -> dict[int, str]:
    """Return the values that a chart stores, by index, as its number formats show them."""
    values: dict[int, list[str]] = {}
    form, count = None, 0
    for node in element.iter() if element is not None else ():
        if node.tag in ("c:numCache", "c:numLit", "c:formatCode", "cx:lvl"):
            code = (
                node.get("formatCode")
                if node.tag == "cx:lvl"
                else node.text
                if node.tag == "c:formatCode"
                else "General"
            )
            form = number_format(-1, code[:500]) if code else None
        elif node.tag in ("c:pt", "cx:pt") and count < _MAX_POINTS:
            inner = node if node.tag == "cx:pt" else first(node, "c:v")
            text = one_line((inner.text or "") if inner is not None else "")
            if text:
                shown = text if form is None else form.shown(text, since_1904=since_1904)
                values.setdefault(integer(node.get("idx")), []).append(shown)
                count += 1
    if not values and element is not None:  # a name that no cell contains
        names = (*each(element, "c:v"), *each(element, "cx:txData/cx:v"))
        values[0] = [one_line(name.text or "") for name in names]
    return {index: " ".join(reversed(texts)) for index, texts in values.items()}  # the inner level comes first
