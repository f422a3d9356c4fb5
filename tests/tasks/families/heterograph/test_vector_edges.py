"""Edges that vectors make: near nodes, and elements matched within communities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.retrieve.grid import on_grid
from tasks.core.neighbours import ListSettings
from tasks.families.heterograph.vector_edges import clusters_of, matched, near_pairs
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import unit_vectors


def names(count: int) -> list[str]:
    return [f"{number:04d}" for number in range(count)]


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


@examples(20, deep=100)
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


@pytest.mark.slow
def test_lists_find_nearly_the_same_pairs() -> None:
    vectors = unit_vectors(1200, 1)
    exact = {tuple(pair) for pair in near_pairs(names(1200), vectors, 10).tolist()}
    lists = {tuple(pair) for pair in near_pairs(names(1200), vectors, 10, lists=ListSettings(exact=100)).tolist()}
    assert len(exact & lists) > 0.9 * len(exact)


def test_there_are_as_many_edges_for_each_vector_as_in_the_paper() -> None:
    """Table 4: from 11.8 (FiQA) to 21.5 (MuSiQue) HNSW edges for each text, unit, attribute and element."""
    edges = near_pairs(names(2000), unit_vectors(2000, 5, 32))
    assert 12 <= len(edges) / 2000 <= 21


def test_edges_join_what_is_of_one_community_and_one_cluster() -> None:
    """Rows 2, 4 and 6 are elements; row 5 is in no community."""
    clusters = np.array([0, 0, 0, 1, 1, 1, 0])
    communities = np.array([0, 1, 0, 0, 0, -1, 1])
    elements = np.array([False, False, True, False, True, False, True])
    assert matched(clusters, communities, elements).tolist() == [[0, 2], [1, 6], [3, 4]]


def test_every_one_of_several_is_matched() -> None:
    elements = np.array([False, True, False, True])
    assert matched(np.zeros(4, dtype=int), np.zeros(4, dtype=int), elements).tolist() == [
        [0, 1],
        [0, 3],
        [2, 1],
        [2, 3],
    ]


def test_nothing_to_match() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert matched(nothing, nothing, nothing.astype(bool)).shape == (0, 2)
    assert matched(np.zeros(2, dtype=int), np.zeros(2, dtype=int), np.zeros(2, dtype=bool)).shape == (0, 2)
    assert clusters_of([], np.empty((0, 4), dtype=np.float32)).tolist() == []


rows = st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2), st.booleans()), max_size=20)


@examples(20, deep=100)
@given(rows)
def test_edges_are_all_pairs_that_coincide(drawn: list[tuple[int, int, bool]]) -> None:
    clusters, communities, elements = (
        (np.array(column) for column in zip(*drawn, strict=True)) if drawn else 3 * [np.empty(0, dtype=np.int64)]
    )
    expected = [
        [low, high]
        for low in range(len(drawn))
        for high in range(len(drawn))
        if not drawn[low][2] and drawn[high][2] and drawn[low][:2] == drawn[high][:2] and min(drawn[low][:2]) >= 0
    ]
    assert matched(clusters, communities, elements.astype(bool)).tolist() == expected


def test_near_vectors_are_of_one_cluster() -> None:
    """Nine vectors, three of each direction: three clusters, or fewer where seeds stand together."""
    centres = np.repeat(np.eye(8, dtype=np.float32)[:3], 3, axis=0)
    vectors = centres + 0.02 * unit_vectors(9)
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    found = clusters_of(names(9), vectors)
    for first in range(0, 9, 3):
        assert len(set(found[first : first + 3].tolist())) == 1
    assert found.max() < 3


@given(st.integers(1, 80), st.integers(0, 2**16))
def test_clusters_are_a_function_of_the_set(count: int, seed: int) -> None:
    vectors = unit_vectors(count, seed)
    order = np.random.default_rng(seed).permutation(count)
    found = clusters_of(names(count), vectors)
    assert np.array_equal(clusters_of([names(count)[row] for row in order], vectors[order]), found[order])
    assert found.max() < max(1, int(np.sqrt(count)))


def test_every_vector_is_in_the_cluster_of_its_nearest_mean() -> None:
    """At the end of a k-means that came to rest, means of clusters lead to the same clusters."""
    vectors = unit_vectors(100, 3)
    found = clusters_of(names(100), vectors)
    means = np.stack([vectors[found == one].sum(axis=0) for one in np.unique(found)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    again = np.unique(found)[np.argmax(vectors @ means.T, axis=1)]
    assert (again == found).mean() > 0.98  # the grid rounds means
