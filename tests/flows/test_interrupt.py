"""Signals before, while and after the stages of a build are at work."""

from __future__ import annotations

import os
import signal
from typing import Any, cast

import pytest

from flows.interrupt import stoppable
from tasks.build import Build


class _Stopped:
    def __init__(self) -> None:
        self.stops = 0
        self.executor = self

    def stop(self) -> None:
        self.stops += 1


def term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_before_the_stages_a_signal_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), stoppable():
        term()
        pytest.fail("not raised")


def test_a_signal_stops_the_stages_and_is_raised_when_they_have_ended() -> None:
    build: Any = _Stopped()
    done = False
    with pytest.raises(KeyboardInterrupt), stoppable() as interrupt, interrupt.stops(cast(Build, build)):
        term()
        done = True
    assert (build.stops, done) == (1, True)


def test_after_the_stages_the_first_signal_changes_nothing_and_the_second_is_raised() -> None:
    build: Any = _Stopped()
    before = signal.getsignal(signal.SIGTERM)
    committed = False
    with pytest.raises(KeyboardInterrupt), stoppable() as interrupt:
        with interrupt.stops(cast(Build, build)):
            pass
        term()
        committed = True
        term()
        pytest.fail("not raised")
    assert (committed, build.stops) == (True, 0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_stages_that_begin_again_after_a_signal_do_not() -> None:
    build: Any = _Stopped()
    with pytest.raises(KeyboardInterrupt), stoppable() as interrupt:
        with interrupt.stops(cast(Build, build)):
            pass
        term()
        with interrupt.stops(cast(Build, build)):
            pytest.fail("begun")
