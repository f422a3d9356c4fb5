"""Calls to an endpoint while a user waits, with a few retries within a deadline.

``tenacity`` is not used here, because an application that brings its own language model need not install any extra. The
pipeline uses it (``tasks.llm.calls``), since there a request may wait for a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from indexmill.models.llm_errors import LlmError
from indexmill.text.counted import counted

Sleep = Callable[[float], Awaitable[None]]

_FIRST_WAIT = 0.5  # seconds before the first retry, added to what the endpoint asks for; doubles before each retry

_USELESS = 3  # the maximum attempts of a call that returns unusable answers, each of which is billed

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """The limits of a question's calls: attempts per call, and the seconds after which no attempt starts."""

    attempts: int = 4
    deadline_seconds: float = 60.0


class Attempts:
    """The attempts of one call; the deadline counts from the creation of this object."""

    def __init__(self, limits: RetryLimits) -> None:
        self._limits, self._failed = limits, 0
        self._ends = time.monotonic() + limits.deadline_seconds

    def wait_after(self, error: LlmError) -> float:
        """Return the seconds to wait after a failed attempt; raises the error if no attempt remains."""
        self._failed += 1
        if not error.retry:
            raise error
        most = min(self._limits.attempts, _USELESS) if error.useless_response else self._limits.attempts
        jitter = random.uniform(0.5, 1.0)  # noqa: S311 - nothing secret
        wait = (error.retry_after or 0.0) + jitter * _FIRST_WAIT * 2.0 ** (self._failed - 1)
        if self._failed >= most or time.monotonic() + wait > self._ends:
            error.args = (f"{error}; gave up after {counted(self._failed, 'attempt')}",)
            raise error
        return wait


async def with_retries(
    call: Callable[[], Awaitable[_T]],
    limits: RetryLimits,
    sleep: Sleep = asyncio.sleep,
    ended: Callable[[], bool] = lambda: False,
) -> _T:
    """Return the result of a call, with retries; raises the last error. ended: returns True to stop retrying."""
    attempts = Attempts(limits)
    while True:
        try:
            return await call()
        except LlmError as error:
            if ended():
                raise
            wait, failure = attempts.wait_after(error), error
        await sleep(wait)
        if ended():
            raise failure


def run_coroutine(work: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine and return its result, even if this thread already runs an event loop, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(copy_context().run, asyncio.run, work).result()
