"""The open question: the part of a vector that names explain, against least squares, and what is left without it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.retrieve.residual_query import named_parts, without


def units(rows: int, dimensions: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).standard_normal((rows, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


@settings(max_examples=60)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 1000))
def test_the_named_part_is_the_projection_on_the_names(counts: list[int], seed: int) -> None:
    names, vectors = units(12, 16, seed), units(len(counts), 16, seed + 1)
    chance = np.random.default_rng(seed)
    rows = [np.sort(chance.choice(12, count, replace=False)) for count in counts]
    questions = np.arange(len(counts)).repeat(counts)
    found = named_parts(vectors, [names[:5], names[5:]], questions, np.concatenate(rows).astype(np.int64))
    for i, own in enumerate(rows):
        basis = names[own].T.astype(np.float64)
        expected = basis @ np.linalg.lstsq(basis, vectors[i].astype(np.float64), rcond=None)[0]
        assert found[i] == pytest.approx(expected, abs=1e-6)
        alone = named_parts(vectors[i : i + 1], [names], np.zeros(len(own), dtype=np.int64), own.astype(np.int64))
        assert alone[0].tobytes() == found[i].tobytes()


def test_a_name_that_says_nothing_new_is_left_out() -> None:
    names = np.float32([[1, 0, 0], [1, 1e-3, 0], [0, 0, 1]])
    vectors = np.float32([[0.6, 0.64, 0.48]])
    found = named_parts(vectors, [names], np.zeros(3, dtype=np.int64), np.arange(3))
    assert found[0] == pytest.approx([0.6, 0.0, 0.48])


def test_what_is_left_is_of_unit_length() -> None:
    vectors = np.float32([[0.6, 0.8], [1, 0]])
    named = np.array([[0.6, 0.0], [1.0, 0.0]])
    # Of the second vector nothing would be left.
    assert without(vectors, named, 1.0) == pytest.approx(np.array([[0, 1], [1, 0]]), abs=1e-6)
    assert without(vectors, named, 0.5) == pytest.approx(np.array([[0.3, 0.8] / np.sqrt(0.73), [1, 0]]), abs=1e-6)
    assert without(vectors, named, 0.0) is vectors
