"""The loop over levels, ids, stops, and what an earlier membership keeps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.core.communities.augment import knn, none, weighted
from tasks.core.communities.clusterings import Stops, community_id
from tasks.core.communities.graph import ALONE, Floats, Graph, Labels, Weighted, graph_of
from tasks.core.communities.leiden import leiden
from tasks.core.communities.measures import modularity
from tests.tasks.core.communities.graphs import planted, vectors_of
from tests.tasks.core.communities.reference import Level, earlier_names, level_over, levels_over, start_from

STOPS = Stops(levels=4, fewest=3)
NONE = np.empty((0, 2), dtype=np.int64)


def mean(level: Level) -> Floats:
    """A community's vector is its members' mean, of length one: rounded, and added up in the order of their ids."""
    sums = np.zeros((len(level.ids), level.below.vectors.shape[1]))
    np.add.at(sums, level.labels, level.below.vectors)
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    return np.asarray(sums / np.maximum(lengths, 1e-12), dtype=np.float32)


def cluster(graph: Weighted, start: np.ndarray | None) -> Labels:
    return leiden(graph, start, grain=200, largest=12)


def augment(graph: Graph) -> np.ndarray:
    return knn(graph, k=3, threshold=0.7)


def tree(graph: Graph, before: list[dict[str, str]] | None = None, stops: Stops = STOPS) -> list[Level]:
    return levels_over(graph, mean, augment, cluster, stops, before or [])


def names(*numbers: int) -> list[str]:
    return [f"{number:04}" for number in numbers]


def test_two_levels_by_hand() -> None:
    """Four pairs on a ring of pairs; each pair is a community, and so are two neighbouring pairs above."""
    links = np.array([[0, 1], [2, 3], [4, 5], [6, 7], [1, 2], [5, 6]])
    vectors = vectors_of(["one"] * 8)
    graph = graph_of(list("abcdefgh"), vectors, links)

    def halves(weights: Weighted, start: np.ndarray | None) -> Labels:
        return np.arange(weights.size) // 2

    levels = levels_over(graph, mean, none, halves, Stops(levels=2, fewest=2))
    assert [members for _, members in levels[0].members()] == [["a", "b"], ["c", "d"], ["e", "f"], ["g", "h"]]
    assert levels[0].membership()["c"] == community_id(1, ["c", "d"])
    assert levels[1].below.ids == sorted(levels[0].ids)
    linked = {frozenset(levels[1].below.ids[row] for row in edge) for edge in levels[1].edges.tolist()}
    ids = levels[0].ids
    assert linked == {frozenset(ids[:2]), frozenset(ids[2:])}
    assert len(levels[1].ids) == 2


@settings(max_examples=25)
@given(
    st.sets(st.integers(0, 300), max_size=70),
    st.integers(1, 4),
    st.integers(0, 10**6),
    st.randoms(use_true_random=False),
)
def test_every_level_parts_the_one_below_and_any_order_of_the_input_is_the_same_tree(
    numbers: set[int], most: int, seed: int, random: object
) -> None:
    ids = names(*sorted(numbers))
    links = np.random.default_rng(seed).integers(max(len(ids), 1), size=(2 * len(ids), 2))
    graph = graph_of(ids, vectors_of(ids), links)
    stops = Stops(most, 2)
    levels = tree(graph, stops=stops)
    below = graph.ids
    for number, level in enumerate(levels, start=1):
        assert level.number == number
        assert level.below.ids == sorted(below)
        members = dict(level.members())
        assert sorted(node for held in members.values() for node in held) == sorted(below)
        assert all(community == community_id(number, held) for community, held in members.items())
        assert len(members) < len(below)
        assert max(map(len, members.values())) <= 12
        below = level.ids
    assert len(levels) <= most
    shuffled = list(range(len(ids)))
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    place = np.argsort(np.array(shuffled, dtype=np.int64))
    other = graph_of([ids[row] for row in shuffled], vectors_of(ids)[shuffled], place[links])
    assert [level.membership() for level in tree(other, stops=stops)] == [level.membership() for level in levels]


def test_graphs_that_need_no_level_have_none() -> None:
    assert tree(graph_of([], vectors_of([]), NONE)) == []
    assert tree(graph_of(["a"], vectors_of(["a"]), NONE), stops=Stops(4, 1)) == []
    apart = np.eye(8, dtype=np.float32)
    assert tree(graph_of(list("abcdefgh"), apart, NONE)) == []  # nothing is linked


def test_isolated_nodes_stay_alone_beside_communities() -> None:
    vectors = np.eye(6, dtype=np.float32)
    (level,) = tree(graph_of(list("abcdef"), vectors, np.array([[0, 1], [1, 2], [0, 2]])), stops=Stops(1, 2))
    assert [members for _, members in level.members()] == [["a", "b", "c"], ["d"], ["e"], ["f"]]


def test_two_equal_vectors_are_one_community() -> None:
    vectors = np.concatenate([np.eye(4), np.eye(4)[:1]]).astype(np.float32)
    (level,) = tree(graph_of(list("abcde"), vectors, NONE), stops=Stops(1, 2))
    assert level.membership()["a"] == level.membership()["e"]
    assert len(level.ids) == 4


def test_one_giant_component_of_equal_vectors_has_a_tree_within_bounds() -> None:
    ids = names(*range(200))
    levels = tree(graph_of(ids, vectors_of(["one"] * 200), np.array([[row, row + 1] for row in range(199)])))
    assert 2 <= len(levels) <= 4
    assert all(np.bincount(level.labels).max() <= 12 for level in levels)


# --- from an earlier membership ---


def memberships(levels: list[Level]) -> list[dict[str, str]]:
    return [level.membership() for level in levels]


def test_where_nodes_start() -> None:
    start = start_from(["a", "b", "c", "d"], {"a": "x", "c": "y", "d": "x", "gone": "z"})
    assert start.tolist() == [0, ALONE, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_an_unchanged_graph_keeps_its_communities_on_all_levels(seed: int) -> None:
    cold = tree(planted(names(*range(400)), 20, seed=seed))
    assert len(cold) >= 2
    assert memberships(tree(planted(names(*range(400)), 20, seed=seed), memberships(cold))) == memberships(cold)


@pytest.mark.slow
def test_a_small_change_leaves_most_communities() -> None:
    cold = tree(planted(names(*range(600)), 30))
    changed = planted(names(*range(3, 603)), 30)
    warm = tree(changed, memberships(cold))
    kept = len(set(warm[0].ids) & set(cold[0].ids)) / len(warm[0].ids)
    anew = tree(changed)
    assert kept >= 0.5
    assert kept > len(set(anew[0].ids) & set(cold[0].ids)) / len(anew[0].ids)


def test_a_nodes_change_of_side_is_followed() -> None:
    """c leaves a and b for d and e; f is new beside them; the vanished g held nobody else."""
    vectors = vectors_of(["one"] * 6)
    links = np.array([[0, 1], [2, 3], [2, 4], [3, 4], [3, 5], [4, 5]])
    graph = graph_of(list("abcdef"), vectors, links)
    start = {"a": "x", "b": "x", "c": "x", "d": "y", "e": "y", "g": "z"}
    level = level_over(1, graph, none, lambda weights, start: leiden(weights, start), start)
    assert [members for _, members in level.members()] == [["a", "b"], ["c", "d", "e", "f"]]
    assert earlier_names(level, start) == {level.ids[0]: "x", level.ids[1]: "y"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_modularity_from_earlier_memberships_stays_within_two_percent_over_ten_changes(seed: int) -> None:
    generator = np.random.default_rng(seed)
    there = set(generator.choice(1000, 500, replace=False).tolist())
    before: dict[str, str] | None = None
    for _ in range(11):
        graph = planted(names(*sorted(there)), 25, seed=seed, inside=3, across=2)
        weights = weighted(graph, augment(graph))
        level = level_over(1, graph, augment, cluster, before)
        cold = cluster(weights, None)
        for resolution in (1.0, 500 / 200):  # plain, and what the search looks at
            assert modularity(weights, level.labels, resolution) >= 0.98 * modularity(weights, cold, resolution)
        before = level.membership()
        gone = generator.choice(sorted(there), 25, replace=False).tolist()
        there = (there - set(gone)) | set(
            generator.choice(sorted(set(range(1000)) - there), 25, replace=False).tolist()
        )
