"""Progress on standard error: one moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import TextIO

from flows.moving_line import moving_line, progress_words, waiting_line
from flows.work_rate import StageAtWork
from indexmill.models.progress import Items
from indexmill.text.durations import duration, stamp, stamps_wanted
from indexmill.text.printable import one_line
from indexmill.text.terminal import TerminalStyle, columns_of, display_width, glyphs_of, style_of


class Lines:
    """Progress for logs: one line when a stage ends, and one every ten seconds while it works.

    stamped: True to put the time (UTC) before each line; by default, if INDEXMILL_TIMESTAMPS is set.
    """

    interval = 10.0

    def __init__(self, stream: TextIO | None = None, *, stamped: bool | None = None) -> None:
        self._stream = stream or sys.stderr
        self._lock = threading.RLock()  # reentrant: a signal handler may write while a stage writes
        self._stages: dict[str, StageAtWork] = {}
        self._written: dict[str, float] = {}  # the time of a stage's last line
        self._stamped = stamps_wanted() if stamped is None else stamped
        self._style: TerminalStyle = style_of(self._stream)

    def begin(self, stage: str, parts: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._stages.setdefault(stage, StageAtWork(stage, now)).begin(parts)
            self._written[stage] = now

    def advance(self, stage: str, parts: int = 1) -> None:
        with self._lock:
            if stage in self._stages:  # not if the stage has ended
                self._stages[stage].advance(time.monotonic(), parts)
                self._moved(stage)

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        with self._lock:
            if stage in self._stages:
                self._stages[stage].within(time.monotonic(), part, share, items)
                if share or (items is not None and items.retrying):
                    self._moved(stage)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        with self._lock:
            state = self._stages.pop(stage, None)  # the stage may begin again, in another wave
            if seconds is None:
                seconds = 0.0 if state is None else time.monotonic() - state.began
            took = self._style.dim(f"in {duration(seconds)}")
            self._write(f"{self._style.bold(one_line(stage))}: {one_line(summary)} {took}\n")

    def abandon(self, stage: str) -> None:
        with self._lock:
            self._stages.pop(stage, None)

    def warn(self, message: str) -> None:
        with self._lock:
            self._write(f"{self._style.warning('warning:')} {one_line(message)}\n")

    def note(self, message: str) -> None:
        with self._lock:
            self._write(f"{one_line(message)}\n")

    def doing(self, what: str) -> None:
        """Do nothing: short steps do not matter in a log."""

    def close(self) -> None:
        """Stop showing the stages, before other output."""

    def _moved(self, stage: str) -> None:
        now = time.monotonic()
        if now - self._written[stage] >= self.interval:
            self._written[stage] = now
            self._show(stage)

    def _show(self, stage: str) -> None:
        state = self._stages[stage]
        percent = [] if state.percent is None else [f"{state.percent} %"]
        text = ", ".join([f"{state.done} of {state.parts}", *percent, *progress_words(state, time.monotonic())])
        self._write(f"{stage}: {text}\n")

    def _write(self, text: str) -> None:
        self._put(f"{stamp()} {text}" if self._stamped else text)

    def _put(self, text: str) -> None:
        # The stream is closed, or a signal handler interrupts a write: progress must not end the run.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            self._stream.write(text)
            self._stream.flush()


class TerminalBars(Lines):
    """Progress for terminals: one moving line for the stages at work, and a permanent line for each finished stage.

    The moving line begins with the time since the command began. It never exceeds the terminal's width, even after the
    terminal has become narrower. Before the first stage, it names the current step.
    """

    _beat = 0.25

    def __init__(self, stream: TextIO | None = None, *, stamped: bool | None = None) -> None:
        super().__init__(stream, stamped=stamped)
        self._start = time.monotonic()
        self._what = ""
        self._began = False  # True once any stage has begun
        self._drawn = 0  # the width of the line as it was drawn last
        self._beats = 0
        self._glyphs = glyphs_of(self._stream)
        self._closed = threading.Event()
        self._ticking: threading.Thread | None = None

    def begin(self, stage: str, parts: int) -> None:
        with self._lock:
            super().begin(stage, parts)
            self._what, self._began = "", True
            self._draw()

    def doing(self, what: str) -> None:
        with self._lock:
            self._what = one_line(what)
            self._draw()

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            self._what = ""
            self._stages.clear()
            self._draw()

    def _moved(self, stage: str) -> None:
        """Do nothing: the next beat redraws the line."""

    def _write(self, text: str) -> None:
        drawn, self._drawn = self._drawn, 0
        self._put(_cleared(drawn, columns_of(self._stream)) if drawn else "")
        super()._write(text)
        self._draw()

    def _draw(self) -> None:
        """Rewrite the moving line; write nothing if it is empty."""
        if self._ticking is None and not self._closed.is_set():
            self._ticking = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticking.start()
        columns = columns_of(self._stream)
        line, width = self._line(columns - 1)
        if line or self._drawn:
            self._put(_cleared(self._drawn, columns) + line)
        self._drawn = width

    def _tick(self) -> None:
        while not self._closed.wait(self._beat):
            with self._lock:
                self._beats += 1
                self._draw()

    def _line(self, columns: int) -> tuple[str, int]:
        now = time.monotonic()
        since = now - self._start
        if self._stages:
            stages = list(self._stages.values())
            plain, line = (moving_line(stages, since, now, columns, self._glyphs, style) for style in self._styles)
        elif self._what or (self._began and not self._closed.is_set()):
            turning, what = self._glyphs.spinner(self._beats), self._what or "working"  # "working": between two stages
            plain, line = (waiting_line(since, what, columns, turning, style) for style in self._styles)
        else:
            return "", 0
        return line, display_width(plain)

    @property
    def _styles(self) -> tuple[TerminalStyle, TerminalStyle]:
        return TerminalStyle(colours=False), self._style


def _cleared(drawn: int, columns: int) -> str:
    """Return the escape sequence that erases a line of a given width; a narrowed terminal wraps it to several rows."""
    above = (max(drawn, 1) - 1) // max(columns, 1)
    return (f"\x1b[{above}A" if above else "") + "\r\x1b[J" if above else "\r\x1b[K"
