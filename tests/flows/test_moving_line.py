"""The moving line: it fits, and says as much as fits."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.moving_line import clock, moving_line, waiting_line
from flows.work_rate import StageAtWork
from indexmill.models.progress import Items
from indexmill.text.terminal import Glyphs, TerminalStyle, display_width

GLYPHS = Glyphs("#", ".", "|/")


def plain(line: str) -> str:
    return re.sub(r"\x1b\[\d+m", "", line)


def at_work(name: str, done: int = 3, parts: int = 23) -> StageAtWork:
    """A stage with a part half done after twenty seconds, and items."""
    stage = StageAtWork(name, began=0.0, parts=parts)
    stage.advance(0.0, done)
    stage.within(0.0, "part", 0.0, None)
    for second in range(21):
        stage.within(float(second), "part", second / 40, Items(615 * second, 24_600, "text"))
    return stage


def test_a_wide_terminal_shows_two_stages_in_full() -> None:
    line = moving_line([at_work("embed"), at_work("embed_names"), at_work("bm25")], 75.0, 20.0, 160, GLYPHS)
    assert line == (
        "1:15  embed ##.............. 3/23 15%  12,300 texts  615/s  13 min left"
        "  embed_names ##.............. 3/23 15%  12,300 texts  615/s  13 min left  +1 more"
    )


def test_a_narrow_terminal_shows_one_stage_and_what_matters_most() -> None:
    stages = [at_work("embed", done=22), at_work("bm25")]
    assert [moving_line(stages, 75.0, 20.0, columns, GLYPHS) for columns in (80, 60, 40, 25, 12)] == [
        "1:15  embed #########. 22/23 97%  12,300 of 24,600 texts  20 s left  +1 more",
        "1:15  embed ###############. 22/23 97%  20 s left  +1 more",
        "1:15  embed 22/23 97%  +1 more",
        "1:15  embed 22/23 97%",
        "1:15  embed…",
    ]


def test_stages_that_wait_give_way_to_those_at_work() -> None:
    waits = at_work("describe")
    waits.within(21.0, "part", None, None)
    assert moving_line([waits, at_work("embed")], 75.0, 20.0, 100, GLYPHS).startswith("1:15  embed ")
    assert moving_line([waits], 75.0, 20.0, 100, GLYPHS).startswith("1:15  describe ")


def test_hours_are_told_as_such() -> None:
    assert [clock(seconds) for seconds in (0.0, 59.9, 61.0, 3600.0, 36_061.0)] == [
        "0:00",
        "0:59",
        "1:01",
        "1:00:00",
        "10:01:01",
    ]


names = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=40)


@st.composite
def stages(draw: st.DrawFn) -> StageAtWork:
    parts = draw(st.integers(0, 10**9))
    stage = StageAtWork(draw(names), began=0.0, parts=parts)
    stage.advance(0.0, draw(st.integers(0, parts)))
    for second in range(draw(st.integers(0, 30))):
        total = draw(st.integers(1, 10**12))
        stage.within(float(second), "a", draw(st.floats(0, 1)), Items(draw(st.integers(0, total)), total, "text"))
    return stage


@pytest.mark.slow
@given(some=st.lists(stages(), min_size=1, max_size=4), columns=st.integers(1, 200), now=st.floats(30, 1e6))
def test_no_line_is_wider_than_the_terminal_and_colours_change_no_character(
    some: list[StageAtWork], columns: int, now: float
) -> None:
    line = moving_line(some, now, now, columns, GLYPHS)
    assert display_width(line) <= columns
    assert plain(moving_line(some, now, now, columns, GLYPHS, TerminalStyle(colours=True))) == line


@given(what=names, columns=st.integers(1, 100), since=st.floats(0, 1e6))
def test_what_is_awaited_fits_too(what: str, columns: int, since: float) -> None:
    line = waiting_line(since, what, columns, "|")
    assert display_width(line) <= columns
    assert plain(waiting_line(since, what, columns, "|", TerminalStyle(colours=True))) == line
