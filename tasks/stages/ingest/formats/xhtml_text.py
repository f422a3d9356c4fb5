"""Converts XHTML to Markdown: headings, paragraphs, lists, tables, code, links and alternative texts of pictures.

A chapter is first read as XML. Its document type is removed before parsing, and the named entities of HTML that it
would declare, such as `&nbsp;`, are replaced; a document type with its own declarations is rejected. A chapter that is
not well-formed XML is read by lxml's lenient HTML parser, whose tree is rebuilt within the same limits.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import TreeBuilder

from lxml import etree

from tasks.stages.ingest.formats.extraction import UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter
from tasks.stages.ingest.formats.text_encoding import encoding_of
from tasks.stages.ingest.formats.word_count import count_words
from tasks.stages.ingest.formats.xml import MAX_DEPTH, MAX_ELEMENTS, Element, parse

_DECLARATION = re.compile(r"\s*<\?xml\b[^>]{0,200}\?>")
_PROLOG = re.compile(r"(?:\s+|<!--(?:(?!-->).){0,10000}+-->|<\?(?:(?!\?>).){0,2000}+\?>)*+", re.DOTALL)
_DOCUMENT_TYPE = re.compile(r"""<!DOCTYPE\b(?:[^\[\]<>"']++|"[^"<>]{0,500}"|'[^'<>]{0,500}')*+\[?""", re.IGNORECASE)
_NAMED = re.compile(r"&([A-Za-z][A-Za-z0-9]{1,31});")
_OF_XML = frozenset({"amp", "lt", "gt", "quot", "apos"})
_BREAKS_SPACE = re.compile(r"[ \t\r\n]+")

HEADINGS = {f"h{level}": level for level in range(1, 7)}
BLOCKS = frozenset(HEADINGS) | frozenset(
    """
    address article aside blockquote body caption center dd details div dl dt fieldset figcaption figure footer form
    header hr html legend li main menu ol p pre section summary table tbody td th tr ul
    """.split()  # noqa: SIM905
)
CONTROLS = frozenset({"nav", "select", "input", "textarea", "button"})
"""Elements to move about in a page and to enter something."""
_NEVER_SHOWN = frozenset(
    {"head", "script", "style", "template", "noscript", "iframe", "object", "embed", "audio", "video", "canvas", "map"}
    | {"rp", "rt", "svg", "svg:svg", "svg:script", "svg:style"}
)
_UNREAD = CONTROLS | _NEVER_SHOWN
_CODE = frozenset({"code", "kbd", "samp", "tt", "var"})
_CONTENTS = frozenset({"toc", "landmarks", "page-list", "lot", "loi"})
_MAX_CELLS = 200_000
_OUTWARD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_LEAST_LINKS = 5
_LINKED_SHARE = 0.8


def body_of(data: bytes, name: str) -> Element:
    """Parse a chapter as XML or, if that fails, as a browser would. Raises UnreadableError for hostile content."""
    codec, mark = encoding_of(data)
    text = data[mark:].decode(codec, "replace")
    declared = _DECLARATION.match(text)
    text = text[declared.end() if declared is not None else 0 :]
    start = _PROLOG.match(text)
    at = start.end() if start is not None else 0
    match = _DOCUMENT_TYPE.match(text, at)
    if match is not None:
        if match[0].endswith("["):
            raise UnreadableError("hostile-file", f"the chapter {name!a} declares entities")
        if text.startswith(">", match.end()):
            text = text[match.end() + 1 :]
    text = _NAMED.sub(_character, text)
    try:
        return parse(text.encode("utf-8", "replace"), f"{name!a}")
    except UnreadableError as error:
        if error.reason != "unreadable-file":
            raise
    return _lenient(text, name)


def _character(match: re.Match[str]) -> str:
    if match[1] in _OF_XML:
        return match[0]
    character = html.unescape(match[0])
    return character if character != match[0] else "&amp;" + match[0][1:]


class _Tree(TreeBuilder):
    """Builds a tree from the events of lxml's HTML parser, within limits.

    flat: whether elements that are nested too deep are left out, with their texts kept, instead of raising.
    """

    def __init__(self, *, flat: bool) -> None:
        super().__init__()
        self._flat, self._depth, self._count = flat, 1, 0
        super().start("html", {})

    def start(self, tag: str, attributes: Mapping[str, str]) -> Element | None:  # type: ignore[override]
        self._depth += 1
        self._count += 1
        if self._count > MAX_ELEMENTS or (self._depth > MAX_DEPTH and not self._flat):
            raise UnreadableError(
                "hostile-file", f"a chapter is nested more than {MAX_DEPTH} levels deep, or has too many elements"
            )
        return None if self._depth > MAX_DEPTH else super().start(tag.lower(), dict(attributes))

    def end(self, tag: str) -> Element | None:  # type: ignore[override]
        self._depth -= 1
        return None if self._depth >= MAX_DEPTH else super().end(tag.lower())

    def close(self) -> Element:
        super().end("html")
        return super().close()


def _lenient(text: str, name: str) -> Element:
    try:
        return _parsed(text, flat=False)
    except (etree.LxmlError, ValueError) as error:
        raise UnreadableError(
            "unreadable-file", f"the chapter {name!a} is not XHTML: {type(error).__name__}"
        ) from error


def _parsed(text: str, *, flat: bool) -> Element:
    parser = etree.HTMLParser(target=_Tree(flat=flat), no_network=True, huge_tree=flat, recover=True, encoding="utf-8")
    parser.feed(text.encode("utf-8", "replace"))
    tree: Element = parser.close()
    return tree


def page_of(text: str) -> Element:
    """Parse a web page as a browser would. Raises UnreadableError if it is not HTML or has too many elements."""
    try:
        return _parsed(text, flat=True)
    except (etree.LxmlError, ValueError) as error:
        raise UnreadableError("unreadable-file", f"{type(error).__name__}: {error}") from error


def is_contents(tree: Element) -> bool:
    """Return whether a chapter consists mostly of links within the book, and so is an undeclared table of contents."""
    links = [
        element
        for element in tree.iter("a")
        if "href" in element.attrib and not _OUTWARD.match(element.get("href", ""))
    ]
    if len(links) < _LEAST_LINKS:
        return False
    linked = sum(len("".join("".join(element.itertext()).split())) for element in links)
    whole = sum(len("".join("".join(element.itertext()).split())) for element in tree if element.tag != "head")
    return linked > _LINKED_SHARE * whole


def write(tree: Element, writer: MarkdownWriter) -> None:
    """Write the visible text of a chapter."""
    _Chapter(writer).blocks(tree)


class _Chapter:
    def __init__(self, writer: MarkdownWriter) -> None:
        self._writer = writer
        self._lists: list[int | None] = []  # the number of the next item of each open list; None for bullets
        self._marker = ""  # the marker of an open item that has no text yet

    def blocks(self, element: Element) -> None:
        """Write an element that contains blocks; text between blocks is a paragraph."""
        inline = Inline()
        self._add(element.text, inline)
        for child in element:
            self._child(child, inline)
            self._add(child.tail, inline)
        self._paragraph(inline)

    def _child(self, child: Element, inline: Inline) -> None:
        tag = child.tag
        if is_unread(child):
            return
        if tag not in BLOCKS and not any(inner.tag in BLOCKS for inner in child):
            self._inline(child, inline, "")
            return
        self._paragraph(inline)
        inline.clear()
        if tag in HEADINGS:
            words = Inline()
            self._inline(child, words, "")
            self._marker = ""
            self._writer.heading(HEADINGS[tag], words.markdown())
        elif tag == "pre":
            self._marker = ""
            self._writer.code("".join(_all_text(child)))
        elif tag == "table" and _is_layout(child):
            for cell in (cell for row in _rows(child) for cell in row):
                self.blocks(cell)
        elif tag == "table":
            self._table(child)
        elif tag in ("ul", "ol", "menu"):
            start = child.get("start", "1")
            number = int(start) if start.isdecimal() and len(start) < 9 else 1
            self._lists.append(number if tag == "ol" else None)
            self.blocks(child)
            self._lists.pop()
            self._marker = ""
        elif tag == "li":
            self._item(child)
        elif tag != "hr":
            self.blocks(child)

    def _item(self, element: Element) -> None:
        number = self._lists[-1] if self._lists else None
        if number is not None:
            value = element.get("value", "")
            if value.isdecimal() and len(value) < 9:
                number = int(value)
            self._lists[-1] = number + 1
        self._marker = "-" if number is None else f"{number}."
        self.blocks(element)
        self._marker = ""

    def _paragraph(self, inline: Inline) -> None:
        text = inline.markdown()
        if not text:
            return
        if self._marker:
            self._writer.item(max(len(self._lists) - 1, 0), self._marker, text)
            self._marker = ""
        else:
            self._writer.paragraph(text)

    def _add(self, text: str | None, inline: Inline, target: str = "") -> None:
        if text:
            inline.add(_BREAKS_SPACE.sub(" ", text), target)

    def _inline(self, element: Element, inline: Inline, target: str) -> None:
        tag = element.tag
        if is_unread(element):
            return
        if tag == "br":
            inline.add("\n")
            return
        if tag in ("img", "image"):
            inline.picture(element.get("alt", ""))
            return
        if tag in _CODE:
            inline.code("".join(_all_text(element)))
            return
        if tag == "math":
            words = element.get("alttext", "") or "".join(_all_text(element))
            inline.add(one_line(words), target)
            return
        if tag == "a":
            target = element.get("href", target)
        if tag == "q":
            inline.add("“")
        if tag in BLOCKS and inline:
            inline.add(" ")
        self._add(element.text, inline, target)
        for child in element:
            self._inline(child, inline, target)
            self._add(child.tail, inline, target)
        if tag == "q":
            inline.add("”")
        if tag in BLOCKS:
            inline.add(" ")

    def _table(self, element: Element) -> None:
        self._marker = ""
        rows: list[list[str]] = []
        above: dict[int, tuple[int, str]] = {}  # by column, the number of further rows that a cell spans, and its text
        count = 0
        for child in _rows(element):
            if child.tag == "caption":
                words = Inline()
                self._inline(child, words, "")
                self._writer.paragraph(words.markdown())
                continue
            cells = [cell for cell in child if cell.tag in ("td", "th")]
            shown: list[str] = []
            for cell in cells:
                self._fill(shown, above)
                words = Inline()
                self._inline(cell, words, "")
                text = one_line(words.markdown())
                across, down = (_span(cell.get(name)) for name in ("colspan", "rowspan"))
                if down > 1:
                    above[len(shown)] = down - 1, text if len(text) <= 200 else ""
                shown.extend([text, *[""] * (across - 1)])
            self._fill(shown, above)
            count += len(shown)
            if count > _MAX_CELLS:
                raise UnreadableError("too-large", f"a table has more than {_MAX_CELLS:,} cells")
            rows.append(shown)
        if max(map(len, rows), default=0) == 1:  # a frame around text, or a list
            for row in rows:
                self._writer.paragraph(row[0] if row else "")
        else:
            self._writer.table(rows)

    def _fill(self, shown: list[str], above: dict[int, tuple[int, str]]) -> None:
        """Append the cells of earlier rows that span down into this row at its next columns."""
        while len(shown) in above:
            remaining, text = above.pop(len(shown))
            if remaining > 1:
                above[len(shown)] = remaining - 1, text
            shown.append(text)


def _is_layout(table: Element) -> bool:
    """Return whether a table arranges a page: it says so, or has headings in its cells."""
    if table.get("role") in ("presentation", "none"):
        return True
    return any(element.tag in HEADINGS for row in _rows(table) for cell in row for element in cell.iter("*"))


def _span(value: str | None) -> int:
    return max(1, min(int(value), 100)) if value is not None and value.isdecimal() and len(value) < 6 else 1


def visible_text(element: Element) -> str:
    """Return the text that a browser shows, or would show if it were not hidden; blocks are apart."""
    return "".join(_visible(element))


def words_hidden(element: Element) -> int:
    """Return the number of words of navigation and hidden elements, which are not read."""
    total = 0
    for child in element:
        if is_ever_shown(child):
            total += count_words(visible_text(child)) if is_unread(child) else words_hidden(child)
    return total


def is_ever_shown(element: Element) -> bool:
    """Return whether a browser can show the text of an element."""
    return isinstance(element.tag, str) and element.tag not in _NEVER_SHOWN and not element.tag.startswith("?:")


def _visible(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        gap = " " if child.tag in BLOCKS or child.tag == "br" else ""
        yield gap
        if is_ever_shown(child):
            yield from _visible(child)
        yield gap + (child.tail or "")


def is_unread(element: Element) -> bool:
    if not isinstance(element.tag, str) or element.tag in _UNREAD or element.tag.startswith("?:"):
        return True
    kinds = element.get("epub:type", "")
    is_hidden = "hidden" in element.attrib and element.get("role") != "tabpanel"  # a click shows a tab
    return is_hidden or (kinds != "" and not _CONTENTS.isdisjoint(kinds.split()))


def _all_text(element: Element) -> Iterator[str]:
    if element.text:
        yield element.text
    for child in element:
        if child.tag == "br":
            yield "\n"
        elif not is_unread(child):
            yield from _all_text(child)
        if child.tail:
            yield child.tail


def _rows(table: Element) -> Iterator[Element]:
    for child in table:
        if child.tag in ("tr", "caption"):
            yield child
        elif child.tag in ("thead", "tbody", "tfoot"):
            yield from _rows(child)
