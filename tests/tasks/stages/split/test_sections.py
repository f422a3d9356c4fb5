"""The section of a passage: the headings above its start, as a citation names them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.stages.split.sections import HEADING_CHARACTERS, SECTION_DEPTH, outline, sections
from tasks.text.markup import Heading, Markup, Visible, visible
from tests.deep import examples

GUIDE = """\
Before any heading.

# Lamps

Of lamps.

## Wicks

Of wicks.

### Cotton

Of cotton.

## Wicks

Again of wicks.

# Oil

Of oil.
"""


def seen(text: str, markup: Markup = "markdown") -> Visible:
    found = visible(text, markup)
    assert found is not None
    return found


def at(text: str, *words: str, title: str = "", markup: Markup = "markdown") -> list[list[str]]:
    """The sections of passages that start with some words."""
    of = seen(text, markup)
    places = [of.text.index(word) for word in words]
    return [section.split("\n") if section else [] for section in sections(of, title, places)]


def test_a_section_is_the_path_of_headings_above_the_start() -> None:
    assert at(GUIDE, "Before", "Of lamps", "Of wicks", "Of cotton", "Again", "Of oil") == [
        [],
        ["Lamps"],
        ["Lamps", "Wicks"],
        ["Lamps", "Wicks", "Cotton"],
        ["Lamps", "Wicks"],
        ["Oil"],
    ]


def test_a_passage_that_begins_with_a_heading_is_in_that_section() -> None:
    assert at(GUIDE, "Lamps", "Wicks", "Cotton", "Oil") == [
        ["Lamps"],
        ["Lamps", "Wicks"],
        ["Lamps", "Wicks", "Cotton"],
        ["Oil"],
    ]


@pytest.mark.parametrize(
    ("heading", "title"),
    [
        ("Lamp Guide", "Lamp Guide"),
        ("lamp  *guide*", "Lamp Guide"),  # as a reader sees it
        ("The `lamp` &amp; *its* guide", "The `lamp` &amp; *its* guide"),  # a file's title is the heading as written
    ],
)
def test_a_heading_that_repeats_the_title_is_left_out(heading: str, title: str) -> None:
    text = f"# {heading}\n\nFirst.\n\n## {heading}\n\nSecond.\n"
    (first, second) = at(text, "First", "Second", title=title)
    assert first == []
    assert len(second) == 1  # only the outermost one is the title
    assert at(text, "First", title="Another")[0] == second
    assert at("## A\n\nOne.\n\n### Lamp Guide\n\nTwo.", "Two", title="Lamp Guide") == [["A", "Lamp Guide"]]


def test_headings_of_html_are_read_as_those_of_markdown() -> None:
    page = (
        "<html><head><title>Guide</title></head><body><h1>Guide</h1><p>One.</p><h3 id='x'>Wick&nbsp;&amp;\n <b>oil</b>"
        "</h3><p>Two.</p><pre># no heading\n</pre><p>Three.</p><h2>Salt</h2><p>Four.</p></body></html>"
    )
    assert at(page, "One", "Two", "Three", "Four", title="Guide", markup="html") == [
        [],
        ["Wick & oil"],
        ["Wick & oil"],
        ["Salt"],
    ]


def test_setext_headings_count_and_code_does_not() -> None:
    text = (
        "Tall *lamps*\n===\n\nOne.\n\nWicks [here](x.md)\n---\n\n```\n# no heading\n```\n\nTwo.\n\n    # nor\n\nThree."
    )
    assert at(text, "One", "Two", "Three") == [
        ["Tall lamps"],
        ["Tall lamps", "Wicks here"],
        ["Tall lamps", "Wicks here"],
    ]


def test_a_long_heading_is_cut_between_words_and_a_long_word_within() -> None:
    for long in ("very long " * 500, "x" * 5_000):
        ((shown,),) = at(f"# {long}\n\nOne.", "One")
        assert len(shown) <= HEADING_CHARACTERS
        assert long.startswith(shown.removesuffix("…"))
        assert shown.endswith(("long…", "very…", "x…"))
    fits = "y" * HEADING_CHARACTERS
    assert at(f"# {fits}\n\nOne.", "One") == [[fits]]


def test_the_outermost_headings_of_a_deep_nest_are_kept() -> None:
    deepest = "\n\n".join(f"{'#' * level} Level {level}" for level in range(1, 7))
    assert at(f"{deepest}\n\nOne.", "One") == [[f"Level {level}" for level in range(1, SECTION_DEPTH + 1)]]
    deeper = Visible("abcdefghij", *[seen("# a").starts] * 3, [], [], [Heading(n, n + 1, n + 1) for n in range(10)], [])
    assert sections(deeper, "A", [9]) == ["b\nc\nd\ne\nf\ng"]


def test_line_ends_and_blanks_in_a_heading_become_spaces() -> None:
    page = "<h1>One\u2028two\x85three\x1cfour\n\tfive</h1><p>Text.</p>"
    assert at(page, "Text", markup="html") == [["One two three four five"]]


@examples(20, deep=100)
@given(st.lists(st.integers(1, 8), max_size=30))
def test_levels_of_a_path_rise(levels: list[int]) -> None:
    headings = [Heading(place, place + 1, level) for place, level in enumerate(levels)]
    found = outline(Visible("x" * len(levels), *[seen("# a").starts] * 3, [], [], headings, []))
    for place, one in enumerate(found):
        before = [at for at in range(place) if levels[at] < levels[place]]
        assert one.above == max(before, default=-1)
