"""End a run as interrupted on SIGTERM and Ctrl-C: its record is written and its lease released."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from tasks.pipeline.build import Build

STOPPING = "stopping; finished parts are kept, and the next run continues from there"


@contextlib.contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install a handler for SIGTERM and Ctrl-C during the block. Works only in the main thread."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


class Interrupt:
    """The signal handler. While stages are at work, the first signal stops them and is raised once they have ended.

    If raised immediately, it would be lost in callbacks such as Dask's for garbage collection. After the stages, the
    first signal changes nothing: the remaining steps, the commit included, take a moment and must not be left half
    done. A second signal is raised immediately. A message announces the effect of the first signal when it arrives.

    The KeyboardInterrupt has the signal's name.
    """

    def __init__(self, tell: Callable[[str], None] = lambda message: None) -> None:
        self._tell = tell
        self._name = ""
        self._build: Build | None = None
        self._came = False
        self._ending = False
        self._raised = False
        self.cancelled = False  # by `cancel`, not by a signal

    def __call__(self, number: int, frame: FrameType | None) -> None:
        first, self._came = not self._came, True
        self._name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if first:
            again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
            what = "the run is complete and is being recorded" if self._ending else STOPPING
            self._tell(f"interrupted: {what}; {again} ends it at once")
        if self._build is not None:
            self._build.executor.stop()
        if not first or (self._build is None and not self._ending):
            self._raised = True
            raise KeyboardInterrupt(self._name)

    def cancel(self, why: str) -> None:
        """Stop the stages as a first signal does, from any thread; `why` replaces the signal's name."""
        if not self._came:
            self._came, self._name, self.cancelled = True, why, True
            if self._build is not None:
                self._build.executor.stop()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGTERM and Ctrl-C during the block, if it is entered in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        with handling_signals(self), self.restored():
            yield

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Raise this handler's KeyboardInterrupt if a library turned it into another error, as pydantic does."""
        try:
            yield
        except Exception as error:
            if self._raised:
                raise KeyboardInterrupt(self._name) from error
            raise

    @contextlib.contextmanager
    def stops(self, build: Build) -> Iterator[None]:
        """Stop the block's stages when a signal arrives, then raise the KeyboardInterrupt."""
        self._build, self._ending = build, False
        try:
            if self._came:
                raise KeyboardInterrupt(self._name)
            yield
        except Exception as error:
            if self._came:
                raise KeyboardInterrupt(self._name) from error
            raise
        finally:
            self._build, self._ending = None, True
        if self._came:
            raise KeyboardInterrupt(self._name)
