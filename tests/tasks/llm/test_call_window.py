"""The number of calls at once that an endpoint gets."""

from __future__ import annotations

import heapq
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.llm.call_window import CallWindow, Outcome
from tests.deep import examples


def end(window: CallWindow, outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        while not window.is_full():
            window.begin()
        window.end(outcome)


def test_the_window_doubles_while_calls_are_answered_and_then_grows_by_one() -> None:
    window = CallWindow()
    sizes = []
    for _ in range(3):
        end(window, ["answered"] * max(window.size, 4))
        sizes.append(window.size)
    assert sizes == [4, 8, 16]
    end(window, ["overloaded"] * 16)
    end(window, ["overloaded"] * 15)  # of calls that began before
    assert window.size == 8
    end(window, ["answered"] * 8 * 5)
    assert window.size == 8
    end(window, ["answered"] * 8)
    assert window.size == 9


def test_a_prompt_that_is_never_answered_slows_no_others_down() -> None:
    window = CallWindow(8)
    end(window, ["overloaded", *["answered"] * 7])
    assert window.size > 8


def test_one_full_endpoint_of_two_calls_proves_nothing() -> None:
    window = CallWindow()
    end(window, ["overloaded", "answered", "answered", "answered"])
    assert window.size == 4
    end(window, ["overloaded", "overloaded", "answered", "answered"])
    assert window.size == 2


def test_calls_that_wait_in_a_queue_widen_nothing() -> None:
    window = CallWindow(4)
    end(window, ["queued"] * 4)
    assert window.size == 4


def test_a_window_that_limits_nothing_does_not_grow() -> None:
    window = CallWindow(4)
    for _ in range(12):
        assert not window.is_full()
        window.begin()
        window.end("answered")
    assert window.size == 4


@examples(20, deep=200)
@given(st.lists(st.sampled_from(get_args(Outcome)), max_size=300))
def test_a_window_is_never_closed(outcomes: list[Outcome]) -> None:
    window = CallWindow()
    for outcome in outcomes:
        while not window.is_full():
            window.begin()
        assert window.running >= window.size >= 1
        window.end(outcome)


@pytest.mark.parametrize(("slots", "seconds", "timeout"), [(2, 40.0, 60.0), (1, 90.0, 60.0), (8, 5.0, 60.0)])
def test_an_endpoint_with_few_slots_answers_all_prompts(slots: int, seconds: float, timeout: float) -> None:
    """A call waits for a slot, at most as long as the timeout; the others wait for the window."""
    window, clock, sent = CallWindow(), 0.0, 0
    waiting, free = 64, [0.0] * slots
    running: list[tuple[float, Outcome]] = []
    while waiting or running:
        while waiting and not window.is_full():
            window.begin()
            waiting, sent = waiting - 1, sent + 1
            begins = max(clock, min(free))
            if begins - clock > timeout:
                heapq.heappush(running, (clock + timeout, "overloaded"))
                continue
            free[free.index(min(free))] = begins + seconds
            outcome: Outcome = "queued" if begins - clock > timeout / 4 else "answered"
            heapq.heappush(running, (begins + seconds, outcome))
        clock, outcome = heapq.heappop(running)
        waiting += outcome == "overloaded"
        window.end(outcome)
    assert sent - 64 <= 12  # calls that were given up
    assert clock <= 1.3 * 64 * seconds / slots + 3 * timeout  # the slots had work nearly all the time
