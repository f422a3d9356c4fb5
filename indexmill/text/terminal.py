"""Terminal output: the width of texts, colours, and the characters of progress bars and spinners."""

from __future__ import annotations

import contextlib
import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

_COMBINING = frozenset({"Mn", "Me", "Cf"})
"""Categories of characters that occupy no column."""


def display_width(text: str) -> int:
    """Count a text's terminal columns: two per East Asian wide character, none per combining mark, else one."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if unicodedata.category(character) in _COMBINING:
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fitted(text: str, columns: int) -> str:
    """Cut the text to at most ``columns`` columns; a text that is cut ends with an ellipsis."""
    if display_width(text) <= columns:
        return text
    if columns < 1:
        return ""
    shown, used = [], 1  # the ellipsis
    for character in text:
        used += _width(character)
        if used > columns:
            break
        shown.append(character)
    return "".join(shown).rstrip() + "…"


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """Pad the text with blanks to ``columns`` columns; ``right`` aligns it to the right."""
    blanks = " " * max(0, columns - display_width(text))
    return blanks + text if right else text + blanks


def columns_of(stream: TextIO) -> int:
    """Return the smaller of a terminal's width and COLUMNS, or the one that is known; 80 if neither is."""
    widths = []
    with contextlib.suppress(ValueError):
        widths.append(int(os.environ.get("COLUMNS", "")))
    with contextlib.suppress(OSError, ValueError):
        widths.append(os.get_terminal_size(stream.fileno()).columns)
    return min((width for width in widths if width > 0), default=80)


@dataclass(frozen=True)
class TerminalStyle:
    """Formats parts of a line with a terminal's colours and weights, or not at all."""

    colours: bool

    def bold(self, text: str) -> str:
        """Format a name or a heading."""
        return self._marked("1", text)

    def dim(self, text: str) -> str:
        """Format less important text."""
        return self._marked("2", text)

    def error(self, text: str) -> str:
        return self._marked("31", text)

    def warning(self, text: str) -> str:
        return self._marked("33", text)

    def _marked(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colours and text else text


PLAIN = TerminalStyle(colours=False)


def style_of(stream: TextIO, environment: Mapping[str, str] = os.environ) -> TerminalStyle:
    """Return a style, coloured if the stream is a terminal that supports it and NO_COLOR is not set (no-color.org)."""
    colours = not environment.get("NO_COLOR") and environment.get("TERM", "") not in ("", "dumb")
    try:
        return TerminalStyle(colours and stream.isatty())
    except ValueError:  # a closed stream
        return PLAIN


@dataclass(frozen=True)
class Glyphs:
    """The characters of bars and spinners."""

    full: str
    empty: str
    turning: str

    def bar(self, share: float, width: int) -> str:
        """Draw a bar, filled to a share between 0 and 1."""
        filled = int(width * min(max(share, 0.0), 1.0))
        return self.full * filled + self.empty * (width - filled)

    def spinner(self, beat: int) -> str:
        """Return the character that the spinner shows at tick number `beat`."""
        return self.turning[beat % len(self.turning)]


_GLYPHS = Glyphs("█", "·", "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏")
_ASCII = Glyphs("#", ".", "|/-\\")


def glyphs_of(stream: TextIO) -> Glyphs:
    """Return glyphs that the stream's encoding supports; a stream without an encoding supports all."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        (_GLYPHS.full + _GLYPHS.empty + _GLYPHS.turning).encode(encoding)
    except (LookupError, UnicodeEncodeError):
        return _ASCII
    return _GLYPHS
