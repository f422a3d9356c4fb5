"""Calls to an endpoint while a user waits: a few retries, within a deadline.

The pipeline calls differently (``tasks.llm``): there, a request may wait for a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from indexmill.models.llm_errors import LlmError

Sleep = Callable[[float], Awaitable[None]]

_FIRST_WAIT = 0.5  # seconds before the first retry if the endpoint names none; doubled before each further one

_USELESS = 3  # attempts of a call that returns unusable answers, each of them billed

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of one question's calls.

    attempts: of one call, the first included. deadline_seconds: no attempt begins after this time.
    """

    attempts: int = 4
    deadline_seconds: float = 60.0


async def patiently(
    call: Callable[[], Awaitable[_T]],
    patience: Patience,
    sleep: Sleep = asyncio.sleep,
    ended: Callable[[], bool] = lambda: False,
) -> _T:
    """The result of a call, with retries; raises its last error.

    sleep: waits for some seconds. ended: returns True once no further attempt may begin.
    """
    ends = time.monotonic() + patience.deadline_seconds
    for attempt in itertools.count(1):
        try:
            return await call()
        except LlmError as error:
            wait = (error.retry_after or 0.0) + random.uniform(0.5, 1.0) * _FIRST_WAIT * 2 ** (attempt - 1)  # noqa: S311 - nothing secret
            if not error.retry or ended():
                raise
            most = patience.attempts if not error.useless_response else min(patience.attempts, _USELESS)
            if attempt >= most or time.monotonic() + wait > ends:
                error.args = (f"{error}; gave up after {attempt} {'attempts' if attempt > 1 else 'attempt'}",)
                raise
            failed = error
        await sleep(wait)
        if ended():
            raise failed
    raise AssertionError("unreachable")
