"""Modularity, CHI and Sim by hand."""

from __future__ import annotations

import tracemalloc

import igraph
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.communities import measures
from tasks.core.communities.graph import in_order
from tasks.core.communities.measures import calinski_harabasz, cosine_to_centre, modularity
from tests.tasks.core.communities.graphs import two_triangles, weighted_of


def test_modularity_of_two_triangles() -> None:
    """7 links, 6 inside; each side has strength 7 of 14: 6/7 - 2 (1/2)^2 = 5/14."""
    graph = two_triangles()
    assert modularity(graph, np.array([0, 0, 0, 1, 1, 1])) == pytest.approx(5 / 14)
    assert modularity(graph, np.array([0, 0, 0, 1, 1, 1]), 2.0) == pytest.approx(6 / 7 - 1)
    assert modularity(graph, np.zeros(6, dtype=np.int64)) == pytest.approx(0)


def test_modularity_counts_weights() -> None:
    """Links of weights 3 and 1 on a path: 3/4 - ((3 + 3 + 1)^2 + 1) / 64 with the lighter link cut."""
    graph = weighted_of(3, (0, 1, 3.0), (1, 2, 1.0))
    assert modularity(graph, np.array([0, 0, 1])) == pytest.approx(3 / 4 - 50 / 64)
    assert modularity(weighted_of(2), np.array([0, 1])) == 0.0


@settings(max_examples=30)
@given(st.integers(2, 30), st.integers(0, 10**6))
def test_modularity_is_igraphs(size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    pairs = {tuple(sorted(pair)) for pair in generator.integers(size, size=(2 * size, 2)).tolist()}
    graph = weighted_of(size, *((a, b, float(generator.random()) + 0.01) for a, b in sorted(pairs) if a < b))
    labels = in_order(generator.integers(4, size=size))
    if len(graph.edges):
        other = igraph.Graph(n=size, edges=graph.edges.tolist())
        assert modularity(graph, labels) == pytest.approx(
            other.modularity(labels.tolist(), weights=graph.weights.tolist())
        )


def test_chi_by_hand() -> None:
    """Points 0, 2 and 10, 12: centres 1, 11, of all 6; (4-2)/(2-1) * (2*25 + 2*25) / 4 = 50."""
    vectors = np.array([[0], [2], [10], [12]], dtype=np.float32)
    assert calinski_harabasz(vectors, np.array([0, 0, 1, 1])) == pytest.approx(50)
    assert calinski_harabasz(vectors, np.array([0, 1, 0, 1])) == pytest.approx(2 * (4 * 1) / 100)


def test_chi_is_not_defined_for_one_community_for_each_node_alone_and_for_equal_members() -> None:
    vectors = np.array([[0], [0], [1]], dtype=np.float32)
    assert calinski_harabasz(vectors, np.array([0, 0, 0])) is None
    assert calinski_harabasz(vectors, np.array([0, 1, 2])) is None
    assert calinski_harabasz(vectors, np.array([0, 0, 1])) is None
    assert calinski_harabasz(vectors[:0], np.empty(0, dtype=np.int64)) is None


def test_sim_by_hand() -> None:
    """(1,0) and (0,1): centre at 45 degrees to both; a node alone has 1: (2 sqrt(1/2) + 1) / 3."""
    vectors = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    assert cosine_to_centre(vectors, np.array([0, 0, 1])) == pytest.approx((2 * 0.5**0.5 + 1) / 3)
    assert cosine_to_centre(vectors[:0], np.empty(0, dtype=np.int64)) is None


def test_sim_counts_zero_where_there_is_no_direction() -> None:
    vectors = np.array([[1, 0], [-1, 0], [0, 0], [0, 1]], dtype=np.float32)
    assert cosine_to_centre(vectors, np.array([0, 0, 1, 2])) == pytest.approx(1 / 4)


def test_tiles_leave_no_trace_and_bound_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    vectors = generator.standard_normal((4_000, 64)).astype(np.float32)
    labels = in_order(generator.integers(300, size=4_000))
    whole = calinski_harabasz(vectors, labels), cosine_to_centre(vectors, labels)
    monkeypatch.setattr(measures, "_TILE", 100)
    tracemalloc.start()
    tiled = calinski_harabasz(vectors, labels), cosine_to_centre(vectors, labels)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert tiled == pytest.approx(whole, rel=1e-12)
    assert most < vectors.nbytes  # in double precision all of them take twice that
    monkeypatch.setattr(measures, "_TILE", 1)
    assert (calinski_harabasz(vectors, labels), cosine_to_centre(vectors, labels)) == pytest.approx(whole, rel=1e-12)
