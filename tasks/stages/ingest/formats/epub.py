"""Books (.epub): their chapters in reading order, in Markdown.

The parts are read with `xml` over `archive`: ebooklib is licensed under the AGPL, and markitdown, which also extracts
books, reads a zip and its XML without limits and calls markdownify, which escapes too much and records no locations.
`xhtml_text` converts the chapters.

Excluded: tables of contents (the navigation document, `nav` elements, and chapters that consist mostly of links within
the book), chapters that the spine repeats, and items that are not in the spine. Obfuscated fonts, which many publishers
use, are accepted; a book that is encrypted in any other way is rejected as locked.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from typing import Any, BinaryIO
from urllib.parse import unquote

from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats.archive import Archive, open_archive
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, is_date, is_language
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import MarkdownWriter, clean
from tasks.stages.ingest.formats.title_filter import first_heading, title_of
from tasks.stages.ingest.formats.word_count import words_of
from tasks.stages.ingest.formats.xhtml_text import body_of, is_contents, visible_text, words_hidden, write
from tasks.stages.ingest.formats.xml import Element, each, first, parse, text_of

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_OBFUSCATED = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_CHAPTERS = frozenset({"application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document"})
_MAX_ITEMS = 50_000
_MAX_VALUE = 1_000


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a book; locations are the items of its spine. See `Extractor`."""
    with open_archive(file, limits, "an EPUB book") as archive:
        part, package = _package(archive)
        _refuse_encrypted(archive)
        title, metadata = _metadata(first(package, "opf:metadata"))
        writer = MarkdownWriter(limits)
        chapters = _chapters(package, part)
        limits.check_pages(len(chapters), "chapters")
        words: Counter[str] = Counter()
        left_out: Counter[str] = Counter()
        for number, name in enumerate(chapters, 1):
            if name and name in archive:
                tree = body_of(archive.read(name), name)
                in_chapter = words_of(visible_text(tree))
                words.update(in_chapter)
                if is_contents(tree):
                    left_out["contents"] += in_chapter.total()
                else:
                    left_out["hidden"] += words_hidden(tree)
                    writer.turn_to(number)
                    write(tree, writer)
        text, locations = writer.result()
        if not text.strip():
            raise UnreadableError("no-text", "the chapters have no text; pictures are not read")
        return Extracted(text, title or first_heading(text), metadata, locations, words=WordCounts(words, left_out))


def _package(archive: Archive) -> tuple[str, Element]:
    if _CONTAINER not in archive:
        raise UnreadableError("unreadable-file", f"the archive lacks {_CONTAINER}: it is not a book, or is damaged")
    container = parse(archive.read(_CONTAINER), _CONTAINER, "ocf:container")
    for rootfile in each(container, "ocf:rootfiles/ocf:rootfile"):
        name = rootfile.get("full-path", "")
        if name in archive:
            return name, parse(archive.read(name), name, "opf:package")
    raise UnreadableError("unreadable-file", "the archive lacks the package document of the book")


def _refuse_encrypted(archive: Archive) -> None:
    if _ENCRYPTION not in archive:
        return
    for encrypted in each(parse(archive.read(_ENCRYPTION), _ENCRYPTION), "enc:EncryptedData"):
        method = first(encrypted, "enc:EncryptionMethod")
        if method is None or method.get("Algorithm") not in _OBFUSCATED:
            raise UnreadableError("encrypted", "the chapters are locked by the publisher (DRM)")


def _chapters(package: Element, part: str) -> list[str]:
    """Return the archive entries of the spine's items, in order; an item that is not to be read has an empty name."""
    folder = posixpath.dirname(part)
    contents = {
        _entry(folder, reference.get("href", ""))
        for reference in each(package, "opf:guide/opf:reference")
        if reference.get("type") in ("toc", "cover")
    }
    items: dict[str, str] = {}  # entry names by id; empty for items that are not chapters or are outside the book
    for listed in each(package, "opf:manifest/opf:item"):
        is_chapter = listed.get("media-type", "").strip().lower() in _CHAPTERS
        is_contents = "nav" in listed.get("properties", "").split()
        name = _entry(folder, listed.get("href", "")) if is_chapter and not is_contents else ""
        items.setdefault(listed.get("id", ""), name)
        if len(items) > _MAX_ITEMS:
            raise UnreadableError("hostile-file", f"the manifest lists more than {_MAX_ITEMS:,} items")
    names: list[str] = []
    seen: set[str] = set()
    spine = list(each(package, "opf:spine/opf:itemref"))
    for itemref in spine:
        name = items.get(itemref.get("idref", ""), "")
        if name in seen or (name in contents and len(spine) > 1):
            name = ""
        seen.add(name)
        names.append(name)
    return names


def _entry(folder: str, reference: str) -> str:
    """Return the archive entry that a reference points to; empty if it points outside the book."""
    path = reference.partition("#")[0].partition("?")[0]
    if not path or re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|/", path):
        return ""
    name = posixpath.normpath(posixpath.join(folder, unquote(path)))
    return "" if name.startswith("..") else name


def _metadata(element: Element | None) -> tuple[str, dict[str, Any]]:
    title = ""
    metadata: dict[str, Any] = {}
    authors: list[str] = []
    for child in element if element is not None else ():
        value = one_line(clean(text_of(child)))[:_MAX_VALUE]
        if not value:
            continue
        if child.tag == "dc:title":
            title = title or title_of(value, stated=True)
        elif child.tag == "dc:creator" and len(authors) < 20:
            authors.append(value)
        elif child.tag == "dc:language" and is_language(value):
            metadata.setdefault("language", value)
        elif child.tag == "dc:publisher":
            metadata.setdefault("publisher", value)
        elif child.tag == "dc:date" and is_date(value) and child.get("opf:event") != "modification":
            metadata.setdefault("created", value)
        elif child.tag == "opf:meta" and child.get("property") == "dcterms:modified" and is_date(value):
            metadata.setdefault("modified", value)
    if authors:
        metadata["author"] = ", ".join(authors)
    return title, metadata
