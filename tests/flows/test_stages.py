"""Stages in threads: which failure counts."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from flows.stages import Stages
from tasks.core.executor import StoppedError
from tasks.core.step import Step
from tasks.pipeline.build import Build


class Failing:
    """A build of two stages: one is stopped by what has failed in the other, before that says so."""

    def __init__(self) -> None:
        self.executor: Any = self
        self.stops: list[bool] = []
        self._stopped = threading.Event()
        self._ended = threading.Event()

    def stop(self, *, at_once: bool = True) -> None:
        self.stops.append(at_once)
        self._ended.set()

    def asks(self) -> None:
        self._stopped.set()
        self._ended.wait(10)
        raise ValueError("why it ended")

    def waits(self) -> None:
        self._stopped.wait(10)
        raise StoppedError


def test_what_ended_the_asking_is_raised_and_not_that_others_were_stopped_by_it() -> None:
    build = Failing()
    with pytest.raises(ValueError, match="why it ended"):
        Stages(cast(Build, build), [Step("asks", Failing.asks), Step("waits", Failing.waits)]).wait()
    assert build.stops == [False, False]
