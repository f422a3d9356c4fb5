"""SIGTERM and Ctrl-C: a run ends as failed, its record written and its lease given back."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from tasks.build import Build

__all__ = ["Interrupt", "stoppable"]


class Interrupt:
    """What a signal does. While stages are at work the first one stops them, and is raised when they have ended.

    Raised at once it would be lost wherever a callback happens to run, such as those that Dask has for the garbage
    collector. Once the stages have ended, the first one changes nothing: what is left, the commit included, takes a
    moment and is not left half-done. A second one is raised at once.
    """

    def __init__(self) -> None:
        self._build: Build | None = None
        self._came = False
        self._ending = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        first, self._came = not self._came, True
        if self._build is not None:
            self._build.executor.stop()
        if not first or (self._build is None and not self._ending):
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def stops(self, build: Build) -> Iterator[None]:
        """Let it stop the stages that the block runs."""
        self._build, self._ending = build, False
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        except Exception as error:
            if self._came:
                raise KeyboardInterrupt from error
            raise
        finally:
            self._build, self._ending = None, True
        if self._came:
            raise KeyboardInterrupt


@contextlib.contextmanager
def stoppable() -> Iterator[Interrupt]:
    """SIGTERM ends a run as Ctrl-C does: recorded, the lease given back."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
