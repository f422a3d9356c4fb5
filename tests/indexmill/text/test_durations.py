"""Lengths of time, and the time before a line."""

from __future__ import annotations

import pytest

from indexmill.text.durations import duration, in_short, stamp, stamps_wanted


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.0, "0.0 s"),
        (0.449, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (192.0, "3 min 12 s"),
        (3599.6, "1 h 00 min"),
        (3780.0, "1 h 03 min"),
        (86_399.0, "1 d 00 h"),
        (90_000.0, "1 d 01 h"),
    ],
)
def test_a_duration_is_told_as_people_tell_it(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_an_estimate_is_told_shortly() -> None:
    assert [in_short(seconds) for seconds in (4.2, 89.0, 600.0, 9000.0)] == ["4 s", "89 s", "10 min", "2.5 h"]


def test_the_time_is_utc_and_to_the_second() -> None:
    assert stamp(lambda: 1_767_225_607.9) == "2026-01-01T00:00:07Z"
    assert [stamps_wanted({"INDEXMILL_TIMESTAMPS": value}) for value in ("1", "0", "")] == [True, False, False]
    assert not stamps_wanted({})
