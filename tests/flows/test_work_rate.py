"""Rates, and the time that is left, of a stage: from work alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.work_rate import StageAtWork, WorkRate
from indexmill.models.progress import Items
from tests.deep import examples


def test_waiting_for_a_worker_is_no_work() -> None:
    stage = StageAtWork("embed", began=0.0, parts=4)
    stage.within(100.0, "a", 0.0, None)  # a worker begins after 100 seconds
    assert stage.worked(100.0) == 0.0
    for second in range(1, 11):
        stage.within(100.0 + second, "a", second / 10, None)
    stage.within(110.0, "a", None, None)
    stage.advance(110.0, 1)
    assert (stage.worked(110.0), stage.is_at_work) == (10.0, False)
    assert stage.worked(500.0) == 10.0  # the next part waits
    stage.within(500.0, "b", 0.0, None)
    assert stage.worked(501.0) == 11.0
    left = stage.seconds_left(501.0)
    assert left is not None
    assert left == pytest.approx(33, rel=0.15)  # three parts of ten seconds, hardly begun


def test_no_time_is_left_before_there_is_evidence() -> None:
    stage = StageAtWork("embed", began=0.0, parts=1)
    stage.within(0.0, "a", 0.0, None)
    assert stage.seconds_left(3600.0) is None  # nothing has moved
    stage.within(3600.0, "a", 0.1, None)  # a model was loaded
    assert stage.seconds_left(3604.0) is None
    stage.within(3610.0, "a", 0.2, None)
    assert stage.seconds_left(3610.0) == pytest.approx(80.0)


def test_parts_that_are_found_are_no_work() -> None:
    stage = StageAtWork("split", began=0.0, parts=100)
    stage.advance(0.0, 90)
    for number in range(5):
        stage.within(10.0 * number, f"{number}", 0.0, None)
        stage.within(10.0 * number + 10, f"{number}", None, None)
        stage.advance(10.0 * number + 10, 1)
    stage.within(50.0, "next", 0.0, None)
    assert stage.seconds_left(50.0) == pytest.approx(50.0, rel=0.1)  # five parts of ten seconds each, not 2 %


def test_work_that_nobody_sees_begin_counts_from_the_beginning_of_its_stage() -> None:
    stage = StageAtWork("copy", began=0.0, parts=100)
    for done in range(1, 21):
        stage.advance(float(done), 1)
    assert stage.seconds_left(20.0) == pytest.approx(80.0)


def test_items_are_of_so_many_only_once_every_part_has_said_how_many_it_has() -> None:
    stage = StageAtWork("embed", began=0.0, parts=2)
    assert stage.items() is None
    stage.within(1.0, "a", 0.5, Items(50, 100, "text"))
    assert stage.items() == Items(50, 0, "text")
    stage.within(2.0, "b", 0.1, Items(20, 200, "text", 3, 2, "busy"))
    stage.within(2.0, "a", 0.5, Items(50, 100, "text", 1))
    assert stage.items() == Items(70, 300, "text", 4, 2, "busy")
    stage.within(3.0, "a", None, None)
    stage.advance(3.0, 1)
    assert stage.items() == Items(120, 300, "text", 3, 2, "busy")  # what has ended was done to its end


def test_a_rate_follows_the_last_minute() -> None:
    pace = WorkRate()
    for second in range(200):
        pace.reached(float(second), second / 1000, 10 * second if second < 100 else 1000 + 2 * (second - 100))
    assert pace.items_per_second(199.0, 1198) == pytest.approx(2.0, rel=0.1)


@examples(20, deep=100)
@given(rates=st.lists(st.floats(0.0, 1.0), min_size=20, max_size=200), parts=st.integers(1, 1000))
def test_the_time_left_never_jumps(rates: list[float], parts: int) -> None:
    pace = WorkRate()
    finished, before = 0.0, None
    for second, rate in enumerate(rates):
        finished = min(finished + rate * parts / 100, parts)
        pace.reached(float(second), finished, 0)
        left = pace.seconds_left(float(second), finished, parts)
        assert left is None or left >= 0.0
        if before is not None and left is not None:
            assert left >= 0.87 * (before - 1.001)  # a second takes away itself, and no more than an eighth of the rest
        before = left


@examples(20, deep=100)
@given(seconds=st.integers(30, 1000), parts=st.integers(1, 50))
def test_steady_work_counts_down_steadily(seconds: int, parts: int) -> None:
    pace = WorkRate()
    told = []
    for second in range(seconds + 1):
        finished = parts * second / seconds
        pace.reached(float(second), finished, 0)
        told.append(pace.seconds_left(float(second), finished, parts))
    known = [left for left in told if left is not None]
    assert known == sorted(known, reverse=True)
    assert all(
        left is None or left == pytest.approx(seconds - second, abs=1e-6 * seconds) for second, left in enumerate(told)
    )
