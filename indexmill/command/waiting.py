"""Showing on standard error what a command waits for, if that takes longer than a second."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from contextvars import ContextVar
from types import TracebackType
from typing import ClassVar, Self

import click

from indexmill.models.progress import Items, listening
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted
from indexmill.text.durations import duration
from indexmill.text.printable import one_line
from indexmill.text.terminal import columns_of, fitted, glyphs_of, style_of

MOMENT = 1.0
"""The number of seconds before the first message."""

BEAT = 0.25
"""The number of seconds between two frames of the spinner."""


class Waiting:
    """Shows the current work: on a terminal in one line that is erased at the end, elsewhere in a line per change.

    Inside the block of another ``Waiting``, it changes the message of the outer one. Print nothing during the block.
    only_terminals: True to show nothing unless standard error is a terminal.
    """

    _innermost: ClassVar[ContextVar[Waiting | None]] = ContextVar("waiting", default=None)

    def __init__(self, what: str, *, only_terminals: bool = False) -> None:
        self._what = what
        self._reached = ""
        self._shown = ""
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._over = False
        self._terminal = sys.stderr.isatty()
        self._style, self._glyphs = style_of(sys.stderr), glyphs_of(sys.stderr)
        self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)
        self._only_terminals = only_terminals
        self._outer: Waiting | None = None
        self._exit = contextlib.ExitStack()

    def say(self, what: str) -> None:
        """Change the message."""
        if self._outer is not None:
            self._outer.say(what)
            return
        with self._changed:
            self._what, self._reached = what, ""
            self._changed.notify()

    def progress(self, done: int, total: int, items: Items | None) -> None:
        """Show the progress reported by the work."""
        if self._outer is not None:
            self._outer.progress(done, total, items)
        elif items is not None:
            with self._changed:  # shown with the next beat
                self._reached = f", {items.done:,} of {counted(items.total, items.unit)}"

    def __enter__(self) -> Self:
        self._outer = Waiting._innermost.get()
        self._exit.callback(Waiting._innermost.reset, Waiting._innermost.set(self))
        self._exit.enter_context(listening(self.progress))
        if self._outer is None:
            if self._terminal or not self._only_terminals:
                self._thread.start()
        else:
            self._exit.callback(self._outer.say, self._outer.what)
            self._outer.say(self._what)
        return self

    @property
    def what(self) -> str:
        """The current message."""
        return self._what if self._outer is None else self._outer.what

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()
        with self._changed:
            self._over = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
        if self._terminal and self._shown:
            _put("\r\x1b[K", nl=False)

    def _watch(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._over, MOMENT)
            while not self._over:
                self._show()
                self._changed.wait(BEAT if self._terminal else None)

    def _show(self) -> None:
        text = one_line(redacted(self._what))
        if self._terminal:
            since = time.monotonic() - self._began
            seconds = f"{int(since)} s" if since < 60 else duration(since)
            spinner = self._glyphs.spinner(int(since / BEAT))
            line = fitted(f"{spinner} {text}{self._reached}, {seconds}", columns_of(sys.stderr) - 1)
            self._shown = line
            _put(f"\r\x1b[K{self._style.dim(line)}", nl=False)
        elif text != self._shown:
            self._shown = text
            _put(text)


def _put(text: str, *, nl: bool = True) -> None:
    """Write to standard error; ignore errors if it is closed, since the work must continue."""
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, nl=nl, err=True, color=True)
