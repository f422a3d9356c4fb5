"""Finds the running heads of a PDF: lines at the top or bottom of its pages that are about the document, not the page.

A line is a running head only if it repeats but for the page's own number. A number in a line is a page number only if
it stands alone, or beside a word for a page, and differs from the page's place in the file by as much as on other
pages. All other numbers, such as those of invoices and steps, are text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.stages.ingest.formats.page_layout import BodyStyle, PageBlock, lines_of, rows_of
from tasks.stages.ingest.formats.pdf_text import Frame, PageText, TextRun
from tasks.stages.ingest.formats.word_count import count_words

_MARGIN = 0.17  # share of a page's height, at top and bottom, in which running heads are detected
_EDGE = 0.065  # share of a page's height, at top and bottom, where the text does not begin yet
_NEAR = 6.0  # points: lines closer than this count as being at the same position
_HUGE = 2.5  # times the size of the text: the type of watermarks
_WINDOW = 8  # the number of pages within which a running head repeats
_FIGURES = r"(\d{1,5}|[ivxlc]{1,7})"
_PAGE_OF = re.compile(
    rf"\b(?:page|pg\.|p\.|seite|s\.|página|pagina|pág\.|hoja|sida|sidan|side|sivu|strona|strana|str\.|oldal|sayfa|pagină|"
    r"страница|сторінка|стр\.|стор\.|σελίδα|σελ\.|trang|halaman|lk\.?|leht|lapa|psl\.?)"
    rf"\s*{_FIGURES}\b(?:\s*(?:of|/|von|de|del|din|sur|di|da|van|av|af|z|ze|iš|из|з|із|από|dari|trên|tot)\s*\d{{1,5}}\b)?"
    r"|第\s*\d{1,5}\s*[页頁]|\b\d{1,5}\s*(?:页|頁|ページ|쪽)|^\d{1,5}\s*(?:of|/|von|de|sur|di)\s*\d{1,5}$"
)
_ALONE = re.compile(rf"[\s\[(|\u00b7\u2022\u2013\u2014-]*{_FIGURES}[\s\])|\u00b7\u2022\u2013\u2014.-]*")
_BESIDE = re.compile(r"^(\d{1,5})\s*[|\u00b7\u2022\u2013\u2014](?=\s)|(?<=\s)[|\u00b7\u2022\u2013\u2014]\s*(\d{1,5})$")
_ADJACENT = re.compile(r"^(\d{1,4})(?=\s+[^\W\d])|(?<=[^\W\d]\s)(\d{1,4})$")
_LABEL = re.compile(r"(?:\b(?:no|nr|nº|num|number|nummer|id|ref)\b\.?|[:#№])\s*$")
_ONLY_NUMBER = re.compile(r"[\W_]*#(?:-?\d+)?[\W_]*")
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_MOST_BEFORE, _MOST_AFTER = 60, 30  # the difference of a page's number from its place in the file


@dataclass(slots=True)
class _Margin:
    """A line in a page's upper or lower margin. cells: its texts in lower case, `#` for the page's own number.

    offsets: the numbers that stand alone in a cell, less the page's. inner: whether another line is further out.
    """

    page: int
    y: float
    cells: tuple[str, ...]
    offsets: frozenset[int]
    pieces: list[TextRun]
    large: bool
    inner: bool


def drop_running_heads(pages: Sequence[PageText], style: BodyStyle, *, has_tables: bool) -> int:
    """Remove the lines of the margins that repeat, but for the page's own number; return their number of words.

    has_tables: whether tables were removed from the pages; otherwise a document of such lines alone keeps them.
    """
    dropped: set[int] = set()
    count = len(pages)
    for top in (True, False):
        lines = [line for page in pages if page.frames for line in _margin(page, page.frames[0], style, top=top)]
        for line in _running(lines, count):
            dropped.update(id(piece) for piece in line.pieces)
    beside: dict[str, list[tuple[int, TextRun]]] = {}
    for page in pages:
        for piece in (piece for frame in page.frames[1:] for piece in frame.pieces):
            beside.setdefault(piece.text, []).append((page.number, piece))
    for same in beside.values():  # watermarks, and tabs at the edge of the page: the first page keeps them
        if len({number for number, _ in same}) >= max(3, 0.3 * count):
            dropped.update(id(piece) for number, piece in same if number > same[0][0])
    dropped.update(_watermarks(pages, style))
    if not has_tables and all(
        id(piece) in dropped for page in pages for frame in page.frames for piece in frame.pieces
    ):
        return 0
    words = 0
    for page in pages:
        for frame in page.frames:
            words += sum(count_words(piece.text) for piece in frame.pieces if id(piece) in dropped)
            frame.pieces[:] = [piece for piece in frame.pieces if id(piece) not in dropped]
    return words


def _watermarks(pages: Sequence[PageText], style: BodyStyle) -> Iterator[int]:
    """Yield the ids of level pieces in huge type that are at the same place amid most pages of a document."""
    huge: dict[tuple[str, int, int], list[tuple[int, int]]] = {}
    for page in pages:
        for frame in page.frames[:1]:
            inner = _MARGIN * frame.height, (1 - _MARGIN) * frame.height
            for piece in frame.pieces:
                if piece.size > _HUGE * style.size and inner[0] < piece.base < inner[1]:
                    place = piece.text, round(piece.x0 / _NEAR), round(piece.base / _NEAR)
                    huge.setdefault(place, []).append((page.number, id(piece)))
    for same in huge.values():
        if len({number for number, _ in same}) >= max(3, 0.5 * len(pages)):
            yield from (piece for _, piece in same)


def _margin(page: PageText, frame: Frame, style: BodyStyle, *, top: bool) -> Iterator[_Margin]:
    """Yield the outermost lines, at most two, of a page's upper or lower margin."""
    edge = _MARGIN * frame.height
    within = [piece for piece in frame.pieces if (piece.bottom < edge if top else piece.top > frame.height - edge)]
    rows = rows_of(within) if top else rows_of(within)[::-1]
    for number, row in enumerate(rows[:2]):
        if number and abs(row[0].base - rows[0][0].base) > 1.8 * row[0].size:
            return  # the line belongs to the text
        size, base = max(piece.size for piece in row), row[0].base
        outside = size < 0.95 * style.size or base < _EDGE * frame.height or base > (1 - _EDGE) * frame.height
        runs = [run for line in lines_of(row) for run in line.cells]
        cells: list[str] = []
        offsets: set[int] = set()
        for run in runs:
            text = _PAGE_OF.sub("#", run.text.lower())
            alone = _ALONE.fullmatch(text)
            beside = _BESIDE.search(text) or (outside and _ADJACENT.search(text)) or None
            if number_match := alone or beside:
                figures = next(figures for figures in number_match.groups() if figures)
                offset = (int(figures) if figures.isdecimal() else _roman(figures)) - page.number
                is_near = -_MOST_BEFORE <= offset <= _MOST_AFTER
                is_value = bool(cells) and _LABEL.search(cells[-1]) is not None
                if not is_value and (is_near or (alone and (outside or len(runs) == 1))):
                    text = f"{text[: number_match.start()]} #{offset} {text[number_match.end() :]}".strip()
                    offsets.update({offset} if alone else ())
            cells.append(text)
        large = style.is_exceeded_by(size) and any(any(map(str.isalpha, cell)) for cell in cells)
        yield _Margin(
            page.number, max(run.base for run in runs), tuple(cells), frozenset(offsets), row, large, number > 0
        )


def _roman(figures: str) -> int:
    values = [_ROMAN[letter] for letter in figures]
    return sum(-value if value < max(values[at:]) else value for at, value in enumerate(values))


def _running(lines: Sequence[_Margin], count: int) -> Iterator[_Margin]:
    """Yield the lines that are running heads or page numbers.

    A line repeats as a whole, or each of its cells does. Beside a page number, a text of its own is a running head as
    well, such as a chapter's title. Large type is a title of the page, which only repeats on most pages of a long
    document as a running head; then its first page keeps it.
    """
    usual = Counter(round(line.y / _NEAR) for line in lines)
    numbered = Counter((round(line.y / _NEAR), offset) for line in lines for offset in line.offsets)
    repeated: dict[tuple[int, str], int] = {}  # by page and text: the number of pages that repeat it
    by_text: dict[str, list[_Margin]] = {}
    for line in lines:
        for text in {*line.cells, "\t".join(line.cells)}:
            by_text.setdefault(text, []).append(line)
    for text, same in by_text.items():
        for group in _grouped_by_position(same):
            of_head = max(usual[round(line.y / _NEAR)] for line in group) >= max(6, 0.5 * count)
            group_pages = sorted({line.page for line in group})
            if _repeats(group_pages, count, 2 if of_head and not any(line.inner for line in group) else 3):
                repeated |= {(page, text): len(group_pages) for page in group_pages[1:]}
                repeated[group_pages[0], text] = 1
    for line in lines:
        key = round(line.y / _NEAR)
        of_page = any(numbered[key, offset] >= max(3, 0.3 * count) for offset in line.offsets)
        whole = repeated.get((line.page, "\t".join(line.cells)), 0)
        others = [cell for cell in line.cells if (line.page, cell) not in repeated and not _ONLY_NUMBER.fullmatch(cell)]
        if line.large:
            if whole >= max(8, 0.5 * count):
                yield line
        elif (
            whole
            or (of_page and all(len(cell) <= 120 and not cell.endswith(":") for cell in others) and _near(line))
            or (not others and (of_page or any((line.page, cell) in repeated for cell in line.cells)))
        ):
            yield line


def _near(line: _Margin) -> bool:
    """Return whether a line's number may be a page number, rather than of an invoice, and the line is no heading."""
    bold = all(piece.bold for piece in line.pieces)
    return not bold and any(-_MOST_BEFORE <= offset <= _MOST_AFTER for offset in line.offsets)


def _grouped_by_position(lines: Sequence[_Margin]) -> Iterator[list[_Margin]]:
    group: list[_Margin] = []
    for line in sorted(lines, key=lambda line: (line.y, line.page)):
        if group and line.y - group[-1].y > _NEAR:
            yield group
            group = []
        group.append(line)
    if group:
        yield group


def _repeats(pages: Sequence[int], count: int, enough: int) -> bool:
    """Return whether a line is a running head: on all pages of a short document, or on several nearby pages."""
    if count <= 3:
        return count > 1 and len(pages) == count
    if len(pages) >= max(3, 0.3 * count):
        return True
    return any(later - first <= _WINDOW for first, later in zip(pages, pages[enough - 1 :], strict=False))


def drop_running_tables(tables: dict[int, list[PageBlock]], count: int) -> int:
    """Remove the tables that frame a running head, and repeat but for the page's number; return their words."""
    by_text: dict[str, list[PageBlock]] = {}
    for block in (block for of_page in tables.values() for block in of_page):
        text = "\n".join("\t".join(_PAGE_OF.sub("#", cell.lower()) for cell in row) for row in block.rows)
        by_text.setdefault(text, []).append(block)
    dropped = [same for same in by_text.values() if _repeats([block.page for block in same], count, 3)]
    for block in (block for same in dropped for block in same):
        tables[block.page].remove(block)
    return sum(count_words(cell) for same in dropped for block in same for row in block.rows for cell in row)
