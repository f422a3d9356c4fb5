"""Columns of pairs: what plain loops over each question would give, whatever other questions stand beside it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.retrieve import columns
from tests.deep import examples

KEYS = st.lists(st.integers(0, 6), max_size=30)
VALUES = st.sampled_from([0.0, 0.25, 0.5, 1.0])


def keyed(data: st.DataObject) -> tuple[list[int], list[float]]:
    keys = data.draw(KEYS)
    return keys, data.draw(st.lists(VALUES, min_size=len(keys), max_size=len(keys)))


def whole(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def test_pairs_stand_by_question_and_then_by_row() -> None:
    questions, rows = whole([2, 0, 0, 1]), whole([0, 10**11, 3, 10**11])
    pairs = columns.paired(questions, rows)
    assert pairs.argsort().tolist() == [2, 1, 3, 0]
    again = columns.parts(pairs)
    assert (again[0].tolist(), again[1].tolist()) == (questions.tolist(), rows.tolist())


@given(KEYS)
def test_distinct_values_ascend(values: list[int]) -> None:
    given_values = whole(values)
    assert columns.distinct(given_values).tolist() == sorted(set(values))
    assert given_values.tolist() == values


@given(st.data())
def test_the_best_of_each_key_is_its_first_largest(data: st.DataObject) -> None:
    keys, values = keyed(data)
    found, best, first = columns.best_of_each(whole(keys), np.array(values))
    assert found.tolist() == sorted(set(keys))
    for key, value, place in zip(found.tolist(), best.tolist(), first.tolist(), strict=True):
        own = [(-v, i) for i, (k, v) in enumerate(zip(keys, values, strict=True)) if k == key]
        assert (-value, place) == min(own)


@examples(20, deep=100)
@given(st.data(), st.integers(1, 4), st.sampled_from([1, 100, 30_000]))
def test_the_first_of_each_owner_are_its_largest(data: st.DataObject, count: int, apart: int) -> None:
    keys, values = keyed(data)
    keys = sorted(key * apart for key in keys)
    expected = []
    for key in sorted(set(keys)):
        own = sorted((-v, i) for i, (k, v) in enumerate(zip(keys, values, strict=True)) if k == key)
        expected += [i for _, i in own[:count]]
    assert columns.first_of_each(whole(keys), np.array(values), count).tolist() == expected


@given(KEYS, st.lists(st.sampled_from([0, 3, 5, 5 + (1 << 16), 3 + (1 << 40)])))
def test_matches_are_found_by_the_whole_value(values: list[int], within: list[int]) -> None:
    some = [value + (1 << 16) * (value % 2) for value in values]
    column = sorted(set(within))
    places, at = columns.matches(whole(some), whole(column))
    assert places.tolist() == [i for i, value in enumerate(some) if value in column]
    assert [column[i] for i in at.tolist()] == [value for value in some if value in column]
    at, found = columns.positions(whole(some), whole(column))
    assert found.tolist() == [value in column for value in some]


@examples(20, deep=100)
@given(st.data())
def test_sums_are_added_in_their_order(data: st.DataObject) -> None:
    keys, _ = keyed(data)
    values = np.random.default_rng(len(keys)).standard_normal(len(keys))
    expected = [0.0] * 7
    for key, value in zip(keys, values.tolist(), strict=True):
        expected[key] += value
    assert columns.sums(whole(keys), values, 7).tolist() == expected


def vectors(rows: int, dimensions: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dimensions)).astype(np.float32)


@pytest.mark.parametrize("dimensions", [1, 8, 33, 384])
def test_a_product_does_not_depend_on_the_pairs_around_it(dimensions: int) -> None:
    rows, questions = vectors(700, dimensions), vectors(5, dimensions, 1)
    pairs = columns.paired(*(grid.ravel() for grid in np.indices((5, 700))))
    together = columns.products([rows], questions, pairs)
    assert together.reshape(5, 700) == pytest.approx(questions @ rows.T, abs=1e-4)
    some = np.random.default_rng(2).permutation(len(pairs))[:900]
    shards = [rows[:3], rows[3:3], rows[3:650], rows[650:]]
    assert columns.products(shards, questions, pairs[some]).tobytes() == together[some].tobytes()
    for at in some[:40].tolist():
        question, row = divmod(at, 700)
        alone = columns.products([rows[row:]], questions[question : question + 1], np.zeros(1, dtype=np.int64))
        assert alone.tobytes() == together[at].tobytes()


@settings(max_examples=20)
@given(st.integers(0, 3))
def test_empty_columns_have_empty_answers(count: int) -> None:
    nothing, none = whole([]), np.array([])
    assert [len(column) for column in columns.best_of_each(nothing, none)] == [0, 0, 0]
    assert len(columns.first_of_each(nothing, none, count)) == 0
    assert [len(column) for column in columns.matches(nothing, whole([1]))] == [0, 0]
    assert columns.sums(nothing, none, count).tolist() == [0.0] * count
    assert len(columns.products([], vectors(1, 4), nothing)) == 0
