"""Important entities, by hand and against igraph's betweenness (NodeRAG, Algorithm 1)."""

from __future__ import annotations

import igraph
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.families.heterograph.graph import linked
from tasks.families.heterograph.importance import PIVOTS, betweenness, important, pivots, stable_order
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import Corpus, corpora, corpus_of, ids, prize, unit


def links(size: int, *pairs: tuple[int, int]):
    return linked(size, np.array(pairs, dtype=np.int64).reshape(-1, 2))


def test_betweenness_of_a_path() -> None:
    """0-1-2-3: the paths 0-2, 0-3 and back go through 1, and 1-3, 0-3 and back through 2."""
    path = links(4, (0, 1), (1, 2), (2, 3))
    assert betweenness(path, np.arange(4)).tolist() == [0, 4, 4, 0]
    assert betweenness(path, np.array([0])).tolist() == [0, 2, 1, 0]


def test_equal_paths_share() -> None:
    """0-1-3 and 0-2-3, then 3-4: from 0, 3 and 4 are reached in two ways."""
    kite = links(5, (0, 1), (0, 2), (1, 3), (2, 3), (3, 4))
    assert betweenness(kite, np.array([0])).tolist() == [0, 1, 1, 1, 0]


def test_other_parts_of_a_graph_are_not_reached() -> None:
    assert betweenness(links(5, (0, 1), (2, 3), (3, 4)), np.array([0, 2])).tolist() == [0, 0, 0, 1, 0]
    assert betweenness(links(3), np.arange(3)).tolist() == [0, 0, 0]


@examples(20, deep=100)
@given(st.integers(1, 12), st.data())
def test_betweenness_is_that_of_another_library(size: int, data: st.DataObject) -> None:
    ends = st.integers(0, size - 1)
    drawn = data.draw(st.lists(st.tuples(ends, ends), max_size=30))
    pairs = sorted({(min(pair), max(pair)) for pair in drawn if pair[0] != pair[1]})
    expected = 2 * np.array(igraph.Graph(n=size, edges=pairs).betweenness(directed=False))
    assert betweenness(links(size, *pairs), np.arange(size)) == pytest.approx(expected, abs=1e-9)


def test_as_many_paths_as_no_float_holds() -> None:
    """1,200 kites in a row: 2^1200 paths from end to end, and every node in the middle of a kite has half of them."""
    kites = 1200
    pairs = []
    for first in range(0, 3 * kites, 3):
        pairs += [(first, first + 1), (first, first + 2), (first + 1, first + 3), (first + 2, first + 3)]
    found = betweenness(links(3 * kites + 1, *pairs), np.array([0]))
    assert found[1] == found[2] == pytest.approx((3 * kites - 2) / 2)
    assert found[3] == pytest.approx(3 * kites - 3)


def test_pivots_are_those_of_the_smallest_hashes_and_hardly_change() -> None:
    names = [f"{number}" for number in range(400)]
    chosen = pivots(names)
    assert len(chosen) == PIVOTS
    assert chosen.tolist() == sorted(stable_order(names)[:PIVOTS].tolist())
    assert sorted(names[row] for row in chosen) == sorted(names[::-1][row] for row in pivots(names[::-1]))
    without = [name for name in names if name not in ("3", "4", "5")]
    kept = {names[row] for row in chosen} - {"3", "4", "5"}
    assert kept <= {without[row] for row in pivots(without)}
    assert not np.array_equal(pivots(names, seed=1), chosen)
    assert pivots(["a"]).tolist() == [0]


def test_the_bounds_by_hand() -> None:
    """4 units, 3 relations, 4 entities; 8 mentions and 6 ends: ln 11 sqrt(28 / 11) = 3.83, log10 11 = 1.04.

    Degrees: hinton 2 units and 2 relations, nobel prize 3 and 2, stockholm 2 and 1, backpropagation 1 and 1.
    """
    graph = prize().first()
    found = important(graph)
    names = graph.ids_of("N").to_pylist()
    assert found.least_degree == 3
    core = dict(zip(names, found.core.tolist(), strict=True))
    assert [core[one] for one in ids("hinton", "nobel prize", "stockholm", "backpropagation")] == [
        True,
        True,
        True,
        False,
    ]
    # 11 nodes and 10 pivots: all but the one of the greatest hash.
    shares = betweenness(graph.links, stable_order(graph.ids.to_pylist())[:10])
    assert found.least_betweenness == pytest.approx(shares.sum() / 11)
    assert found.between.tolist() == (shares[graph.rows("N")] > shares.sum() / 11).tolist()
    assert found.between[names.index(*ids("nobel prize"))]  # stockholm hangs on it
    assert not found.between[names.index(*ids("backpropagation"))]


def test_a_star_has_one_important_entity_and_a_ring_none_by_betweenness() -> None:
    star = corpus_of([unit(f"unit {number}", "hub", f"leaf {number}") for number in range(20)])
    graph = star.first()
    found = important(graph)
    assert [graph.ids_of("N")[row].as_py() for row in np.flatnonzero(found.chosen)] == ids("hub")
    ring = corpus_of([unit(f"unit {number}", f"name {number}", f"name {(number + 1) % 5}") for number in range(5)])
    found = important(ring.first())  # 10 nodes, all of them pivots: all values are equal, none is above the mean
    assert not found.between.any()
    assert found.least_degree == 3  # ln 10 sqrt(2) = 3.26
    assert not found.chosen.any()


@settings(max_examples=30)
@given(corpora(), st.integers(0, 2**16))
def test_importance_is_a_function_of_the_set(corpus: Corpus, seed: int) -> None:
    found, again = important(corpus.first()), important(corpus.shuffled(seed).first())
    assert np.array_equal(found.chosen, again.chosen)
    assert (found.least_degree, found.least_betweenness) == (again.least_degree, again.least_betweenness)
    assert len(found.chosen) == len(corpus.first().ids_of("N"))
