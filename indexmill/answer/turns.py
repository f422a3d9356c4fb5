"""Concurrent calls of a batch: a limited number at a time, none of which is abandoned once sent.

A sent call is billed even if nothing waits for its answer. So when one call shows that no other can succeed, no more
calls start, the running calls finish, and only then is the error raised.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import TypeVar

from indexmill.models.llm_errors import LlmError, LlmForbidden

_T = TypeVar("_T")


class Turns:
    """The turns of all calls of a batch, ``most`` at a time.

    The first call that raises LlmForbidden, or an error that is not the model's, such as an answer cache that cannot be
    written, ends the batch: calls that still wait for a turn raise the same error.
    """

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._ended_by: Exception | None = None

    @property
    def ended(self) -> bool:
        """True if no more calls may start."""
        return self._ended_by is not None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and keep it for the duration of the block."""
        async with self._free:
            if self._ended_by is not None:
                raise self._ended_by
            try:
                yield
            except Exception as error:
                if self._ended_by is None and (isinstance(error, LlmForbidden) or not isinstance(error, LlmError)):
                    self._ended_by = error
                raise


async def all_of(work: Iterable[Awaitable[_T]]) -> list[_T]:
    """Await all awaitables and return their results in order; raises the first error after all have ended."""
    begun = [asyncio.ensure_future(awaitable) for awaitable in work]
    await asyncio.gather(*begun, return_exceptions=True)
    return [future.result() for future in begun]
