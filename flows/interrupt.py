"""End a run as interrupted on SIGTERM and Ctrl-C: its record is written and its lease released."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from tasks.pipeline.build import Build

_AGAIN_SECONDS = 0.01
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
    What is lost nevertheless, in callbacks while modules are imported, is delivered again.

    The KeyboardInterrupt has the signal's name.
    """

    def __init__(self, tell: Callable[[str], None] = lambda message: None) -> None:
        self._tell = tell
        self._name = ""
        self._build: Build | None = None
        self._came = False
        self._ending = False
        self._raised = False
        self._number = signal.SIGTERM
        self._first = True
        self._again = False  # the next signal is one whose KeyboardInterrupt Python ignored
        self.cancelled = False  # by `cancel`, not by a signal

    def __call__(self, number: int, frame: FrameType | None) -> None:
        again, self._again = self._again, False
        if not again:
            self._first, self._came = not self._came, True
        self._number = signal.Signals(number)
        self._name = "Ctrl-C" if number == signal.SIGINT else self._number.name
        if self._first and not again:
            another = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
            what = "the run is complete and is being recorded" if self._ending else STOPPING
            self._tell(f"interrupted: {what}; {another} ends it at once")
        if self._build is not None:
            self._build.executor.stop()
        if not self._first or (self._build is None and not self._ending):
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
        with handling_signals(self), self._delivered(), self.restored():
            yield

    @contextlib.contextmanager
    def _delivered(self) -> Iterator[None]:
        """Send the signal again if Python ignored its KeyboardInterrupt, as it does in callbacks of weak references."""
        usual, timers = sys.unraisablehook, list[threading.Timer]()

        def deliver(ignored: sys.UnraisableHookArgs) -> None:
            if not self._raised or not isinstance(ignored.exc_value, KeyboardInterrupt):
                usual(ignored)
                return
            self._again = True
            timers.append(threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), self._number)))
            timers[-1].start()

        sys.unraisablehook = deliver
        try:
            yield
        finally:
            sys.unraisablehook = usual
            for timer in timers:
                timer.cancel()

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
