"""Tables as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.terminal import TerminalStyle, display_width
from indexmill.text.text_table import table


def test_numbers_stand_to_the_right_and_words_to_the_left() -> None:
    shown = table(["name", "rows", "size"], [["東京", 7, "1 B"], ["bridge", 1200, "12 B"]], right=["size"])
    assert shown.splitlines() == ["name    rows  size", "東京       7   1 B", "bridge  1200  12 B"]


def test_the_last_column_is_cut_to_the_width() -> None:
    rows = [["a", "much too long to be shown here"], ["b", "short"]]
    assert table(["run", "cause"], rows, columns=24).splitlines() == [
        "run  cause",
        "a    much too long to b…",
        "b    short",
    ]


def test_a_cell_breaks_no_line_and_a_header_may_be_bold() -> None:
    assert table(["a"], [["x\ny\x1b[0m"]], style=TerminalStyle(colours=True)) == "\x1b[1ma\x1b[0m\nx y\ufffd[0m"


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1, max_size=5))
def test_columns_align(rows: list[list[str]]) -> None:
    first = [display_width(line) for line in table(["first"], [[row[0].rstrip()] for row in rows]).split("\n")]
    marked = table(["first", "second"], [[row[0].rstrip(), "|"] for row in rows]).split("\n")
    assert [display_width(line.removesuffix("|")) for line in marked[1:]] == [max(first) + 2] * len(rows)


def test_a_cell_from_right_to_left_moves_no_other() -> None:
    assert table(["title", "n"], [["مدينة", 1]]).splitlines()[1] == "\u2068مدينة\u2069  1"
