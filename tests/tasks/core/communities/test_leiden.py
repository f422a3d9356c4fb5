"""Leiden on graphs worked by hand, in sizes, and from an earlier membership."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import igraph
import leidenalg
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.communities.augment import weighted
from tasks.core.communities.graph import Weighted, graph_of
from tasks.core.communities.leiden import leiden
from tasks.core.communities.measures import modularity
from tests.deep import examples
from tests.tasks.core.communities.graphs import clique, random_graph, vectors_of, weighted_of


def test_leiden_weighs_links() -> None:
    """A ring of 4 with two heavy sides, 2.2 in all; to join one gains 1 / 2.2 - gamma 2 (1.1 / 4.4)^2."""
    ring = weighted_of(4, (0, 1, 1.0), (1, 2, 0.1), (2, 3, 1.0), (0, 3, 0.1))
    assert leiden(ring).tolist() == [0, 0, 1, 1]
    assert leiden(ring, grain=1).tolist() == [0, 1, 2, 3]


def test_grain_keeps_the_size_of_communities_as_a_graph_grows() -> None:
    """A ring of cliques of 5: plain modularity joins neighbours once there are many; with a grain each stays alone."""

    def found(cliques: int, grain: int) -> int:
        links = [link for low in range(0, 5 * cliques, 5) for link in clique(*range(low, low + 5))]
        ring = [(low, low + 5) for low in range(0, 5 * cliques - 5, 5)]
        return int(leiden(weighted_of(5 * cliques, *links, *ring), grain=grain).max()) + 1

    assert found(8, 0) == 8
    assert found(100, 0) < 60
    assert found(8, 100) == 8
    assert found(100, 100) == 100


@examples(5, deep=20)
@given(st.integers(2, 60), st.integers(1, 9), st.integers(0, 10**6))
def test_no_community_is_larger_than_the_largest(size: int, largest: int, seed: int) -> None:
    graph = random_graph(size, 3 * size, seed)
    labels = leiden(graph, largest=largest)
    assert np.bincount(labels).max() <= largest
    generator = np.random.default_rng(seed)
    assert np.bincount(leiden(graph, generator.integers(3, size=size), largest=largest)).max() <= largest


def test_one_giant_component_is_parted_within_the_bound() -> None:
    labels = leiden(weighted_of(40, *clique(*range(40))), largest=10)
    assert np.bincount(labels).tolist() == [10, 10, 10, 10]


@pytest.mark.slow
def test_communities_in_bounds_are_as_good_as_those_of_leidenalg_alone() -> None:
    """Where the bound cuts through all communities, within 1.5 %."""
    generator = np.random.default_rng(3)
    ends = generator.integers(4_000, size=(20_000, 2))
    near = generator.random(20_000) < 0.7
    ends[near, 1] = ends[near, 0] // 60 * 60 + generator.integers(60, size=int(near.sum()))
    ends = np.sort(ends[ends[:, 0] // 60 != 66], axis=1)
    edges = np.unique(ends[(ends[:, 0] != ends[:, 1]) & (ends[:, 1] < 3_960)], axis=0)
    graph = Weighted(3_960, edges, np.ones(len(edges)))
    optimiser = leidenalg.Optimiser()
    optimiser.set_rng_seed(0)
    optimiser.max_comm_size, optimiser.community_constraint_enforcement = 50, 1e6
    links = igraph.Graph(n=graph.size, edges=edges.tolist())
    alone = leidenalg.RBConfigurationVertexPartition(links, resolution_parameter=9.9)
    optimiser.optimise_partition(alone, n_iterations=10)
    labels = leiden(graph, grain=400, largest=50)
    assert np.bincount(labels).max() <= 50
    assert modularity(graph, labels, 9.9) > 0.985 * modularity(graph, np.array(alone.membership), 9.9)


@pytest.mark.slow
def test_threads_that_cluster_at_once_do_not_disturb_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """igraph has one generator for all of them; here others run between one's seeding and clustering."""
    seed_igraph = igraph.set_random_number_generator

    def seed_and_wait(generator: object) -> None:
        seed_igraph(generator)
        time.sleep(0.003)

    monkeypatch.setattr(igraph, "set_random_number_generator", seed_and_wait)
    graphs = [random_graph(300, 900, seed) for seed in range(8)]
    alone = [leiden(graph, largest=20).tolist() for graph in graphs]
    with ThreadPoolExecutor(4) as pool:
        together = pool.map(lambda graph: leiden(graph, largest=20).tolist(), graphs * 3)
    assert list(together) == alone * 3


@examples(8, deep=40)
@given(st.integers(1, 60), st.integers(0, 200), st.sampled_from([0, 5]), st.integers(0, 10**6))
def test_leiden_from_its_own_result_stays_there(size: int, links: int, largest: int, seed: int) -> None:
    """Unless going on from there is worth more than `patience`: a bound on sizes may leave that much undone."""
    generator = np.random.default_rng(seed)
    ids = [f"{row:04}" for row in range(size)]
    graph = graph_of(ids, vectors_of(ids), generator.integers(size, size=(links, 2)))
    weights = weighted(graph, graph.edges)
    cold = leiden(weights, largest=largest)
    warm = leiden(weights, cold, largest=largest)
    reached, before = modularity(weights, warm), modularity(weights, cold)
    assert np.array_equal(warm, cold) or (largest > 0 and reached * (1 - 0.015) > before)


def test_a_community_that_fell_apart_is_its_parts() -> None:
    graph = graph_of(list("abcd"), vectors_of(["one"] * 4), np.array([[0, 1], [2, 3]]))
    labels = leiden(weighted(graph, graph.edges), np.zeros(4, dtype=np.int64))
    assert labels.tolist() == [0, 0, 1, 1]
