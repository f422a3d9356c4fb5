"""Single questions of many threads, gathered into batches.

A batch costs a quarter to a seventh of its questions asked alone, and helper processes share it. A thread that asks
while no other does is answered at once. Questions that arrive while others of their kind are being answered wait, and
go together in the next batch, led by the thread that has waited longest.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

from indexmill.forks import Lock, renew_in_children

R = TypeVar("R")


class _Waiting(Generic[R]):
    """A question of a waiting thread, which wakes with an answer, with a batch to lead, or with neither."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.awake = threading.Event()
        self.answers: list[R] = []
        """Its answer, once there is one."""
        self.batch: list[_Waiting[R]] = []
        """The questions that its thread leads, its own first."""


class Gatherer(Generic[R]):
    """Gathers questions. Thread-safe; a forked child begins anew."""

    def __init__(self, most: int) -> None:
        """most: the questions of a batch."""
        self._most = most
        self._lock = Lock()
        self.after_fork()
        renew_in_children(self)

    def after_fork(self) -> None:
        """See ``Renewable``."""
        self._lines: dict[Hashable, deque[_Waiting[R]]] = {}  # of each kind that is being answered, who waits

    def ask(self, kind: Hashable, question: str, find: Callable[[Sequence[str]], Sequence[R]]) -> R:
        """The answer to a question: what ``find([question])`` returns for it, or raises.

        kind: questions of equal kinds may go together to the ``find`` of any of them.
        """
        own: _Waiting[R] = _Waiting(question)
        with self._lock:
            line = self._lines.get(kind)
            if line is None:
                self._lines[kind], own.batch = deque(), [own]
            else:
                line.append(own)
        if line is not None:
            try:
                own.awake.wait()
            except BaseException:  # Ctrl-C
                self._leave(kind, own)
                raise
        if own.batch:
            self._lead(kind, own.batch, find)
        # Without an answer the batch has failed: each of its questions is asked alone, so that one spoils no other.
        return own.answers[0] if own.answers else find([question])[0]

    def _lead(self, kind: Hashable, batch: Sequence[_Waiting[R]], find: Callable[[Sequence[str]], Sequence[R]]) -> None:
        """Answer a batch, and let the others go on. Raises what ``find`` raises for a single question."""
        try:
            found = find([one.question for one in batch])
            for one, answer in zip(batch, found, strict=True):
                one.answers.append(answer)
        except Exception:
            if len(batch) == 1:
                raise
        finally:
            self._go_on(kind, batch)

    def _go_on(self, kind: Hashable, batch: Sequence[_Waiting[R]]) -> None:
        """Wake those whose batch is over, and the one that leads the next."""
        with self._lock:
            line = self._lines.get(kind)
            if line:
                leader = line[0]
                leader.batch = [line.popleft() for _ in range(min(self._most, len(line)))]
                leader.awake.set()
            else:
                self._lines.pop(kind, None)
        for one in batch[1:]:
            one.awake.set()

    def _leave(self, kind: Hashable, own: _Waiting[R]) -> None:
        """Give up waiting."""
        with self._lock:
            line = self._lines.get(kind, deque())
            if own in line:
                line.remove(own)
        if own.batch:  # it had just been woken to lead
            self._go_on(kind, own.batch)
