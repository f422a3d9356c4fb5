"""Text of files becomes Markdown that shows its words, whatever they are, and knows where its pages begin."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clean
from tasks.text.markup import visible
from tests.deep import examples

MARKS = st.text(st.sampled_from("ab1 \n\\`*_[]()<>!&#;:-+.=|~/\"'é"), max_size=40)
NASTY = (
    "# no heading",
    "- no item\n1. none\n2) none",
    "> no quotation",
    "a\n===",
    "a\n---",
    "* * *",
    "| a | b |\n| --- | --- |",
    "a | b\n--|--",
    "```\nno code",
    "~~~\nno code",
    "    no code",
    "<script>alert(1)</script>",
    "a <b>bold</b> &lt; &amp; &#65;",
    "[no](link) ![no](picture) [no][ref]\n[ref]: x",
    "<https://no.link>",
    "*no* **no** _no_ __no__ `no` snake_case 2 * 3",
    "\\* \\ \\\\ C:\\_x",
    "line\\\nline",
)


def _shown(markdown: str) -> str:
    """The words that CommonMark shows, from its tokens."""
    words = []
    for token in MarkdownIt("commonmark").enable("table").parse(markdown):
        assert token.type in ("paragraph_open", "paragraph_close", "inline"), token
        for inner in token.children or ():
            assert inner.type in ("text", "softbreak", "text_special"), inner
            words.append(inner.content if inner.type != "softbreak" else "\n")
    return "".join("".join(words).split())


def _paragraph(text: str) -> str:
    writer = MarkdownWriter(ExtractionLimits())
    writer.paragraph(Inline(text).markdown())
    return writer.result()[0]


@given(MARKS)
@examples(174, deep=400)
def test_a_paragraph_shows_its_characters_and_nothing_is_markup(text: str) -> None:
    assert _shown(_paragraph(text)) == "".join(text.split())


@pytest.mark.parametrize("text", NASTY)
def test_what_looks_like_markup_shows_as_it_is(text: str) -> None:
    written = _paragraph(text)
    assert _shown(written) == "".join(text.split())
    read = visible(written, "markdown")
    assert "".join((written if read is None else read.text).split()) == "".join(text.split())


@given(MARKS)
@example("\\|")
@examples(60, deep=300)
def test_a_cell_shows_its_characters(text: str) -> None:
    writer = MarkdownWriter(ExtractionLimits())
    writer.table([["head", Inline(text).markdown()], ["x", "y"]])
    written, _ = writer.result()
    tokens = MarkdownIt("commonmark").enable("table").parse(written)
    cells = ["".join(one.content for one in token.children or ()) for token in tokens if token.type == "inline"]
    assert ["".join(cell.split()) for cell in cells] == ["head", "".join(text.split()), "x", "y"]


@given(MARKS, MARKS, MARKS)
@settings(max_examples=300, deadline=None)
def test_a_link_shows_its_text_between_others(before: str, linked: str, after: str) -> None:
    inline = Inline(before)
    inline.add(linked, "https://example.org/a_(b)?c=d e")
    inline.add(after)
    writer = MarkdownWriter(ExtractionLimits())
    writer.paragraph(inline.markdown())
    tokens = MarkdownIt("commonmark").parse(writer.result()[0])
    shown = [one for token in tokens for one in token.children or ()]
    assert "".join("".join(one.content for one in shown).split()) == "".join((before + linked + after).split())
    targets = [str(one.attrs["href"]) for one in shown if one.type == "link_open"]
    assert targets == (["https://example.org/a_%28b%29?c=d%20e"] if linked.strip() else [])


@given(MARKS)
@settings(max_examples=200, deadline=None)
def test_a_heading_shows_its_characters(text: str) -> None:
    writer = MarkdownWriter(ExtractionLimits())
    writer.heading(2, Inline(text).markdown())
    tokens = MarkdownIt("commonmark").parse(writer.result()[0])
    shown = "".join(one.content for token in tokens for one in token.children or ())
    assert "".join(shown.split()) == "".join(text.split())
    assert not text.strip() or [token.tag for token in tokens] == ["h2", "", "h2"]


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "https://", "x" * 9]
)
def test_a_target_that_is_neither_of_the_web_nor_of_mail_is_left_out(target: str) -> None:
    inline = Inline()
    inline.add("words", target)
    assert inline.markdown() == "words"


def test_a_link_whose_text_is_its_target_is_the_text() -> None:
    inline = Inline()
    inline.add("https://example.org/a_b", "https://example.org/a_b")
    assert inline.markdown() == "https://example.org/a_b"


def test_code_keeps_its_marks_and_is_fenced_by_enough_of_them() -> None:
    inline = Inline("call ")
    inline.code("a`b *c*")
    assert inline.markdown() == "call ``a`b *c*``"
    writer = MarkdownWriter(ExtractionLimits())
    writer.code("x = 1\n```\n# y")
    assert writer.result()[0] == "````\nx = 1\n```\n# y\n````"


def test_items_are_indented_below_the_text_of_those_above() -> None:
    writer = MarkdownWriter(ExtractionLimits())
    for level, marker, text in ((0, "-", "a"), (1, "10.", "b"), (2, "-", "c\nd"), (0, "-", "e")):
        writer.item(level, marker, text)
    writer.paragraph("end")
    assert writer.result()[0] == "- a\n  10. b\n      - c\n        d\n- e\n\nend"


def test_a_table_is_squared_and_loses_empty_rows_and_columns() -> None:
    writer = MarkdownWriter(ExtractionLimits())
    writer.table([["", "", ""], ["a", "", "b|c"], ["", "", ""], ["d"]])
    assert writer.result()[0] == "| a | b\\|c |\n| --- | --- |\n| d |  |"


def test_pages_begin_where_their_first_word_stands() -> None:
    writer = MarkdownWriter(ExtractionLimits())
    writer.turn_to(1)
    inline = Inline("one ")
    inline.page_break()
    inline.add("two")
    writer.paragraph(inline.markdown())
    inline = Inline()
    inline.page_break()
    inline.add("three")
    writer.heading(1, inline.markdown())
    inline = Inline("four")
    inline.page_break()
    inline.page_break()
    writer.paragraph(inline.markdown())
    writer.paragraph("six")
    text, locations = writer.result()
    assert text == "one two\n\n# three\n\nfour\n\nsix"
    assert [(one.page, text[one.start :].split()[0]) for one in locations] == [
        (1, "one"),
        (2, "two"),
        (3, "#"),
        (5, "six"),
    ]


def test_a_page_without_words_has_no_place() -> None:
    writer = MarkdownWriter(ExtractionLimits())
    writer.turn_to(1, (0.0, 0.0, 1.0, 1.0))
    writer.turn_to(2)
    writer.paragraph("words")
    assert writer.result()[1] == (Location(0, 2),)


def test_too_much_text_is_refused_before_it_is_joined() -> None:
    writer = MarkdownWriter(ExtractionLimits(text_bytes=100))
    with pytest.raises(UnreadableError) as caught:
        writer.paragraph("é" * 60)
    assert caught.value.reason == "too-large"
    with pytest.raises(UnreadableError, match="100 bytes"):
        MarkdownWriter(ExtractionLimits(text_bytes=100)).table([[""] * 1_000 + ["x"], *[[f"{n}"] for n in range(60)]])


def test_invisible_characters_are_left_out() -> None:
    assert clean("a\x00b\x0cc\u200bd\ud800e\xa0f\u00adg\x85h") == "ab\x0ccde fgh"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["*" * 200_000, "[" * 200_000, "`" * 200_000, "\\" * 200_000, "- " * 100_000, "a\n" * 100_000]
)
def test_time_grows_with_the_length_alone(text: str) -> None:
    start = time.perf_counter()
    _paragraph(text)
    assert time.perf_counter() - start < 5


def test_the_reference_to_a_note_is_no_link_whatever_follows_it() -> None:
    inline = Inline("a")
    inline.note("1")
    inline.add("(x)")
    inline.note("2")
    inline.note("3")
    inline.add(": y")
    assert inline.markdown() == "a[^1]\\(x)[^2][^3]\\: y"
    assert _shown(inline.markdown()) == "a[^1](x)[^2][^3]:y"
