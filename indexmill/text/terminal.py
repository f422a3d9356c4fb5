"""What terminals show: how wide a text is, whether colours are wanted, and what turns while something is awaited."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

_COMBINING = frozenset({"Mn", "Me", "Cf"})
"""Categories of characters that take no column of their own."""


def display_width(text: str) -> int:
    """The columns that a terminal needs for a text without control characters.

    East Asian wide and full-width characters take two columns, combining ones none.
    """
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in _COMBINING:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """The text in at most so many columns; a text that is too long ends with an ellipsis."""
    if display_width(text) <= columns:
        return text
    if columns < 1:
        return ""
    kept, used = [], 1  # the ellipsis
    for character in text:
        used += _width(character)
        if used > columns:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """The text, filled up with blanks to so many columns, at its left if ``right``."""
    blanks = " " * max(0, columns - display_width(text))
    return blanks + text if right else text + blanks


def columns_of(stream: TextIO) -> int:
    """The width of a terminal now, no more than COLUMNS where that is set; 80 if neither says."""
    found = []
    with contextlib.suppress(ValueError):
        found.append(int(os.environ.get("COLUMNS", "")))
    with contextlib.suppress(OSError, ValueError):
        found.append(os.get_terminal_size(stream.fileno()).columns)
    return min((columns for columns in found if columns > 0), default=80)


@dataclass(frozen=True)
class Style:
    """Marks parts of a line, by colours and weights of a terminal, or not at all."""

    colours: bool

    def bold(self, text: str) -> str:
        """A name, a heading."""
        return self._marked("1", text)

    def dim(self, text: str) -> str:
        """What matters less."""
        return self._marked("2", text)

    def error(self, text: str) -> str:
        """What went wrong."""
        return self._marked("31", text)

    def warning(self, text: str) -> str:
        """What may be wrong."""
        return self._marked("33", text)

    def good(self, text: str) -> str:
        """What went well."""
        return self._marked("32", text)

    def _marked(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colours and text else text


PLAIN = Style(colours=False)


def style_of(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Style:
    """Colours if the stream is a terminal that has them, unless NO_COLOR holds anything (no-color.org)."""
    wanted = not environment.get("NO_COLOR") and environment.get("TERM", "") not in ("", "dumb")
    try:
        return Style(wanted and stream.isatty())
    except ValueError:  # a closed stream
        return PLAIN


@dataclass(frozen=True)
class Glyphs:
    """The characters of bars and spinners."""

    full: str
    empty: str
    turning: str

    def bar(self, share: float, width: int) -> str:
        """A bar, filled to a share between 0 and 1."""
        filled = int(width * min(max(share, 0.0), 1.0))
        return self.full * filled + self.empty * (width - filled)

    def spinner(self, beat: int) -> str:
        """What turns, at the given beat."""
        return self.turning[beat % len(self.turning)]


_GLYPHS = Glyphs("█", "·", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_ASCII = Glyphs("#", ".", "|/-\\")


def glyphs_of(stream: TextIO) -> Glyphs:
    """Characters that the stream's encoding has; a stream without one takes any."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        (_GLYPHS.full + _GLYPHS.empty + _GLYPHS.turning).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return _ASCII
    return _GLYPHS
