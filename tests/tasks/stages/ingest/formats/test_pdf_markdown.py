"""What a file says is what a reader of the Markdown sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.stages.ingest.formats.pdf_markdown import escaped, fenced, table
from tasks.text.markup import visible

PIECES = [*"#*_`[]()<>&|!\\~-+=:.1aB ", "http://a.b", "&amp;", "**", "[a](b)", "[a]", "<b>", "1. ", "2)", "```", "x"]
TEXTS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=14).map("".join).map(lambda text: " ".join(text.split()))


def seen(markdown: str) -> str:
    found = visible(markdown, "markdown")
    return markdown if found is None else found.text


@given(TEXTS.filter(bool))
def test_a_paragraph_is_seen_as_it_is_said(text: str) -> None:
    assert seen(f"Before.\n\n{escaped(text)}\n\nAfter.\n").split("\n\n")[1] == text


@given(st.lists(st.lists(TEXTS.filter(bool), min_size=2, max_size=2), min_size=2, max_size=4))
def test_the_cells_of_a_table_are_seen_as_they_are_said(rows: list[list[str]]) -> None:
    lines = seen(f"Before.\n\n{table(rows)}\n\nAfter.\n").split("\n")
    assert [line for line in lines if line][1:-1] == [" | ".join(row) for row in rows]


def test_words_that_mean_nothing_in_markdown_stay_as_they_are() -> None:
    plain = "snake_case, 2 * 3, a < b & c, #5, [1], C++, 3.14 and 1990."
    assert escaped(plain) == plain


def test_no_line_of_code_closes_its_fence() -> None:
    assert fenced(["a", "```", "````b"]) == "`````\na\n```\n````b\n`````"


def test_rows_of_a_table_have_as_many_cells() -> None:
    assert table([["a"], ["b", "c|d"]]) == "| a |  |\n| --- | --- |\n| b | c\\|d |"
