"""The package format of DOCX, PPTX and XLSX (Open Packaging Conventions): parts, relationships, properties.

Relationships that point outside the package are never followed; they only serve as link targets.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO
from urllib.parse import unquote

from tasks.stages.ingest.formats.archive import Archive, open_archive
from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError, is_date, is_language
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import clean
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.xml import Element, integer, parse, text_of

_TYPES = "[Content_Types].xml"
_MAX_VALUE = 1_000
_MADE_BY_PROGRAMS = re.compile(
    r"(?i).*(automatically generated|\.(png|jpe?g|gif|bmp|emf|wmf|tiff?|svg))\W*|"
    r"(picture|image|graphic|chart|shape)[ \d]*"
)
"""Picture descriptions that programs write by default, such as file names."""


@contextmanager
def open_package(file: BinaryIO, limits: ExtractionLimits, kind: str, main: str) -> Iterator[Package]:
    """Open a file as a package for a `with` block. Raises as `open_archive` does.

    kind: the expected kind of file, for messages; main: the document part's name if the package does not state it.
    """
    with open_archive(file, limits, kind) as archive:
        yield Package(archive, main)


class Package:
    """The parts of a file. main: the name of the document part."""

    def __init__(self, archive: Archive, main: str) -> None:
        """Find the document part. main: as for `open_package`. Raises UnreadableError if the part does not exist."""
        self._archive = archive
        self._related: dict[str, dict[str, tuple[str, str, bool]]] = {}
        self._types: dict[str, str] | None = None
        stated = next(iter(self.parts("", "officeDocument").values()), main)
        self.main = stated if stated in archive else main
        if self.main not in archive:
            raise UnreadableError(
                "unreadable-file", f"the archive lacks {main}: it is another kind of file, or damaged"
            )

    @property
    def expanded_bytes(self) -> int:
        """The number of bytes that the parts read so far expanded to."""
        return self._archive.expanded_bytes

    def read(self, part: str) -> bytes:
        """Return the bytes of a part."""
        return self._archive.read(part)

    def has(self, part: str) -> bool:
        """Return whether a part exists."""
        return part in self._archive

    def links(self, part: str) -> dict[str, str]:
        """Return the URLs that a part refers to, by id."""
        return {name: target for name, (_, target, external) in self._relationships(part).items() if external}

    def parts(self, part: str, kind: str = "") -> dict[str, str]:
        """Return the names of the parts that a part refers to, by id.

        kind: the last segment of a relationship type's URL; empty for all types.
        """
        return {
            name: target
            for name, (target_kind, target, external) in self._relationships(part).items()
            if not external and kind in ("", target_kind)
        }

    def target(self, part: str, name: str) -> str:
        """Return the name of the part that a part refers to by an id; empty if there is none."""
        _, target, external = self._relationships(part).get(name, ("", "", True))
        return "" if external else target

    def related(self, part: str, kind: str) -> str | None:
        """Return the first existing part of a kind that a part refers to; None if there is none."""
        return next(filter(self.has, self.parts(part, kind).values()), None)

    def count(self, part: str, kind: str, tag: str) -> int:
        """Count the elements with a tag in the parts of a kind that a part refers to, without parsing them."""
        pattern = re.compile(rb"<(?:\w+:)?%b[\s/>]" % tag.encode("ascii"))
        return sum(len(pattern.findall(self.read(name))) for name in self.parts(part, kind).values() if self.has(name))

    def content_type(self, part: str) -> str:
        """Return the media type of a part in lower case, such as `text/html`; empty if the package states none."""
        if self._types is None:
            types = parse(self.read(_TYPES), _TYPES) if self.has(_TYPES) else ()
            self._types = {
                element.get("PartName", f".{element.get('Extension', '')}").lower(): element.get(
                    "ContentType", ""
                ).lower()
                for element in types
            }
        return self._types.get(f"/{part}".lower()) or self._types.get(posixpath.splitext(part)[1].lower(), "")

    def properties(self) -> tuple[str, dict[str, Any]]:
        """Return the document's title, and its author, dates, language and keywords as metadata."""
        part = self.related("", "core-properties")
        return properties_of(() if part is None else parse(self.read(part), part), _KEYS)

    def stated_pages(self) -> int:
        """Return the number of pages that the program stated when it saved the file; 0 if it stated none."""
        part = self.related("", "extended-properties")
        if part is None:
            return 0
        tree = parse(self.read(part), part)
        return integer(text_of(next((element for element in tree if element.tag == "ep:Pages"), None)))

    def _relationships(self, part: str) -> dict[str, tuple[str, str, bool]]:
        """Return a part's relationships by id, as (kind, target, is_external). part: empty for the package itself."""
        if part in self._related:
            return self._related[part]
        relationships = self._related.setdefault(part, {})
        folder, name = posixpath.split(part)
        rels_part = posixpath.join(folder, "_rels", f"{name}.rels")
        if rels_part not in self._archive:
            return relationships
        for element in parse(self._archive.read(rels_part), rels_part):
            target, external = element.get("Target", ""), element.get("TargetMode") == "External"
            if not external:
                target = posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")
            kind = element.get("Type", "").rpartition("/")[2]
            relationships.setdefault(element.get("Id", ""), (kind, target, external))
        return relationships


_KEYS = {
    "dc:creator": "author",
    "dcterms:created": "created",
    "dcterms:modified": "modified",
    "dc:language": "language",
    "cp:keywords": "keywords",
}


def properties_of(elements: Iterable[Element], keys: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Return a document's title and metadata from the elements that state them. keys: those of the metadata, by tag."""
    metadata: dict[str, Any] = {}
    title = ""
    for element in elements:
        value = clean(text_of(element)).strip()[:_MAX_VALUE]
        if element.tag == "dc:title":
            title = title_of(value, stated=True)
        elif value and (key := keys.get(str(element.tag))) and _fits(key, value):
            metadata.setdefault(key, value)
    return title, metadata


def _fits(key: str, value: str) -> bool:
    if key in ("created", "modified"):
        return is_date(value)
    return key != "language" or is_language(value)


def description(element: Element | None) -> str:
    """Return an author's description of a picture as one line; empty for none, or one that a program wrote."""
    texts = () if element is None else (element.get(name, "") for name in ("descr", "alt", "title"))
    return first_description(texts)


def first_description(texts: Iterable[str]) -> str:
    """Return the first description of a picture that no program wrote, as one line; empty for none."""
    lines = map(one_line, texts)
    return next((line for line in lines if line and not _MADE_BY_PROGRAMS.fullmatch(line)), "")
