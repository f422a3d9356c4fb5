"""The graph of a run as it was driven: its steps, and the rounds in which they asked for work.

With the receipts of its parts (`storage.receipts.Work`), it is enough to play a run again on other workers.
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
    """One time that a driver asked workers for calls of a stage, and waited for all of them.

    number: of the round in its run. began: when the driver began to look for what is there. called: when it had the
    calls that are to be made. calls, seconds: those that workers made, and their work.
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
        """A worker made a call in so many seconds."""
        self.calls += 1
        self.seconds += seconds


_STEP: ContextVar[str] = ContextVar("step", default="")
"""The step that the current thread drives."""


class RunGraph:
    """The steps and rounds of a run. Safe to use from many threads.

    clock: seconds since the start of the run. A backfill runs steps in groups, each after all of the one before; other
    runs have one group.
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
        """The steps so far have ended; others follow."""
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
        """Record that the block asks for calls of a stage; what it yields is told when they are known, and of each."""
        with self._lock:
            number, self._numbers = self._numbers, self._numbers + 1
        found = Round(number, _STEP.get(), self._group, stage, self._clock())
        try:
            yield found
        finally:
            found.ended = self._clock()
            found.called = found.called or found.ended
            with self._lock:
                if len(self._rounds) < MOST_ROUNDS:
                    self._rounds.append(found)

    def calls_known(self, round_: Round) -> None:
        """The driver has the calls of a round, and hands them to the workers."""
        round_.called = self._clock()

    def to_json(self) -> dict[str, Any]:
        """The graph as the record of a run holds it.

        `steps`: `[name, needs, of_shards, group, began, ended]` in the order of their start; of `needs`, those that the
        run left out are no steps. `rounds`: `[number, step, group, stage, began, called, ended, calls, seconds]`.
        `left_out`: steps and rounds beyond the most.
        """
        with self._lock:
            steps = sorted(self._steps, key=lambda one: (one.group, one.began, one.name))
            rounds = sorted(self._rounds, key=lambda one: one.number)
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
