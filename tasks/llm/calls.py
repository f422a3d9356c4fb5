"""Paid calls: within the quota, under one layer of retries, and counted whatever their outcome.

If a call fails permanently, no more calls of its group start; calls in flight finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from indexmill.errors import IndexmillError
from indexmill.models.llm import Completion
from indexmill.models.llm_errors import LlmError
from indexmill.text.counted import counted
from tasks.llm.call_window import Outcome
from tasks.llm.quota import Quota

Sleep = Callable[[float], Awaitable[None]]

_FIRST_WAIT, _LONGEST_WAIT = 0.5, 60.0  # maximum seconds before a retry, if the endpoint names none

USELESS = 3
"""The number of useless answers after which a request, or a run without good answers, is given up."""

_T = TypeVar("_T")


class Billed(Protocol):
    """An answer with its cost in tokens."""

    @property
    def input_tokens(self) -> int: ...
    @property
    def output_tokens(self) -> int: ...


_B = TypeVar("_B", bound=Billed)


class CallsEnded(Exception):
    """No more calls may start, because a different call of the group has failed permanently."""


@dataclass
class RequestCost:
    """The cost of one request so far, and the seconds for which it waited for the quota."""

    input_tokens: int = 0
    output_tokens: int = 0
    attempts: int = 0
    queued: float = 0.0
    useless: int = 0  # number of useless answers


@dataclass(kw_only=True)
class PaidCalls:
    """Calls in one event loop.

    counts: the report's counts, named with `prefix`. section: the section of the settings that messages name.
    timeout_seconds: the timeout of a call; one that waited a quarter of it for its first token was in a queue.
    """

    quota: Quota
    timeout_seconds: float
    deadline_seconds: float
    sleep: Sleep
    section: str = "llm"
    prefix: str = "llm_"
    counts: Counter[str]
    failure: Exception | None = None
    answer_count: int = 0  # calls that returned an answer, good or bad
    in_flight: int = 0
    retrying: int = 0
    reason: str = ""  # why the last failed call failed
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    def report(self) -> None:
        """Report the progress, also of calls in flight; called whenever one begins, fails or is sent again."""

    def fail(self, error: Exception) -> None:
        """Start no more calls; the first error counts."""
        if self.failure is None:
            self.failure = error
        self.stop.set()

    async def each(self, items: Iterable[_T], handle: Callable[[_T], Awaitable[None]], workers: int) -> None:
        """Handle items, `workers` at a time, until one fails permanently; `failure` is then its error."""
        waiting = iter(items)

        async def work() -> None:
            for item in waiting:
                if self.failure is not None:
                    return
                try:
                    await handle(item)
                except CallsEnded:
                    return
                except Exception as error:
                    self.fail(error)

        await asyncio.gather(*(work() for _ in range(workers)))

    @contextlib.asynccontextmanager
    async def holding(self, key: str) -> AsyncIterator[None]:
        """Lock a key during the block: another worker may be sending the same texts."""
        await self.unless_stopped(self.quota.hold(key))
        try:
            yield
        finally:
            with contextlib.suppress(IndexmillError):  # the quota and its waiting workers have ended
                await self.quota.release(key)

    async def patiently(self, call: Callable[[], Awaitable[_B]], bill: RequestCost) -> _B:
        """Repeat a call until the endpoint answers, within the deadline and the limit of useless answers."""
        began = time.monotonic() - bill.queued
        attempts = bill.attempts

        def late(state: RetryCallState) -> bool:
            passed = time.monotonic() - began - bill.queued
            return passed + state.upcoming_sleep >= self.deadline_seconds

        def again(error: BaseException) -> bool:
            return (
                isinstance(error, LlmError) and error.retry and not (error.useless_response and bill.useless >= USELESS)
            )

        retrying = AsyncRetrying(
            retry=retry_if_exception(again),
            wait=_wait,
            stop=late,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return await retrying(call)
        except LlmError as error:
            if not error.retry:
                raise
            if error.useless_response and bill.useless >= USELESS:
                error.args = (f"{error}; gave up after {counted(bill.useless, 'unusable answer')}",)
                raise
            tried = (
                f"{counted(bill.attempts - attempts, 'attempt')}, {self.section}.deadline_seconds is "
                f"{self.deadline_seconds:g}"
            )
            error.args = (f"{error}; gave up after {tried}: run again, or raise that limit",)
            raise
        finally:
            self._count("retries", max(0, bill.attempts - attempts - 1))

    async def paid(self, send: Callable[[], Awaitable[_B]], model: str, most: tuple[int, int], bill: RequestCost) -> _B:
        """Make one call of at most `most` input and output tokens, which are reserved before and settled after it."""
        began = time.monotonic()
        ticket = await self.unless_stopped(self.quota.reserve(model, *most))
        bill.queued += time.monotonic() - began
        if self.failure is not None:
            await self.quota.settle(ticket, 0, 0)
            raise CallsEnded
        bill.attempts += 1
        spent = most
        outcome: Outcome = "other"
        self.in_flight += 1
        self.report()
        try:
            came = await send()
            spent = came.input_tokens, came.output_tokens
            outcome = "queued" if getattr(came, "waited", 0.0) > self.timeout_seconds / 4 else "answered"
            self._count("calls")
            self.answer_count += 1
        except LlmError as error:
            self.reason = str(error)
            bill.useless += error.useless_response
            outcome = "overloaded" if error.overloaded else "other"
            if error.billed == "no":
                spent = 0, 0
            elif isinstance(error.billed, Completion):
                spent = error.billed.input_tokens, error.billed.output_tokens
                self._count("calls")
            else:
                self._count("calls")
                self._count("maybe_billed")
            if error.retry_after:
                await self.quota.pause(error.retry_after, model)
            raise
        finally:  # also after any other exception: the call may have been sent
            self.in_flight -= 1
            bill.input_tokens += spent[0]
            bill.output_tokens += spent[1]
            self._count("input_tokens", spent[0])
            self._count("output_tokens", spent[1])
            self._count("tokens", sum(spent))
            with contextlib.suppress(IndexmillError):  # quota and run have ended; the paid answer is still stored
                await self.quota.settle(ticket, *spent, outcome)
        return came

    def _count(self, name: str, number: int = 1) -> None:
        self.counts[self.prefix + name] += number

    async def _sleep(self, seconds: float) -> None:
        """Wait before a retry; raises as soon as no more calls may start, because of this worker or any other."""
        self.retrying += 1
        self.report()
        try:
            await self.unless_stopped(_unless(self._slept(seconds), self.quota.ended()))
        finally:
            self.retrying -= 1

    async def _slept(self, seconds: float) -> None:
        await self.sleep(seconds)

    async def unless_stopped(self, awaited: Coroutine[Any, Any, _T]) -> _T:
        """Await a coroutine; raises CallsEnded as soon as no more calls may start."""

        async def stopped() -> None:
            await self.stop.wait()
            raise CallsEnded

        return await _unless(awaited, stopped())


async def _unless(awaited: Coroutine[Any, Any, _T], end: Coroutine[Any, Any, None]) -> _T:
    """Await a coroutine; raises the error of `end` if that comes first."""
    waits = waiting, ending = asyncio.ensure_future(awaited), asyncio.ensure_future(end)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            ending.result()
        return waiting.result()
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _wait(state: RetryCallState) -> float:
    """Return the seconds until the next attempt: `retry_after` of the endpoint or exponential backoff, plus jitter."""
    error = state.outcome.exception() if state.outcome is not None else None
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (state.attempt_number - 1))
    after = error.retry_after if isinstance(error, LlmError) and error.retry_after else 0.0
    return after + random.uniform(0.0, min(longest, after) if after else longest)  # noqa: S311 - not a secret
