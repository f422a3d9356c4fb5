"""Edges between near vectors."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexmill.retrieve.grid import on_grid
from tasks.core.neighbours import ListSettings
from tasks.families.heterograph.near import near_pairs
from tests.tasks.families.heterograph.graphs import unit_vectors


def names(count: int) -> list[str]:
    return [f"{number:05d}" for number in range(count)]


def test_a_pair_stays_if_either_chose_it() -> None:
    """On a circle at 0, 10, 25, 26 and 180 degrees: 1 is nearest to 0, 2 and 3 are nearest to each other."""
    angles = np.radians([0, 10, 25, 26, 180])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    assert near_pairs(names(5), vectors, 1).tolist() == [[0, 1], [2, 3]]  # 4 is near to none
    assert near_pairs(names(5), vectors, 2).tolist() == [[0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]


def test_what_has_no_neighbours() -> None:
    assert near_pairs([], np.empty((0, 4), dtype=np.float32)).shape == (0, 2)
    assert near_pairs(["a"], np.eye(1, 4, dtype=np.float32)).shape == (0, 2)
    zero = np.array([[0, 0], [1, 0], [1, 0]], dtype=np.float32)
    assert near_pairs(["a", "b", "c"], zero, 2).tolist() == [[1, 2]]
    assert near_pairs(["a", "b", "c"], zero, 0).shape == (0, 2)


@given(st.integers(0, 40), st.integers(1, 6), st.integers(0, 2**16))
def test_pairs_are_those_of_exact_neighbours(count: int, k: int, seed: int) -> None:
    vectors = unit_vectors(count, seed)
    held = on_grid(vectors)
    products = held @ held.T
    expected = set()
    for row in range(count):
        others = sorted((one for one in range(count) if one != row), key=lambda one: (-products[row, one], one))
        expected |= {(min(row, one), max(row, one)) for one in others[:k] if products[row, one] > 0}
    assert near_pairs(names(count), vectors, k).tolist() == sorted(map(list, expected))


def test_lists_find_nearly_the_same_pairs() -> None:
    vectors = unit_vectors(1200, 1)
    exact = {tuple(pair) for pair in near_pairs(names(1200), vectors, 10).tolist()}
    lists = {tuple(pair) for pair in near_pairs(names(1200), vectors, 10, lists=ListSettings(exact=100)).tolist()}
    assert len(exact & lists) > 0.9 * len(exact)


def test_there_are_as_many_edges_for_each_vector_as_in_the_paper() -> None:
    """Table 4: from 11.8 (FiQA) to 21.5 (MuSiQue) HNSW edges for each text, unit, attribute and element."""
    edges = near_pairs(names(2000), unit_vectors(2000, 5, 32))
    assert 12 <= len(edges) / 2000 <= 21
