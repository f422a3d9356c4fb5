"""How alike names are by their letters, and what keeps them apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.text.canonical_names import canonical_name
from tasks.stages.resolve.name_similarity import likenesses, marks, plain_name
from tests.deep import examples


def alike(one: str, other: str) -> float:
    return float(likenesses([(one, other)])[0])


def edits(one: str, other: str) -> int:
    """The table of Levenshtein's distance, cell by cell."""
    row = list(range(len(other) + 1))
    for number, letter in enumerate(one, 1):
        last, row[0] = row[0], number
        for at, across in enumerate(other, 1):
            last, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, last + (letter != across))
    return row[-1]


@pytest.mark.parametrize(
    ("one", "other", "likeness"),
    [
        ("kitten", "sitting", 1 - 3 / 7),  # k -> s, e -> i, g put in
        ("color theory", "colour theory", 1 - 1 / 6),  # of the words that differ
        ("ada marl", "marl ada", 1.0),
        ("hyper text protocol", "hypertext protocol", 1.0),
        ("new york", "new york city", 0.0),  # a word more is another name
        ("arsenal fc", "arsenal wfc", 1 - 1 / 3),
        ("ada ada", "ada", 0.0),
        ("", "", 1.0),
        ("", "ada", 0.0),
        ("藤原乙牟漏", "藤原乙牟流", 1 - 1 / 5),
    ],
)
def test_likeness_is_the_share_of_letters_that_stay(one: str, other: str, likeness: float) -> None:
    assert alike(one, other) == pytest.approx(likeness)
    assert alike(other, one) == pytest.approx(likeness)


@examples(40, deep=200)
@given(st.lists(st.tuples(st.text("abcé漢", max_size=9), st.text("abcé漢", max_size=9)), max_size=8))
def test_all_pairs_at_once_are_what_each_is_alone(pairs: list[tuple[str, str]]) -> None:
    found = likenesses(pairs)
    expected = [1.0 if a == b else 1 - edits(a, b) / max(len(a), len(b)) for a, b in pairs]
    assert found == pytest.approx(np.array(expected, dtype=np.float32))
    assert found.dtype == np.float32


SERIES = [
    ("World War I", "World War II"),
    ("World War One", "World War Two"),
    ("First World War", "Second World War"),
    ("1984", "1985"),
    ("Apollo 11", "Apollo 12"),
    ("Apollo 1 1", "Apollo 11"),
    ("GPT-3", "GPT-4"),
    ("Boeing 737", "Boeing 747"),
    ("3.11", "3.12"),
    ("20 March 1890", "21 March 1890"),
    ("20 March 1890", "20 May 1890"),
    ("20 Mar 1890", "20 May 1890"),
    ("March 1990", "May 1990"),
    ("Henry IV", "Henry VI"),
    ("Louis XIV of France", "Louis XVI of France"),
    ("Vitamin B", "Vitamin C"),
    ("Hepatitis A", "Hepatitis B"),
    ("Version two", "Version ten"),
    ("第一次世界大战", "第二次世界大战"),
    ("٣ لواء", "٤ لواء"),
    ("North Korea", "South Korea"),
    ("Upper Austria", "Lower Austria"),
    ("Prince of Wales", "Princess of Wales"),
    ("Pieter Bruegel the Elder", "Pieter Bruegel the Younger"),
    ("Martin Luther King", "Martin Luther King Jr."),
    ("Half ½ Moon", "Half ¼ Moon"),
    ("Men's doubles", "Women's doubles"),
]


@pytest.mark.parametrize(("one", "other"), SERIES)
def test_names_of_a_series_have_other_marks(one: str, other: str) -> None:
    first, second = (marks(plain_name(canonical_name(name))) for name in (one, other))
    assert first != second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("World War II", "World War Two"),
        ("World War 2", "Second World War"),
        ("Henry IV", "Henry the Fourth"),
        ("20 Mar 1890", "20 March 1890"),
        ("May 05, 2001", "May 5, 2001"),
        ("University of Oxford", "Universty of Oxford"),
        ("Vitamin B 12", "Vitamin B-12"),
        ("٣ لواء", "3 لواء"),
    ],
)
def test_a_number_is_the_same_however_it_is_written(one: str, other: str) -> None:
    first, second = (marks(plain_name(canonical_name(name))) for name in (one, other))
    assert first == second


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("world war ii", "world war 2"),
        ("henry viii", "henry 8"),
        ("mcmxciv", "1994"),
        ("chapter xl", "chapter 40"),
        ("iiii", "iiii"),  # no number as they are written
        ("civic lid", "civic lid"),
        ("the nineteenth day", "the 19 day"),
        ("", ""),
    ],
)
def test_numbers_are_put_into_figures(name: str, plain: str) -> None:
    assert plain_name(name) == plain


@settings(max_examples=200)
@given(st.text(max_size=30))
def test_any_name_has_marks_and_they_are_of_its_plain_form(name: str) -> None:
    folded = canonical_name(name)
    plain = plain_name(folded)
    assert plain_name(plain) == plain
    assert marks(plain) == marks(plain_name(folded))
