"""The styles of a Word document, which say whether paragraphs are headings, titles, list items, code, or hidden.

Headings are detected by outline level, which styles inherit, and by style name, since some programs write no levels.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tasks.stages.ingest.formats.extraction import UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.opc import Package
from tasks.stages.ingest.formats.xml import Element, blocks, first, integer

_MAX_STYLES = 50_000
_MAX_BASES = 30
"""The maximum length of a chain of styles; Word allows 11."""
_MAX_NAME = 200
_HEADING_NAMES = re.compile(
    r"(?i)(?:heading|überschrift|titre|título|titulo|titolo|kop|rubrik|overskrift|otsikko|nagłówek|nadpis|címsor|"
    r"başlık|naslov|заголовок|标题|標題|見出し|제목) ?([1-9])"
)
_TITLE_NAMES = frozenset(
    {"title", "titel", "titre", "título", "titolo", "tytuł", "otsikko", "rubrik", "название", "标题"}
)
_CONTENTS = re.compile(r"(?i)toc( ?\d| heading)|contents (heading )?\d|table of (figures|authorities)|verzeichnis \d")
_CODE_NAMES = re.compile(r"(?i).*(source ?code|code ?block|preformatted|verbatim|macro ?text).*|code|listing")
_OFF = frozenset({"0", "false", "off", "none"})


@dataclass(slots=True)
class ParagraphStyle:
    """The paragraph properties of a style, including those of its base styles."""

    outline: int = -1
    number: str = ""
    level: int = 0
    hidden: bool | None = None
    is_title: bool = False
    is_contents: bool = False
    is_code: bool = False
    bases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Style:
    name: str = ""
    based_on: str = ""
    outline: int = -1  # -1: not stated; 9: body text
    number: str = ""  # the id of a list; empty if not stated
    level: int = 0
    hidden: bool | None = None


@dataclass(slots=True)
class Styles:
    """The styles of a document. default: the default paragraph style; language: such as `en-US`; empty if unknown."""

    by_id: dict[str, _Style] = field(default_factory=dict)
    default: str = ""
    language: str = ""
    _shapes: dict[str, ParagraphStyle] = field(default_factory=dict)

    def chain(self, style: str) -> Iterator[_Style]:
        """Yield a style and its base styles."""
        seen: set[str] = set()
        while style in self.by_id and style not in seen and len(seen) < _MAX_BASES:
            seen.add(style)
            yield self.by_id[style]
            style = self.by_id[style].based_on

    def shape_of(self, style: str) -> ParagraphStyle:
        """Return a style's properties, including inherited properties. The id of an undeclared style is its name."""
        cached = self._shapes.get(style)
        if cached is not None:
            return cached
        shape = self._shapes[style] = ParagraphStyle()
        chain = list(self.chain(style)) or [_Style(style[:_MAX_NAME])]
        is_subtitle = "sub" in chain[0].name.casefold()
        for distance, base in enumerate(chain):
            if shape.outline == -1:
                shape.outline = base.outline
                named = _HEADING_NAMES.fullmatch(base.name)
                if shape.outline == -1 and named is not None:
                    shape.outline = int(named[1]) - 1
            if not shape.number and base.number:
                shape.number, shape.level = base.number, base.level
            if shape.hidden is None:
                shape.hidden = base.hidden
            shape.is_title = shape.is_title or (base.name.casefold() in _TITLE_NAMES and not is_subtitle)
            shape.is_contents = shape.is_contents or (distance == 0 and _CONTENTS.fullmatch(base.name) is not None)
            shape.is_code = shape.is_code or _CODE_NAMES.fullmatch(base.name) is not None
            shape.bases = (*shape.bases, base.based_on)
        return shape


def styles_of(package: Package) -> Styles:
    """Read the styles of a document."""
    styles = Styles()
    part = package.related(package.main, "styles")
    if part is None:
        return styles
    for element in blocks(package.read(part), part, "", 2):
        if element.tag == "w:docDefaults":
            language = first(element, "w:rPrDefault/w:rPr/w:lang")
            styles.language = language.get("w:val", "") if language is not None else ""
            if not re.fullmatch(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*", styles.language):
                styles.language = ""
        if element.tag != "w:style":
            continue
        if len(styles.by_id) >= _MAX_STYLES:
            raise UnreadableError("hostile-file", f"it has more than {_MAX_STYLES:,} styles")
        properties = first(element, "w:pPr")
        number = first(properties, "w:numPr")
        style = _Style(
            one_line(value_of(element, "w:name")[:_MAX_NAME]),
            value_of(element, "w:basedOn"),
            integer(value_of(properties, "w:outlineLvl"), -1),
            value_of(number, "w:numId"),
            integer(value_of(number, "w:ilvl")),
            is_on(first(element, "w:rPr"), "w:vanish"),
        )
        name = element.get("w:styleId", "")
        styles.by_id.setdefault(name, style)
        if element.get("w:type") == "paragraph" and element.get("w:default", "0") not in _OFF:
            styles.default = styles.default or name
    return styles


def value_of(element: Element | None, tag: str) -> str:
    """Return the `w:val` of a child element; empty if there is none."""
    child = first(element, tag)
    return "" if child is None else child.get("w:val", "")


def is_on(element: Element | None, tag: str) -> bool | None:
    """Return whether a child element switches a property on; None if there is no such child."""
    child = first(element, tag)
    return None if child is None else child.get("w:val", "1") not in _OFF
