"""Groups PDFium's characters into pieces of lines, with their boxes and fonts.

A piece is a run of characters on one baseline without a wide gap. Its coordinates are those of its reading frame:
points from the upper left corner of the page, in reading direction. So vertical text and rotated pages are laid out
like any other text. `Frame.on_page` converts coordinates back to the page as shown.
"""

from __future__ import annotations

import ctypes
import io
import logging
import math
import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO

import pypdfium2 as pdfium
from pypdfium2 import raw

from tasks.stages.ingest.formats.extraction import UnreadableError
from tasks.stages.ingest.formats.glyph_names import TEX_LIGATURES, letters_by_code
from tasks.stages.ingest.formats.page_drawing import Area, Drawing, drawing_of, is_white
from tasks.stages.ingest.formats.typed_text import typed_texts
from tasks.stages.ingest.formats.word_count import count_words, words_of

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in points; y grows downwards."""

logging.getLogger("pypdfium2").setLevel(logging.CRITICAL)  # its warnings precede a rejection or do not matter

_IN_MEMORY = 256 << 20
_MOST_CHARS = 1_000_000
"""The maximum number of characters of a page; a newspaper page has about 50,000."""
_MOST_OBJECTS = 200_000
_SAME_LINE = 1.0  # points: pieces of a line
_MOST_DIVIDERS = 8  # lines compared with a gap between words
_MOST_OUTLINE = 20_000
_HUGE = 1e6
WIDE_GAP = 1.0  # em: the gap that ends a piece
SPACE_GAP = 0.17  # em: the gap that counts as a space
DIAGONAL = 4  # added to the quarter turns of text that is neither level nor upright, such as a watermark
_TYPED_SIZE = 10.0  # points, on a page without other text
_FAINT, _UNSEEN, _OUTSIDE = 1, 2, 3  # invisible by its mode or too small; white on white; outside the page
_SMALLEST = 2.0  # points
_SLANT = 0.12  # quarter turns
_SAME_BASE = 0.2  # em
_BITMAP_PIXELS = 12_000_000

_LIGATURES = {
    "\ufb00": "ff", "\ufb01": "fi", "\ufb02": "fl", "\ufb03": "ffi", "\ufb04": "ffl", "\ufb05": "st", "\ufb06": "st",
}  # fmt: skip
_BULLETS = dict.fromkeys(
    "\uf0b7\uf0a7\uf076\uf0d8\uf0fc\uf02d\uf0a8\uf06e\uf071\uf0b0", "\u2022"
)  # characters of Symbol and Wingdings
_BRACKETS = dict(
    zip(
        map(chr, range(0xF8EB, 0xF8FF)),
        "\u239b\u239c\u239d\u23a1\u23a2\u23a3\u23a7\u23a8\u23a9\u23aa"
        "\u23ae\u239e\u239f\u23a0\u23a4\u23a5\u23a6\u23ab\u23ac\u23ad",
        strict=True,
    )
)  # parts of tall brackets in Adobe's Symbol
_REPLACEMENTS = {**_LIGATURES, **_BULLETS, **_BRACKETS}
_DROPPED = frozenset("\u200b\u200c\u2060\ufeff\ufffe\uffff\ufffd")
_ACCENTS = {
    "\u00b4": "\u0301", "`": "\u0300", "\u00a8": "\u0308", "\u02c6": "\u0302", "^": "\u0302", "~": "\u0303",
    "\u02dc": "\u0303", "\u00b8": "\u0327", "\u02c7": "\u030c", "\u02da": "\u030a", "\u00af": "\u0304",
    "\u02d8": "\u0306", "\u02d9": "\u0307", "\u02dd": "\u030b", "\u02db": "\u0328",
}  # fmt: skip
_BOLD = re.compile(r"bold|black|heavy|demi|cmbx|cmssbx|sfbx|sfsx|cmb\d|-b$|semib|-medi(?:$|ital)", re.IGNORECASE)
_MONO = re.compile(
    r"mono|courier|consol|typewriter|cmtt|sftt|cmsltt|cmitt|lmtt|eztt|txtt|menlo|inconsol|sourcecode|fixed|nimbusmon|tctt|"
    r"beramon|sfst\d|sfit\d|ectt|lucidatype|luximono|sltt",
    re.IGNORECASE,
)
_ARROW = re.compile(r"(?<=[^\W\d_])\u21b5(?=-|[,.;)]?\s?[^\W\d_])|\u21b5(?=[^\W\d_])")  # a "ff" that macOS wrote
_FEW_UNMAPPED = 8
_BODY_FONT = 400  # letters of a font that are guessed, on a page: then it is no font of formulas
_SURE = 40  # letters of a font that PDFium maps: then it maps all codes of Latin letters
RIGHT_TO_LEFT = re.compile(r"[\u0590-\u065f\u066d-\u06ef\u06fa-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_HYPHEN = re.compile(r"(\w)[-\u00ad\ufffe\x02]\n{1,2}(\w)|(?<=\w)[\ufffe\x02](?=\w)")
"""A hyphen at the end of a line in PDFium's text, which marks it with U+FFFE or U+0002."""
_FIXED_PITCH, _FORCE_BOLD = 1, 1 << 18


@dataclass(slots=True)
class TextRun:
    """A run of characters on one line. base: the y of the baseline; size: the font size, in points on the page.

    guessed: the font's key if PDFium has read its codes as letters, since the font does not say what they are; else 0.
    hidden: _FAINT, _UNSEEN or _OUTSIDE for text that no reader of the page sees; else 0.
    """

    text: str
    x0: float
    top: float
    x1: float
    bottom: float
    base: float
    size: float
    bold: bool = False
    mono: bool = False
    guessed: int = 0
    hidden: int = 0

    @property
    def box(self) -> Box:
        return self.x0, self.top, self.x1, self.bottom


@dataclass(frozen=True, slots=True)
class Frame:
    """The text of a page in one reading direction. turns: quarter turns counter-clockwise on the page as shown.

    mirrored: whether x grows to the left, since the text is written from right to left. rulings: the lines drawn.
    """

    turns: int
    width: float
    height: float
    pieces: list[TextRun]
    mirrored: bool = False
    rulings: list[Box] = field(default_factory=list)

    def on_page(self, box: Box) -> Box:
        """Return the box on the page as shown."""
        x0, top, x1, bottom = box
        if self.mirrored:
            x0, x1 = self.width - x1, self.width - x0
        if self.turns == 1:
            return top, self.width - x1, bottom, self.width - x0
        if self.turns == 2:
            return self.width - x1, self.height - bottom, self.width - x0, self.height - top
        if self.turns == 3:
            return self.height - bottom, x0, self.height - top, x1
        return x0, top, x1, bottom


@dataclass(frozen=True, slots=True)
class PageText:
    """A page. frames: by descending amount of text. without_text: whether the page shows something, but no words.

    unmapped: the number of letters left out since nothing says what they are; a page with many has no readable text.
    hidden: the number of words left out that no reader of the page sees. words: all words in the order of PDFium's
    letters, and word_count their number. unreadable: the number of words that lack such letters.
    """

    number: int
    frames: list[Frame]
    chars: int
    without_text: bool = False
    unmapped: int = 0
    hidden: int = 0
    words: Counter[str] = field(default_factory=Counter)
    word_count: int = 0
    unreadable: int = 0

    @property
    def is_garbled(self) -> bool:
        return self.unmapped > max(_FEW_UNMAPPED, 0.5 * self.chars)


@dataclass(frozen=True, slots=True)
class OutlineEntry:
    """A bookmark. level: counted from 0; page: counted from 1, 0 if unknown."""

    level: int
    title: str
    page: int


def open_pdf(file: BinaryIO) -> pdfium.PdfDocument:
    """Open a document. Raises UnreadableError if it is locked, damaged, or not a PDF."""
    head = file.read(1024)
    size = file.seek(0, io.SEEK_END)
    file.seek(0)
    if b"%PDF-" not in head:
        raise UnreadableError("unreadable-file", "the file is not a PDF: it does not begin with %PDF-")
    try:
        document = pdfium.PdfDocument(file.read() if size <= _IN_MEMORY else file)
    except pdfium.PdfiumError as error:
        if error.err_code == raw.FPDF_ERR_PASSWORD:
            raise UnreadableError("encrypted", "the PDF is locked with a password; save it without one") from error
        if error.err_code == raw.FPDF_ERR_SECURITY:
            raise UnreadableError("encrypted", "the PDF uses an encryption that PDFium does not support") from error
        why = "it is damaged or cut short" if error.err_code == raw.FPDF_ERR_FORMAT else "no page can be found in it"
        raise UnreadableError("unreadable-file", f"PDFium cannot open it: {why}") from error
    if document.get_formtype() != raw.FORMTYPE_NONE:
        document.init_forms()
    return document


def information(document: pdfium.PdfDocument) -> dict[str, str]:
    """Return the document information, such as Title and CreationDate; keys without a value are omitted."""
    return {key: value for key, value in document.get_metadata_dict(skip_empty=True).items() if isinstance(value, str)}


def outline_of(document: pdfium.PdfDocument) -> list[OutlineEntry]:
    """Return the first _MOST_OUTLINE bookmarks, in order."""
    entries: list[OutlineEntry] = []
    try:
        for mark in document.get_toc(max_depth=8):
            target = mark.get_dest()
            page = target.get_index() if target is not None else None
            entries.append(OutlineEntry(mark.level, _clean(mark.get_title()), 0 if page is None else page + 1))
            if len(entries) == _MOST_OUTLINE:
                break
    except (pdfium.PdfiumError, ValueError):
        return []
    return entries


def read_page(document: pdfium.PdfDocument, number: int, letters: Letters) -> PageText:
    """Read the text of a page. number: counted from 1. Raises PdfiumError for a page that cannot be loaded."""
    with closing(document[number - 1]) as page:
        geometry = _Place.of(page)
        drawing = drawing_of(page)
        collector = _Pieces(geometry, drawing, letters)
        with closing(page.get_textpage()) as text:
            count = text.count_chars()
            if count > _MOST_CHARS:
                raise UnreadableError("too-large", f"page {number} has {count:,} characters; at most {_MOST_CHARS:,}")
            collector.read(text, count)
        words = words_of(_HYPHEN.sub(r"\1\2", "".join(collector.codes)))
        hidden = collector.drop_hidden(shows_something=_shows_something(page))
        for typed, area in typed_texts(document, page):
            collector.add_typed(typed, (area.left, area.bottom, area.right, area.top))
        frames = [
            Frame(turns % DIAGONAL, *geometry.frame_size(turns), pieces, rulings=collector.dividers(turns).rulings)
            for turns, pieces in collector.by_turns
        ]
        texts = [piece.text for frame in frames for piece in frame.pieces]
        without_text = not any(letter.isalnum() for text in texts for letter in text) and _shows_something(page)
        unreadable = 0
        if collector.unmapped:
            missing = (words - words_of("\n".join(texts))).total()
            unreadable = max(0, min(collector.unmapped, missing - hidden))
        counts = (collector.unmapped, hidden, words, words.total(), unreadable)
        return PageText(number, frames, sum(map(len, texts)), without_text, *counts)


def grey_pixels(document: pdfium.PdfDocument, number: int, dpi: int) -> tuple[int, int, bytes, float]:
    """Draw a page in grey; return width, height, rows of pixels, and pixels per point (fewer for large pages)."""
    with closing(document[number - 1]) as page:
        width, height = max(page.get_width(), 1.0), max(page.get_height(), 1.0)
        if not math.isfinite(width * height):
            raise UnreadableError("unreadable-file", f"page {number} is too large to be drawn")
        scale = min(dpi / 72, math.sqrt(_BITMAP_PIXELS / (width * height)))
        scale = min(scale, 16_000 / max(width, height))
        with closing(page.render(scale=scale, grayscale=True)) as bitmap:
            stride, rows = bitmap.stride, bytes(bitmap.buffer)
            lines = [rows[at * stride : at * stride + bitmap.width] for at in range(bitmap.height)]
            return bitmap.width, bitmap.height, b"".join(lines), scale


def _bounded(length: float) -> float:
    return min(max(length, 1.0), _HUGE) if math.isfinite(length) else 1.0


def _clean(text: str) -> str:
    text = "".join(_LIGATURES.get(letter, letter) for letter in text)
    text = "".join(" " if letter.isspace() else letter for letter in text if _is_kept(ord(letter)))
    return unicodedata.normalize("NFC", " ".join(text.split()))


def _is_kept(code: int) -> bool:
    return not (0xD800 <= code <= 0xDFFF or code > 0x10FFFF or chr(code) in _DROPPED) and (
        code in (9, 10, 13) or not (code < 32 or 127 <= code < 160)
    )


@dataclass(frozen=True, slots=True)
class _Place:
    """Maps coordinates of a page's content to the page as shown."""

    box: Box  # the visible part: left, bottom, right, top in the content's coordinates
    rotation: int  # quarter turns clockwise
    width: float
    height: float

    @classmethod
    def of(cls, page: pdfium.PdfPage) -> _Place:
        x0, bottom, x1, top = page.get_bbox()
        if not all(map(math.isfinite, (x0, bottom, x1, top))):
            x0, bottom, x1, top = 0.0, 0.0, 612.0, 792.0
        rotation = page.get_rotation() // 90 % 4
        width, height = _bounded(x1 - x0), _bounded(top - bottom)
        if rotation % 2:
            width, height = height, width
        return cls((x0, bottom, x1, top), rotation, width, height)

    def frame_size(self, turns: int) -> tuple[float, float]:
        return (self.height, self.width) if turns % 2 else (self.width, self.height)

    def point(self, x: float, y: float, turns: int) -> tuple[float, float]:
        """Map a point of the content to the frame of a reading direction."""
        turns %= DIAGONAL
        x0, bottom, x1, top = self.box
        if self.rotation == 0:
            x, y = x - x0, top - y
        elif self.rotation == 1:
            x, y = y - bottom, x - x0
        elif self.rotation == 2:
            x, y = x1 - x, y - bottom
        else:
            x, y = top - y, x1 - x
        if turns == 1:
            return self.height - y, x
        if turns == 2:
            return self.width - x, self.height - y
        if turns == 3:
            return y, self.width - x
        return x, y


class Dividers:
    """The vertical lines that divide the cells of a line of text."""

    def __init__(self, rulings: list[Box]) -> None:
        self.rulings = rulings
        lines: list[tuple[float, float, float]] = []
        for x0, top, x1, bottom in sorted(rulings):
            if bottom - top > x1 - x0:
                last = lines[-1] if lines else (-math.inf, 0.0, 0.0)
                if x0 - last[0] < _SAME_LINE and top <= last[2] + _SAME_LINE:  # drawn cell by cell
                    lines[-1] = (last[0], last[1], max(last[2], bottom))
                else:
                    lines.append((x0, top, bottom))
        self._lines = sorted(lines)

    def part(self, start: float, end: float, y: float) -> bool:
        """Return whether a vertical line stands between two positions of a text line."""
        first = bisect_left(self._lines, (start - 1,))
        return any(x <= end and top <= y <= bottom for x, top, bottom in self._lines[first : first + _MOST_DIVIDERS])


class Letters:
    """The letters of codes that PDFium cannot map; the file is only searched if there are such codes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._letters: dict[int, str] | None = None

    def of(self, code: int) -> str:
        if self._letters is None:
            self._letters = letters_by_code(self._file)
        return self._letters.get(code, "")


class _Pieces:
    """Collects a page's characters, in content order, into pieces by direction."""

    def __init__(self, place: _Place, drawing: Drawing, letters: Letters) -> None:
        self._place, self._drawing, self._of_codes = place, drawing, letters
        self._mapped: dict[int, int] = {}  # by font: the number of letters that PDFium maps
        self._guesses: dict[int, list[int]] = {}  # by font: the number of letters guessed, and of codes that are none
        self.unmapped = 0
        self.codes: list[str] = []  # the letters as PDFium maps them
        self._dividers: dict[int, Dividers] = {}
        self._pieces_by_turns: dict[int, list[TextRun]] = {}
        self._fonts: dict[int, tuple[bool, bool]] = {}
        self._drawn: set[tuple[int, str, int, int]] = set()
        self._letters: list[str] = []
        self._piece: TextRun | None = None
        self._turns = 0
        self._last, self._last_base = (0.0, 0.0), 0.0
        self._space = False
        self._accent: tuple[str, float, float] | None = None  # a spacing accent, until its letter follows

    @property
    def by_turns(self) -> list[tuple[int, list[TextRun]]]:
        """Return the pieces by direction: the one with the most text first, and diagonal text last."""
        by_turns = [(turns, pieces) for turns, pieces in self._pieces_by_turns.items() if pieces]
        by_turns.sort(key=lambda item: (item[0] >= DIAGONAL, -sum(len(piece.text) for piece in item[1]), item[0]))
        return by_turns

    def dividers(self, turns: int) -> Dividers:
        if turns not in self._dividers:
            corners = [
                (*self._place.point(left, top, turns), *self._place.point(right, bottom, turns))
                for left, bottom, right, top in self._drawing.rulings
            ]
            self._dividers[turns] = Dividers(
                [(min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)) for x0, y0, x1, y1 in corners]
            )
        return self._dividers[turns]

    def read(self, page: pdfium.PdfTextPage, count: int) -> None:
        """Read all characters, except those whose boxes are not finite or are far from the page."""
        handle = page.raw
        unicode, object_of, box_of = raw.FPDFText_GetUnicode, raw.FPDFText_GetTextObject, raw.FPDFText_GetLooseCharBox
        is_guess = raw.FPDFText_HasUnicodeMapError
        box = raw.FS_RECTF()
        at_box = ctypes.byref(box)
        owner: Any = None
        last_address = font = hidden = 0
        is_white_text, is_sure, width, height = False, False, 0.0, 0.0
        size, bold, mono, turns, base = 1.0, False, False, 0, 0.0
        high = 0
        for index in range(count):
            code = unicode(handle, index)
            if code == 0x20 or (code in (10, 13) and not is_guess(handle, index)):
                self.codes.append("\n" if code != 0x20 else " ")
                self._space = True
                continue
            if 0xD800 <= code < 0xDC00:
                high = code
                continue
            if 0xDC00 <= code < 0xE000:
                if not high:
                    continue
                code, high = 0x10000 + ((high - 0xD800) << 10) + code - 0xDC00, 0
            self.codes.append(chr(code))
            owner = object_of(handle, index)
            address = ctypes.addressof(owner.contents) if owner else 0
            if not address:
                continue
            if address != last_address:
                last_address = address
                size, turns, base = self._shape(handle, index)
                bold, mono, font = self._font(owner)
                hidden, is_white_text = self._hidden(owner, size)
                width, height = self._place.frame_size(turns)
                is_sure = self._mapped.get(font, 0) >= _SURE
            unsure = code < 0x20 or code > 0x2FF or not is_sure
            guess = unsure and (code in (0, 0xFFFD) or bool(is_guess(handle, index)))
            if guess:
                letter = self._guessed(code, font)
                if not letter:
                    continue
            else:
                letter = chr(code) if code != 2 else "-"  # PDFium's mark for a hyphen at the end of a line
                if letter.isspace():
                    self._space = True
                    continue
                if not _is_kept(ord(letter)) and code != 0xAD:
                    continue
                if not is_sure and letter.isalpha():
                    self._mapped[font] = self._mapped.get(font, 0) + 1
                    is_sure = self._mapped[font] >= _SURE
            if not box_of(handle, index, at_box):
                continue
            raw_left, raw_top, raw_right, raw_bottom = box.left, box.top, box.right, box.bottom
            if not -_HUGE < raw_left + raw_right + raw_top + raw_bottom < _HUGE:
                continue
            first, second = self._place.point(raw_left, raw_top, turns), self._place.point(raw_right, raw_bottom, turns)
            x0, x1 = (first[0], second[0]) if first[0] <= second[0] else (second[0], first[0])
            y0, y1 = (first[1], second[1]) if first[1] <= second[1] else (second[1], first[1])
            if is_white_text:
                is_white_text = False
                if not self._drawing.is_behind((raw_left + raw_right) / 2, (raw_top + raw_bottom) / 2):
                    hidden = _UNSEEN
            is_outside = not (0 <= x0 + x1 <= 2 * width and 0 <= y0 + y1 <= 2 * height)
            style = (bold, mono, font if guess else 0, _OUTSIDE if is_outside else hidden)
            self._add(_REPLACEMENTS.get(letter, letter), (x0, y0, x1, y1), base, size, style, turns)
        self._end()
        self._drop_ciphers()

    def add_typed(self, text: str, area: Area) -> None:
        """Add what was typed into an area of the page, line by line from its top; its font is unknown."""
        if not all(-_HUGE < value < _HUGE for value in area):
            return
        turns = -self._place.rotation % DIAGONAL
        x0, y0 = self._place.point(area[0], area[3], turns)
        x1, y1 = self._place.point(area[2], area[1], turns)
        left, top, right, bottom = min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)
        lines = [_clean(line) for line in text.splitlines()]
        size = min(max((bottom - top) / (1.2 * len(lines)), 4.0), self._usual_size)
        top += max(bottom - top - 1.2 * size * len(lines), 0.0) / 2 if len(lines) == 1 else 0.0
        for number, line in enumerate(lines):
            if line:
                y = top + 1.2 * size * number
                end = min(left + 0.5 * size * len(line), max(right, left + 1.0))
                piece = TextRun(line, left + 1.0, y, end + 1.0, y + 1.2 * size, y + 0.95 * size, size)
                self._pieces_by_turns.setdefault(turns, []).append(piece)

    @cached_property
    def _usual_size(self) -> float:
        sizes: Counter[float] = Counter()
        for pieces in self._pieces_by_turns.values():
            for piece in pieces:
                sizes[piece.size] += len(piece.text)
        return max(sizes.items(), key=lambda item: (item[1], -item[0]))[0] if sizes else _TYPED_SIZE

    def _hidden(self, owner: Any, size: float) -> tuple[int, bool]:
        """Return whether a text cannot be seen for its mode or size, and whether it is white."""
        mode = raw.FPDFTextObj_GetTextRenderMode(owner)
        if mode == raw.FPDF_TEXTRENDERMODE_INVISIBLE:
            return (0 if self._drawing.is_scan(self._place.width, self._place.height) else _FAINT), False
        return _FAINT * (size < _SMALLEST), mode == raw.FPDF_TEXTRENDERMODE_FILL and is_white(owner)

    def drop_hidden(self, *, shows_something: bool) -> int:
        """Remove the text that cannot be seen; return its number of words.

        Where there is no other text, invisible or tiny text stays: it is the text of what the page draws.
        """
        every = [piece for pieces in self._pieces_by_turns.values() for piece in pieces]
        worst = _FAINT if any(not piece.hidden for piece in every) or not shows_something else _UNSEEN
        for pieces in self._pieces_by_turns.values():
            pieces[:] = [piece for piece in pieces if piece.hidden < worst]
        return sum(count_words(piece.text) for piece in every if piece.hidden >= worst)

    def _guessed(self, code: int, font: int) -> str:
        """Return the letter of a code that the font does not map to Unicode; empty, and counted, if it is unknown."""
        guesses = self._guesses.setdefault(font, [0, 0])
        if 0x20 < code < 0x7F or 0xA0 < code < 0x100:
            guesses[0] += 1
            return chr(code)
        letter = self._of_codes.of(code)
        is_in_word = bool(self._piece) and not self._space and self._letters[-1].isalpha()
        is_of_text = self._mapped.get(font, 0) >= _SURE or guesses[0] >= _BODY_FONT
        if not letter and (is_in_word or is_of_text):  # in a font of formulas, the codes are of Greek letters
            letter = TEX_LIGATURES.get(code, "")
        if not letter:
            guesses[1] += 1
            self.unmapped += 1
        return letter

    def _drop_ciphers(self) -> None:
        """Remove the text of fonts whose codes are no letters: numbers of glyphs, which other codes give away."""
        ciphers = {font for font, (letters, others) in self._guesses.items() if letters and 50 * others >= letters}
        for pieces in self._pieces_by_turns.values() if ciphers else ():
            self.unmapped += sum(len(piece.text) for piece in pieces if piece.guessed in ciphers)
            pieces[:] = [piece for piece in pieces if piece.guessed not in ciphers]

    def _add(
        self, letter: str, box: Box, base: float, size: float, style: tuple[bool, bool, int, int], turns: int
    ) -> None:
        """Add a letter to the current piece, or begin a piece with it. style: the last four fields of a `TextRun`."""
        x0, top, x1, bottom = box
        piece = self._piece
        if piece is not None and (x0, x1) == self._last and turns == self._turns:
            self._letters.append(letter)  # PDFium gives all letters of a ligature the same box
            return
        last, self._last = self._last, (x0, x1)
        if piece is not None:
            gap = x0 - piece.x1
            em = min(size, piece.size)
            if turns != self._turns:
                goes_on = False
            elif turns >= DIAGONAL:
                steps = abs(x0 - last[0]), abs(base - self._last_base)
                goes_on = abs(size - piece.size) <= 0.1 * em and max(steps) < 2 * em
            else:
                goes_on = (
                    abs(base - piece.base) <= _SAME_BASE * em
                    and (-0.6 if self._accent is None else -1.3) * em < gap < WIDE_GAP * em
                    and (style[1] == piece.mono or not self._space)
                    and style[2] == piece.guessed
                    and style[3] in (piece.hidden, _OUTSIDE)
                    and not (letter > "\u058f" and RIGHT_TO_LEFT.match(letter))
                    and not (self._letters[-1] > "\u058f" and RIGHT_TO_LEFT.match(self._letters[-1]))
                )
            spaced = self._space or gap > SPACE_GAP * em
            if not goes_on or (spaced and self.dividers(turns).part(piece.x1, x0, base)):
                self._end()
                piece = None
            elif style[0] != piece.bold or abs(size - piece.size) > 0.15 * em:
                self._end()
                self._space = spaced
                piece = None
            elif spaced:
                self._letters.append(" ")
        if piece is None:
            piece = self._piece = TextRun("", x0, top, x1, bottom, base, size, *style)
            self._turns = turns
        self._space = False
        self._last_base = base
        if self._accent is not None:
            mark, accent_x0, accent_x1 = self._accent
            if letter.isalpha() and self._letters and x0 - 0.1 * size <= (accent_x0 + accent_x1) / 2 <= x1 + 0.1 * size:
                letter = unicodedata.normalize("NFC", ("i" if letter == "\u0131" else letter) + mark)
                self._letters.pop()
                while self._letters and self._letters[-1] == " " and x0 - accent_x0 < SPACE_GAP * size:
                    self._letters.pop()
                    if not self._letters or accent_x0 - x0 < 0.5 * size:
                        break
            self._accent = None
        self._letters.append(letter)
        mark = _ACCENTS.get(letter, "")
        if mark:
            self._accent = (mark, x0, x1)
        piece.x0, piece.top = min(piece.x0, x0), min(piece.top, top)
        piece.x1, piece.bottom = max(piece.x1, x1), max(piece.bottom, bottom)

    def _end(self) -> None:
        piece = self._piece
        if piece is not None:
            piece.text = _ARROW.sub("ff", unicodedata.normalize("NFC", "".join(self._letters)))
            if piece.text and not self._is_again(piece):
                self._pieces_by_turns.setdefault(self._turns, []).append(piece)
        self._piece, self._letters, self._accent = None, [], None

    def _is_again(self, piece: TextRun) -> bool:
        """Return whether the same text was drawn here before: as a shadow, for bold letters, or in another layer."""
        near_by = 0.4 if RIGHT_TO_LEFT.match(piece.text) else 1.5  # pieces of that direction are single letters
        column, line = round(piece.x0 / near_by), round(piece.base / near_by)
        near = [
            (self._turns, piece.text, x, y) for x in range(column - 1, column + 2) for y in range(line - 1, line + 2)
        ]
        if any(key in self._drawn for key in near):
            return True
        self._drawn.add((self._turns, piece.text, column, line))
        return False

    def _shape(self, handle: Any, index: int) -> tuple[float, int, float]:
        """Return the font size on the page, the direction, and the baseline of a character."""
        matrix = raw.FS_MATRIX()
        size = raw.FPDFText_GetFontSize(handle, index)
        turns = 0
        if raw.FPDFText_GetMatrix(handle, index, ctypes.byref(matrix)):
            up = math.hypot(matrix.c, matrix.d)
            angle = math.degrees(math.atan2(matrix.b, matrix.a)) if math.isfinite(matrix.a + matrix.b) else 0.0
            if math.isfinite(up) and up > 0:
                size *= up
            turned = angle / 90 - self._place.rotation
            turns = round(turned) % 4 + DIAGONAL * (abs(turned - round(turned)) > _SLANT)
        x, y = ctypes.c_double(), ctypes.c_double()
        raw.FPDFText_GetCharOrigin(handle, index, ctypes.byref(x), ctypes.byref(y))
        base = self._place.point(x.value, y.value, turns)[1]
        size = size if math.isfinite(size) and 0.1 < size < 5000 else 1.0
        return size, turns, base if math.isfinite(base) else 0.0

    def _font(self, owner: Any) -> tuple[bool, bool, int]:
        """Return whether a font is bold, and monospaced, and its key."""
        font = raw.FPDFTextObj_GetFont(owner)
        if not font:
            return False, False, 0
        address = ctypes.addressof(font.contents)
        style = self._fonts.get(address)
        if style is None:
            name = ctypes.create_string_buffer(256)
            length = raw.FPDFFont_GetBaseFontName(font, name, 256)
            base_name = name.value.decode("utf-8", "replace") if 0 < length <= 256 else ""
            flags = max(raw.FPDFFont_GetFlags(font), 0)
            bold = _BOLD.search(base_name) is not None or bool(flags & _FORCE_BOLD)
            mono = _MONO.search(base_name) is not None or bool(flags & _FIXED_PITCH)
            style = self._fonts[address] = (bold, mono)
        return *style, address


def _shows_something(page: pdfium.PdfPage) -> bool:
    """Return whether a page draws anything besides text."""
    drawn = (raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_FORM, raw.FPDF_PAGEOBJ_SHADING, raw.FPDF_PAGEOBJ_PATH)
    count = min(raw.FPDFPage_CountObjects(page.raw), _MOST_OBJECTS)
    return any(raw.FPDFPageObj_GetType(raw.FPDFPage_GetObject(page.raw, index)) in drawn for index in range(count))
