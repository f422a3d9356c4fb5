"""PDF: text in reading order, with headings, lists, tables and code, and the box of every block on its page.

PDFium (pypdfium2, Apache and BSD) reads the files. It is a browser's reader: fast C++, hardened against hostile files,
and it returns each character's box and font. pdfminer and pdfplumber, written in Python, take ten times as long;
PyMuPDF is licensed under the AGPL; docling and unstructured use neural networks whose output depends on the machine.
The layout analysis is our own, and is a pure function of the boxes. LiteParse 2.18 (Rust, Apache) is four times as
fast, but breaks the rows of tables, transposes letters of Arabic, reads nothing of a rotated page, and answers fewer
questions. Its words in our layout answer as many questions as PDFium's, in a third less time, but need three times the
memory, and crash on bookmarks that lead to themselves.

Running heads, page numbers and hidden text are omitted, and counted. The structure of formulas is not read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import BinaryIO

import pypdfium2 as pdfium

from tasks.stages.ingest.documents import Location, WordCounts
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import escaped, fenced, guarded, heading_text, table
from tasks.stages.ingest.formats.page_layout import BodyStyle, PageBlock, around, blocks_of, joined
from tasks.stages.ingest.formats.page_ocr import blocks_in_picture
from tasks.stages.ingest.formats.pdf_text import (
    Letters,
    OutlineEntry,
    PageText,
    grey_pixels,
    information,
    open_pdf,
    outline_of,
    read_page,
)
from tasks.stages.ingest.formats.plausible_text import is_plausible
from tasks.stages.ingest.formats.right_to_left import in_logical_order
from tasks.stages.ingest.formats.ruled_tables import take_tables
from tasks.stages.ingest.formats.running_heads import drop_running_heads, drop_running_tables
from tasks.stages.ingest.formats.tesseract import require_tesseract
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import count_words

_DPI = 200
_NEAR = 6.0  # points: columns of a table that goes on
_MOSTLY = 0.9  # the least share of a page's words that are kept, unless the page is listed
_MOST_WORDS = 1_000_000
_LONGEST_HEADING = 200
_ENDS = (".", "!", "?", ":", ";", "\u2026", ".\u201d", '."', ".)", "\u3002", "\uff01", "\uff1f")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_CONTENTS = frozenset(
    """
    abstract contents contenidos indice inhalt inhaltsverzeichnis sommaire spistreści sumário tabledesmatières
    tableofcontents índice índicegeneral содержание оглавление 目录 目次
    """.split()  # noqa: SIM905
)
_DATE = re.compile(r"(?:D:)?(\d{4})(\d{2})?(\d{2})?")


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a PDF, with the locations of its blocks. See `Extractor`.

    Also raises ConfigurationError if OCR is set and tesseract is not installed.
    """
    with closing(open_pdf(file)) as document:
        return _extracted(document, Letters(file), limits)


def _extracted(document: pdfium.PdfDocument, letters: Letters, limits: ExtractionLimits) -> Extracted:
    count = len(document)
    if count > limits.pages:
        message = f"it has {count:,} pages; at most {limits.pages:,} are read, see corpus.extract.max_pages"
        raise UnreadableError("too-large", message)
    pages, in_file = _pages(document, letters, limits)
    unreadable = count - len(pages)
    if unreadable == count:
        raise UnreadableError("unreadable-file", f"none of its {count:,} pages can be loaded")
    vocabulary = _vocabulary(pages)
    is_cipher = not is_plausible(_texts(pages))
    ciphers = {page.number for page in pages if page.frames and (is_cipher or not is_plausible(_texts([page])))}
    garbled = [page.number for page in pages if page.is_garbled or page.number in ciphers]
    pictures = sorted({*garbled, *(page.number for page in pages if page.without_text)})
    read: dict[int, list[PageBlock]] = {}
    if pictures and limits.ocr:
        read = _read_pictures(document, pictures, limits, vocabulary)
    for page in pages:
        if page.number in ciphers or page.number in read:
            page.frames.clear()
    if not read and not any(page.frames for page in pages if not page.without_text):
        raise _without_text(len(pictures), count, limits, garbled=len(garbled))
    style = _style(pages)
    tables = _take_tables(pages, vocabulary)
    words_of_heads = drop_running_tables(tables, len(pages))
    words_of_heads += drop_running_heads(pages, style, has_tables=any(tables.values()))
    blocks: list[PageBlock] = []
    for page in pages:
        blocks += [block for block in read.get(page.number, ()) if block.lines]
        for frame in page.frames:
            of_page = tables[page.number] if frame is page.frames[0] else ()
            of_frame = blocks_of(frame, page.number, style, vocabulary, of_page)
            for block in of_frame:
                block.apart = frame is not page.frames[0]
            blocks += of_frame
    text_words = _words_by_page(blocks)
    blocks, levels = _whole_headings(blocks, _levels(blocks, style, outline_of(document)))
    details = information(document)
    written = _Written(limits.text_bytes)
    repeated: Counter[str] = Counter()
    for block, level in _joined_over_breaks(blocks, levels, style, repeated):
        written.add(block, level, vocabulary)
    text = written.text()
    if not text.strip():
        raise UnreadableError("no-text", "its pages have no text")
    metadata = {
        "pages": count,
        "author": title_of(_plain(details.get("Author", ""))),  # programs also write names such as (anonymous)
        "created": _date(details.get("CreationDate", "")),
        "pages_without_text": len(pictures) - len(read),
        "pages_read_by_ocr": len(read),
        "pages_unreadable": unreadable,
        "words_in_running_heads": words_of_heads,
        "words_hidden": sum(page.hidden for page in pages),
        "letters_unmapped": sum(page.unmapped for page in pages if page.number not in read),
    }
    filled = {key: value for key, value in metadata.items() if value}
    unread = set(garbled).difference(read)
    words = _word_counts(pages, in_file, text_words, unread, words_of_heads, repeated["header"])
    return Extracted(text, _title(details, blocks, levels), filled, tuple(written.locations), words=words)


def _texts(pages: Sequence[PageText]) -> Iterator[str]:
    return (piece.text for page in pages for frame in page.frames for piece in frame.pieces)


def _words_by_page(blocks: Sequence[PageBlock]) -> Counter[int]:
    words: Counter[int] = Counter()
    for block in blocks:
        cells = (cell for row in block.rows for cell in row)
        words[block.page] += sum(map(count_words, cells if block.kind == "table" else block.lines))
    return words


def _word_counts(
    pages: Sequence[PageText],
    in_file: Counter[str],
    text_words: Counter[int],
    garbled: Collection[int],
    of_heads: int,
    of_headers: int,
) -> WordCounts:
    left_out = Counter({"running-head": of_heads, "repeated-header": of_headers})
    lost: list[tuple[int, int, int]] = []
    for page in pages:
        words, is_garbled = page.word_count, page.number in garbled
        left_out["hidden"] += 0 if is_garbled else page.hidden
        left_out["unreadable-letters"] += words if is_garbled else page.unreadable
        if text_words[page.number] < _MOSTLY * words or (page.without_text and not text_words[page.number]):
            lost.append((page.number, words, text_words[page.number]))
    return WordCounts(in_file, left_out, tuple(lost))


def _pages(
    document: pdfium.PdfDocument, letters: Letters, limits: ExtractionLimits
) -> tuple[list[PageText], Counter[str]]:
    """Return the pages that load, and the words of all of them."""
    pages: list[PageText] = []
    in_file: Counter[str] = Counter()
    chars = 0
    for number in range(1, len(document) + 1):
        try:
            page = read_page(document, number, letters)
        except pdfium.PdfiumError:
            continue
        in_file.update(page.words)
        pages.append(replace(page, frames=[in_logical_order(frame) for frame in page.frames], words=Counter()))
        chars += pages[-1].chars
        if chars > 1.2 * limits.text_bytes:
            raise UnreadableError("too-large", f"its first {number:,} pages have {chars:,} characters of text")
    return pages, in_file


def _without_text(pictures: int, count: int, limits: ExtractionLimits, *, garbled: int) -> UnreadableError:
    if garbled:
        message = f"the fonts of {garbled:,} of {count:,} pages do not say which letters they show"
        remedy = f"tesseract finds no text ({limits.ocr})" if limits.ocr else "set corpus.extract.ocr to read the pages"
        return UnreadableError("unreadable-text", f"{message}: {remedy}")
    if not pictures:
        return UnreadableError("no-text", f"all of its {count:,} pages are empty")
    message = f"{pictures:,} of {count:,} pages are pictures, and none has text"
    if limits.ocr:
        return UnreadableError("no-text-layer", f"{message}; tesseract finds no text in them either ({limits.ocr})")
    return UnreadableError("no-text-layer", f"{message}: set corpus.extract.ocr to read them, such as `ocr: eng`")


def _read_pictures(
    document: pdfium.PdfDocument, numbers: Sequence[int], limits: ExtractionLimits, vocabulary: Collection[str]
) -> dict[int, list[PageBlock]]:
    program = require_tesseract(limits.ocr)
    blocks_by_page: dict[int, list[PageBlock]] = {}
    size = 0
    for number in numbers:
        blocks = blocks_in_picture(program, limits.ocr, grey_pixels(document, number, _DPI), number, vocabulary)
        if blocks:
            blocks_by_page[number] = blocks
            size += sum(len(line) for block in blocks for line in block.lines)
        if size > limits.text_bytes:
            raise UnreadableError("too-large", f"its pages up to {number:,} have {size:,} characters of text")
    return blocks_by_page


def _vocabulary(pages: Sequence[PageText]) -> frozenset[str]:
    """Return the document's words in lower case, except words that may be hyphenated at the end of a line."""
    words: set[str] = set()
    for page in pages:
        for frame in page.frames:
            for piece in frame.pieces:
                piece_words = _WORD.findall(piece.text.lower())
                if piece_words and piece.text[-1:] in "-\u2010\u00ad":
                    del piece_words[-1]
                words.update(piece_words)
        if len(words) > _MOST_WORDS:
            break
    return frozenset(words)


def _take_tables(pages: Sequence[PageText], vocabulary: Collection[str]) -> dict[int, list[PageBlock]]:
    """Remove the ruled tables from the pages; return them by page."""
    tables: dict[int, list[PageBlock]] = {}
    for page in pages:
        above = tables.get(page.number - 1, ())
        columns = above[-1].columns if above else ()
        if page.frames:
            tables[page.number] = take_tables(page.frames[0], page.number, vocabulary, columns)
    return tables


def _style(pages: Sequence[PageText]) -> BodyStyle:
    sizes: Counter[float] = Counter()
    bold = mono = total = 0
    for page in pages:
        for frame in page.frames[:1]:
            for piece in frame.pieces:
                length = len(piece.text)
                total += length
                mono += length * piece.mono
                bold += length * piece.bold
                sizes[round(2 * piece.size) / 2] += length if not piece.mono else length // 2
    if not total:
        return BodyStyle(10.0)
    size = max(sizes.items(), key=lambda item: (item[1], -item[0]))[0]
    return BodyStyle(max(size, 1.0), bold > 0.6 * total, mono > 0.9 * total)


# Headings.


def _levels(blocks: Sequence[PageBlock], style: BodyStyle, outline: Sequence[OutlineEntry]) -> dict[int, int]:
    """Return the levels of headings by block number: from the outline, otherwise from the rank of their fonts."""
    marked: dict[tuple[str, int], int] = {}
    for entry in outline:
        if (key := _folded(entry.title)) and entry.page:
            marked.setdefault((key, entry.page), entry.level)
    styles: dict[int, tuple[float, bool]] = {}
    outlined: dict[int, int] = {}
    leaders: Counter[int] = Counter()
    for block in blocks:
        leaders[block.page] += sum(" ... " in line for line in block.lines)
    for number, block in enumerate(blocks):
        if block.kind not in ("paragraph", "item") or block.apart or not block.size:
            continue
        text = _heading_text(block)
        if len(text) > _LONGEST_HEADING or len(block.lines) > 5 or not any(map(str.isalpha, text)):
            continue
        if leaders[block.page] >= 4 and re.search(r"\s(?:\d{1,4}|[ivxl]{1,6})$", text):
            continue  # an entry of a table of contents
        level = _in_outline(text, block, marked) if marked else None
        if level is not None:
            outlined[number] = level
        elif not _looks_like_heading(block, text, style):
            continue
        styles[number] = (round(2 * block.size) / 2, block.bold)
    return _ranked(styles, outlined)


def _whole_headings(blocks: Sequence[PageBlock], levels: dict[int, int]) -> tuple[list[PageBlock], dict[int, int]]:
    """Merge the lines of a large heading that are separate blocks; return the blocks and levels."""
    merged: list[PageBlock] = []
    merged_levels: dict[int, int] = {}
    for number, block in enumerate(blocks):
        above = merged[-1] if merged else block
        level = levels.get(number, 0)
        goes_on = (
            level
            and merged_levels.get(len(merged) - 1) == level
            and above.page == block.page
            and above.kind == block.kind == "paragraph"
            and (round(above.size), above.bold) == (round(block.size), block.bold)
            and -0.5 * block.size < block.box[1] - above.box[3] < 0.6 * block.size
            and min(above.box[2], block.box[2]) > max(above.box[0], block.box[0])
            and len(above.lines) + len(block.lines) <= 4
        )
        if goes_on:
            above.lines = [*above.lines, *block.lines]
            x0, _, x1, bottom = around([above.box, block.box])
            above.box = x0, above.box[1], x1, bottom
            continue
        if level:
            merged_levels[len(merged)] = level
        merged.append(block)
    return merged, merged_levels


def _ranked(styles: dict[int, tuple[float, bool]], outlined: dict[int, int]) -> dict[int, int]:
    by_style: dict[tuple[float, bool], Counter[int]] = {}
    for number, level in outlined.items():
        by_style.setdefault(styles[number], Counter())[level] += 1
    largest = max((styles[number] for number in outlined), default=(0.0, False))
    above = int(bool(outlined) and any(style[0] > largest[0] + 0.6 for style in styles.values()))
    levels: dict[tuple[float, bool], int] = {}
    last = 0
    for key in sorted(set(styles.values()), reverse=True):
        votes = by_style.get(key)
        usual = max(votes.items(), key=lambda item: (item[1], -item[0]))[0] + above if votes else last
        last = usual + 1
        levels[key] = last
    return {
        number: min(6, outlined[number] + 1 + above if number in outlined else levels[key])
        for number, key in styles.items()
    }


def _heading_text(block: PageBlock) -> str:
    text = joined([line.replace("\n", " ") for line in block.lines], ())
    return f"{block.marker} {text}" if block.marker not in ("", "-") else text


def _looks_like_heading(block: PageBlock, text: str, style: BodyStyle) -> bool:
    if block.kind == "item" and block.marker == "-" and not re.match(r"[(\[]?\w{1,4}[)\]]", text):
        return False
    if style.is_exceeded_by(block.size):
        return len(text) > 1 and " ... " not in text
    return (
        block.bold
        and not style.bold
        and block.size >= 0.95 * style.size
        and len(block.lines) <= 3
        and len(text) <= 120
        and not text.endswith((",", ";", ":"))
        and (not text.endswith(".") or len(text) <= 60)
    )


def _folded(text: str) -> str:
    return "".join(letter for letter in text.lower() if letter.isalnum())


def _in_outline(heading: str, block: PageBlock, marked: dict[tuple[str, int], int]) -> int | None:
    """Return the level of the page's bookmark with the heading's text, perhaps without its number; None if none."""
    bare = re.sub(r"^(?:chapter|appendix)?\s*[\dA-Z]{1,3}(?:\.\d+)*\.?\s+", "", heading, flags=re.IGNORECASE)
    for text in (heading, bare):
        level = marked.get((_folded(text), block.page))
        if level is not None:
            return level
    first, _, rest = heading.partition(" ")
    if (
        rest
        and len(block.lines) == 1
        and len(first) > 2
        and len(heading) <= 100
        and rest[0].isupper()
        and heading[-1].isalpha()
    ):
        return marked.get((_folded(first), block.page))  # a name and its description, as in reference manuals
    return None


def _title(details: dict[str, str], blocks: Sequence[PageBlock], levels: dict[int, int]) -> str:
    """Return the stated title if it is plausible; otherwise the largest heading on the first pages."""
    stated = title_of(_plain(details.get("Title", "")), stated=True)
    if sum(map(str.isalpha, stated)) >= 3 and len(stated) <= 300:
        return stated
    first = [blocks[number] for number in sorted(levels) if blocks[number].page <= 3 and not blocks[number].apart]
    titles = [block for block in first if title_of(text := _heading_text(block)) and _folded(text) not in _CONTENTS]
    if not titles:
        return ""
    largest = max(titles, key=lambda block: round(block.size, 1))  # if several are largest, the first of them
    return title_of(_heading_text(largest))


def _plain(text: str) -> str:
    """Return a value of the document information as one line, without invalid characters; empty if too long."""
    printable = "".join(letter if letter.isprintable() or letter.isspace() else "" for letter in text)
    line = " ".join(printable.encode("utf-8", "ignore").decode().split())
    return line if len(line) <= 1000 else ""


def _date(text: str) -> str:
    """Return the day of a PDF date such as D:20230112081107-06'00', here 2023-01-12; empty if it is not a date."""
    match = _DATE.match(text.strip())
    if match is None:
        return ""
    year, month, day = int(match[1]), int(match[2] or 1), int(match[3] or 1)
    if not (1900 <= year <= 2999 and 1 <= month <= 12 and 1 <= day <= 31):
        return ""
    return f"{year:04d}-{month:02d}-{day:02d}"


# The text.


def _joined_over_breaks(
    blocks: Sequence[PageBlock], levels: dict[int, int], style: BodyStyle, repeated: Counter[str]
) -> Iterator[tuple[PageBlock, int]]:
    """Yield the blocks with their levels; a paragraph that spans several columns or pages becomes one block.

    repeated: counts the words of headers of tables that later pages repeat.
    """
    merged: list[tuple[PageBlock, int]] = []
    for number, block in enumerate(blocks):
        level = levels.get(number, 0)
        if block.kind == "table" and merged and _goes_on(merged[-1][0], block):
            table = merged[-1][0]
            if block.rows[0] == table.rows[0]:
                repeated["header"] += sum(map(count_words, block.rows[0]))
                del block.rows[0]
            table.parts.append((len(table.rows), block.page, block.box))
            table.rows += block.rows
            table.end = (block.page, block.box[3])
            continue
        before = _continued(merged, block, level, style)
        if before is None:
            merged.append((block, level))
            continue
        before.parts.append((len(before.lines), block.page, block.box))
        before.parts += [(len(before.lines) + at, page, box) for at, page, box in block.parts]
        before.lines += block.lines
        before.full = block.full
        before.end = (block.page, block.box[3])
    yield from merged


def _goes_on(above: PageBlock, table: PageBlock) -> bool:
    """Return whether a table at the beginning of a page continues the table at the end of the page before."""
    page = above.end[0] if above.end else above.page
    if above.kind != "table" or table.page != page + 1 or len(above.columns) != len(table.columns):
        return False
    if above.rows[0] == table.rows[0]:
        return True
    shift = table.columns[0] - above.columns[0]
    near = sum(abs(below - start - shift) <= _NEAR for start, below in zip(above.columns, table.columns, strict=True))
    return not table.bold and near >= 0.6 * len(table.columns)


def _continued(
    merged: Sequence[tuple[PageBlock, int]], block: PageBlock, level: int, style: BodyStyle
) -> PageBlock | None:
    if level or block.kind != "paragraph" or block.apart or not merged:
        return None
    first = block.lines[0].strip()
    for back, (before, of_before) in enumerate(reversed(merged[-4:])):
        page, bottom = before.end or (before.page, before.box[3])
        if block.page - page > 1 or of_before:
            return None
        is_text = before.kind in ("paragraph", "item") and not before.apart
        if not is_text or before.size < 0.93 * style.size <= block.size:
            continue  # a float or a footnote
        if abs(before.size - block.size) > 0.06 * style.size or before.bold != block.bold:
            return None
        if block.page == page and block.box[1] > bottom - 0.5 * block.size:
            return None  # the block is below the earlier block, in the same column
        last = before.lines[-1].rstrip()
        if not last or not first or last.endswith(_ENDS) or " ... " in last:
            return None
        small = first[0].islower()
        if back:
            return before if small else None
        return before if small or (before.full and last[-1] in "-\u2010,") or (before.full and block.fits) else None
    return None


@dataclass(slots=True)
class _Written:
    """Writes blocks as Markdown, and records the locations where they begin."""

    most_bytes: int
    locations: list[Location] = field(default_factory=list)
    _parts: list[str] = field(default_factory=list)
    _length: int = 0
    _size: int = 0
    _items: list[int] = field(default_factory=list)  # the content offsets of the enclosing items
    _was_item: bool = False

    def add(self, block: PageBlock, level: int, vocabulary: Collection[str]) -> None:
        is_item = block.kind == "item" and not level
        positions: list[tuple[int, int, tuple[float, float, float, float]]] = []
        if level:
            markdown = "#" * level + " " + heading_text(escaped(" ".join(_heading_text(block).split())))
        elif block.kind == "table":
            markdown = _as_table(block.rows)
            starts = list(accumulate((len(line) + 1 for line in markdown.split("\n")), initial=0))
            positions = [(starts[row + 1], page, box) for row, page, box in block.parts if row + 2 < len(starts)]
        elif block.kind == "code":
            markdown = fenced("\n".join(line.rstrip() for line in block.lines))
        else:
            head, indent = "", ""
            if is_item:
                del self._items[block.depth :]
                head = " " * (self._items[-1] if self._items else 0) + block.marker + " "
                self._items.append(len(head))
                indent = " " * len(head)
            body = _as_paragraph(joined(block.lines, vocabulary))
            for at, page, box in block.parts:
                before = len(_as_paragraph(joined(block.lines[:at], vocabulary)))
                before += len(head) + (body[before : before + 1] == " ")
                positions.append((min(before, len(head) + len(body) - 1), page, box))
            markdown = head + body.replace("\n", "\n" + indent)
            if not body:
                return
        if not markdown.strip(" #"):
            return
        if not is_item:
            self._items = []
        if self._parts:
            self._put("\n" if is_item and self._was_item else "\n\n")
        start = self._length
        self._put(markdown)
        self._was_item = is_item
        self.locations.append(_location(start, block.page, block.box))
        self.locations += [_location(start + at, page, box) for at, page, box in positions if at > 0]

    def text(self) -> str:
        return "".join(self._parts) + "\n" * bool(self._parts)

    def _put(self, text: str) -> None:
        self._size += len(text.encode("utf-8"))
        if self._size > self.most_bytes:
            raise UnreadableError("too-large", f"its text is over {self.most_bytes:,} bytes")
        self._parts.append(text)
        self._length += len(text)


def _as_paragraph(text: str) -> str:
    return "\n".join(guarded(line) for line in map(str.strip, escaped(text).split("\n")) if line)


def _as_table(rows: Sequence[Sequence[str]]) -> str:
    width = max(map(len, rows))
    return table([[escaped(" ".join(cell.split())) for cell in (*row, *[""] * (width - len(row)))] for row in rows])


def _location(start: int, page: int, box: tuple[float, float, float, float]) -> Location:
    x0, top, x1, bottom = (round(value, 1) + 0.0 for value in box)
    return Location(start, page, (x0, top, x1, bottom))
