"""Text that a file says, written so that Markdown shows it unchanged; fenced code and tables.

Only what would be read as markup is escaped: `snake_case` and `a * b` stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["escaped", "fenced", "table"]

_INLINE = re.compile(
    r"""\\(?=[!-/:-@\[-`{-~])      # an escape
    | `                            # code
    | \*                           # emphasis
    | _                            # emphasis, unless within a word
    | \](?=[(\[:])                 # the end of a link's text
    | <(?=[A-Za-z/!?])             # a tag or an address
    | &(?=\#?[A-Za-z0-9]{1,31};)   # an entity
    """,
    re.VERBOSE,
)
_LINE = re.compile(
    r"[ \t]*(?:(#{1,6}(?=[ \t]|$)|>|[-+](?=[ \t]|$)|[-=|:~][-=|:~ \t]*$|~~~)|(\d{1,9})([.)])(?=[ \t]|$))"
)


def escaped(text: str) -> str:
    """A paragraph as Markdown; its line breaks are kept, blank space at the ends of its lines is not."""
    text = _INLINE.sub(lambda found: _inline(text, found), text)
    return "\n".join(map(_line, filter(None, (line.strip() for line in text.split("\n")))))


def _inline(text: str, found: re.Match[str]) -> str:
    mark = found[0]
    before, after = text[found.start() - 1 : found.start()], text[found.end() : found.end() + 1]
    if mark == "*" and (not before or before.isspace()) and (not after or after.isspace()):
        return mark
    if mark == "_" and before.isalnum() and after.isalnum():
        return mark
    return "\\" + mark


def _line(line: str) -> str:
    """A line without what would make it a heading, a quote, an item, a rule or a table."""
    if line.startswith(("* ", "*\t")) or line == "*":
        return "\\" + line
    found = _LINE.match(line)
    if found is None:
        return line
    if found[2]:
        return f"{found[2]}\\{line[found.end(2) :]}"
    return "\\" + line


def fenced(lines: Sequence[str]) -> str:
    """Lines as code, in a fence that none of them closes."""
    ticks = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, ticks + 1)
    return "\n".join([fence, *(line.rstrip() for line in lines), fence])


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows as a table whose first row is the header; all rows have as many cells."""
    said = [[_cell(cell) for cell in row] for row in rows]
    width = max(map(len, said))
    said = [row + [""] * (width - len(row)) for row in said]
    lines = ["| " + " | ".join(row) + " |" for row in said]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    text = " ".join(text.split())
    text = _INLINE.sub(lambda found: _inline(text, found), text)
    return text.replace("|", "\\|")
