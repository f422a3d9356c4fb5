"""Concurrent questions, gathered into batches.

A question waits for nothing while a thread is free. While all are busy questions gather, and the next free thread takes
those that want the same retrieval, the group that waits longest first. So a batch is as large as the load makes it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from indexmill.serve.refusals import Busy
from indexmill.telemetry import current, span
from indexmill.text.counted import counted

W = TypeVar("W", bound=Hashable)
R = TypeVar("R")


@dataclass(slots=True)
class _Waiting(Generic[R]):
    question: str
    answer: asyncio.Future[tuple[R, int]]
    context: Context
    """Of the request, for its trace."""


class Batcher(Generic[W, R]):
    """Gathers questions; all methods are of one event loop.

    find: answers the questions of one way together, in a thread. most: questions of a batch. at_once: threads.
    waiting: questions that may wait. told: is called with each batch's size and seconds.
    """

    def __init__(
        self,
        find: Callable[[W, Sequence[str]], Sequence[R]],
        *,
        most: int,
        at_once: int,
        waiting: int,
        told: Callable[[int, float], None] | None = None,
    ) -> None:
        self._find, self._most, self._at_once, self._limit = find, most, at_once, waiting
        self._told = told or (lambda size, seconds: None)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="retrieve")
        self._groups: dict[W, deque[_Waiting[R]]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._due = False
        self.waiting = 0
        """The questions that wait for a thread."""

    async def ask(self, way: W, question: str) -> tuple[R, int]:
        """The result for a question, and the size of its batch; raises what ``find`` raises for it alone, and Busy."""
        if self.waiting >= self._limit:
            raise Busy(
                f"{counted(self.waiting, 'question is', 'questions are')} waiting already; try again in a moment"
            )
        loop = asyncio.get_running_loop()
        one: _Waiting[R] = _Waiting(question, loop.create_future(), copy_context())
        self._groups.setdefault(way, deque()).append(one)
        self.waiting += 1
        if not self._due:
            self._due = True
            loop.call_soon(self._start)  # after what has arrived at the same moment
        return await one.answer

    def close(self) -> None:
        """Let the threads go; what is running goes on."""
        self._threads.shutdown(wait=False)

    def _start(self) -> None:
        """Give free threads something to do."""
        self._due = False
        while self._groups and len(self._running) < self._at_once:
            way, batch = self._next()
            if batch:
                task = asyncio.get_running_loop().create_task(self._run(way, batch))
                self._running.add(task)

    def _next(self) -> tuple[W, list[_Waiting[R]]]:
        """The next batch: of the group at the front, which goes to the end if it has more; may be empty."""
        way = next(iter(self._groups))
        group = self._groups.pop(way)
        batch: list[_Waiting[R]] = []
        while group and len(batch) < self._most:
            one = group.popleft()
            self.waiting -= 1
            if not one.answer.done():  # its caller may have left
                batch.append(one)
        if group:
            self._groups[way] = group
        return way, batch

    async def _run(self, way: W, batch: Sequence[_Waiting[R]]) -> None:
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._threads, self._traced, way, batch)
        self._told(len(batch), time.perf_counter() - began)
        current = asyncio.current_task()
        if current is not None:
            self._running.discard(current)
        self._start()
        for one, result in zip(batch, results, strict=True):
            if one.answer.done():
                continue
            if isinstance(result, _Failed):
                one.answer.set_exception(result.error)
            else:
                one.answer.set_result((result, len(batch)))

    def _traced(self, way: W, batch: Sequence[_Waiting[R]]) -> Sequence[R | _Failed]:
        """The results of a batch, in the trace of its first question, linked to those of the others."""
        questions = [one.question for one in batch]
        if len(batch) == 1:
            return batch[0].context.run(self._each, way, questions)

        def find() -> Sequence[R | _Failed]:
            links = [one.context.run(current) for one in batch[1:]]
            with span("indexmill.batch", {"indexmill.retrieve.questions": len(batch)}, links=links, inner=True):
                return self._each(way, questions)

        return batch[0].context.run(find)

    def _each(self, way: W, questions: Sequence[str]) -> Sequence[R | _Failed]:
        """The result of each question; if they fail together, each is asked alone, so that one spoils no other."""
        try:
            return self._find(way, questions)
        except Exception as error:
            if len(questions) == 1:
                return [_Failed(error)]
        return [result for question in questions for result in self._each(way, [question])]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
