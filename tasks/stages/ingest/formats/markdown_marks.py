"""Markdown's marks: text in which none of them means anything, and code and tables that their contents do not end.

Only what CommonMark, or `tasks.text.markup`, would read as markup is escaped: `snake_case` and `a * b` stay as they
are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

PAGE_BREAK = "\f"
"""Stands in a text where a page begins. XML and HTML cannot hold it."""

_BLANKS = re.compile(r"[ \t\r\n]+")
_MARKS = re.compile(r"[\\`<&\[\]]|\*+|_+")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_LINE_END = re.compile(r"[ \f]*(?:\n|$)")
_ENTITY = re.compile(r"&(?:#[xX]?[0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,31});")
_LINE_START = re.compile(
    r"(?P<mark>[>|]|~~~|\#{1,6}(?=[ \f]|$)|[-+*](?=[ \f]|$)|=+\f*$|(?:[-_*][ \f]*){3,}$|:?-[|:\- \f]*$)"
    r"|(?P<number>\d{1,9})(?=[.)](?:[ \f]|$))"
)
_CLOSING = re.compile(r"(?:(?<=[ \f])|^)#+\f*$")
_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+")
_TICKS = re.compile("`+")


def one_line(text: str) -> str:
    """Text with every run of white space as one blank."""
    return _BLANKS.sub(" ", text).strip(" ")


def escaped(text: str, before: str = " ", after: str = " ", *, brackets: bool = False) -> str:
    """Text with the marks escaped that would be read as markup within a line.

    before, after: the characters around it. brackets: within brackets, so that all in the text are escaped.
    """

    def mark(found: re.Match[str]) -> str:
        run = found[0]
        left = text[found.start() - 1] if found.start() else before
        right = text[found.end()] if found.end() < len(text) else after
        first = run[0]
        if first == "*":
            keep = left.isspace() and right.isspace()
        elif first == "_":
            keep = (left.isspace() and right.isspace()) or (left.isalnum() and right.isalnum())
        elif first == "\\":
            keep = right not in _PUNCTUATION and _LINE_END.match(text, found.end()) is None
        elif first == "<":
            keep = not (right.isalpha() or right in "/!?")
        elif first == "&":
            keep = _ENTITY.match(text, found.start()) is None
        elif first in "[]":
            keep = not brackets and (first == "[" or right not in "([:")
        else:
            keep = False
        return run if keep else "".join("\\" + one for one in run)

    return _MARKS.sub(mark, text)


def guarded(line: str) -> str:
    """A line of a paragraph of Markdown that begins no heading, list, quotation, rule or table."""
    lead = len(line) - len(line.lstrip(PAGE_BREAK))
    found = _LINE_START.match(line[lead:])
    if found is None:
        return line
    at = lead + (found.end("number") if found["number"] else 0)
    return f"{line[:at]}\\{line[at:]}"


def heading_text(text: str) -> str:
    """The Markdown of a heading in one line, whose last `#` are of the text."""
    line = one_line(text)
    closing = _CLOSING.search(line)
    return line if closing is None else f"{line[: closing.start()]}\\{line[closing.start() :]}"


def heading_of(line: str) -> str | None:
    """What a line such as `## The heading ##` says; None for a line that is no heading. `# C#` is "C#"."""
    found = _HEADING.match(line)
    if found is None:
        return None
    said = line[found.end() :].rstrip(" \t")
    bare = said.rstrip("#")
    words = bare.rstrip(" \t")
    return words if len(words) < len(bare) else said


def fence_for(code: str) -> str:
    """The fence of a block of code: backticks, more than stand together in it."""
    return "`" * max(3, _most_ticks(code) + 1)


def fenced(code: str, language: str = "") -> str:
    """Code in a fence that no line of it closes."""
    fence = fence_for(code)
    return f"{fence}{language}\n{code}\n{fence}"


def code_span(line: str) -> str:
    """Code within a line; empty for an empty one."""
    if not line:
        return ""
    ticks = "`" * (_most_ticks(line) + 1)
    blank = " " if "`" in (line[0], line[-1]) else ""
    return f"{ticks}{blank}{line}{blank}{ticks}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells of Markdown as a table; all have as many cells, and the first is the head."""
    lines = ["| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def _most_ticks(text: str) -> int:
    return max(map(len, _TICKS.findall(text)), default=0)
