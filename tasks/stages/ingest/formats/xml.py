"""Reads untrusted XML within limits, with the standard library's expat.

A document type is rejected as soon as it begins, before it can declare an entity: nothing expands, and nothing is
fetched. (lxml reports a document type only after it has read its declarations.) Expat's handlers also limit depth and
size while a part is read. Large parts are read block by block, in memory that does not grow with the part.

Tags and attributes are named `prefix:name`, with the namespace's prefix in `_PREFIXES`, whatever prefix the file uses.
"Strict" Office files get the same prefixes as all other Office files.
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Collection, Iterator
from xml.etree.ElementTree import Element as Element
from xml.etree.ElementTree import TreeBuilder
from xml.parsers import expat

from tasks.stages.ingest.formats.extraction import UnreadableError

MAX_DEPTH = 200
MAX_ELEMENTS = 2_000_000
"""The maximum number of elements of a part, or of a block if the part is read block by block."""
_CHUNK = 1 << 18
_DECLARATION = re.compile(rb"^\s*<\?xml\b[^>]{0,200}>")
_MAX_TOKEN = 8 << 20
"""The maximum size of a tag or a comment: Expat rescans an incomplete token whenever more of it arrives."""

_OFFICE = "http://schemas.openxmlformats.org/"
_STRICT = "http://purl.oclc.org/ooxml/"
_PREFIXES: dict[str, str] = {
    "http://www.w3.org/XML/1998/namespace": "xml",
    "http://schemas.openxmlformats.org/markup-compatibility/2006": "mc",
    "http://schemas.openxmlformats.org/package/2006/relationships": "rel",
    "http://schemas.openxmlformats.org/package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://purl.org/dc/terms/": "dcterms",
    "http://www.idpf.org/2007/opf": "opf",
    "http://www.idpf.org/2007/ops": "epub",
    "urn:oasis:names:tc:opendocument:xmlns:container": "ocf",
    "http://www.w3.org/2001/04/xmlenc#": "enc",
    "http://www.w3.org/1999/xhtml": "",
    "http://www.w3.org/1998/Math/MathML": "",
    "http://www.w3.org/2000/svg": "svg",
    "urn:schemas-microsoft-com:vml": "v",
    "http://schemas.microsoft.com/office/word/2010/wordprocessingShape": "wps",
    "http://schemas.microsoft.com/office/drawing/2014/chartex": "cx",
    "http://www.w3.org/1999/xlink": "xlink",
    **{
        f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0": prefix
        for name, prefix in (
            ("office", "office"),
            ("text", "text"),
            ("table", "table"),
            ("style", "style"),
            ("drawing", "draw"),
            ("presentation", "presentation"),
            ("meta", "meta"),
            ("svg-compatible", "svg"),
        )
    },
    **{
        f"{start}{name}": prefix
        for name, prefix in (
            ("wordprocessingml/{}main", "w"),
            ("presentationml/{}main", "p"),
            ("spreadsheetml/{}main", "s"),
            ("drawingml/{}main", "a"),
            ("drawingml/{}chart", "c"),
            ("drawingml/{}diagram", "dgm"),
            ("drawingml/{}picture", "pic"),
            ("drawingml/{}spreadsheetDrawing", "xdr"),
            ("drawingml/{}wordprocessingDrawing", "wp"),
            ("officeDocument/{}relationships", "r"),
            ("officeDocument/{}math", "m"),
            ("officeDocument/{}extended-properties", "ep"),
            ("officeDocument/{}extendedProperties", "ep"),
        )
        for start, name in ((_OFFICE, name.format("2006/")), (_STRICT, name.format("")))
    },
}


def without_declaration(data: bytes) -> bytes:
    """Return XML that was converted to UTF-8 without its byte order mark, and without the encoding that it declares."""
    return _DECLARATION.sub(b"", data.removeprefix(BOM_UTF8))


def parse(data: bytes, part: str, root: str = "") -> Element:
    """Parse a part. part: its name in messages; root: the expected root tag, empty for any.

    Raises UnreadableError if it is not XML, has the wrong root or a document type, or exceeds a limit.
    """
    (tree,) = _Reader(part, root, 1, ()).elements(data)
    return tree


def blocks(data: bytes, part: str, root: str, depth: int, skip: Collection[str] = ()) -> Iterator[Element]:
    """Yield a part's elements at a depth (1: the root), in order. skip: the tags to omit. Raises as `parse` does."""
    return _Reader(part, root, depth, skip).elements(data)


def each(element: Element | None, path: str) -> Iterator[Element]:
    """Yield the elements at a path of tags such as `w:pPr/w:numPr`, in order; `*` matches any tag."""
    if element is None:
        return
    tag, _, rest = path.partition("/")
    for child in element:
        if child.tag == tag or tag == "*":
            if rest:
                yield from each(child, rest)
            else:
                yield child


def first(element: Element | None, path: str) -> Element | None:
    """Return the first element at a path of tags; None if there is none."""
    return next(each(element, path), None)


def integer(value: str | None, default: int = 0) -> int:
    """Convert an attribute to an integer; the default if it is missing, not a number, or has more than 12 digits."""
    if value is None or len(value) > 12:
        return default
    try:
        return int(value)
    except ValueError:
        return default


def text_of(element: Element | None) -> str:
    """Return all text within an element, stripped."""
    return "" if element is None else "".join(element.itertext()).strip()


class _Reader:
    """Builds a part's elements at one depth."""

    def __init__(self, part: str, root: str, depth: int, skip: Collection[str]) -> None:
        self._part, self._root, self._block_depth, self._skip = part, root, depth, frozenset(skip)
        self._names: dict[str, str] = {}
        self._block = TreeBuilder()
        self._depth = self._count = self._skipped_from = 0
        self._ready: list[Element] = []
        self._parser = parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._data
        parser.StartDoctypeDeclHandler = self._refuse_document_type

    def elements(self, data: bytes) -> Iterator[Element]:
        try:
            for start in range(0, len(data), _CHUNK):
                self._parser.Parse(data[start : start + _CHUNK], False)
                yield from self._ready
                self._ready.clear()
                if start + _CHUNK - self._parser.CurrentByteIndex > _MAX_TOKEN:
                    raise self._refused("hostile-file", f"has a tag of more than {_MAX_TOKEN:,} bytes")
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise self._refused("unreadable-file", f"is not XML: {error}") from error
        except (LookupError, UnicodeError) as error:
            raise self._refused("unreadable-file", "is not XML: its encoding is unknown") from error
        yield from self._ready

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._refused("hostile-file", f"is nested more than {MAX_DEPTH} levels deep")
        names = self._names
        tag = names.get(name) or self._named(name)
        if self._depth == 1 and self._root and tag != self._root:
            raise self._refused("unreadable-file", f"is not what the file's name says: expected <{self._root}>")
        if self._skipped_from or self._depth < self._block_depth:
            return
        if tag in self._skip:
            self._skipped_from = self._depth
            return
        self._count += 1
        if self._count > MAX_ELEMENTS:
            raise self._refused("hostile-file", f"has more than {MAX_ELEMENTS:,} elements in one block")
        if attributes:
            attributes = {names.get(key) or self._named(key): value for key, value in attributes.items()}
        self._block.start(tag, attributes)

    def _data(self, text: str) -> None:
        if self._depth >= self._block_depth and not self._skipped_from:
            self._block.data(text)

    def _end(self, name: str) -> None:
        depth = self._depth
        self._depth = depth - 1
        if self._skipped_from:
            if self._skipped_from == depth:
                self._skipped_from = 0
        elif depth >= self._block_depth:
            self._block.end(self._names.get(name) or self._named(name))
            if depth == self._block_depth:
                self._ready.append(self._block.close())
                self._block = TreeBuilder()
                self._count = 0

    def _named(self, name: str) -> str:
        space, _, local = name.rpartition(" ")
        prefix = _PREFIXES.get(space)
        if prefix is None:
            prefix = "?" if space else ""
        named = f"{prefix}:{local}" if prefix else local
        if len(self._names) < 10_000:
            self._names[name] = named
        return named

    def _refuse_document_type(self, *_: object) -> None:
        raise self._refused("hostile-file", "declares a document type, which could expand entities")

    def _refused(self, reason: str, problem: str) -> UnreadableError:
        return UnreadableError(reason, f"the part {self._part} {problem}")
