"""Widths, colours and glyphs of terminals."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.terminal import columns_of, display_width, fitted, glyphs_of, padded, style_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("text", "columns"), [("", 0), ("Ada", 3), ("Zürich", 6), ("Zu\u0308rich", 6), ("東京", 4), ("ｶﾞ", 2), ("👩", 2)]
)
def test_the_width_of_a_text_is_that_of_its_cells(text: str, columns: int) -> None:
    assert display_width(text) == columns


def test_a_text_that_is_too_long_ends_with_an_ellipsis() -> None:
    assert fitted("bridge", 6) == "bridge"
    assert fitted("bridges", 6) == "bridg…"
    assert fitted("a bridge", 3) == "a…"  # no blank before it
    assert fitted("東京都", 4) == "東…"
    assert (fitted("bridge", 1), fitted("bridge", 0)) == ("…", "")


@given(st.text(), st.integers(0, 30))
def test_a_fitted_text_fits(text: str, columns: int) -> None:
    assert display_width(fitted(text, columns)) <= columns


def test_padding_counts_cells() -> None:
    assert [padded("東", 4), padded("東", 4, right=True), padded("bridge", 4)] == ["東  ", "  東", "bridge"]


@pytest.mark.parametrize(
    ("environment", "terminal", "coloured"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ({"TERM": "dumb"}, True, False),
        ({}, True, False),
        ({"TERM": "xterm-256color"}, False, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(environment: dict[str, str], terminal: bool, coloured: bool) -> None:
    style = style_of(Terminal() if terminal else io.StringIO(), environment)
    assert style.error("no") == ("\x1b[31mno\x1b[0m" if coloured else "no")


def test_an_encoding_without_blocks_gets_bars_of_ascii() -> None:
    assert glyphs_of(io.TextIOWrapper(io.BytesIO(), encoding="latin-1")).bar(0.5, 4) == "##.."
    assert glyphs_of(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")).bar(0.5, 4) == "██··"
    assert [glyphs_of(io.StringIO()).bar(share, 2) for share in (-1.0, 2.0)] == ["··", "██"]


def test_a_terminal_tells_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal:
        assert columns_of(terminal) == 80  # nobody has said
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        assert columns_of(terminal) == 60
        monkeypatch.setenv("COLUMNS", "100")  # of a shell that was wider once
        assert columns_of(terminal) == 60
        monkeypatch.setenv("COLUMNS", "40")
        assert columns_of(terminal) == 40
    os.close(ours)
    monkeypatch.setenv("COLUMNS", "many")
    assert columns_of(io.StringIO()) == 80
