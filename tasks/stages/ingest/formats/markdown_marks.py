"""Escapes Markdown markup in text, and formats code and tables so that their content cannot end them.

Only what CommonMark, or `tasks.text.markup`, reads as markup is escaped: `snake_case` and `a * b` stay unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.text.markdown import most_ticks

PAGE_BREAK = "\f"
"""Marks the start of a page in a text. XML and HTML cannot contain it."""

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


def one_line(text: str) -> str:
    """Return the text stripped, with every run of white space replaced by one space."""
    return _BLANKS.sub(" ", text).strip(" ")


def escaped(text: str, before: str = " ", after: str = " ", *, brackets: bool = False) -> str:
    """Escape the characters that are markup within a line. before, after: the characters around the text.

    brackets: the text is within brackets, so all its brackets are escaped.
    """

    def mark(match: re.Match[str]) -> str:
        run = match[0]
        previous = text[match.start() - 1] if match.start() else before
        following = text[match.end()] if match.end() < len(text) else after
        first = run[0]
        if first == "*":
            keep = previous.isspace() and following.isspace()
        elif first == "_":
            keep = (previous.isspace() and following.isspace()) or (previous.isalnum() and following.isalnum())
        elif first == "\\":
            keep = following not in _PUNCTUATION and _LINE_END.match(text, match.end()) is None
        elif first == "<":
            keep = not (following.isalpha() or following in "/!?")
        elif first == "&":
            keep = _ENTITY.match(text, match.start()) is None
        elif first in "[]":
            keep = not brackets and (first == "[" or following not in "([:")
        else:
            keep = False
        return run if keep else "".join("\\" + character for character in run)

    return _MARKS.sub(mark, text)


def guarded(line: str) -> str:
    """Escape a line of a paragraph so that Markdown does not read it as a heading, list, quotation, rule or table."""
    lead = len(line) - len(line.lstrip(PAGE_BREAK))
    match = _LINE_START.match(line[lead:])
    if match is None:
        return line
    at = lead + (match.end("number") if match["number"] else 0)
    return f"{line[:at]}\\{line[at:]}"


def heading_text(text: str) -> str:
    """Return the Markdown of a heading as one line, with `#` at its end escaped."""
    line = one_line(text)
    closing = _CLOSING.search(line)
    return line if closing is None else f"{line[: closing.start()]}\\{line[closing.start() :]}"


def heading_of(line: str) -> str | None:
    """Return a heading's text; None if a line is not a heading. `## Title ##` yields "Title"; `# C#` yields "C#"."""
    match = _HEADING.match(line)
    if match is None:
        return None
    text = line[match.end() :].rstrip(" \t")
    bare = text.rstrip("#")
    words = bare.rstrip(" \t")
    return words if len(words) < len(bare) else text


def fence_for(code: str) -> str:
    """Return the fence for a block of code: more backticks than any run of backticks in the code."""
    return "`" * max(3, most_ticks(code) + 1)


def fenced(code: str, language: str = "") -> str:
    """Put code in a fence that none of the code's lines can close."""
    fence = fence_for(code)
    return f"{fence}{language}\n{code}\n{fence}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Format Markdown cells as a table. All rows have the same number of cells; the first is the header."""
    lines = ["| " + " | ".join(one_line(cell).replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])
