"""Exponentials by a table, and limits that are exact or estimated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from indexmill.families.zoom_graph.similar import STEPS_PER_UNIT
from indexmill.retrieve.grid import UNIT
from tasks.families.zoom_graph import moments as zoom_moments
from tasks.families.zoom_graph.moments import GRAIN, UNITS, Moments, estimated_limits, exponentials
from tests.tasks.families.zoom_graph.linked_rows import vectors


def limits(of: np.ndarray, threshold: float = 3.0) -> np.ndarray:
    """From the moments of all rows."""
    held = of.astype(np.float32)
    found = Moments.zeros(len(held))
    products = held @ held.T
    np.fill_diagonal(products, 0.0)
    found.add_rows(products, np.arange(len(held)))
    return found.limits(np.arange(len(held)), threshold)


def test_no_exponential_is_so_near_a_half_that_processors_could_round_it_apart() -> None:
    grains = np.arange(-(1 << 16), 1 << 16)
    exact = [math.expm1((grain * 256 + 127.5) / UNIT) * UNITS for grain in grains.tolist()]
    assert min(abs(value - math.floor(value) - 0.5) for value in exact) > 1e-7
    assert exponentials().tolist() == [round(value) for value in exact]


@pytest.mark.parametrize("threshold", [0.0, 1.0, 3.0])
def test_a_limit_is_the_mean_and_so_many_deviations_of_the_others(threshold: float) -> None:
    held = vectors(300, 1)
    products = held.astype(np.float64) @ held.T.astype(np.float64)
    similar = np.exp(products / UNIT)
    np.fill_diagonal(similar, np.nan)
    expected = np.log(np.nanmean(similar, axis=1) + threshold * np.nanstd(similar, axis=1))
    found = limits(held, threshold) / STEPS_PER_UNIT
    assert np.abs(found - expected).max() < GRAIN / STEPS_PER_UNIT
    assert (limits(held, threshold) % GRAIN == 0).all()


def test_what_is_taken_out_leaves_nothing_behind() -> None:
    held = vectors(90, 2).astype(np.float32)
    found = Moments.zeros(60)
    every = np.arange(60)
    found.add(held[60:] @ held[:60].T, every)
    assert found.sums.any()
    found.add(held[60:] @ held[:60].T, every, sign=-1)
    assert not found.sums.any()
    assert not found.squares.any()


def test_moments_are_added_to_the_columns_that_are_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    held = vectors(40, 3).astype(np.float32)
    products = held[:5] @ held.T
    whole, some = Moments.zeros(40), Moments.zeros(40)
    whole.add(products, np.arange(40))
    monkeypatch.setattr(zoom_moments, "_TILE", 7)
    chosen = np.array([0, 3, 6, 7, 20, 39])
    some.add(products, chosen)
    assert np.array_equal(some.sums[chosen], whole.sums[chosen])
    assert np.array_equal(some.squares[chosen], whole.squares[chosen])
    assert not np.delete(some.sums, chosen).any()


def test_estimated_limits_are_close_to_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    held = vectors(3_000, 5, dimension=64)
    exact = limits(held)
    whole = estimated_limits(held.astype(np.float32), 3.0)
    assert np.abs(whole - exact).max() <= 2 * GRAIN  # the sample is all
    monkeypatch.setattr(zoom_moments, "SAMPLE", 1_000)
    sampled = estimated_limits(held.astype(np.float32), 3.0)
    assert np.abs(sampled - exact).mean() < 0.03 * STEPS_PER_UNIT
    assert (sampled != whole).any()
