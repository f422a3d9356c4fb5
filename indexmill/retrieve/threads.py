"""Threads for the tiles of a batch: what is answered side by side is what is answered one after the other.

A question's answer depends on no other question, so how a batch is cut, and which thread takes which part, changes no
bit. numpy lets go of the interpreter's lock in its products, sums and gathers; the rest takes turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["FEWEST", "Threads"]

T = TypeVar("T")

FEWEST = 16
"""Fewest questions that are worth a thread."""


class Threads:
    """At most ``count`` threads, started when a batch first wants them. Thread-safe; 1 starts none."""

    def __init__(self, count: int = 1) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="indexmill-tile") if count > 1 else None

    def each(self, work: Callable[[slice], T], questions: int, most: int) -> Iterator[T]:
        """What ``work`` makes of each part of a batch, in order; a part has at most ``most`` questions.

        Of a large batch a few parts are held at once. Raises what ``work`` raises, for the first part that fails.
        """
        size = max(1, min(most, max(FEWEST, -(-questions // self.count))))
        parts = [slice(first, min(first + size, questions)) for first in range(0, questions, size)]
        if self._pool is None or len(parts) < 2:
            yield from map(work, parts)
            return
        begun: deque[Future[T]] = deque()
        try:
            for part in parts:
                begun.append(self._pool.submit(work, part))
                if len(begun) > self.count:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for left in begun:
                left.cancel()

    def close(self) -> None:
        """Start no more work; what has begun ends."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
