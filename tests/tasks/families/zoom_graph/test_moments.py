"""Exponentials by a table, and limits that are exact or estimated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from indexmill.families.zoom_graph.similar import STEPS_PER_UNIT
from indexmill.retrieve.grid import UNIT
from tasks.families.zoom_graph import moments as zoom_moments
from tasks.families.zoom_graph.moments import (
    GRAIN,
    REMAINDER_UNITS,
    UNITS,
    Moments,
    Polynomials,
    exponentials,
    remainders,
)
from tests.tasks.families.zoom_graph.linked_rows import vectors


def limits(of: np.ndarray, threshold: float = 3.0) -> np.ndarray:
    """From the moments of all rows."""
    held = of.astype(np.float32)
    found = Moments.zeros(len(held))
    products = held @ held.T
    np.fill_diagonal(products, 0.0)
    found.add_rows(products, np.arange(len(held)))
    return found.limits(np.arange(len(held)), threshold)


def estimated(of: np.ndarray, sample: int, threshold: float = 3.0) -> np.ndarray:
    """From the moments of the polynomials, and of what they leave in a sample."""
    held = of.astype(np.float32)
    products = held @ held.T
    np.fill_diagonal(products, 0.0)
    left, every = Moments.zeros(len(held), sampled=True), np.arange(len(held))
    left.add_rows(products[:, :sample], every)
    return Polynomials(of, sample).limits(left, every, threshold)


def test_no_exponential_is_so_near_a_half_that_processors_could_round_it_apart() -> None:
    grains = np.arange(-(1 << 16), 1 << 16)
    exact = [math.expm1((grain * 256 + 127.5) / UNIT) * UNITS for grain in grains.tolist()]
    assert min(abs(value - math.floor(value) - 0.5) for value in exact) > 1e-7
    assert exponentials().tolist() == [round(value) for value in exact]


def test_nor_is_any_remainder() -> None:
    cosines = [(grain * 256 + 127.5) / UNIT for grain in range(-(1 << 16), 1 << 16)]
    for table, exact in zip(
        remainders(),
        (
            [math.expm1(one) - one - one * one / 2 for one in cosines],
            [math.expm1(one) ** 2 - one * one for one in cosines],
        ),
        strict=True,
    ):
        values = [value * REMAINDER_UNITS for value in exact]
        assert min(abs(value - math.floor(value) - 0.5) for value in values) > 1e-9
        assert table.tolist() == [round(value) for value in values]


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


@pytest.mark.parametrize("sampled", [False, True])
def test_moments_are_stored_as_they_are(sampled: bool) -> None:
    held = vectors(50, 4).astype(np.float32)
    found = Moments.zeros(50, sampled)
    found.add_rows(-(held @ held[:20].T), np.arange(50))
    assert (found.sums < 0).any()
    stored = found.stored(20)
    assert min(one.min() for one in stored) >= 0
    again = Moments.of_stored(*stored, 20, sampled)
    assert np.array_equal(again.sums, found.sums)
    assert np.array_equal(again.squares, found.squares)


@pytest.mark.slow
def test_estimated_limits_are_close_to_the_exact_ones() -> None:
    held = vectors(3_000, 5, dimension=64)
    exact, whole, sampled = limits(held), estimated(held, 3_000), estimated(held, 1_000)
    assert np.abs(whole - exact).max() <= 2 * GRAIN  # the sample is all
    assert np.abs(sampled - exact).mean() < 0.03 * STEPS_PER_UNIT
    assert (sampled != whole).any()
