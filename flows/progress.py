"""Progress on standard error: one line that moves on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TextIO

from indexmill.text.printable import one_line

__all__ = ["Lines", "TerminalBars"]


class Lines:
    """One line when a stage ends, and one every ten seconds while it works: what a log wants."""

    interval = 10.0

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.RLock()  # a signal may have something to say while a stage says something
        self._total: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._shares: dict[str, dict[str, float]] = {}  # of parts that are being made, by stage
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
            self._moved(stage)

    def within(self, stage: str, part: str, share: float) -> None:
        with self._lock:
            if stage not in self._total:
                return  # it has ended
            shares = self._shares.setdefault(stage, {})
            shares.pop(part, None)
            if share > 0:
                shares[part] = min(share, 1.0)
                self._moved(stage)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        with self._lock:
            if seconds is None:
                seconds = time.monotonic() - self._began.get(stage, time.monotonic())
            for known in (self._total, self._done, self._began, self._shares):  # it may begin again, in another wave
                known.pop(stage, None)
            self._write(f"{stage}: {one_line(summary)} in {seconds:.1f} s\n")

    def warn(self, message: str) -> None:
        with self._lock:
            self._write(f"warning: {one_line(message)}\n")

    def note(self, message: str) -> None:
        with self._lock:
            self._write(f"{one_line(message)}\n")

    def doing(self, what: str) -> None:
        """Nothing: nobody waits before a log for what takes seconds."""

    def close(self) -> None:
        """Nothing more will be told of stages: what is printed from now on stands by itself."""

    def _moved(self, stage: str) -> None:
        if stage not in self._total:
            return  # it has ended
        if time.monotonic() - self._said.get(stage, 0.0) >= self.interval:
            self._said[stage] = time.monotonic()
            self._show(stage)

    def _percent(self, stage: str) -> int | None:
        """How much of a stage is done where that is known of parts that are being made, in per cent."""
        shares, total = self._shares.get(stage), self._total[stage]
        return int(100 * min(self._done[stage] + sum(shares.values()), total) / total) if shares and total else None

    def _show(self, stage: str) -> None:
        percent = self._percent(stage)
        within = "" if percent is None else f", {percent} %"
        self._write(f"{stage}: {self._done[stage]} of {self._total.get(stage, 0)}{within}\n")

    def _write(self, text: str) -> None:
        # Nobody listens any more, or a signal speaks while its own thread does: the run matters, not its progress.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._stream.write(text)
            self._stream.flush()


class TerminalBars(Lines):
    """The stages at work on one line that is written over, and a line that stays for each stage that ends.

    The line begins with the minutes and seconds since the command began, which go on while nothing else does, and is
    never longer than the terminal is wide. Where more than two stages are at work, those that moved last are shown.
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
            self._total.clear()
            self._draw()

    def _show(self, stage: str) -> None:
        self._draw()

    def _write(self, text: str) -> None:
        super()._write(("\r\x1b[K" if self._drawn else "") + text)
        self._drawn = False
        self._draw()

    def _draw(self) -> None:
        """Write the moving line anew; nothing where there is nothing to say."""
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
        """What is at work, in at most so many columns."""
        if not self._total and not self._what:
            return ""
        minutes, seconds = divmod(int(time.monotonic() - self._start), 60)
        clock = f"{minutes}:{seconds:02d}"
        if not self._total:
            return f"{clock}  {self._what}"[:columns]
        latest = sorted(self._total, key=lambda stage: self._said.get(stage, 0.0))[-2:]
        for stages in ([stage for stage in self._total if stage in latest], latest[-1:]):
            counts = {stage: self._counts(stage) for stage in stages}
            taken = len(clock) + sum(4 + len(stage) + len(count) for stage, count in counts.items())
            width = min(self._width, (columns - taken) // max(len(stages), 1))
            if width >= self._shortest:
                return "  ".join([clock, *(f"{stage} {self._bar(stage, width)} {counts[stage]}" for stage in stages)])
        return f"{clock}  {latest[-1]} {counts[latest[-1]]}"[:columns]

    def _counts(self, stage: str) -> str:
        percent = self._percent(stage)
        return f"{self._done[stage]}/{self._total[stage]}" + ("" if percent is None else f" {percent}%")

    def _bar(self, stage: str, width: int) -> str:
        total, made = self._total[stage], self._done[stage] + sum(self._shares.get(stage, {}).values())
        filled = int(width * min(made, total) / max(total, 1))
        return "█" * filled + "·" * (width - filled)


def _columns(stream: TextIO) -> int:
    """The width of a terminal: COLUMNS, else what the terminal says, else 80."""
    with contextlib.suppress(ValueError):
        if (columns := int(os.environ.get("COLUMNS", ""))) > 0:
            return columns
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80
