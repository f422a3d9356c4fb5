"""Progress on standard error: one line that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TextIO

from indexmill.command.options import one_line

__all__ = ["Lines", "TerminalBars"]


class Lines:
    """One line when a stage ends, and one every ten seconds while it works: what a log wants."""

    interval = 10.0

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.Lock()
        self._total: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._began: dict[str, float] = {}
        self._said: dict[str, float] = {}

    def begin(self, stage: str, parts: int) -> None:
        with self._lock:
            self._total[stage] = self._total.get(stage, 0) + parts
            self._done.setdefault(stage, 0)
            self._began.setdefault(stage, time.monotonic())
            self._said[stage] = time.monotonic()

    def advance(self, stage: str, parts: int = 1) -> None:
        with self._lock:
            self._done[stage] = self._done.get(stage, 0) + parts
            if time.monotonic() - self._said.get(stage, 0.0) >= self.interval:
                self._said[stage] = time.monotonic()
                self._show(stage)

    def end(self, stage: str, summary: str) -> None:
        with self._lock:
            seconds = time.monotonic() - self._began.get(stage, time.monotonic())
            for known in (self._total, self._done, self._began):  # it may begin again, in another wave
                known.pop(stage, None)
            self._write(f"{stage}: {one_line(summary)} in {seconds:.1f} s\n")

    def warn(self, message: str) -> None:
        with self._lock:
            self._write(f"warning: {one_line(message)}\n")

    def note(self, message: str) -> None:
        with self._lock:
            self._write(f"{one_line(message)}\n")

    def _show(self, stage: str) -> None:
        self._write(f"{stage}: {self._done[stage]} of {self._total.get(stage, 0)}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # nobody listens any more: the run matters, not its progress
            self._stream.write(text)
            self._stream.flush()


class TerminalBars(Lines):
    """The stages at work on one line that is written over, and a line that stays for each stage that ends."""

    interval = 0.1
    _width = 24

    def _show(self, stage: str) -> None:
        shown = []
        for name, total in self._total.items():
            done = self._done.get(name, 0)
            filled = self._width * min(done, total) // max(total, 1)
            shown.append(f"{name} {'█' * filled}{'·' * (self._width - filled)} {done}/{total}")
        super()._write("\r\x1b[K" + "  ".join(shown[-2:]))

    def _write(self, text: str) -> None:
        super()._write("\r\x1b[K" + text)
