"""Split text into sentences: first into Markdown's blocks by line, then into sentences within a paragraph.

sentencex (Wikimedia; rules and abbreviations for some 240 languages) splits prose; only this module calls it. Lines
come first: a heading, a list item and a table row begin and end a sentence whatever their punctuation, and lines of
code are never split. Spans cover every character that is not white space, in order, and do not overlap.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import sentencex

HEADING = 4
"""The strength of the break before a heading of level 6; each higher level adds one."""
PARAGRAPH = 2
ITEM = 1
SENTENCE = 0
JOINED = -1
"""The strength of the break between lines of code without a blank line between them."""
INTRODUCED = -2
"""The strength of the break after a heading, and after a line that introduces a list, table or code with a colon."""

_WINDOW = 4096
"""The maximum characters per call of sentencex, whose time is quadratic in the length of non-ASCII text."""
_WITHOUT_STOPS = frozenset(["km", "lo", "my", "th"])
"""Languages that end a sentence with a space, as they end a clause."""
_CLAUSES = 120
"""The number of characters from which the next space ends a sentence in these languages."""
_CODE = 400
"""The maximum number of characters of code lines that share a segment."""

_LINE = re.compile(r"[^\n]*\n?")
_FENCE = re.compile(r" {0,3}(```+|~~~+)")
_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s|$)")
_STARTS_ITEM = re.compile(r"\s*(?:[-*+•‣▪]|\d{1,3}[.)])\s+\S")
_ROW = re.compile(r"\s*\|")
_INDENTED = re.compile(r"(?: {4}|\t)\s*\S")
_UNDERLINE = re.compile(r" {0,3}(=+|-{2,})\s*$")
_SURROGATE = re.compile("[\ud800-\udfff]")

# Where sentencex splits wrongly: between an abbreviation and a number ("vol. 3"), after an item's marker ("A. First"),
# and before a lower-case letter ("Who? was released"), unless sentences of the text begin with such letters.
_NUMBERED = re.compile(r"(?:^|[\s(])(?:vols?|nos?|pp?|figs?|ch|chap|secs?|arts?|eqs?|ca?|approx|ed|pt|op)\.\s*$", re.I)
_MARKER = re.compile(r"\W*(?:[A-Za-z]|\d{1,3})[.)]\s*$")
_LOWER = re.compile(r"[\"'“‘(\[]?[a-zà-öø-ÿ]+(?=[\s,;:])")
_FIRST = re.compile(r"[^\W\d_]")


class Segment(NamedTuple):
    """A sentence, a heading, a table row or a few lines of code."""

    start: int
    end: int
    strength: int  # the strength of the break before it: HEADING and above, PARAGRAPH, or less


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """Return the (start, end) offsets of a text's sentences, without surrounding white space; the end is exclusive."""
    return [(start, end) for start, end, _ in segments(text, language)]


def segments(text: str, language: str = "en", blocks: Iterable[TextBlock] | None = None) -> list[Segment]:
    """Split a text into sentences, with the strength of the break before each. blocks: the text's blocks, if known."""
    if blocks is None and "\n" not in text:
        return [*_prose(text, 0, len(text), PARAGRAPH, language)]
    segments_found: list[Segment] = []
    for start, end, strength, is_prose in _blocks(text) if blocks is None else blocks:
        if is_prose:
            segments_found.extend(_prose(text, start, end, strength, language))
        else:
            segments_found.extend(trimmed(text, start, end, strength))
    return segments_found


class TextBlock(NamedTuple):
    """A heading, a paragraph, an item, a row or lines of code; no sentence crosses its bounds."""

    start: int
    end: int
    strength: int
    is_prose: bool


def _blocks(text: str) -> Iterator[TextBlock]:
    """Split a text into Markdown's blocks, as far as they determine where sentences end."""
    start = end = 0  # the current block
    strength = PARAGRAPH
    is_prose = True
    in_list = False
    after_blank = True
    fence = ""
    for line in _LINE.finditer(text):
        at, stop = line.span()
        if at == stop:
            continue
        content = text[at:stop]
        continues = False
        begins = PARAGRAPH if after_blank else ITEM
        prose = True
        blank = content.isspace()
        opened = _FENCE.match(content)
        if fence:
            prose = False
            begins = SENTENCE
            continues = not is_prose and stop - start <= _CODE
            if opened and opened[1].startswith(fence) and content.strip(" \n\r") == opened[1]:
                fence = ""
        elif opened:
            fence = opened[1]
            prose = False
        elif blank:
            after_blank = True
            continue
        elif heading := _HEADING.match(content):
            begins = HEADING + 6 - len(heading[1])
            prose = False
        elif _ROW.match(content):
            prose = False
        elif _STARTS_ITEM.match(content):
            in_list = True
        elif after_blank and not in_list and _INDENTED.match(content):
            prose = False
        elif (
            not is_prose
            and not after_blank
            and end > start
            and _INDENTED.match(text, start, end)
            and _INDENTED.match(content)
        ):
            prose = False
            begins = SENTENCE
            continues = stop - start <= _CODE
        else:
            in_list = in_list and (not after_blank or content[0].isspace())
            continues = is_prose and not after_blank and end > start
            if continues and text.find("\n", start, end - 1) < 0 and _UNDERLINE.match(content):
                strength = HEADING + (5 if "=" in content else 4)
                yield TextBlock(start, stop, strength, False)
                start = end = stop
                after_blank = True
                continue
        after_blank = False
        if continues:
            end = stop
            continue
        if end > start:
            yield TextBlock(start, end, strength, is_prose)
        start, end, strength, is_prose = at, stop, begins, prose
    if end > start:
        yield TextBlock(start, end, strength, is_prose)


def trimmed(text: str, start: int, end: int, strength: int) -> Iterator[Segment]:
    """Yield the segment without surrounding white space; nothing if it is blank."""
    content = text[start:end]
    stripped = content.strip()
    if stripped:
        begin = start + len(content) - len(content.lstrip())
        yield Segment(begin, begin + len(stripped), strength)


def _prose(text: str, start: int, end: int, strength: int, language: str) -> Iterator[Segment]:
    """Split a paragraph into sentences, by windows; each starts with the sentence that the last one may have cut."""
    while start < end:
        limit = min(end, start + _WINDOW)
        if limit < end:  # not inside a word, if possible
            space = max(text.rfind(" ", start + 1, limit), text.rfind("\n", start + 1, limit))
            limit = space + 1 if space > 0 else limit
        bounds = _sentences(text[start:limit], language)
        if limit < end and len(bounds) > 1:
            bounds.pop()
        for low, high in bounds:
            yield from trimmed(text, start + low, start + high, strength)
            strength = SENTENCE
        start += bounds[-1][1]


def _sentences(text: str, language: str) -> list[tuple[int, int]]:
    """Split a text into adjoining ranges, one per sentence."""
    if not text.isascii():
        text = _SURROGATE.sub("?", text)
    bounds: list[tuple[int, int]] = []
    for boundary in sentencex.get_sentence_boundaries(language, text):
        low, high = boundary["start_index"], boundary["end_index"]
        if bounds and _joined(text, bounds[-1], low):
            bounds[-1] = (bounds[-1][0], high)
        else:
            bounds.append((low, high))
    bounds = bounds or [(0, len(text))]
    return list(_at_spaces(text, bounds)) if language in _WITHOUT_STOPS else bounds


def _at_spaces(text: str, bounds: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Cut ranges after the first space behind `_CLAUSES` characters, and so on."""
    for low, high in bounds:
        while 0 <= (space := text.find(" ", low + _CLAUSES, high)) < high - 1:
            yield low, space + 1
            low = space + 1
        yield low, high


def _joined(text: str, before: tuple[int, int], at: int) -> bool:
    """Return True if the text at an offset continues the previous sentence."""
    if text[at].isdigit():
        return _NUMBERED.search(text[max(before[0], at - 12) : at]) is not None
    if before[1] - before[0] < 6 and _MARKER.match(text[before[0] : at]):
        return True
    if not _LOWER.match(text, at):
        return False
    first = _FIRST.search(text, before[0], at)
    return first is not None and not first[0].islower()
