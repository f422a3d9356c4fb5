"""Text of a corpus in messages and tables: it is data, which neither a terminal nor a column may obey."""

from __future__ import annotations

import unicodedata

__all__ = ["one_line", "printable"]

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""What turns the direction of the text after it: also that of the columns beside it."""


def printable(text: str) -> str:
    """The text without control characters, which a terminal would obey: corpus text is data."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """The text as one line that breaks no table: an id, a title or a file name may hold what a file name may hold.

    Line ends and tabs become spaces; other control characters, and those that turn the direction, a replacement mark.
    """
    line = "".join(" " if c.isspace() else "\ufffd" if c in _DIRECTIONS else c for c in text.replace("\r\n", "\n"))
    return printable(line)
