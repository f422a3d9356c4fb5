"""Names that hold other names word by word."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from indexmill.families.heterograph.name_words import NameWords
from tasks.families.heterograph.names import name_words
from tests.deep import examples

NAMES = [
    "nobel prize",
    "alfred nobel",
    "1921 nobel prize in physics",
    "prizes of nobel",
    "nobel nobel prize",
    "",
    "nobel",
]


def find(words: NameWords, name: str, most: int, allowed: np.ndarray | None = None) -> np.ndarray:
    return words.find_each([name], most, allowed)[0]


def test_words_must_follow_one_another() -> None:
    names = name_words(pa.array(NAMES))
    assert find(names, "nobel prize", 10).tolist() == [0, 4, 2]  # the shortest first
    assert find(names, "nobel prize", 2).tolist() == [0, 4]
    assert find(names, "nobel", 10).tolist() == [6, 0, 1, 3, 4, 2]
    assert find(names, "nobel nobel", 10).tolist() == [4]
    assert find(names, "prize nobel", 10).tolist() == []
    assert find(names, "prize", 10).tolist() == [0, 4, 2]
    for unknown in ("nob", "nobel price", "", "1921 nobel prize in physics and more"):
        assert find(names, unknown, 10).tolist() == []
    assert find(names, "nobel", 0).tolist() == []


def test_each_question_is_given_the_names_of_all_of_its_own() -> None:
    names = name_words(pa.array(NAMES))
    found = names.find_all([["nobel prize", "alfred nobel"], [], ["unknown"], ["alfred nobel"]], 2)
    assert [rows.tolist() for rows in found] == [[0, 1, 4], [], [], [1]]


def test_names_that_may_not_be_found_leave_their_place_to_others() -> None:
    names = name_words(pa.array(NAMES))
    allowed = np.array([name != "nobel prize" for name in NAMES])
    assert find(names, "nobel prize", 2, allowed).tolist() == [4, 2]
    assert find(names, "alfred nobel", 2, ~allowed).tolist() == []
    assert [rows.tolist() for rows in names.find_all([["nobel prize"]], 1, allowed)] == [[4]]


def test_no_names_are_found_in_none() -> None:
    names = name_words(pa.array([], pa.string()))
    assert find(names, "nobel", 5).tolist() == []
    assert find(name_words(pa.array(["", ""])), "nobel", 5).tolist() == []


some = st.lists(st.sampled_from("abc"), max_size=5).map(" ".join)


@examples(20, deep=100)
@given(st.lists(some, max_size=12), some)
def test_what_is_found_holds_the_name(names: list[str], wanted: str) -> None:
    found = find(name_words(pa.array(names, pa.string())), wanted, 100)
    words = wanted.split()
    expected = [row for row, name in enumerate(names) if words and f" {wanted} " in f" {name} "]
    assert found.tolist() == sorted(expected, key=lambda row: (len(names[row].split()), row))


def test_keys_are_ascending_and_holders_are_distinct() -> None:
    names = name_words(pa.array(NAMES))
    assert (np.diff(names.keys.astype(object)) > 0).all()
    assert names.holders.degrees(np.arange(len(names.keys))).sum() == sum(len(set(name.split())) for name in NAMES)


def test_words_are_what_a_pack_holds_of_them() -> None:
    names = name_words(pa.array(NAMES))
    again = NameWords.of(dict(reversed(names.arrays().items())))
    assert find(again, "nobel prize", 10).tolist() == find(names, "nobel prize", 10).tolist()
