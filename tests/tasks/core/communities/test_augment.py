"""Links by content: each formula by hand, and no trace of tiles, order or equal vectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core import neighbours
from tasks.core.communities.augment import FLOOR, codicil, knn, none, weighted
from tasks.core.communities.graph import Graph, graph_of
from tests.deep import examples
from tests.tasks.core.communities.graphs import vector_of, vectors_of

NONE = np.empty((0, 2), dtype=np.int64)


def at_angles(*degrees: float, links: np.ndarray = NONE) -> Graph:
    """Nodes a, b, c, ... at angles in the plane."""
    angles = np.radians(degrees)
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return graph_of([chr(97 + row) for row in range(len(degrees))], vectors, links)


def test_knn_by_hand() -> None:
    """At 0, 10, 30 and 90 degrees; cos 10 = 0.985, cos 20 = 0.940, cos 60 = 0.5."""
    graph = at_angles(0, 10, 30, 90)
    assert knn(graph, k=1, threshold=0.0).tolist() == [[0, 1], [1, 2], [2, 3]]
    assert knn(graph, k=1, threshold=0.6).tolist() == [[0, 1], [1, 2]]
    assert knn(graph, k=2, threshold=0.6).tolist() == [[0, 1], [0, 2], [1, 2]]
    assert knn(graph, k=3, threshold=0.95).tolist() == [[0, 1]]
    assert knn(graph, k=0).tolist() == []


def test_knn_keeps_the_graphs_links() -> None:
    graph = at_angles(0, 10, 180, links=np.array([[0, 2]]))
    assert knn(graph, k=2, threshold=0.9).tolist() == [[0, 1], [0, 2]]
    assert none(graph).tolist() == [[0, 2]]


def test_equal_vectors_are_linked_to_the_smallest_ids() -> None:
    graph = at_angles(0, 0, 0, 0)
    assert knn(graph, k=1).tolist() == [[0, 1], [0, 2], [0, 3]]
    assert weighted(graph, knn(graph, k=1)).weights.tolist() == [1.0, 1.0, 1.0]


@examples(12, deep=60)
@given(st.integers(0, 40), st.integers(1, 6), st.sampled_from([-1.0, 0.0, 0.3]), st.integers(1, 200), st.booleans())
def test_knn_is_what_comparing_one_by_one_finds(size: int, k: int, threshold: float, tile: int, doubled: bool) -> None:
    ids = [f"{row:02}" for row in range(size)]
    vectors = vectors_of([name[0] if doubled else name for name in ids])
    graph = graph_of(ids, vectors, NONE)
    wanted = set()
    for row in range(size):
        cosines = [(-float(graph.grid[row] @ graph.grid[to]), to) for to in range(size) if to != row]
        reached = [(far, to) for far, to in sorted(cosines) if -far >= threshold * 16e6]
        wanted |= {(min(row, to), max(row, to)) for _, to in reached[:k]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbours, "_BLOCK", tile)
        patch.setattr(neighbours, "_CELLS", tile)
        assert {tuple(edge) for edge in knn(graph, k, threshold).tolist()} == wanted


def test_more_nodes_than_are_compared_with_all_are_compared_with_those_in_near_lists() -> None:
    """Eight clusters of 50: what lists find is nearly what comparing all finds, whatever the order of the nodes."""
    ids = [f"{row:03}" for row in range(400)]
    vectors = np.stack([vector_of(name, int(name) % 8) for name in ids])
    graph = graph_of(ids, vectors, NONE)
    exact, listed = ({tuple(link) for link in knn(graph, 5, 0.0, exact=most).tolist()} for most in (400, 399))
    assert len(exact & listed) > 0.95 * len(exact | listed)
    other = graph_of(ids[::-1], vectors[::-1], NONE)
    assert {tuple(link) for link in knn(other, 5, 0.0, exact=0).tolist()} == listed
    assert knn(graph, 5, 0.99, exact=0).tolist() == knn(graph, 5, 0.99).tolist()


def test_codicil_by_hand() -> None:
    """Cliques of b, c, d, e and f, g, h, i; a is linked to b, c, d, e and f, so that it keeps 3 of 5.

    Closed neighbours: a {a-f}, b to e {a-e}, f {a, f-i}. J(a, b) = 5/6 as for c, d, e; J(a, f) = 2/9. By content f is
    next to a, then e, d, c, b. f has 4 links and keeps 2: by J g, h, i before a; by content a first.
    """
    cliques = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4), (5, 6), (5, 7), (5, 8), (6, 7), (6, 8), (7, 8)]
    links = np.array([*cliques, *((0, to) for to in range(1, 6))])
    graph = at_angles(0, 50, 40, 30, 20, 10, 60, 70, 80, links=links)

    def of_a(alpha: float) -> list[int]:
        return [to for one, to in codicil(graph, k=0, alpha=alpha).tolist() if one == 0]

    assert 5 not in of_a(1.0)
    assert {3, 4, 5} <= set(of_a(0.0))
    # a: f 1/2, e 1/2 + 0.92/2 (J scaled to 1, cos to (cos 20 - cos 50) / (cos 10 - cos 50)): e, d, c before f.
    # f: g, h, i have J 4/5, scaled 1; a has cos 1. By the mean g, at 50 degrees, has (1 + 0.44) / 2, and a 1/2.
    assert 5 not in of_a(0.5)


@settings(max_examples=40)
@given(st.integers(2, 14), st.integers(0, 3), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 10**6))
def test_codicil_is_its_formula_node_by_node(size: int, k: int, alpha: float, seed: int) -> None:
    ids = [f"{row:02}" for row in range(size)]
    graph = graph_of(ids, vectors_of(ids), np.random.default_rng(seed).integers(size, size=(2 * size, 2)))
    near: dict[int, set[int]] = {row: {row} for row in range(size)}
    for one, other in knn(graph, k, 0.0).tolist():
        near[one].add(other)
        near[other].add(one)
    wanted = set()
    for node in range(size):
        others = sorted(near[node] - {node})
        overlaps = [len(near[node] & near[to]) / len(near[node] | near[to]) for to in others]
        cosines = [float(graph.grid[node] @ graph.grid[to]) for to in others]
        scores = [
            alpha * one + (1 - alpha) * other for one, other in zip(scaled(overlaps), scaled(cosines), strict=True)
        ]
        ranked = sorted(zip([-round(score, 9) for score in scores], others, strict=True))
        wanted |= {(min(node, to), max(node, to)) for _, to in ranked[: math.ceil(math.sqrt(len(others)))]}
    assert {tuple(edge) for edge in codicil(graph, k, alpha).tolist()} == wanted


def scaled(values: list[float]) -> list[float]:
    width = max(values, default=0) - min(values, default=0)
    return [(value - min(values)) / width if width else 0.0 for value in values]


def test_codicil_drops_what_neither_end_keeps() -> None:
    """Two cliques of 6 joined by one link: each end has 6 links, keeps 3, and the bridge overlaps least."""
    cliques = [(one, other) for low in (0, 6) for one in range(low, low + 6) for other in range(one + 1, low + 6)]
    links = np.array([*cliques, (0, 6)])
    angles = [0, 1, 2, 3, 4, 5, 90, 91, 92, 93, 94, 95]
    kept = codicil(at_angles(*angles, links=links), k=0)
    assert [0, 6] not in kept.tolist()
    assert {tuple(edge) for edge in kept.tolist()} < {tuple(edge) for edge in links.tolist()}
    # By content: node 0 keeps its 3 nearest of equal overlap.
    assert [edge for edge in kept.tolist() if edge[0] == 0][:3] == [[0, 1], [0, 2], [0, 3]]


def test_codicil_adds_links_by_content() -> None:
    assert codicil(at_angles(0, 5, 90, 95), k=1).tolist() == [[0, 1], [2, 3]]
    assert codicil(at_angles(0), k=3).tolist() == []
    assert codicil(graph_of([], np.empty((0, 2)), NONE)).tolist() == []


@settings(max_examples=30)
@given(st.integers(0, 30), st.integers(0, 4), st.integers(0, 10**6))
def test_codicil_keeps_a_link_of_every_node_and_at_most_the_sum_of_the_roots(size: int, k: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    ids = [f"{row:02}" for row in range(size)]
    links = generator.integers(max(size, 1), size=(size * 2, 2))
    graph = graph_of(ids, vectors_of(ids), links)
    union = knn(graph, k, 0.0)
    kept = codicil(graph, k)
    assert {tuple(edge) for edge in kept.tolist()} <= {tuple(edge) for edge in union.tolist()}
    assert np.array_equal(np.unique(kept), np.unique(union))
    assert len(kept) <= sum(math.ceil(math.sqrt(degree)) for degree in np.bincount(union.ravel()))


def test_weights_are_cosines_and_at_least_the_floor() -> None:
    graph = at_angles(0, 60, 120, links=np.array([[0, 1], [1, 2], [0, 2]]))
    assert weighted(graph, graph.edges).weights == pytest.approx([0.5, FLOOR, 0.5], abs=2e-4)
