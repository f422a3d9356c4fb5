"""A limit on the bytes per second that all threads of a process transfer together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

from indexmill.forks import Lock


class TransferStopped(Exception):
    """Raised in a thread that must not transfer any more bytes."""


class ByteRateLimit:
    """A limit on the average rate since the first byte. Safe to use from many threads."""

    def __init__(
        self,
        bytes_per_second: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] | None = None,
    ) -> None:
        """Set the rate; raises ValueError if it is not positive. clock, sleep: replaced in tests."""
        if not bytes_per_second > 0:
            raise ValueError(f"the limit is {bytes_per_second} bytes per second; expected more than 0")
        self._stopped = threading.Event()
        self._rate, self._clock, self._sleep = bytes_per_second, clock, sleep or self._stopped.wait
        self._lock = Lock()
        self._free = clock()

    @property
    def limited(self) -> bool:
        """True if there is a limit."""
        return self._rate != float("inf")

    def stop(self) -> None:
        """Wake all waiting threads, and make every later `wait` raise TransferStopped."""
        self._stopped.set()

    def wait(self, size: int) -> None:
        """Wait until `size` bytes may be transferred; raises TransferStopped after `stop`."""
        with self._lock:
            now = self._clock()
            begin = max(now, self._free)
            self._free = begin + size / self._rate
        if begin > now:
            self._sleep(begin - now)
        if self._stopped.is_set():
            raise TransferStopped

    def pieces(self, file: IO[bytes], size: int) -> Iterator[bytes]:
        """Yield the rest of a file in pieces of `size` bytes, each as soon as it may be transferred."""
        while piece := file.read(size):
            self.wait(len(piece))
            yield piece


UNLIMITED = ByteRateLimit()
"""A limit that never waits."""
