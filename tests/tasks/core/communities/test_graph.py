"""Graphs are functions of the set of nodes and links; cosines are exact."""

from __future__ import annotations

import numpy as np
import pytest

from tasks.core.communities.graph import coarser, graph_of, in_order, joined, shared_neighbours
from tests.tasks.core.communities.graphs import vector_of

NONE = np.empty((0, 2), dtype=np.int64)


def links(*pairs: tuple[int, int]) -> np.ndarray:
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def test_any_order_of_nodes_and_links_is_the_same_graph() -> None:
    ids = ["b", "a", "c"]
    vectors = np.stack([vector_of(name) for name in ids])
    graph = graph_of(ids, vectors, links((0, 1), (2, 0), (0, 2), (1, 1)))
    assert graph.ids == ["a", "b", "c"]
    assert graph.edges.tolist() == [[0, 1], [1, 2]]
    assert np.array_equal(graph.vectors, vectors[[1, 0, 2]])
    again = graph_of(ids[::-1], vectors[::-1], links((0, 2), (2, 1)))
    assert (again.ids, again.edges.tolist()) == (graph.ids, graph.edges.tolist())


def test_the_empty_graph_and_the_graph_of_one_node() -> None:
    assert graph_of([], np.empty((0, 4), dtype=np.float32), NONE).edges.shape == (0, 2)
    assert graph_of(["a"], vector_of("a")[None], links((0, 0))).edges.shape == (0, 2)


def test_what_is_no_graph_is_refused() -> None:
    one = vector_of("a")
    with pytest.raises(ValueError, match="two nodes have the id 'a'"):
        graph_of(["a", "a"], np.stack([one, one]), NONE)
    with pytest.raises(ValueError, match="a vector per node"):
        graph_of(["a", "b"], one[None], NONE)
    with pytest.raises(ValueError, match="the vector of 'b' has length 2"):
        graph_of(["a", "b"], np.stack([one, 2 * one]), NONE)
    with pytest.raises(ValueError, match="the vector of 'a' has length nan"):
        graph_of(["a"], np.full((1, 3), np.nan), NONE)


def test_cosines_by_hand_and_of_a_zero_vector() -> None:
    vectors = np.array([[1, 0], [0.6, 0.8], [-1, 0], [0, 0]], dtype=np.float32)
    graph = graph_of(list("abcd"), vectors, links((0, 1), (0, 2), (1, 2), (0, 3)))
    assert graph.cosines(graph.edges).tolist() == [0.6, -1.0, 0.0, -0.6]  # a-b, a-c, a-d, b-c


def test_communities_are_numbered_by_their_first_nodes() -> None:
    assert in_order(np.array([7, 7, 2, 9, 2])).tolist() == [0, 0, 1, 2, 1]
    assert in_order(np.empty(0, dtype=np.int64)).tolist() == []


def test_communities_are_linked_if_members_are() -> None:
    edges = links((0, 1), (1, 2), (2, 3), (1, 3), (4, 5))
    assert coarser(edges, np.array([0, 0, 1, 1, 2, 2, 3])).tolist() == [[0, 1]]


def test_links_are_united() -> None:
    assert joined(4, links((3, 1), (0, 2)), links((1, 3), (2, 2))).tolist() == [[0, 2], [1, 3]]
    assert joined(0).shape == (0, 2)


def test_shared_neighbours_by_hand() -> None:
    """0-1-2 a triangle, 2-3 a tail: closed neighbours {0,1,2}, {0,1,2}, {0,1,2,3}, {2,3}."""
    shared, degrees = shared_neighbours(4, links((0, 1), (0, 2), (1, 2), (2, 3)))
    assert shared.tolist() == [3, 3, 3, 2]
    assert degrees.tolist() == [3, 3, 4, 2]
