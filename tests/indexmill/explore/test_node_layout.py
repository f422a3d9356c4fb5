"""Places of nodes: the same for the same graph, within bounds, and near what they are linked to."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.explore.node_layout import node_positions


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 40), st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=80))
def test_places_are_finite_bounded_and_repeatable(count: int, pairs: list[tuple[int, int]]) -> None:
    edges = np.array([pair for pair in pairs if max(pair) < count], dtype=np.int64).reshape(-1, 2)
    places = node_positions(count, edges)
    assert places.shape == (count, 2)
    assert np.isfinite(places).all()
    assert (np.abs(places) <= 1).all()
    assert np.array_equal(places, node_positions(count, edges))


@pytest.mark.parametrize("size", [20, 400])
def test_what_is_linked_is_nearer_than_what_is_not(size: int) -> None:
    """Two groups, each a ring with chords, and one link between them; 400 nodes each take all stages."""
    ring = np.arange(size)
    links = [np.stack([ring, (ring + step) % size], axis=1) for step in (1, 2, 5)]
    group = np.concatenate(links)
    places = node_positions(2 * size, np.concatenate([group, group + size, [[0, size]]]))
    one, other = places[:size].mean(axis=0), places[size:].mean(axis=0)
    apart = np.linalg.norm(one - other)
    along = np.linalg.norm(places[group[:, 0]] - places[group[:, 1]], axis=1).mean()
    rng = np.random.default_rng(1)
    any_two = rng.integers(0, 2 * size, (2000, 2))
    assert along < 0.7 * np.linalg.norm(places[any_two[:, 0]] - places[any_two[:, 1]], axis=1).mean()
    assert apart > 0.3


def test_no_two_nodes_share_a_place() -> None:
    star = np.stack([np.zeros(60, np.int64), np.arange(1, 61)], axis=1)
    places = node_positions(61, star)
    assert len(np.unique(places, axis=0)) == 61
