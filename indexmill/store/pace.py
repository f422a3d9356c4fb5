"""A limit to the bytes per second that the threads of a process move together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from indexmill.forks import Lock


class Stopped(Exception):
    """Raised in a thread that is to move no more bytes."""


class Pace:
    """A rate of bytes, kept on average from the first one on. Safe to use from many threads."""

    def __init__(
        self,
        bytes_per_second: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """clock, sleep: of a test. Raises ValueError for a rate that is not positive."""
        if not bytes_per_second > 0:
            raise ValueError(f"the limit is {bytes_per_second} bytes per second; expected more than 0")
        self._stopped = threading.Event()
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep or self._stopped.wait
        self._lock = Lock()
        self._free = clock()

    @property
    def limited(self) -> bool:
        """False if nobody ever waits."""
        return self._rate != float("inf")

    def stop(self) -> None:
        """Let nobody wait any more: `wait` raises Stopped from now on."""
        self._stopped.set()

    def wait(self, size: int) -> None:
        """Wait until so many bytes may be moved; raises Stopped if none may any more."""
        with self._lock:
            now = self._clock()
            begin = max(now, self._free)
            self._free = begin + size / self._rate
        if begin > now:
            self._sleep(begin - now)
        if self._stopped.is_set():
            raise Stopped

    def pieces(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """The rest of a file in pieces of so many bytes, each when it may be moved."""
        while piece := file.read(size):
            self.wait(len(piece))
            yield piece


UNLIMITED = Pace()
"""The pace of those that nobody limits."""
