"""Printing corpus text in messages and tables: it is data, and must not control a terminal or break a column."""

from __future__ import annotations

import re
import unicodedata

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the direction of the text after them, including neighbouring columns."""


def printable(text: str) -> str:
    """Replace control characters, which a terminal would execute: corpus text is data."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs") else "\ufffd" for c in text)


def one_line(text: str) -> str:
    """Convert a text to one line that breaks no table; ids, titles and file names may contain control characters.

    Line ends and tabs become spaces; other control characters, bidirectional ones included, become U+FFFD.
    """
    line = "".join(" " if c.isspace() else "\ufffd" if c in _DIRECTIONS else c for c in text.replace("\r\n", "\n"))
    return printable(line)


def isolated(text: str) -> str:
    """Keep a text with letters from right to left together, so that a terminal does not reorder its neighbours."""
    if text.isascii() or not any(unicodedata.bidirectional(c) in ("R", "AL") for c in text):
        return text
    return f"\u2068{text}\u2069"


_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(name: str) -> str:
    r"""Write an id or a name as one line on which every character is visible, such as `a\nb` for a line break.

    Line ends and control characters, bidirectional ones included, are escaped as in Python and JSON. Bytes of a file
    name that are not UTF-8 become `\xff`.
    """
    return "".join(
        _ESCAPES.get(c) or (c if c == " " or (c.isprintable() and c not in _DIRECTIONS) else _code(c)) for c in name
    )


def is_utf8(name: str) -> bool:
    """Return False for a name with lone surrogates, which Python uses for bytes of a file name that are not UTF-8."""
    return _SURROGATE.search(name) is None


def utf8_name(name: str) -> str:
    """Escape the parts of a name or path that UTF-8 cannot encode: `a\\xff.md` for a name with the byte FF."""
    return _SURROGATE.sub(lambda match: _code(match[0]), name)


def _code(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # a byte, as `os.fsdecode` returns those that are not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"
