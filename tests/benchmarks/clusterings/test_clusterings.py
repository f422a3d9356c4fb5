"""What every clustering promises, and each on graphs worked by hand."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

from benchmarks.clusterings.kmeans import kmeans
from benchmarks.clusterings.node2vec import mutual_information, node2vec, walked
from benchmarks.clusterings.scan import scan
from benchmarks.clusterings.spectral import leading, spectral
from tasks.core.communities.graph import Labels, Weighted, in_order
from tasks.core.communities.leiden import leiden
from tests.deep import examples
from tests.paths import ROOT
from tests.tasks.core.communities.graphs import clique, random_graph, two_triangles, weighted_of

CLUSTERINGS: dict[str, Callable[[Weighted], Labels]] = {
    "leiden": leiden,
    "leiden in sizes": lambda graph: leiden(graph, grain=10, largest=4),
    "spectral": lambda graph: spectral(graph, 3),
    "scan": scan,
    "node2vec": lambda graph: node2vec(graph, 3),
}


@pytest.fixture(params=list(CLUSTERINGS))
def clustering(request: pytest.FixtureRequest) -> Callable[[Weighted], Labels]:
    return CLUSTERINGS[request.param]


@pytest.mark.parametrize("name", CLUSTERINGS)
@examples(5, deep=15)
@given(st.integers(1, 30), st.integers(0, 60), st.integers(0, 10**6))
def test_every_node_is_in_one_community_and_they_are_numbered_in_order(
    name: str, size: int, links: int, seed: int
) -> None:
    graph = random_graph(size, links, seed)
    labels = CLUSTERINGS[name](graph)
    assert labels.shape == (size,)
    assert np.array_equal(labels, in_order(labels))
    assert np.array_equal(labels, CLUSTERINGS[name](graph))


def test_the_empty_graph_and_the_graph_of_one_node(clustering: Callable[[Weighted], Labels]) -> None:
    assert clustering(weighted_of(0)).tolist() == []
    assert clustering(weighted_of(1)).tolist() == [0]


def test_isolated_nodes_are_alone(clustering: Callable[[Weighted], Labels]) -> None:
    assert clustering(weighted_of(4)).tolist() == [0, 1, 2, 3]
    labels = clustering(weighted_of(5, *clique(1, 2, 3)))
    assert labels[0] not in labels[1:]
    assert labels[4] not in labels[:4]


def test_two_triangles_are_two_communities() -> None:
    graph = two_triangles()
    for labels in (leiden(graph), spectral(graph, 2), node2vec(graph, 2), scan(graph, epsilon=0.7)):
        assert labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_what_ran_before_in_the_process_leaves_no_trace() -> None:
    graph = random_graph(60, 200, 1)
    alone = {name: run(graph).tolist() for name, run in CLUSTERINGS.items()}
    np.random.seed(5)  # noqa: NPY002
    for seed in range(3):
        for run in CLUSTERINGS.values():
            run(random_graph(50, 120, seed))
    assert {name: run(graph).tolist() for name, run in CLUSTERINGS.items()} == alone


@pytest.mark.slow
def test_hash_seeds_leave_no_trace() -> None:
    program = (
        "from tests.benchmarks.clusterings.test_clusterings import CLUSTERINGS, random_graph; "
        "print([run(random_graph(60, 200, 1)).tolist() for run in CLUSTERINGS.values()])"
    )
    printed = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert printed.pop().startswith(b"[[0")


# --- SCAN ---


def test_scan_by_hand() -> None:
    """Cliques 0-3 and 5-8, hub 4 linked to 3 and 5, outlier 9 on 8.

    sigma(0, 1) = 1; sigma(0, 3) = 4/sqrt(20) = 0.89; sigma(3, 4) = 2/sqrt(15) = 0.52; sigma(8, 9) = 2/sqrt(10) = 0.63.
    """
    graph = weighted_of(10, *clique(0, 1, 2, 3), *clique(5, 6, 7, 8), (3, 4), (4, 5), (8, 9))
    assert scan(graph, epsilon=0.7).tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2, 3]
    # At 0.6 the outlier borders on the core 8; at 0.5 the hub has 2 similar neighbours, is a core, and joins all.
    assert scan(graph, epsilon=0.6).tolist() == [0, 0, 0, 0, 1, 2, 2, 2, 2, 2]
    assert scan(graph, epsilon=0.5).tolist() == [0] * 10
    # At 0.9 only 0, 1, 2 have three; 6 and 7 are two.
    assert scan(graph, epsilon=0.9).tolist() == [0, 0, 0, 1, 2, 3, 4, 5, 6, 7]


def test_scan_gives_a_border_to_its_most_similar_core() -> None:
    """Node 4 hangs on 3, which has degree 4, and on 5, which has degree 5 with the further 9: not a core at 4."""
    graph = weighted_of(10, *clique(0, 1, 2, 3), *clique(5, 6, 7, 8), (3, 4), (4, 5), (5, 9))
    assert 2 / math.sqrt(15) > 2 / math.sqrt(18)
    assert scan(graph, epsilon=0.45, core=4).tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_scan_has_no_core_below_its_size() -> None:
    assert scan(two_triangles(), epsilon=0.7, core=4).tolist() == [0, 1, 2, 3, 4, 5]


# --- spectral ---


def test_leading_eigenvectors_by_hand() -> None:
    """A path of two links: eigenvalues sqrt(2), 0, -sqrt(2)."""
    values, vectors = leading(weighted_of(3, (0, 1), (1, 2)).matrix(), 1)
    assert values == pytest.approx([math.sqrt(2)])
    assert np.abs(vectors[:, 0]) == pytest.approx([0.5, math.sqrt(0.5), 0.5])


def test_leading_eigenvectors_of_a_large_matrix_are_those_of_the_dense_one() -> None:
    matrix = random_graph(500, 3000, 3).matrix()
    values, vectors = leading(matrix, 4)
    assert values == pytest.approx(np.linalg.eigvalsh(matrix.toarray())[-4:], rel=1e-4)
    assert np.abs(matrix @ vectors - vectors * values).max() < 1e-2


def test_eigenvectors_are_the_same_whatever_threads_there_are() -> None:
    rows = sparse.random_array((300, 300), density=0.03, rng=np.random.default_rng(1))
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found.append(leading(sparse.csr_array(rows + rows.T), 32)[1])
    assert np.array_equal(*found)


def test_spectral_parts_a_heavy_ring_and_keeps_to_connected_parts() -> None:
    ring = weighted_of(4, (0, 1, 1.0), (1, 2, 0.1), (2, 3, 1.0), (0, 3, 0.1))
    assert spectral(ring, 2).tolist() == [0, 0, 1, 1]
    apart = weighted_of(12, *clique(0, 1, 2), *clique(3, 4, 5), (2, 3), *clique(6, 7, 8), *clique(9, 10, 11), (8, 9))
    assert spectral(apart, 4).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert spectral(apart, 1).tolist() == [0] * 6 + [1] * 6


# --- k-means ---


def test_kmeans_by_hand() -> None:
    rows = np.array([[0.0], [1.0], [9.0], [10.0], [11.0]])
    assert kmeans(rows, 2).tolist() == [0, 0, 1, 1, 1]
    assert kmeans(rows, 9).tolist() == [0, 1, 2, 3, 4]
    assert kmeans(np.zeros((4, 2)), 3).tolist() == [0, 0, 0, 0]
    assert kmeans(np.empty((0, 2)), 3).tolist() == []


# --- node2vec ---


def test_walks_go_along_links_and_by_weight() -> None:
    graph = weighted_of(3, (0, 1, 3.0), (0, 2, 1.0))
    paths = walked(graph, p=1.0, q=1.0, walks=2000, length=2, seed=0)
    from_hub = paths[paths[:, 0] == 0, 1]
    assert (paths[paths[:, 0] != 0, 1] == 0).all()
    assert np.mean(from_hub == 1) == pytest.approx(0.75, abs=0.03)


def test_the_second_step_by_hand() -> None:
    """From 0 to 1, which is linked to 0, 2 (linked to 0) and 3 (not): by 1/p : 1 : 1/q = 2 : 1 : 4 at p 1/2, q 1/4."""
    graph = weighted_of(4, (0, 1), (0, 2), (1, 2), (1, 3))
    paths = walked(graph, p=0.5, q=0.25, walks=6000, length=3, seed=0)
    third = paths[(paths[:, 0] == 0) & (paths[:, 1] == 1), 2]
    shares = np.bincount(third, minlength=4) / len(third)
    assert shares == pytest.approx([2 / 7, 0, 1 / 7, 4 / 7], abs=0.03)


def test_mutual_information_by_hand() -> None:
    """Walks 0 1 and 2 3 and 0 1: pairs 0-1 four times of six, both ways: ln(4/6 / (2/6 * 2/6)), halved by symmetry.

    Counted both ways: 0-1 and 1-0 twice each, 2-3 and 3-2 once, of 6. P(0) = P(1) = 2/6, P(2) = P(3) = 1/6.
    """
    found = mutual_information(np.array([[0, 1], [2, 3], [0, 1]]), 4, 5).toarray()
    assert found[0, 1] == pytest.approx(math.log((2 / 6) / (4 / 36)))
    assert found[2, 3] == pytest.approx(math.log((1 / 6) / (1 / 36)))
    assert np.array_equal(found, found.T)
    assert np.count_nonzero(found) == 4
