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
    def run() -> None:
        with stoppable():
            term()
            pytest.fail("not raised")

    with pytest.raises(KeyboardInterrupt):
        run()


def test_a_signal_stops_the_stages_and_is_raised_when_they_have_ended() -> None:
    build: Any = _Stopped()
    done: list[str] = []

    def run() -> None:
        with stoppable() as interrupt, interrupt.stops(cast(Build, build)):
            term()
            done.append("stage")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert (build.stops, done) == (1, ["stage"])


def test_after_the_stages_the_first_signal_changes_nothing_and_the_second_is_raised() -> None:
    build: Any = _Stopped()
    before = signal.getsignal(signal.SIGTERM)
    done: list[str] = []

    def run() -> None:
        with stoppable() as interrupt:
            with interrupt.stops(cast(Build, build)):
                pass
            term()
            done.append("commit")
            term()
            done.append("more")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert (done, build.stops) == (["commit"], 0)
    assert signal.getsignal(signal.SIGTERM) is before


def test_stages_that_begin_again_after_a_signal_do_not() -> None:
    build: Any = _Stopped()

    def run() -> None:
        with stoppable() as interrupt:
            with interrupt.stops(cast(Build, build)):
                pass
            term()
            with interrupt.stops(cast(Build, build)):
                pytest.fail("begun")

    with pytest.raises(KeyboardInterrupt):
        run()
