"""A micro-batcher of concurrent questions.

While a thread is free, a question starts immediately. While all threads are busy, questions queue in groups with the
same retrieval options, and the next free thread takes the group that has waited longest. So batches grow with the load.
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

from indexmill.serve.rejections import Busy
from indexmill.telemetry import current, span
from indexmill.text.counted import counted

W = TypeVar("W", bound=Hashable)
R = TypeVar("R")


@dataclass(slots=True)
class _Waiting(Generic[R]):
    question: str
    answer: asyncio.Future[tuple[R, int]]
    context: Context
    """The context of the request, for its trace."""


class QuestionBatcher(Generic[W, R]):
    """Batches questions; call all methods from one event loop.

    find: runs one retrieval for a batch of questions, in a thread. most: the maximum number of questions in a batch.
    at_once: the number of threads. waiting: the maximum number of waiting questions. on_batch: called with a batch's
    size and its duration in seconds.
    """

    def __init__(
        self,
        find: Callable[[W, Sequence[str]], Sequence[R]],
        *,
        most: int,
        at_once: int,
        waiting: int,
        on_batch: Callable[[int, float], None] | None = None,
    ) -> None:
        self._find, self._most, self._at_once, self._limit = find, most, at_once, waiting
        self._on_batch = on_batch or (lambda size, seconds: None)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="retrieve")
        self._groups: dict[W, deque[_Waiting[R]]] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._due = False
        self.waiting = 0
        """The number of questions that wait for a thread."""

    async def ask(self, retrieval: W, question: str) -> tuple[R, int]:
        """Return a question's result and its batch's size. Raises Busy, and errors of ``find`` for the question."""
        if self.waiting >= self._limit:
            raise Busy(
                f"{counted(self.waiting, 'question is', 'questions are')} waiting already; try again in a moment"
            )
        loop = asyncio.get_running_loop()
        waiting_question: _Waiting[R] = _Waiting(question, loop.create_future(), copy_context())
        self._groups.setdefault(retrieval, deque()).append(waiting_question)
        self.waiting += 1
        if not self._due:
            self._due = True
            loop.call_soon(self._start)  # after other questions that arrive at the same time
        return await waiting_question.answer

    def close(self) -> None:
        """Stop the threads after their current batches."""
        self._threads.shutdown(wait=False)

    def _start(self) -> None:
        self._due = False
        while self._groups and len(self._running) < self._at_once:
            retrieval, batch = self._next()
            if batch:
                task = asyncio.get_running_loop().create_task(self._run(retrieval, batch))
                self._running.add(task)

    def _next(self) -> tuple[W, list[_Waiting[R]]]:
        """Take the next, possibly empty batch from the first group, which moves to the end if questions remain."""
        retrieval = next(iter(self._groups))
        group = self._groups.pop(retrieval)
        batch: list[_Waiting[R]] = []
        while group and len(batch) < self._most:
            waiting_question = group.popleft()
            self.waiting -= 1
            if not waiting_question.answer.done():  # its caller may have disconnected
                batch.append(waiting_question)
        if group:
            self._groups[retrieval] = group
        return retrieval, batch

    async def _run(self, retrieval: W, batch: Sequence[_Waiting[R]]) -> None:
        began = time.perf_counter()
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._threads, self._traced, retrieval, batch)
        self._on_batch(len(batch), time.perf_counter() - began)
        current = asyncio.current_task()
        if current is not None:
            self._running.discard(current)
        self._start()
        for waiting_question, result in zip(batch, results, strict=True):
            if waiting_question.answer.done():
                continue
            if isinstance(result, _Failed):
                waiting_question.answer.set_exception(result.error)
            else:
                waiting_question.answer.set_result((result, len(batch)))

    def _traced(self, retrieval: W, batch: Sequence[_Waiting[R]]) -> Sequence[R | _Failed]:
        """Run a batch in the trace of its first question, linked to the traces of the others."""
        questions = [waiting_question.question for waiting_question in batch]
        if len(batch) == 1:
            return batch[0].context.run(self._each, retrieval, questions)

        def find() -> Sequence[R | _Failed]:
            links = [waiting_question.context.run(current) for waiting_question in batch[1:]]
            with span("indexmill.batch", {"indexmill.retrieve.questions": len(batch)}, links=links, inner=True):
                return self._each(retrieval, questions)

        return batch[0].context.run(find)

    def _each(self, retrieval: W, questions: Sequence[str]) -> Sequence[R | _Failed]:
        """Return the result of each question; if the batch fails, run each question alone."""
        try:
            return self._find(retrieval, questions)
        except Exception as error:
            if len(questions) == 1:
                return [_Failed(error)]
        return [result for question in questions for result in self._each(retrieval, [question])]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
