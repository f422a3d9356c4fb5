"""What a file says is what a reader of the Markdown sees."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tasks.stages.ingest.formats.markdown_marks import escaped, fenced, guarded, heading_text, table
from tasks.text.markdown import code_span
from tasks.text.markup import visible
from tests.deep import examples

PIECES = [*"#*_`[]()<>&|!\\~-+=:.1aB\n ", "http://a.b", "&amp;", "**", "[a](b)", "[a]", "<b>", "1. ", "2)", "```", "x"]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join).filter(str.strip)
LINES = TEXTS.map(lambda text: " ".join(text.split()))
COMMON_MARK = MarkdownIt("commonmark").enable("table")


def paragraph(text: str) -> str:
    return "\n".join(guarded(line) for line in map(str.strip, escaped(text).split("\n")) if line)


def words(text: str) -> str:
    return "".join(text.split())


def shown(markdown: str) -> list[str]:
    """The words of each block of inline text, all of which has to be plain."""
    found = []
    for token in COMMON_MARK.parse(markdown):
        if token.type == "inline":
            inner = token.children or ()
            assert {one.type for one in inner} <= {"text", "softbreak", "text_special"}, token
            found.append(words("".join(one.content or "\n" for one in inner)))
        else:
            assert token.tag in ("p", "table", "thead", "tbody", "tr", "th", "td"), token
    return found


def seen(markdown: str) -> str:
    found = visible(markdown, "markdown")
    return markdown if found is None else found.text


@given(TEXTS)
@example("a\\\nb")
@example("*\n---")
@example("a\n:-|-")
@example("~~~\nx")
@examples(100, deep=500)
def test_a_paragraph_is_seen_as_it_is_said(text: str) -> None:
    written = f"Before.\n\n{paragraph(text)}\n\nAfter.\n"
    assert shown(written) == ["Before.", words(text), "After."]
    assert words(seen(written)) == words(f"Before. {text} After.")


@given(st.lists(st.lists(LINES, min_size=2, max_size=2), min_size=2, max_size=4))
@example([["a", "b"], ["\\|", "\\"]])
@examples(60, deep=300)
def test_the_cells_of_a_table_are_seen_as_they_are_said(rows: list[list[str]]) -> None:
    written = f"Before.\n\n{table([[escaped(cell) for cell in row] for row in rows])}\n\nAfter.\n"
    assert shown(written) == ["Before.", *(words(cell) for row in rows for cell in row), "After."]
    lines = seen(written).split("\n")
    assert [line for line in lines if line][1:-1] == [" | ".join(row) for row in rows]


@given(LINES)
@example("A heading of C #")
@example("#")
def test_a_heading_is_seen_as_it_is_said(text: str) -> None:
    tokens = COMMON_MARK.parse(f"## {heading_text(escaped(text))}\n")
    assert [token.tag for token in tokens] == ["h2", "", "h2"]
    assert words("".join(one.content for one in tokens[1].children or ())) == words(text)


@given(LINES)
def test_code_in_a_line_is_seen_as_it_is_said(text: str) -> None:
    (token,) = [one for one in COMMON_MARK.parse(f"a {code_span(text)} b") if one.type == "inline"]
    assert [(one.type, one.content) for one in token.children or ()] == [
        ("text", "a "),
        ("code_inline", text),
        ("text", " b"),
    ]


def test_no_code_is_nothing() -> None:
    assert code_span("") == ""


@pytest.mark.parametrize(
    "line", ["snake_case, 2 * 3, a < b & c, #5, [1], C++, 3.14 and 1990.", "~5 of C:\\new", ": or -5", "1990 was"]
)
def test_words_that_mean_nothing_in_markdown_stay_as_they_are(line: str) -> None:
    assert paragraph(line) == line


def test_a_line_that_begins_as_a_row_of_a_table_is_none() -> None:
    assert paragraph("|x| is a letter\n| y") == "\\|x| is a letter\n\\| y"


def test_no_line_of_code_closes_its_fence() -> None:
    assert fenced("a\n```\n````b", "text") == "`````text\na\n```\n````b\n`````"
