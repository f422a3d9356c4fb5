"""Signals before, while and after the stages of a build are at work."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.interrupt import STOPPING, Interrupt
from flows.operation import operation
from storage import runs
from storage.folder import init_folder


class _Stopped:
    def __init__(self) -> None:
        self.stops = 0
        self.executor = self

    def stop(self) -> None:
        self.stops += 1


@contextlib.contextmanager
def stopped_by_signals(tell: Callable[[str], None] = lambda message: None) -> Iterator[Interrupt]:
    interrupt = Interrupt(tell)
    with interrupt.installed():
        yield interrupt


def term() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def term_in_callback() -> None:
    """Send a signal in a callback, where Python ignores what its handler raises."""
    objects = {1}
    reference = weakref.ref(objects, lambda _: term())
    del objects
    assert reference() is None


def test_before_the_stages_a_signal_is_raised_at_once() -> None:
    def run() -> None:
        with stopped_by_signals():
            term()
            pytest.fail("not raised")

    with pytest.raises(KeyboardInterrupt):
        run()


def test_an_interrupt_that_a_callback_loses_is_raised_again(capsys: pytest.CaptureFixture[str]) -> None:
    messages: list[str] = []

    def run() -> None:
        with stopped_by_signals(messages.append):
            term_in_callback()
            time.sleep(10)

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        run()
    assert len(messages) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_an_interrupt_that_a_callback_loses_does_not_end_the_record_of_a_run() -> None:
    build: Any = _Stopped()
    done: list[str] = []

    def run() -> None:
        with stopped_by_signals() as interrupt:
            term_in_callback()
            try:
                with interrupt.stops(build):
                    pytest.fail("stages began")
            finally:
                time.sleep(0.2)
                done.append("recorded")

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        run()
    assert (build.stops, done) == (0, ["recorded"])


def test_a_second_signal_that_a_callback_loses_is_raised_while_stages_are_at_work() -> None:
    build: Any = _Stopped()

    def run() -> None:
        with stopped_by_signals() as interrupt, interrupt.stops(build):
            term()
            term_in_callback()
            time.sleep(10)
            pytest.fail("not raised")

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        run()


def test_an_interrupt_that_a_library_turned_into_an_error_is_raised_again() -> None:
    def run() -> None:
        with stopped_by_signals():
            try:
                term()
            except KeyboardInterrupt as error:
                raise ValueError("cannot serialise") from error

    with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
        run()


def test_an_error_without_a_signal_stays() -> None:
    with pytest.raises(ValueError, match="damaged"), stopped_by_signals():
        raise ValueError("damaged")


def test_a_signal_stops_the_stages_and_is_raised_when_they_have_ended() -> None:
    build: Any = _Stopped()
    done: list[str] = []

    def run() -> None:
        with stopped_by_signals() as interrupt, interrupt.stops(build):
            term()
            done.append("stage")

    with pytest.raises(KeyboardInterrupt):
        run()
    assert (build.stops, done) == (1, ["stage"])


def test_a_first_signal_tells_at_once_what_it_does() -> None:
    told: list[str] = []
    build: Any = _Stopped()

    def run(number: int) -> None:
        with stopped_by_signals(told.append) as interrupt, interrupt.stops(build):
            os.kill(os.getpid(), number)
            told.append("a stage ends")

    for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGINT, "Ctrl-C")):
        with pytest.raises(KeyboardInterrupt, match=name):
            run(number)
    assert told == [
        f"interrupted: {STOPPING}; a second signal ends it at once",
        "a stage ends",
        f"interrupted: {STOPPING}; Ctrl-C again ends it at once",
        "a stage ends",
    ]


def test_a_signal_after_the_stages_is_told_that_the_run_is_complete() -> None:
    told: list[str] = []
    build: Any = _Stopped()
    with stopped_by_signals(told.append) as interrupt:
        with interrupt.stops(build):
            pass
        term()
    assert told == ["interrupted: the run is complete and is being recorded; a second signal ends it at once"]


@pytest.mark.parametrize(("error", "by"), [(KeyboardInterrupt(), "Ctrl-C"), (KeyboardInterrupt("SIGTERM"), "SIGTERM")])
def test_an_interrupted_run_is_recorded_as_such(tmp_path: Path, error: KeyboardInterrupt, by: str) -> None:
    store = init_folder(tmp_path / "store")
    with pytest.raises(KeyboardInterrupt), operation(store, "build"):
        raise error
    (run,) = runs.list_runs(store)
    assert run.end is not None
    assert (run.state, run.end.exit_code) == ("interrupted", 130)
    assert run.end.error == f"interrupted by {by}: finished parts are kept, the next run continues"


def test_after_the_stages_the_first_signal_changes_nothing_and_the_second_is_raised() -> None:
    build: Any = _Stopped()
    before = signal.getsignal(signal.SIGTERM)
    done: list[str] = []

    def run() -> None:
        with stopped_by_signals() as interrupt:
            with interrupt.stops(build):
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
        with stopped_by_signals() as interrupt:
            with interrupt.stops(build):
                pass
            term()
            with interrupt.stops(build):
                pytest.fail("begun")

    with pytest.raises(KeyboardInterrupt):
        run()
