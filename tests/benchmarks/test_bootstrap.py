"""Intervals of paired differences, small enough to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.bootstrap import MeanDifference, counts_of, difference


def test_equal_differences_leave_no_doubt() -> None:
    found = difference([1.0, 0.5, 0.75], [0.75, 0.25, 0.5])
    assert found == pytest.approx((0.25, 0.25, 0.25))
    assert found.is_clear
    assert str(found) == "+0.250 [+0.250, +0.250]"


def test_two_questions_give_three_means() -> None:
    # A resample of two draws (0, 0), (0, 1), (1, 0) or (1, 1): means of 0, 1/2, 1/2, 1, a quarter of each. So the
    # 2.5th percentile is 0 and the 97.5th is 1.
    found = difference([1.0, 0.0], [0.0, 0.0])
    assert found == (0.5, 0.0, 1.0)
    assert not found.is_clear
    means = counts_of(2) @ np.array([1.0, 0.0]) / 2
    shares = [float((means == value).mean()) for value in (0.0, 0.5, 1.0)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.04)


def test_pairs_count_and_not_the_spread_of_either() -> None:
    values = [0.0, 1.0] * 50
    assert difference(values, values) == (0.0, 0.0, 0.0)
    assert difference([one + 0.1 for one in values], values).is_clear


def test_an_interval_is_as_wide_as_theory_says() -> None:
    # Of n differences of 0 or 1, half of each, the mean has the standard error 1 / (2 sqrt(n)).
    found = difference([0.0, 1.0] * 200, [0.0] * 400)
    assert (found.low, found.high) == pytest.approx((0.5 - 1.96 * 0.025, 0.5 + 1.96 * 0.025), abs=0.005)


def test_the_same_questions_are_drawn_each_time() -> None:
    assert counts_of(7).sum(axis=1).tolist() == [7.0] * 2_000
    assert counts_of(7) is counts_of(7)
    again = counts_of.__wrapped__(7)
    assert (again == counts_of(7)).all()
    assert MeanDifference(-0.02, -0.03, -0.01).is_clear
