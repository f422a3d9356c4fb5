"""Rates: the bound of any minute, and evenness."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tasks.llm.token_bucket import MINUTE, TokenBucket
from tests.deep import examples


def taken(limit: int, amounts: list[int], arrivals: list[float] | None = None) -> list[tuple[float, int]]:
    """When each amount is taken, one after the other, none before it arrives."""
    bucket, now, found = TokenBucket(limit), 0.0, []
    for number, amount in enumerate(amounts):
        now = max(now, arrivals[number] if arrivals else 0.0)
        while (wait := bucket.wait(amount, now)) > 0:
            now += max(wait, 0.001)
        bucket.take(str(number), amount, now)
        found.append((now, amount))
    return found


@examples(20, deep=100)
@given(
    st.integers(1, 1000),
    st.lists(st.tuples(st.integers(1, 1500), st.floats(0, 300)), min_size=1, max_size=40),
)
def test_no_minute_has_more_than_the_limit_unless_one_alone_has(limit: int, asked: list[tuple[int, float]]) -> None:
    times = taken(limit, [amount for amount, _ in asked], sorted(at for _, at in asked))
    for at, amount in times:
        within = sum(other for when, other in times if at - MINUTE + 1e-6 < when <= at)
        assert within <= limit or within == amount


def test_what_is_asked_for_at_once_is_spread_over_the_minute() -> None:
    times = [at for at, _ in taken(60, [1] * 130)]
    assert times[4] == 0.0  # five seconds' worth
    gaps = [later - earlier for earlier, later in pairwise(times[4:])]
    assert sum(gap > 1.1 for gap in gaps) <= 2
    assert 125 <= times[-1] <= 131


def test_what_was_not_used_may_be_used_by_others() -> None:
    bucket = TokenBucket(600)
    bucket.take("a", 600, 0.0)
    assert bucket.wait(600, 0.0) == MINUTE
    bucket.settle("a", 0)
    assert bucket.wait(600, 0.0) == 0.0
    bucket.take("b", 600, 0.0)
    assert bucket.wait(1, 61.0) <= 0.2
    bucket.settle("b", 100)  # long ago: no more than a full bucket comes of it
    bucket.take("c", 50, 61.0)
    assert bucket.wait(600, 61.0) > 0
