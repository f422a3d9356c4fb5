"""A limit to bytes per second."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

import pytest

from indexmill.store.byte_rate import UNLIMITED, ByteRateLimit, TransferStopped


class Time:
    """A clock that moves by sleeping alone."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_wait_for_those_before_them() -> None:
    clock = Time()
    pace = ByteRateLimit(100, clock, clock.sleep)
    begun = []
    for size in (50, 100, 1, 0, 200):
        pace.wait(size)
        begun.append(clock.now - 100)
    assert begun == pytest.approx([0, 0.5, 1.5, 1.51, 1.51])
    clock.now = 200
    pace.wait(10)
    pace.wait(10)
    assert clock.now == pytest.approx(200.1)  # time without any bytes is not made up for


def test_a_file_comes_in_pieces_at_the_pace() -> None:
    clock = Time()
    assert list(ByteRateLimit(10, clock, clock.sleep).pieces(io.BytesIO(b"abcdefg"), 3)) == [b"abc", b"def", b"g"]
    assert clock.now == pytest.approx(100.6)


def test_a_stop_wakes_those_who_wait() -> None:
    pace = ByteRateLimit(1)
    pace.wait(1000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(pace.wait, 1)
        pace.stop()
        with pytest.raises(TransferStopped):
            waiting.result(10)
    with pytest.raises(TransferStopped):
        pace.wait(0)


def test_nobody_waits_without_a_limit() -> None:
    clock = Time()
    ByteRateLimit(clock=clock, sleep=clock.sleep).wait(1 << 60)
    assert clock.now == 100
    assert not UNLIMITED.limited
    for rate in (0, -1):
        with pytest.raises(ValueError, match="expected more than 0"):
            ByteRateLimit(rate)
