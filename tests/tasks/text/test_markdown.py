"""Data in Markdown stays data."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from indexmill.text.printable import one_line
from tasks.text.markdown import code, json_block, table_of
from tests.deep import examples

READER = MarkdownIt("commonmark").enable("table")

HOSTILE = st.text(st.one_of(st.sampled_from("`|\\\n\r\t#<>*[]()-_!&;~ a\x1b\x9b\u202e"), st.characters()), max_size=40)


def spans(text: str) -> list[list[tuple[str, str]]]:
    """The inline tokens of every block, as (kind, content)."""
    blocks = [one.children or [] for one in READER.parse(text) if one.type == "inline"]
    return [[(one.type, one.content) for one in block] for block in blocks]


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain", "`plain`"),
        ("a`b", "``a`b``"),
        ("``", "``` `` ```"),
        ("two\nlines", "`two lines`"),
        ({"b": 1, "a": "é"}, '`{"a": "é", "b": 1}`'),
        ("", "-"),
        (" \n", "-"),
        (None, "`null`"),
        ("x" * 700, f"`{'x' * 600}…`"),
    ],
)
def test_a_value_is_a_code_span(value: object, written: str) -> None:
    assert code(value) == written


@given(HOSTILE)
def test_nothing_ends_a_code_span(text: str) -> None:
    shown = one_line(text).strip()
    if not shown:
        return
    (((kind, content),),) = spans(code(text))
    assert (kind, content.strip()) == ("code_inline", shown)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u202e]", content)


@given(st.lists(st.tuples(HOSTILE, HOSTILE), min_size=1, max_size=4))
def test_a_table_has_the_cells_that_were_given(rows: list[tuple[str, str]]) -> None:
    text = table_of(("a", "b"), [(code(one), code(other)) for one, other in rows])
    kinds = [one.type for one in READER.parse(text)]
    assert (kinds[0], kinds[-1], kinds.count("td_open")) == ("table_open", "table_close", 2 * len(rows))
    found = [block[0][1].strip() if block else "" for block in spans(text)[2:]]
    expected = [one_line(cell).strip() or "-" for row in rows for cell in row]
    for one, other in zip(found, expected, strict=True):  # of backslashes before a pipe there may be one more
        assert re.sub(r"\\+\|", "|", one) == re.sub(r"\\+\|", "|", other)


@examples(20, deep=100)
@given(st.dictionaries(HOSTILE, HOSTILE))
def test_a_block_of_json_is_one_block(value: dict[str, str]) -> None:
    (token,) = READER.parse(json_block(value))
    assert (token.type, token.info) == ("fence", "json")
    assert json.loads(token.content) == value
