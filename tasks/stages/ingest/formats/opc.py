"""The package that DOCX, PPTX and XLSX are (Open Packaging Conventions): parts, their relationships, properties.

Relationships that lead out of the package are never followed: they are the targets of links, and nothing else.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import unquote

from tasks.stages.ingest.formats.archive import Archive, open_archive
from tasks.stages.ingest.formats.extraction import Limits, UnreadableError, is_date, is_language
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import clean, clip_title
from tasks.stages.ingest.formats.xml import integer, parse, text_of

_MAX_VALUE = 1_000
_FROM_TEMPLATES = re.compile(
    r"(?i)(untitled|document|presentation|book|workbook|slide|powerpoint[- ]pr.sentation|word document|"
    r"microsoft (word|powerpoint|excel)\b.*|title|pr.sentation powerpoint|presentaci.n de powerpoint)[ \d]*"
)
"""Titles that programs write where nobody gave one."""
_MADE_BY_PROGRAMS = re.compile(r"(?i).*(automatically generated|\.(png|jpe?g|gif|bmp|emf|wmf|tiff?|svg))\W*")
"""Descriptions of pictures that nobody wrote: by a program, or the names of their files."""


@dataclass(frozen=True, slots=True)
class Relationship:
    """Where a part leads to. kind: the last word of its type; target: a part, or a URL if external."""

    kind: str
    target: str
    external: bool


@contextmanager
def open_package(file: BinaryIO, limits: Limits, kind: str, main: str) -> Iterator[Package]:
    """The package that a file is, for the time of a `with` block.

    kind: what the file should be, for messages; main: the part where it does not say which is its document. Raises
    UnreadableError, also for what the block raises of damage.
    """
    with open_archive(file, limits, kind) as archive:
        yield Package(archive, main)


class Package:
    """The parts of a file. main: the name of the part that is the document."""

    def __init__(self, archive: Archive, main: str) -> None:
        """main: the part where a package does not say which is its document.

        Raises:
            UnreadableError: there is no such part.
        """
        self._archive = archive
        self._related: dict[str, dict[str, Relationship]] = {}
        roots = self.relationships("").values()
        stated = [one.target for one in roots if one.kind == "officeDocument" and not one.external]
        self.main = stated[0] if stated and stated[0] in archive else main
        if self.main not in archive:
            raise UnreadableError("unreadable-file", f"the archive lacks {main}: it is no such document, or is damaged")

    def read(self, part: str) -> bytes:
        """The bytes of a part."""
        return self._archive.read(part)

    def has(self, part: str) -> bool:
        """True if there is such a part."""
        return part in self._archive

    def relationships(self, part: str) -> dict[str, Relationship]:
        """The relationships of a part by id; those of the package for an empty name."""
        known = self._related.get(part)
        if known is None:
            known = self._related[part] = self._read_relationships(part)
        return known

    def related(self, part: str, kind: str) -> str | None:
        """The first part of a kind that a part leads to; None if there is none."""
        for one in self.relationships(part).values():
            if one.kind == kind and not one.external and one.target in self._archive:
                return one.target
        return None

    def properties(self) -> tuple[str, dict[str, Any]]:
        """The title that the properties state, and what they say of author, dates and language."""
        found: dict[str, Any] = {}
        title = ""
        part = self.related("", "core-properties")
        if part is not None:
            for element in parse(self.read(part), part):
                value = clean(text_of(element)).strip()[:_MAX_VALUE]
                if value and element.tag == "dc:title" and not _FROM_TEMPLATES.fullmatch(value):
                    title = clip_title(value)
                elif value and (key := _KEYS.get(str(element.tag))) and _fits(key, value):
                    found[key] = value
        return title, found

    def stated_pages(self) -> int:
        """The number of pages that the program stated which saved the file; 0 for none."""
        part = self.related("", "extended-properties")
        if part is None:
            return 0
        tree = parse(self.read(part), part)
        return integer(text_of(next((one for one in tree if one.tag == "ep:Pages"), None)))

    def _read_relationships(self, part: str) -> dict[str, Relationship]:
        folder, name = posixpath.split(part)
        own = posixpath.join(folder, "_rels", f"{name}.rels")
        if own not in self._archive:
            return {}
        found: dict[str, Relationship] = {}
        for one in parse(self._archive.read(own), own):
            target, external = one.get("Target", ""), one.get("TargetMode") == "External"
            if not external:
                target = posixpath.normpath(posixpath.join("/", folder, unquote(target))).lstrip("/")
            kind = one.get("Type", "").rpartition("/")[2]
            found.setdefault(one.get("Id", ""), Relationship(kind, target, external))
        return found


_KEYS = {
    "dc:creator": "author",
    "dcterms:created": "created",
    "dcterms:modified": "modified",
    "dc:language": "language",
    "cp:keywords": "keywords",
}


def _fits(key: str, value: str) -> bool:
    if key in ("created", "modified"):
        return is_date(value)
    return key != "language" or is_language(value)


def description(text: str) -> str:
    """What somebody wrote about a picture, in one line; empty for what a program wrote."""
    line = one_line(text)
    return "" if _MADE_BY_PROGRAMS.fullmatch(line) else line
