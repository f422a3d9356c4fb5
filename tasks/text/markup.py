"""Extract the visible text of Markdown or HTML, with the position of each character in the document.

Blocks come from markdown-it-py (CommonMark with tables), whose tokens have line numbers. Within a block, one pass
removes invisible characters (link targets, tags, comments, emphasis delimiters, backslashes of escapes) and decodes
entities. Every step is linear in the length of any text, unlike markdown-it's own inline rules, which also report no
offsets.

A block's position is never guessed: if it cannot be determined, the document is read unchanged.
"""

from __future__ import annotations

import bisect
import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.token import Token
from numpy.typing import NDArray

from tasks.text.sentences import HEADING, INTRODUCED, ITEM, JOINED, PARAGRAPH, SENTENCE, TextBlock

Markup = Literal["markdown", "html", "none"]
Offsets = NDArray[np.int32]
Places = NDArray[np.int64]

_CODE = 400
"""The maximum number of characters of code lines that share a block, as in plain text."""
_CELL = " | "
_SENTENCE_END = re.compile(r"[.!?](?:[\"')\]]*)\s+(?=\S)|[。！？]")

_LINES = re.compile(r"\r\n|\n|\r")
_SPECIAL = re.compile(r"[\\`*_\[\]!<&]")
_HTML_SPECIAL = re.compile(r"<|&|\s{2,}|\n")
_TICKS = re.compile(r"`+")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_TARGET = re.compile(
    r"""\([ \t]*+\n?[ \t]*+
    (?:<(?P<quoted>[^<>\n]{0,2000}+)>|(?P<bare>(?:[^\s()<\\]|\\.|\([^\s()]{0,500}+\)){0,2000}+))
    (?:\s++(?:"(?:[^"\\]|\\.){0,2000}+"|'(?:[^'\\]|\\.){0,2000}+'|\((?:[^()\\]|\\.){0,2000}+\)))?
    [ \t]*+\n?[ \t]*+\)""",
    re.VERBOSE,
)
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999}+)\]")
_TAG = re.compile(
    r"""<(?P<close>/?)(?P<name>[A-Za-z][A-Za-z0-9-]*+)
    (?:\s++[A-Za-z_:][A-Za-z0-9_.:-]*+(?:\s*+=\s*+(?:[^\s"'=<>`]++|'[^'<>]{0,4000}+'|"[^"<>]{0,4000}+"))?+)*+
    \s*+/?>""",
    re.VERBOSE,
)
_AUTOLINK = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]{1,31}:[^\s<>]{0,2000}+>|<[\w.+-]{1,64}@[\w.-]{1,255}>")
_ENTITY = re.compile(r"&(?:#[xX][0-9a-fA-F]{1,6}|#[0-9]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});")
_PIPE = re.compile(r"(?<!\\)\|")
_FOOTNOTE = re.compile(r"\[\^[^\]\s]{1,200}\]:")
_HEADING_END = re.compile(
    r"""(?<=[^\s\\])(?:\s*+(?:\{:?\s*+(?:(?:\#[^\s{}]++|\.[^\W\d_][^\s{}]*+|[\w-]++=(?:"[^"{}]*+"|[^\s{}"]++)|-)\s*+)++\}
    |\{/\*\s*+\#[^\s{}]++\s*+\*/\}|\[[¶\#§🔗]?\]\(\#[^()\s]*+(?:\s++"[^"]*+")?\)|[¶🔗\uf0c1]++))++\s*$""",
    re.VERBOSE,
)
_LONGEST_END = 500
_UNREAD = frozenset({"script", "style", "template"})
_PARTS = (  # noqa: SIM905
    "address article aside blockquote body caption details div dl fieldset figcaption figure footer form head header "
    "hr html main nav ol p pre section summary table tbody tfoot thead title ul"
).split()
_BREAKS = {
    **dict.fromkeys(_PARTS, PARAGRAPH),
    **dict.fromkeys(("li", "dt", "dd", "tr"), ITEM),
    **{f"h{level}": HEADING + 6 - level for level in range(1, 7)},
}
"""The tags that begin and end a block, and the strength of the break."""


class Heading(NamedTuple):
    """A heading. start, end: offsets in the plain text; level: 1 is the highest."""

    start: int
    end: int
    level: int


class Lead(NamedTuple):
    """Words needed to understand the text after them, up to `stop`: a table's header, or the line before a list.

    start, end, stop: offsets in the plain text. is_table: whether the words are cells.
    """

    start: int
    end: int
    stop: int
    is_table: bool


@dataclass(frozen=True)
class Visible:
    """A document's plain text, its blocks in order, and its mapping to the original.

    Run i is `text[starts[i] : starts[i + 1]]` and maps to `origins[i]`, character by character. `ends[i]` is the end of
    its source, which is longer than the run if an entity was decoded. Origins ascend; blank space between blocks has
    the origin of the following text, and the last run is empty. `outer[i]` are the bounds of block i in the original,
    with its markup. targets: link targets, by position in the plain text. leads: sorted, and any two are nested or
    disjoint.
    """

    text: str
    starts: Offsets
    origins: Offsets
    ends: Offsets
    blocks: list[TextBlock]
    outer: list[tuple[int, int]]
    headings: list[Heading]
    targets: list[tuple[int, str]]
    leads: list[Lead] = field(default_factory=list)

    def originals(self, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Map non-empty spans of the plain text to their bounds in the original."""
        places = np.array(spans, np.int64).reshape(-1, 2)
        starts, ends = original_places(places[:, 0], places[:, 1], self.starts, self.origins, self.ends)
        return list(zip(starts.tolist(), ends.tolist(), strict=True))

    def bounds(self, start: int, end: int) -> tuple[int, int]:
        """Map a span to its bounds in the original, with the markup around blocks that it begins or ends."""
        ((low, high),) = self.originals([(start, end)])
        first = bisect.bisect_right(self.blocks, start, key=lambda block: block.start) - 1
        last = bisect.bisect_left(self.blocks, end, key=lambda block: block.end)
        if self.blocks[first].start == start:
            low = min(low, self.outer[first][0])
        if self.blocks[last].end == end:
            high = max(high, self.outer[last][1])
        return low, high


def original_places(
    starts: Places, ends: Places, runs: NDArray[Any], origins: NDArray[Any], run_ends: NDArray[Any]
) -> tuple[Places, Places]:
    """Map non-empty spans of a plain text to their bounds in the original; see `Visible` for its runs."""
    at = np.searchsorted(runs, starts, side="right") - 1
    last = np.searchsorted(runs, ends - 1, side="right") - 1
    after = runs[np.minimum(last + 1, len(runs) - 1)]
    stops = np.where(ends == after, run_ends[last], origins[last] + ends - runs[last])
    return origins[at] + starts - runs[at], np.minimum(stops, run_ends[last])


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


class _Break(NamedTuple):
    """A tag that ends a block and begins another. level: the level of a heading that begins, otherwise 0."""

    at: int
    strength: int
    level: int


class _Piece(NamedTuple):
    """A piece of plain text. origin: its offset in the document; source: the number of source characters."""

    text: str
    origin: int
    source: int


class _Misplaced(ValueError):
    """A block is not at the lines that the parser reports."""


def visible(text: str, markup: Markup) -> Visible | None:
    """Extract the visible text of a document; None if the document is read unchanged."""
    if markup == "none" or not text:
        return None
    plain = _PlainText(text)
    try:
        if markup == "html":
            plain.split(_Lines(text, [(0, len(text))]), _tagged(text), (0, len(text)), PARAGRAPH)
        else:
            _markdown(plain)
    except (_Misplaced, RecursionError):
        return None
    return plain.visible()


class _Lines:
    """Lines of a document as one text, without the preceding markers of quotes and lists."""

    def __init__(self, document: str, spans: Sequence[tuple[int, int]]) -> None:
        self.text = "\n".join(document[start:end] for start, end in spans)
        self._places = [start for start, _ in spans]
        lengths = [end - start + 1 for start, end in spans]
        self._starts = [0, *np.cumsum(lengths[:-1]).tolist()] if len(spans) > 1 else [0]

    def place(self, at: int) -> int:
        """Return the document offset of a character."""
        line = bisect.bisect_right(self._starts, at) - 1
        return self._places[line] + at - self._starts[line]

    def pieces(self, start: int, end: int) -> Iterator[_Piece]:
        line = bisect.bisect_right(self._starts, start) - 1
        while start < end:
            stop = min(end, self._starts[line + 1]) if line + 1 < len(self._starts) else end
            yield _Piece(self.text[start:stop], self._places[line] + start - self._starts[line], stop - start)
            start, line = stop, line + 1


class _PlainText:
    """The plain text under construction."""

    def __init__(self, document: str) -> None:
        self.document = document
        self._parts: list[str] = []
        self._length = 0
        self._starts: list[int] = []
        self._origins: list[int] = []
        self._ends: list[int] = []
        self._blocks: list[TextBlock] = []
        self._outer: list[tuple[int, int]] = []
        self._headings: list[Heading] = []
        self._targets: list[tuple[int, str]] = []
        self._leads: list[Lead] = []
        self._last = ""  # the text of the last block, if it is prose
        self._is_introduced = False  # the last block introduces the next one

    def visible(self) -> Visible | None:
        text = "".join(self._parts)
        if "".join(text.split()) == "".join(self.document.split()):
            return None
        self._add(_Piece("", len(self.document), 0))
        starts, origins, ends = (np.array(column, np.int32) for column in (self._starts, self._origins, self._ends))
        return Visible(
            text, starts, origins, ends, self._blocks, self._outer, self._headings, self._targets, sorted(self._leads)
        )

    def introduction(self) -> tuple[int, int] | None:
        """Return the bounds of the last block's last sentence, if its colon introduces the next block."""
        if not self._last.endswith((":", "：")):
            return None
        self._is_introduced = True
        sentences = [found.end() for found in _SENTENCE_END.finditer(self._last)]
        return self._length - len(self._last) + (sentences[-1] if sentences else 0), self._length

    def introduced(self, bounds: tuple[int, int] | None, *, is_table: bool = False) -> None:
        """Record that the text of an introduction applies up to here."""
        if bounds is None:
            return
        if self._length > bounds[1]:
            self._leads.append(Lead(*bounds, self._length, is_table))
        else:
            self._is_introduced = False

    def last_block(self, earlier: int) -> tuple[int, int] | None:
        """Return the bounds of the last block, if there are more than `earlier` blocks."""
        return self._blocks[-1][:2] if len(self._blocks) > earlier else None

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len(self._blocks)

    def block(
        self,
        pieces: Iterable[_Piece],
        outer: tuple[int, int],
        strength: int,
        *,
        level: int = 0,
        is_prose: bool = True,
        targets: Iterable[str] = (),
    ) -> bool:
        """Add a block; return False if it has no visible text."""
        visible_pieces = _stripped(list(pieces))
        if not visible_pieces:
            if self._blocks:
                self._targets.extend((self._length - 1, target) for target in targets)
            return False
        if self._blocks:
            self._add(_Piece("\n\n" if strength >= PARAGRAPH else "\n", visible_pieces[0].origin, 0))
        start = self._length
        for piece in visible_pieces:
            self._add(piece)
        self._blocks.append(
            TextBlock(start, self._length, INTRODUCED if self._is_introduced and not level else strength, is_prose)
        )
        self._last = "".join(piece.text for piece in visible_pieces) if is_prose else ""
        self._is_introduced = level > 0
        self._outer.append(outer)
        if level:
            self._headings.append(Heading(start, self._length, level))
        self._targets.extend((start, target) for target in targets)
        return True

    def _add(self, piece: _Piece) -> None:
        self._parts.append(piece.text)
        self._starts.append(self._length)
        self._origins.append(piece.origin)
        self._ends.append(piece.origin + piece.source)
        self._length += len(piece.text)

    def split(self, lines: _Lines, read: _Read, outer: tuple[int, int], strength: int) -> None:
        """Add lines as one block, or as several blocks if tags split them."""
        bounds = [*read.breaks, _Break(len(lines.text), 0, 0)]
        edits = sorted(read.edits)
        at, level, edit, target = 0, 0, 0, 0
        begin, begins = outer[0], strength
        for ends in bounds:
            first = edit
            while edit < len(edits) and edits[edit].start < ends.at:
                edit += 1
            stop = outer[1] if ends is bounds[-1] else lines.place(ends.at)
            first_target = target
            while target < len(read.targets) and read.targets[target][0] < ends.at:
                target += 1
            targets = [url for _, url in read.targets[first_target:target]]
            pieces = _edited(lines, at, ends.at, edits[first:edit])
            if self.block(pieces, (begin, stop), begins, level=level, is_prose=not level, targets=targets):
                begins = 0
            at, begin, level = ends.at, stop, ends.level
            begins = max(begins, ends.strength)

    def row(
        self, cells: Sequence[tuple[int, int]], outer: tuple[int, int], strength: int, references: Mapping[str, object]
    ) -> None:
        """Add a table row, with separators between its cells. cells: the cells' bounds in the document."""
        pieces: list[_Piece] = []
        targets: list[str] = []
        for start, end in cells:
            lines = _Lines(self.document, [(start, end)])
            read = _inline(lines.text, references)
            cell = _stripped(list(_edited(lines, 0, end - start, sorted(read.edits))))
            if cell and pieces:
                pieces += (_Piece(" ", start - 1, 0), _Piece("|", start - 1, 1), _Piece(" ", start, 0))
            pieces += cell
            targets += [target for _, target in read.targets]
        self.block(pieces, outer, strength, is_prose=False, targets=targets)

    def code(self, spans: Sequence[tuple[int, int]], outer: tuple[int, int]) -> None:
        self.introduction()
        is_first = True
        for first, last, strength in _code_groups([self.document[start:end] for start, end in spans]):
            lines = _Lines(self.document, spans[first:last])
            begin = outer[0] if first == 0 else spans[first][0]
            stop = outer[1] if last == len(spans) else spans[last - 1][1]
            before = PARAGRAPH if is_first else strength
            if self.block(lines.pieces(0, len(lines.text)), (begin, stop), before, is_prose=False):
                is_first = False
        if is_first:
            self._is_introduced = False


def _code_groups(lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Group lines of code into blocks: short paragraphs, or lines of a long one. Yields first line, end, strength.

    A paragraph that begins at the margin after an indented line begins a definition: the break before it is stronger.
    """
    indents = [len(line) - len(line.lstrip()) if line.strip() else -1 for line in lines]
    margin = min((indent for indent in indents if indent >= 0), default=0)
    begin, size, is_deep, strength = 0, 0, False, SENTENCE
    for first, end in _code_paragraphs(indents):
        length = sum(len(line) + 1 for line in lines[first:end])
        is_definition = is_deep and indents[first] == margin
        if size and (is_definition or size + length > _CODE):
            yield begin, first, strength
            begin, size, is_deep, strength = first, 0, False, ITEM if is_definition else SENTENCE
        for line in range(first, end):
            if size and size + len(lines[line]) + 1 > _CODE:
                yield begin, line, strength
                begin, size, strength = line, 0, JOINED
            size += len(lines[line]) + 1
            is_deep = is_deep or indents[line] > margin
    if begin < len(lines):
        yield begin, len(lines), strength


def _code_paragraphs(indents: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first line and the end of each paragraph, with the blank lines after it."""
    first = 0
    for line in range(1, len(indents)):
        if indents[line] >= 0 > indents[line - 1]:
            yield first, line
            first = line
    if indents:
        yield first, len(indents)


def _stripped(pieces: list[_Piece]) -> list[_Piece]:
    """Strip surrounding blank space from pieces, and drop empty pieces."""
    read = [row for row, piece in enumerate(pieces) if piece.text != _CELL and piece.text.strip()]
    stripped = [piece for piece in pieces[read[0] : read[-1] + 1] if piece.text] if read else []
    if stripped:
        text, origin, source = stripped[0]
        blank = len(text) - len(text.lstrip())
        if blank:
            stripped[0] = _Piece(text[blank:], min(origin + blank, origin + source), max(source - blank, 0))
        text, origin, source = stripped[-1]
        blank = len(text) - len(text.rstrip())
        if blank:
            stripped[-1] = _Piece(text[:-blank], origin, source - blank if source == len(text) else source)
    return stripped


def _edited(lines: _Lines, start: int, end: int, edits: Sequence[_Edit]) -> Iterator[_Piece]:
    at = start
    for edit in edits:
        if edit.start < at:
            continue
        if edit.start > at:
            yield from lines.pieces(at, edit.start)
        if edit.text:
            origin = lines.place(edit.start)
            source = lines.place(edit.end - 1) + 1 - origin
            if len(edit.text) <= source:
                yield _Piece(edit.text, origin, source)
        at = min(edit.end, end)
    if at < end:
        yield from lines.pieces(at, end)


# Inline markup.


@dataclass(frozen=True)
class _Read:
    edits: list[_Edit] = field(default_factory=list)
    breaks: list[_Break] = field(default_factory=list)
    targets: list[tuple[int, str]] = field(default_factory=list)


class _Emphasis:
    """Matches emphasis delimiters: keeps the unmatched openers by character, and removes pairs."""

    def __init__(self, text: str, edits: list[_Edit]) -> None:
        self._text, self._edits = text, edits
        self._open: dict[str, list[tuple[int, int]]] = {"*": [], "_": []}

    def run(self, at: int) -> int:
        """Consume a run of delimiters; return the offset after it."""
        text, mark = self._text, self._text[at]
        end = at + 1
        while text.startswith(mark, end):
            end += 1
        before = text[at - 1] if at else " "
        after = text[end] if end < len(text) else " "
        spaced, spaced_after = before.isspace(), after.isspace()
        marked, marked_after = not (spaced or before.isalnum()), not (spaced_after or after.isalnum())
        is_left_flanking = not spaced_after and (not marked_after or spaced or marked)
        is_right_flanking = not spaced and (not marked or spaced_after or marked_after)
        opens = is_left_flanking and (mark == "*" or not is_right_flanking or marked)
        closes = is_right_flanking and (mark == "*" or not is_left_flanking or marked_after)
        start, waiting = at, self._open[mark]
        while closes and waiting and start < end:
            begin, stop = waiting.pop()
            count = min(stop - begin, end - start)
            self._edits += (_Edit(stop - count, stop, ""), _Edit(start, start + count, ""))
            start += count
            if stop - count > begin:
                waiting.append((begin, stop - count))
        if opens and start < end:
            waiting.append((start, end))
        return end


def _inline(text: str, references: Mapping[str, object]) -> _Read:
    """Find the invisible parts of a Markdown paragraph. references: the defined labels, folded."""
    read = _Read()
    edits = read.edits
    tags = _Tags(text, read)
    emphasis = _Emphasis(text, edits)
    brackets: list[tuple[int, int]] = []  # openers of links and images, and the start of the shown text
    linked = -1  # links do not nest: brackets before this offset open no link
    ticks: dict[int, list[int]] | None = None
    at = 0
    while match := _SPECIAL.search(text, at):
        at = match.start()
        mark = text[at]
        if mark == "*" or mark == "_":
            at = emphasis.run(at)
        elif mark == "[":
            brackets.append((at, at + 1))
            at += 1
        elif mark == "!":
            if text.startswith("[", at + 1):
                brackets.append((at, at + 2))
                at += 1
            at += 1
        elif mark == "]":
            at += 1
            if not brackets:
                continue
            opener, shown = brackets.pop()
            is_image = shown - opener == 2
            if opener < linked and not is_image:
                continue
            end, target = _link_end(text, at, shown, references)
            if end:
                edits += (_Edit(opener, shown, ""), _Edit(at - 1, end, ""))
                if target and not is_image:
                    read.targets.append((at - 1, target))
                linked = linked if is_image else opener
                at = end
        elif mark == "<":
            at = tags.take(at) or _autolink(text, at, edits)
        elif mark == "&":
            at = _entity(text, at, edits)
        elif mark == "`":
            end = _TICKS.match(text, at).end()  # type: ignore[union-attr]
            if ticks is None:
                ticks = {}
                for run in _TICKS.finditer(text, at):
                    ticks.setdefault(run.end() - run.start(), []).append(run.start())
            same = ticks.get(end - at, [])
            place = bisect.bisect_left(same, end)
            if place < len(same):
                close = same[place]
                blank = text[end] == " " == text[close - 1] and close - end > 2
                edits += (_Edit(at, end + blank, ""), _Edit(close - blank, close + end - at, ""))
                end = close + end - at
            at = end
        else:
            escaped = text[at + 1 : at + 2]
            if escaped in _PUNCTUATION or escaped == "\n":
                edits.append(_Edit(at, at + 1, ""))
                at += 1
            at += 1
    return read


def _link_end(text: str, at: int, shown: int, references: Mapping[str, object]) -> tuple[int, str]:
    """Return the end and the target of a link whose text ended before `at`; (0, "") if it is not a link."""
    if text.startswith("(", at):
        target = _TARGET.match(text, at)
        if target is not None:
            return target.end(), target["quoted"] or target["bare"] or ""
    if references:
        label = _LABEL.match(text, at)
        if label is not None and label[1].strip():
            return (label.end(), "") if _folded(label[1]) in references else (0, "")
        if at - shown <= 1000 and _folded(text[shown : at - 1]) in references:
            return (at if label is None else label.end()), ""
    return 0, ""


def _folded(label: str) -> str:
    """Normalise a label like markdown-it's reference keys."""
    return " ".join(label.split()).lower().upper()


def _autolink(text: str, at: int, edits: list[_Edit]) -> int:
    link = _AUTOLINK.match(text, at)
    if link is None:
        return at + 1
    edits += (_Edit(at, at + 1, ""), _Edit(link.end() - 1, link.end(), ""))
    return link.end()


def _entity(text: str, at: int, edits: list[_Edit]) -> int:
    entity = _ENTITY.match(text, at)
    if entity is None:
        return at + 1
    character = html.unescape(entity[0])
    if character != entity[0]:
        edits.append(_Edit(at, entity.end(), character.replace("\xa0", " ")))
    return entity.end()


class _Tags:
    """The tags and comments of a text; a missing end marker is searched for only once."""

    def __init__(self, text: str, read: _Read) -> None:
        self._text, self._read = text, read
        self._lower: str | None = None
        self._endless: set[str] = set()
        self._in_row = False

    def take(self, at: int) -> int:
        """Consume the tag or comment at `<`; return its end, 0 if there is none."""
        text, edits = self._text, self._read.edits
        for opening, closing in (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"), ("<!", ">")):
            if text.startswith(opening, at):
                end = self._find(closing, at + len(opening))
                if end:
                    edits.append(_Edit(at, end, ""))
                return end
        tag = _TAG.match(text, at)
        if tag is None:
            return 0
        name, end = tag["name"].lower(), tag.end()
        if name in _UNREAD and not tag["close"]:
            end = self._find(f"</{name}>", end) or end
        replacement = " " if name == "br" else ""
        if name in ("td", "th") and not tag["close"]:
            replacement = _CELL if self._in_row and end - at >= len(_CELL) else ""
            self._in_row = True
        elif name == "tr":
            self._in_row = False
        edits.append(_Edit(at, end, replacement))
        if name in _BREAKS:
            level = int(name[1]) if name[0] == "h" and name[1:].isdigit() and not tag["close"] else 0
            strength = _BREAKS[name] if level or name[1:].isdigit() is False else PARAGRAPH
            self._read.breaks.append(_Break(at, strength, level))
        return end

    def _find(self, what: str, at: int) -> int:
        """Return the end of the next occurrence of `what`, 0 if there is none."""
        if what in self._endless:
            return 0
        if what.startswith("</"):
            self._lower = self._lower or self._text.lower()
            text = self._lower if len(self._lower) == len(self._text) else self._text
        else:
            text = self._text
        position = text.find(what, at)
        if position < 0:
            self._endless.add(what)
            return 0
        return position + len(what)


def _tagged(text: str) -> _Read:
    read = _Read()
    tags = _Tags(text, read)
    at = 0
    while match := _HTML_SPECIAL.search(text, at):
        at = match.start()
        if text[at] == "<":
            at = tags.take(at) or at + 1
        elif text[at] == "&":
            at = _entity(text, at, read.edits)
        else:
            read.edits.append(_Edit(at, match.end(), " "))
            at = match.end()
    return read


# Blocks.


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.block.ruler.at("reference", _definition, {"alt": ["paragraph"]})
    return parser.disable(["inline", "text_join"])


def _definition(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Read the definition of a link's target. A footnote, which CommonMark lacks, is a paragraph of its own."""
    if _FOOTNOTE.match(state.src, state.bMarks[start] + state.tShift[start]):
        return silent
    return not silent and reference(state, start, end, silent)


def _markdown(plain: _PlainText) -> None:
    document = plain.document
    ends = [found.span() for found in _LINES.finditer(document)]
    lines = list(zip([0, *(stop for _, stop in ends)], [*(start for start, _ in ends), len(document)], strict=True))
    environment: dict[str, Mapping[str, object]] = {}
    tokens = _parser().parse(document, environment)
    references = environment.get("references", {})
    level = 0
    in_table = False
    introductions: list[tuple[int, int] | None] = []  # introductions of the enclosing lists
    header: tuple[int, int] | None = None
    earlier = 0
    for token in tokens:
        kind = token.type
        if kind == "heading_open":
            level = int(token.tag[1])
        elif kind == "heading_close":
            level = 0
        elif kind in ("bullet_list_open", "ordered_list_open"):
            introductions.append(plain.introduction())
        elif kind in ("bullet_list_close", "ordered_list_close"):
            plain.introduced(introductions.pop())
        elif kind == "table_open":
            in_table, header, earlier = True, None, plain.blocks
            plain.introduction()
        elif kind == "thead_close":
            header = plain.last_block(earlier)
        elif kind == "table_close":
            in_table = False
            plain.introduced(header, is_table=True)
        elif token.map is None or (in_table and kind != "tr_open"):
            continue
        elif kind == "tr_open":
            _row(plain, lines, token.map[0], references)
        elif kind in ("inline", "html_block", "fence", "code_block"):
            _block(plain, token, lines, level, references)


def _block(
    plain: _PlainText, token: Token, lines: Sequence[tuple[int, int]], level: int, references: Mapping[str, object]
) -> None:
    document = plain.document
    assert token.map is not None  # noqa: S101 - `_markdown` has checked
    first, last = token.map
    outer = (lines[first][0], lines[min(last, len(lines)) - 1][1])
    strength = _strength(document, lines, first)
    if level and (last - first == 1 or document[slice(*outer)].lstrip(" \t>").startswith("#")):
        start, end = lines[first]
        mark = document.find("#", start, end)
        at = document.find(token.content, start if mark < 0 else mark + 1, end)
        if at < 0:
            at = document.find(token.content, start, end)
        if at < 0:
            raise _Misplaced(token.content)
        spans = [(at, at + len(token.content))]
    else:
        content = token.content.removesuffix("\n").split("\n")
        begin = first + (token.type == "fence")
        within = zip(lines[begin : begin + len(content)], content, strict=False)
        spans = [_placed(document, *line, words) for line, words in within]
    if token.type in ("fence", "code_block"):
        plain.code(spans if token.content else [], outer)
        return
    block_lines = _Lines(document, spans)
    shown = block_lines.text[: heading_end(block_lines.text)] if level else block_lines.text
    read = _tagged(shown) if token.type == "html_block" else _inline(shown, references)
    if level:
        pieces = _edited(block_lines, 0, len(shown), sorted(read.edits))
        plain.block(pieces, outer, HEADING + 6 - level, level=level, is_prose=False)
    else:
        plain.split(block_lines, read, outer, strength)


def _placed(document: str, start: int, end: int, content: str) -> tuple[int, int]:
    """Locate a line's content in the document: at the line's end, after the markers of quotes and items."""
    words = content.strip()
    line = document[start:end].rstrip()
    if "\0" in line or not line.endswith(words):
        raise _Misplaced(line)
    at = len(line) - len(words)
    blank = len(content) - len(content.lstrip())
    before = at - len(line[:at].rstrip())
    return start + at - min(blank, before), start + len(line)


def _strength(document: str, lines: Sequence[tuple[int, int]], number: int) -> int:
    """Return the strength of the break before a line: PARAGRAPH after a blank line, otherwise ITEM."""
    blank = number == 0 or not document[slice(*lines[number - 1])].strip(" \t>")
    return PARAGRAPH if blank else ITEM


def heading_end(text: str) -> int:
    """Return the length of a heading without the id, classes or permalink at its end, such as `{#install .wide}`."""
    end = _HEADING_END.search(text, max(0, len(text) - _LONGEST_END))
    return len(text) if end is None else end.start()


def _row(plain: _PlainText, lines: Sequence[tuple[int, int]], number: int, references: Mapping[str, object]) -> None:
    start, end = lines[number]
    text = plain.document[start:end]
    pipes = [pipe.start() for pipe in _PIPE.finditer(text)]
    bounds = zip([0, *(at + 1 for at in pipes)], [*pipes, len(text)], strict=True)
    cells = [(start + low, start + high) for low, high in bounds]
    if len(cells) > 1 and not text[: pipes[0]].strip(" \t>"):
        cells = cells[1:]
    plain.row(cells, (start, end), _strength(plain.document, lines, number), references)


# The markup of a document.

_SUFFIXES = (".md", ".markdown", ".mdx")
_WORDS = re.compile(r"[A-Za-z0-9]+")
_IS_HEADING = re.compile(r"^ {0,3}#{1,6} +\S", re.MULTILINE)
_IS_FENCE = re.compile(r"^ {0,3}(?:```|~~~)[\w+#. -]*$", re.MULTILINE)
_IS_LINK = re.compile(r"\[[^\[\]\n]{1,200}\]\((?:https?://|\.{0,2}/|#|mailto:|[\w./%-]{1,200}\.\w{2,4}[)#?])")
_IS_TABLE = re.compile(r"^ {0,3}\|?(?: *:?-{2,}:? *\|)+(?: *:?-{2,}:? *)?\|? *$", re.MULTILINE)
_IS_STRONG = re.compile(r"\*\*[^\s*][^*\n]{0,200}\*\*")
_IS_TAG = re.compile(r"</(?:p|div|li|ul|ol|td|tr|table|h[1-6]|dl|dt|dd|pre)>", re.IGNORECASE)
_IS_PAGE = re.compile(r"\s*(?:<\?xml[^<>]{0,200}>\s*)?(?:<!doctype html|<html[\s>])", re.IGNORECASE)


def markup_of(setting: str, identity: str, source: str | None, text: str) -> Markup:
    """Return the markup of a document, by the setting, the file name or the text, in this order."""
    if setting != "auto":
        return setting  # type: ignore[return-value]
    if (source or identity).lower().endswith(_SUFFIXES) or identity.lower().endswith(_SUFFIXES):
        return "markdown"
    return guess(text)


def link_words(target: str) -> str:
    """Return the words in the last part of a link's target: `api/nf-winuser-timer.md#x` gives nf winuser timer."""
    path = re.split(r"[?#]", target, maxsplit=1)[0].rstrip("/")
    name = path.rpartition("/")[2]
    return " ".join(_WORDS.findall(name.rpartition(".")[0] or name))


def guess(text: str) -> Markup:
    """Guess the markup of a text: Markdown or HTML only if several features indicate it."""
    if _IS_PAGE.match(text):
        return "html"
    links, fences, tables = (_several(pattern, text) for pattern in (_IS_LINK, _IS_FENCE, _IS_TABLE))
    headings, strong, tags = (_several(pattern, text) for pattern in (_IS_HEADING, _IS_STRONG, _IS_TAG))
    telling = links + fences + tables
    kinds = sum(map(bool, (links, fences, tables, headings, strong)))
    if (kinds >= 2 and telling + headings) or telling >= 2:
        return "markdown"
    if tags >= 2:
        return "markdown" if kinds else "html"
    return "none"


def _several(pattern: re.Pattern[str], text: str) -> int:
    """Count the matches of a pattern in a text, up to 2."""
    matches = pattern.finditer(text)
    return sum(1 for _ in zip(range(2), matches, strict=False))
