"""A micro-batcher: groups the single questions of many threads into batches.

A batch takes a quarter to a seventh of the time of separate calls, and can be divided among worker processes. A
question that arrives while no question of its kind is running starts immediately. Later questions wait and form the
next batch, which is run by the thread that has waited longest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from indexmill.forks import Lock, renew_in_children

R = TypeVar("R")


class _Waiting(Generic[R]):
    """A waiting thread's question. The thread wakes with an answer, a batch to run, or neither if its batch failed."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.awake = threading.Event()
        self.answers: list[R] = []
        """The answer, once there is one."""
        self.batch: list[_Waiting[R]] = []
        """The questions that the thread runs, starting with its own."""


class MicroBatcher(Generic[R]):
    """Groups questions into batches. Thread-safe; a forked child starts with no questions waiting."""

    def __init__(self, most: int) -> None:
        """Start with no questions. most: the maximum number of questions per batch."""
        self._most = most
        self._lock = Lock()
        self.after_fork()
        renew_in_children(self)

    def after_fork(self) -> None:
        self._lines: dict[Hashable, deque[_Waiting[R]]] = {}  # the queue of each running kind

    def ask(self, kind: Hashable, question: str, find: Callable[[Sequence[str]], Sequence[R]]) -> R:
        """Return the answer of ``find([question])``; questions of the same kind may share one call of ``find``."""
        waiting: _Waiting[R] = _Waiting(question)
        with self._lock:
            line = self._lines.get(kind)
            if line is None:
                self._lines[kind], waiting.batch = deque(), [waiting]
            else:
                line.append(waiting)
        if line is not None:
            try:
                waiting.awake.wait()
            except BaseException:  # Ctrl-C
                self._leave(kind, waiting)
                raise
        if waiting.batch:
            self._lead(kind, waiting.batch, find)
        # Without an answer the batch has failed: run each question separately, so that only the bad question fails.
        return waiting.answers[0] if waiting.answers else find([question])[0]

    def _lead(self, kind: Hashable, batch: Sequence[_Waiting[R]], find: Callable[[Sequence[str]], Sequence[R]]) -> None:
        """Run a batch and start the next. Raises what ``find`` raises for a single question."""
        try:
            results = find([waiting.question for waiting in batch])
            for waiting, answer in zip(batch, results, strict=True):
                waiting.answers.append(answer)
        except Exception:
            if len(batch) == 1:
                raise
        finally:
            self._go_on(kind, batch)

    def _go_on(self, kind: Hashable, batch: Sequence[_Waiting[R]]) -> None:
        """Wake the threads of a finished batch, and the thread that runs the next batch."""
        with self._lock:
            line = self._lines.get(kind)
            if line:
                leader = line[0]
                leader.batch = [line.popleft() for _ in range(min(self._most, len(line)))]
                leader.awake.set()
            else:
                self._lines.pop(kind, None)
        for waiting in batch[1:]:
            waiting.awake.set()

    def _leave(self, kind: Hashable, waiting: _Waiting[R]) -> None:
        """Remove a thread that stops waiting."""
        with self._lock:
            line = self._lines.get(kind, deque())
            if waiting in line:
                line.remove(waiting)
        if waiting.batch:  # it had just been woken to run a batch
            self._go_on(kind, waiting.batch)
