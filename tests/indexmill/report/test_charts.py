"""Charts: what is drawn is proportional to the numbers, from zero, and nothing but what the numbers say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.report.charts import Bar, Panel, TimelineBlock, bar, histogram, series, timeline
from indexmill.report.inside import grouped

SVG = ElementTree.fromstring  # of our own markup
HOSTILE = "<script>alert(1)</script>\"'&\x00\u202e"


def numbers(markup: str, element: str, name: str) -> list[float]:
    """An attribute of all elements of a kind that are drawn, in order."""
    return [float(one.attrib[name]) for one in SVG(markup).iter(element)]


def test_a_bar_is_as_long_as_its_share_of_the_longest() -> None:
    assert numbers(bar(5, 20), "rect", "width") == [25]
    assert numbers(bar(0, 0), "rect", "width") == [0]


def test_the_bars_of_a_histogram_stand_on_zero_and_are_proportional() -> None:
    drawn = histogram("h", "Sizes", [Bar(1, 1, 10), Bar(2, 3, 40), Bar(4, 7, 0)], of="segments", doubling=True)
    heights = numbers(drawn, "rect", "height")
    assert heights[1] == 4 * heights[0]
    assert heights[2] == 0
    feet = {y + height for y, height in zip(numbers(drawn, "rect", "y"), heights, strict=True)}
    assert len(feet) == 1
    assert "50 segments" in drawn
    assert "<title>2–3: 40</title>" in drawn


def test_blocks_of_a_timeline_begin_and_end_where_the_work_did() -> None:
    blocks = [
        TimelineBlock(0, 0.0, 50.0, 1, "embed", "embed, 2 parts"),
        TimelineBlock(1, 50.0, 100.0, 2, "resolve", "resolve, 1 part"),
    ]
    drawn = timeline("t", "Workers", "Two of them.", ["worker 1", "worker 2"], blocks, 100.0)
    (first, second), (began, other) = numbers(drawn, "rect", "width"), numbers(drawn, "rect", "x")
    assert first == second
    assert other == pytest.approx(began + first)
    assert "<title>embed, 2 parts</title>" in drawn


def test_a_series_has_a_gap_where_a_version_has_no_value() -> None:
    panel = Panel("recall", (0.5, 0.5, None, 1.0), ("0.500", "0.500", "", "1.000"), 1.0)
    drawn = series("s", "Versions", "Four.", [4, 5, 6, 7], [panel], [(1, "prod")], [2])
    assert len(numbers(drawn, "circle", "cx")) == 3
    lines = re.findall(r'class="line" d="([^"]+)"', drawn)
    assert [line.count("L") for line in lines] == [1]
    heights = numbers(drawn, "circle", "cy")
    assert heights[0] == heights[1] > heights[2]
    assert ">prod</text>" in drawn
    assert drawn.count('class="gone"') == 1


@pytest.mark.parametrize("narrow", [False, True])
def test_what_a_document_says_is_text_in_a_chart(narrow: bool) -> None:
    panel = Panel(HOSTILE, (1.0,), (HOSTILE,))
    for drawn in (
        series("s", HOSTILE, HOSTILE, [1], [panel], [(0, HOSTILE)], [], narrow=narrow),
        timeline("t", HOSTILE, HOSTILE, [HOSTILE], [TimelineBlock(0, 0, 9, 1, HOSTILE, HOSTILE)], 9, narrow=narrow),
        histogram("h", HOSTILE, [Bar(0, 1, 2)], of=HOSTILE, doubling=False),
    ):
        found = {one.tag for one in SVG(drawn).iter()}
        assert found <= {"svg", "title", "desc", "rect", "path", "text", "circle"}
        assert "\x00" not in drawn
        assert "\u202e" not in drawn


@pytest.mark.parametrize("narrow", [False, True])
def test_a_chart_has_a_title_and_a_description_by_their_ids(narrow: bool) -> None:
    drawn = SVG(series("key", "Versions", "What it shows.", [1], [], [], [], narrow=narrow))
    assert drawn.attrib["role"] == "img"
    told = {one.attrib["id"]: one.text for one in drawn if "id" in one.attrib}
    assert [told[one] for one in drawn.attrib["aria-labelledby"].split()] == ["Versions", "What it shows."]


def test_charts_have_no_style_and_no_handler_of_their_own() -> None:
    panel = Panel("size", (1.0, 2.0), ("1 B", "2 B"))
    drawn = series("s", "a", "b", [1, 2], [panel], [], []) + bar(1, 2)
    assert not re.search(r"\s(style|on\w+|href)=", drawn)


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200))
def test_every_number_is_in_one_group_of_a_histogram(values: list[int]) -> None:
    distinct, counts = np.unique(np.array(values), return_counts=True)
    median = int(sorted(values)[(len(values) - 1) // 2])
    bars, doubling = grouped(distinct, counts, median)
    assert len(bars) <= 24
    assert [(one.low, one.high) for one in bars] == sorted((one.low, one.high) for one in bars)
    assert [one.count for one in bars] == [sum(one.low <= value <= one.high for value in values) for one in bars]
    assert sum(one.count for one in bars) == len(values)
    assert doubling == (max(values) > 24 and max(values) > 12 * max(median, 1))
