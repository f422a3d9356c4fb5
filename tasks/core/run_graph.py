"""The graph of a run as it was driven: its steps, and the rounds in which they requested work.

With the receipts of its parts (`storage.receipts.Work`), it suffices to simulate the run on other workers.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

MOST_ROUNDS = 2_000
"""The most rounds, and the most steps, that the record of a run holds: a backfill has ten of each in a wave."""


@dataclass(slots=True)
class _DrivenStep:
    name: str
    needs: tuple[str, ...]
    of_shards: bool
    group: int
    began: float
    ended: float


@dataclass(slots=True)
class Round:
    """One batch of calls of a stage that a driver handed to workers and waited for.

    number: of the round in its run. began: when the driver began to search for existing parts. called: when it knew the
    missing calls. calls, seconds: the calls that workers made, and their work.
    """

    number: int
    step: str
    group: int
    stage: str
    began: float
    called: float = 0.0
    ended: float = 0.0
    calls: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count a call that took a worker so many seconds."""
        self.calls += 1
        self.seconds += seconds


_STEP: ContextVar[str] = ContextVar("step", default="")
"""The step that the current thread drives."""


class RunGraph:
    """The steps and rounds of a run. Safe to use from many threads.

    clock: seconds since the start of the run. A backfill runs steps in groups, one group after the other; other runs
    have one group.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._steps: list[_DrivenStep] = []
        self._rounds: list[Round] = []
        self._group = 0
        self._numbers = 0
        self._steps_left_out = 0
        self._lock = threading.Lock()

    def begin_group(self) -> None:
        """Begin another group of steps; those so far have ended."""
        with self._lock:
            self._group += 1

    @contextlib.contextmanager
    def step(self, name: str, needs: Sequence[str], *, of_shards: bool) -> Iterator[None]:
        """Record the step that the block drives."""
        began, group = self._clock(), self._group
        token = _STEP.set(name)
        try:
            yield
        finally:
            _STEP.reset(token)
            with self._lock:
                if len(self._steps) < MOST_ROUNDS:
                    self._steps.append(_DrivenStep(name, tuple(needs), of_shards, group, began, self._clock()))
                else:
                    self._steps_left_out += 1

    @contextlib.contextmanager
    def round(self, stage: str) -> Iterator[Round]:
        """Record a round of calls of a stage; the block adds each call to the yielded Round (see `calls_known`)."""
        with self._lock:
            number, self._numbers = self._numbers, self._numbers + 1
        round_ = Round(number, _STEP.get(), self._group, stage, self._clock())
        try:
            yield round_
        finally:
            round_.ended = self._clock()
            round_.called = round_.called or round_.ended
            with self._lock:
                if len(self._rounds) < MOST_ROUNDS:
                    self._rounds.append(round_)

    def calls_known(self, round_: Round) -> None:
        """Record that the driver knows the calls of a round and hands them to the workers."""
        round_.called = self._clock()

    def to_json(self) -> dict[str, Any]:
        """The graph in the form of the run's record.

        `steps`: `[name, needs, of_shards, group, began, ended]` in the order of their start; `needs` may name steps
        that the run left out. `rounds`: `[number, step, group, stage, began, called, ended, calls, seconds]`.
        `left_out`: the number of steps and rounds beyond MOST_ROUNDS.
        """
        with self._lock:
            steps = sorted(self._steps, key=lambda step: (step.group, step.began, step.name))
            rounds = sorted(self._rounds, key=lambda round_: round_.number)
            left_out = self._steps_left_out + self._numbers - len(rounds)
        return {
            "steps": [
                [one.name, list(one.needs), one.of_shards, one.group, round(one.began, 3), round(one.ended, 3)]
                for one in steps
            ],
            "rounds": [
                [one.number, one.step, one.group, one.stage]
                + [round(moment, 3) for moment in (one.began, one.called, one.ended)]
                + [one.calls, round(one.seconds, 3)]
                for one in rounds
            ],
            "left_out": left_out,
        }
