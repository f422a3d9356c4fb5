"""The section in which a passage begins: the headings above its start, as in a table of contents.

A citation shows it next to the document's title, so a heading that only repeats the title is left out. Only headings in
markup count: none are guessed from plain text.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple

from tasks.text.markup import Visible, visible

SECTION_DEPTH = 6
"""The maximum number of headings in a section, from the outermost; Markdown and HTML have no more levels."""
HEADING_CHARACTERS = 200
"""The maximum length of a heading in a section, in code points; a longer heading is cut between words."""
_CUT = "…"


class Outlined(NamedTuple):
    """A heading on one line. above: the index of its parent heading; -1 without a parent."""

    text: str
    above: int


def outline(seen: Visible) -> list[Outlined]:
    """Return the headings of a document, each with its parent: the nearest earlier heading of a higher level."""
    headings: list[Outlined] = []
    path: list[tuple[int, int]] = []  # level and index of the open headings
    for start, end, level in seen.headings:
        while path and path[-1][0] >= level:
            path.pop()
        above = path[-1][1] if path else -1
        path.append((level, len(headings)))
        headings.append(Outlined(" ".join(seen.text[start:end].split()), above))
    return headings


def sections(seen: Visible, title: str, starts: Iterable[int]) -> list[str]:
    """Return the sections of passages by their starts in the plain text: a heading per line, the outermost first.

    A passage that begins with a heading is in that heading's section; before the first heading, the text is empty.
    """
    headings = outline(seen)
    if not headings:
        return ["" for _ in starts]
    repeating = _repeating(headings, title)
    begins = [heading.start for heading in seen.headings]
    paths: dict[int, str] = {-1: ""}
    labels = []
    for start in starts:
        here = bisect.bisect_right(begins, start) - 1
        if here not in paths:
            paths[here] = "\n".join(_path(headings, here, repeating))
        labels.append(paths[here])
    return labels


def _repeating(headings: list[Outlined], title: str) -> frozenset[int]:
    """Return the indices of the outermost headings that repeat the title; a nested heading adds information."""
    outermost = {at: _folded(heading.text) for at, heading in enumerate(headings) if heading.above < 0}
    name = _folded(title)
    if name not in outermost.values():
        name = _folded(_seen(title))
    return frozenset(at for at, text in outermost.items() if text == name)


def _path(headings: list[Outlined], here: int, repeating: frozenset[int]) -> list[str]:
    texts = []
    while here >= 0:
        if here not in repeating:
            texts.append(headings[here].text)
        here = headings[here].above
    return [_shortened(text) for text in texts[: -SECTION_DEPTH - 1 : -1]]


def _shortened(heading: str) -> str:
    if len(heading) <= HEADING_CHARACTERS:
        return heading
    cut = heading[: HEADING_CHARACTERS - len(_CUT)]
    return (cut.rpartition(" ")[0] or cut).rstrip() + _CUT


def _seen(title: str) -> str:
    """Return a title without markup; a Markdown file's title is its first heading, which may contain markup."""
    read = visible(f"# {' '.join(title.split())}", "markdown")
    return title if read is None else read.text


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
