"""Progress on standard error: one line that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TextIO

from indexmill.text.printable import one_line

__all__ = ["Lines", "TerminalBars"]


@dataclass
class _Stage:
    """A stage at work. shares: the finished shares of unfinished parts. written: the time of its last line."""

    began: float
    written: float
    parts: int = 0
    done: int = 0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def finished(self) -> float:
        """The number of finished parts, shares included."""
        return min(self.done + sum(self.shares.values()), self.parts)

    @property
    def percent(self) -> str:
        """The finished percentage, if unfinished parts report their shares; otherwise empty."""
        return f"{int(100 * self.finished / self.parts)}" if self.shares and self.parts else ""


class Lines:
    """Progress for logs: one line when a stage ends, and one every ten seconds while it works."""

    interval = 10.0

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.RLock()  # reentrant: a signal handler may write while a stage writes
        self._stages: dict[str, _Stage] = {}

    def begin(self, stage: str, parts: int) -> None:
        with self._lock:
            now = time.monotonic()
            state = self._stages.setdefault(stage, _Stage(now, now))
            state.parts += parts
            state.written = now

    def advance(self, stage: str, parts: int = 1) -> None:
        with self._lock:
            if stage in self._stages:  # unless it has ended
                self._stages[stage].done += parts
                self._moved(stage)

    def within(self, stage: str, part: str, share: float) -> None:
        with self._lock:
            if stage in self._stages:
                shares = self._stages[stage].shares
                shares.pop(part, None)
                if share > 0:
                    shares[part] = min(share, 1.0)
                    self._moved(stage)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        with self._lock:
            state = self._stages.pop(stage, None)  # it may begin again, in another wave
            if seconds is None:
                seconds = 0.0 if state is None else time.monotonic() - state.began
            self._write(f"{stage}: {one_line(summary)} in {seconds:.1f} s\n")

    def warn(self, message: str) -> None:
        with self._lock:
            self._write(f"warning: {one_line(message)}\n")

    def note(self, message: str) -> None:
        with self._lock:
            self._write(f"{one_line(message)}\n")

    def doing(self, what: str) -> None:
        """Write nothing: short steps do not matter in a log."""

    def close(self) -> None:
        """Stop showing the stages, so that later output stands by itself."""

    def _moved(self, stage: str) -> None:
        state, now = self._stages[stage], time.monotonic()
        if now - state.written >= self.interval:
            state.written = now
            self._show(stage)

    def _show(self, stage: str) -> None:
        state = self._stages[stage]
        within = f", {state.percent} %" if state.percent else ""
        self._write(f"{stage}: {state.done} of {state.parts}{within}\n")

    def _write(self, text: str) -> None:
        # The stream is closed, or a signal handler interrupts a write: progress must not end the run.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._stream.write(text)
            self._stream.flush()


class TerminalBars(Lines):
    """Progress for terminals: one moving line for the stages at work, and a permanent line for each finished stage.

    The moving line begins with the minutes and seconds since the command began, and is never longer than the terminal
    is wide. If more than two stages are at work, those that moved last are shown.
    """

    interval = 0.1
    _beat = 1.0
    _width = 24
    _shortest = 6

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._start = time.monotonic()
        self._what = ""
        self._drawn = False
        self._closed = threading.Event()
        self._ticking: threading.Thread | None = None

    def begin(self, stage: str, parts: int) -> None:
        with self._lock:
            super().begin(stage, parts)
            self._what = ""
            self._draw()

    def doing(self, what: str) -> None:
        with self._lock:
            self._what = what
            self._draw()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._what = ""
            self._stages.clear()
            self._draw()

    def _show(self, stage: str) -> None:
        self._draw()

    def _write(self, text: str) -> None:
        super()._write(("\r\x1b[K" if self._drawn else "") + text)
        self._drawn = False
        self._draw()

    def _draw(self) -> None:
        """Rewrite the moving line; write nothing if it is empty."""
        if self._ticking is None and not self._closed.is_set():
            self._ticking = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticking.start()
        line = self._line(_columns(self._stream) - 1)
        if line or self._drawn:
            super()._write("\r\x1b[K" + line)
        self._drawn = bool(line)

    def _tick(self) -> None:
        while not self._closed.wait(self._beat):
            with self._lock:
                self._draw()

    def _line(self, columns: int) -> str:
        """The stages at work, in at most so many columns."""
        if not self._stages and not self._what:
            return ""
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        clock = f"{minutes}:{seconds:02d}"
        if not self._stages:
            return f"{clock}  {self._what}"[:columns]
        latest = sorted(self._stages, key=lambda stage: self._stages[stage].written)[-2:]
        for stages in ([stage for stage in self._stages if stage in latest], latest[-1:]):
            counts = {stage: self._counts(stage) for stage in stages}
            used = len(clock) + sum(4 + len(stage) + len(count) for stage, count in counts.items())
            width = min(self._width, (columns - used) // max(len(stages), 1))
            if width >= self._shortest:
                return "  ".join([clock, *(f"{stage} {self._bar(stage, width)} {counts[stage]}" for stage in stages)])
        return f"{clock}  {latest[-1]} {counts[latest[-1]]}"[:columns]

    def _counts(self, stage: str) -> str:
        state = self._stages[stage]
        return f"{state.done}/{state.parts}" + (f" {state.percent}%" if state.percent else "")

    def _bar(self, stage: str, width: int) -> str:
        filled = int(width * self._stages[stage].finished / max(self._stages[stage].parts, 1))
        return "█" * filled + "·" * (width - filled)


def _columns(stream: TextIO) -> int:
    """The width of a terminal: COLUMNS, else what the terminal says, else 80."""
    with contextlib.suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", ""))) > 0:
            return columns
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80
