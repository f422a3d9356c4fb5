"""Writes the text of a file as Markdown, block by block, and records where its pages begin.

Emphasis is dropped, since it does not change the words. Markup in the text is escaped (`markdown_marks`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import (
    PAGE_BREAK,
    escaped,
    fence_for,
    guarded,
    heading_text,
    one_line,
    table,
)
from tasks.text.markdown import code_span

_CONTROLS = re.compile("[\x00-\x08\x0b\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff\u00ad\u200b\ufeff\u2028\u2029]")
_SPACES = re.compile("[\xa0\u2007\u202f\t]")
_TARGET = re.compile(r"(?i)(?:https?|ftp)://[^\s/].*|mailto:.+")
_UNSAFE = re.compile(r"[\s<>()\[\]\\\"`|\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_MAX_TARGET = 2_000


def clean(text: str) -> str:
    """Remove invisible characters from a text, and replace special spaces with plain spaces."""
    return _SPACES.sub(" ", _CONTROLS.sub("", text)) if not text.isascii() or not text.isprintable() else text


class _Span:
    """A piece of a paragraph. target: a link's URL; empty for no link. Added strings are joined when `text` is read."""

    __slots__ = ("_parts", "is_markdown", "target")

    def __init__(self, text: str, target: str, is_markdown: bool = False) -> None:
        self._parts = [text]
        self.target, self.is_markdown = target, is_markdown

    def add(self, text: str) -> None:
        self._parts.append(text)

    @property
    def text(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]

    def __bool__(self) -> bool:
        return any(map(str.strip, self._parts))


class Inline:
    """The text of a paragraph that is being read, as pieces; a piece may be a link."""

    __slots__ = ("_spans",)

    def __init__(self, text: str = "", target: str = "") -> None:
        self._spans: list[_Span] = []
        self.add(text, target)

    def __bool__(self) -> bool:
        return any(self._spans)

    def clear(self) -> None:
        """Remove all pieces."""
        self._spans.clear()

    def add(self, text: str, target: str = "") -> None:
        """Add plain text. target: the URL that the text links to; only web and mail URLs are used."""
        text = text.replace(PAGE_BREAK, " ")
        if not text:
            return
        if target and (len(target) > _MAX_TARGET or not _TARGET.fullmatch(target)):
            target = ""
        last = self._spans[-1] if self._spans else None
        if last is not None and last.target == target and not last.is_markdown:
            last.add(text)
        else:
            self._spans.append(_Span(text, target))

    def page_break(self) -> None:
        """Mark the start of a page."""
        self._spans.append(_Span(PAGE_BREAK, "", True))

    def code(self, text: str) -> None:
        """Add a code span."""
        text = one_line(clean(text).replace(PAGE_BREAK, " "))
        if not text:
            return
        self._spans.append(_Span(code_span(text), "", True))

    def picture(self, text: str) -> None:
        """Add the alternative text of a picture."""
        text = one_line(clean(text).replace(PAGE_BREAK, ""))
        if text:
            self._spans.append(_Span(f"![{escaped(text, '[', ']', brackets=True)}]()", "", True))

    def note(self, label: str) -> None:
        """Add a reference to a note."""
        self._spans.append(_Span(f"[^{label}]", "", True))

    def extend(self, inline: Inline) -> None:
        """Add all pieces of another paragraph."""
        for span in inline._spans:
            if span.is_markdown:
                self._spans.append(span)
            else:
                self.add(span.text, span.target)

    def plain(self) -> str:
        """Return the text without markup."""
        return clean("".join(span.text for span in self._spans))

    def markdown(self) -> str:
        """Return the text with Markdown markup escaped, and its lines stripped."""
        parts: list[str] = []
        for row, span in enumerate(self._spans):
            following = self._spans[row + 1] if row + 1 < len(self._spans) else None
            after = " " if following is None else "[" if following.target else following.text[:1]
            if span.is_markdown:
                parts.append(span.text)
            elif span.target and span.text.strip():
                parts.append(_linked(span))
            else:
                text = escaped(clean(span.text), parts[-1][-1:] if parts else " ", after)
                if text[:1] in ("(", "[", ":") and parts and parts[-1].endswith("]"):
                    text = "\\" + text  # the text follows a reference to a note
                parts.append(text[:-1] + "\\!" if after == "[" and text.endswith("!") else text)
        return _lines("".join(parts))


def _linked(span: _Span) -> str:
    text = clean(span.text)
    shown = text.strip()
    target = _UNSAFE.sub(_percent, span.target.strip())
    if shown in (target, span.target):
        linked = escaped(shown, " ", " ")
    else:
        words = escaped(one_line(shown), "[", "]", brackets=True)
        linked = f"[{words}]({target})"
    start = text.index(shown)
    return text[:start] + linked + text[start + len(shown) :]


def _lines(text: str) -> str:
    """Strip lines and drop empty lines; the page breaks of an empty line move to the next line."""
    lines: list[str] = []
    breaks = ""
    for line in text.split("\n"):
        words = line.strip()
        if not words:
            breaks += PAGE_BREAK * line.count(PAGE_BREAK)
            continue
        start = line.index(words)
        lines.append(breaks + PAGE_BREAK * line.count(PAGE_BREAK, 0, start) + words)
        breaks = PAGE_BREAK * line.count(PAGE_BREAK, start + len(words))
    return "\n".join(lines) + breaks


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "replace"))


class MarkdownWriter:
    """Writes blocks in order, and records where in the text the file's pages begin."""

    def __init__(self, limits: ExtractionLimits) -> None:
        self._most = limits.text_bytes
        self._parts: list[str] = []
        self._length = self._bytes = 0
        self._in_list = False
        self._open_items: list[tuple[int, int]] = []  # an item's level, and the columns before its text
        self._locations: list[Location] = []
        self._page = 1
        self._turned: tuple[int, tuple[float, float, float, float] | None] | None = None

    @property
    def page(self) -> int:
        """The page that the next block begins on."""
        return self._turned[0] if self._turned is not None else self._page

    @property
    def is_empty(self) -> bool:
        """True if nothing has been written."""
        return not self._parts

    def turn_to(self, page: int, box: tuple[float, float, float, float] | None = None) -> None:
        """Set the page of the next block, and the block's box on the page."""
        self._turned = page, box

    def heading(self, level: int, text: str) -> None:
        """Add a heading. level: counted from 1; levels deeper than 6 are written as 6."""
        line = heading_text(text)
        if line.strip(PAGE_BREAK + " "):
            self._block("#" * max(1, min(level, 6)) + " ", line)

    def paragraph(self, text: str) -> None:
        """Add a paragraph of Markdown, as `Inline.markdown` returns it."""
        self._block("", "\n".join(map(guarded, text.split("\n"))))

    def markdown(self, text: str) -> None:
        """Add blocks of Markdown, such as those that another writer returned."""
        self._block("", text)

    def item(self, level: int, marker: str, text: str) -> None:
        """Add a list item. level: counted from 0; marker: `-`, or a number followed by `.` or `)`."""
        while self._open_items and self._open_items[-1][0] >= level:
            self._open_items.pop()
        indent = self._open_items[-1][1] if self._open_items else 0
        width = indent + len(marker) + 1
        lines = [guarded(line) for line in text.split("\n")]
        open_items = [*self._open_items, (level, width)]
        self._block(" " * indent + marker + " ", ("\n" + " " * width).join(lines), is_item=True)
        self._open_items = open_items

    def code(self, text: str) -> None:
        """Add lines of code."""
        text = "\n".join(line.rstrip() for line in text.split("\n")).strip("\n")
        if text.strip():
            fence = fence_for(text)
            self._block(f"{fence}\n", f"{text}\n{fence}")

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table; its header is the first row with words. Empty rows and columns are omitted."""
        width = max(map(len, rows), default=0)
        used = sorted({column for row in rows for column, cell in enumerate(row) if cell.strip()})
        filled_rows = [row for row in rows if any(cell.strip() for cell in row)]
        if not filled_rows or width == 0:
            return
        if 3 * len(filled_rows) * len(used) > self._most:
            raise self._too_large()
        self._block("", table([[row[column] if column < len(row) else "" for column in used] for row in filled_rows]))

    def result(self) -> tuple[str, tuple[Location, ...]]:
        """Return the text, and the locations of the file's pages in it."""
        return "".join(self._parts), tuple(self._locations)

    def _block(self, prefix: str, text: str, *, is_item: bool = False) -> None:
        pages = text.count(PAGE_BREAK)
        if len(text) == pages or not text.strip():
            if pages:
                self._turned = self.page + pages, None
            return
        if not is_item:
            self._open_items = []
        if self._parts:
            self._append("\n" if is_item and self._in_list else "\n\n")
        self._in_list = is_item
        if self._turned is not None:
            self._locate(self._length, *self._turned)
            self._turned = None
        block_start = self._length
        self._append(prefix)
        if pages:
            pieces = text.split(PAGE_BREAK)
            for number, piece in enumerate(pieces):
                if number:
                    at_start = self._length == block_start + len(prefix)
                    if any(map(str.strip, pieces[number:])):
                        self._locate(block_start if at_start else self._length, self._page + 1, None)
                    else:
                        self._turned = self.page + 1, None
                self._append(piece)
        else:
            self._append(text)

    def _append(self, text: str) -> None:
        self._parts.append(text)
        self._length += len(text)
        self._bytes += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        if self._bytes > self._most:
            raise self._too_large()

    def _locate(self, start: int, page: int, box: tuple[float, float, float, float] | None) -> None:
        self._page = page
        if self._locations and self._locations[-1].start == start:
            self._locations.pop()
        if not self._locations or (self._locations[-1].page, self._locations[-1].box) != (page, box):
            self._locations.append(Location(start, page, box))

    def _too_large(self) -> UnreadableError:
        return UnreadableError("too-large", f"its text is over {self._most:,} bytes; see corpus.max_document_bytes")
