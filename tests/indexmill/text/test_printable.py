"""Ids and corpus text on terminals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.printable import escaped, one_line


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("bridge-7", "bridge-7"),
        ("Zürich 東京", "Zürich 東京"),
        ("two\nlines\r\n", r"two\nlines\r\n"),
        ("a\tb", r"a\tb"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("x\u202egnp.exe", r"x\u202egnp.exe"),
        ("a\u2028b\u00a0c", r"a\u2028b\xa0c"),
        ("\U000e0041", r"\U000e0041"),
        ("\ud800", r"\ud800"),
    ],
)
def test_a_name_is_shown_with_its_line_breaks_and_controls_escaped(name: str, shown: str) -> None:
    assert escaped(name) == shown


@given(st.text())
def test_an_escaped_name_is_one_line_that_no_terminal_obeys(name: str) -> None:
    assert escaped(name).isprintable()
    assert one_line(escaped(name)) == escaped(name)
