"""Calls of a batch side by side: so many at a time, and none that is under way is left alone.

What was sent is billed, whether or not anybody waits for its answer. So where one call shows that no other will be
answered, the others are not begun, those under way come to their end, and only then is the error raised.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from typing import TypeVar

from indexmill.models.llm_errors import LlmError, LlmForbidden

__all__ = ["Turns", "all_of"]

_T = TypeVar("_T")


class Turns:
    """The turns of all calls of a batch, ``most`` at a time.

    Ends with the first call that raises LlmForbidden, or an error that is none of the model's, such as a file of
    answers that cannot be written: whoever still waits for a turn is raised the same.
    """

    def __init__(self, most: int) -> None:
        self._free = asyncio.Semaphore(most)
        self._ended_by: Exception | None = None

    @property
    def ended(self) -> bool:
        """Whether no further call is to be begun."""
        return self._ended_by is not None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the length of the block."""
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
    """What some pieces of work bring, in their order; the first error of one is raised when all have ended."""
    begun = [asyncio.ensure_future(one) for one in work]
    await asyncio.gather(*begun, return_exceptions=True)
    return [one.result() for one in begun]
