"""What a command waits for, said on standard error once that takes longer than a moment."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType
from typing import Self

import click

from indexmill.models.llm import Completion, LlmWrapper, Request
from indexmill.models.llm_errors import LlmError
from indexmill.models.openai_llm import OpenAiLlm
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted
from indexmill.text.printable import printable

__all__ = ["Waiting", "WatchedLlm"]

MOMENT = 1.0
"""Seconds in which nothing is said."""


class Waiting:
    """Says what is going on: on a terminal in one line that goes away again, elsewhere in a line for each change."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._shown = ""
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._over = False
        self._terminal = sys.stderr.isatty()
        self._thread = threading.Thread(target=self._watch, name="waiting", daemon=True)

    def say(self, what: str) -> None:
        """What is going on from now on."""
        with self._changed:
            self._what = what
            self._changed.notify()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._over = True
            self._changed.notify()
        self._thread.join()
        if self._terminal and self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)

    def _watch(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._over, MOMENT)
            while not self._over:
                self._show()
                self._changed.wait(MOMENT if self._terminal else None)

    def _show(self) -> None:
        text = printable(redacted(self._what))
        if self._terminal:
            self._shown = f"{text}, {counted(round(time.monotonic() - self._began), 'second')}"
            click.echo(f"\r\x1b[K{self._shown}", nl=False, err=True)
        elif text != self._shown:
            self._shown = text
            click.echo(text, err=True)


class WatchedLlm(LlmWrapper[OpenAiLlm]):
    """A model that says when it is asked, and when an answer is waited for again; see ``LLM``."""

    def __init__(self, llm: OpenAiLlm, waiting: Waiting) -> None:
        super().__init__(llm)
        self._waiting = waiting

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """See ``LLM``."""
        self._waiting.say(f"asking {self._llm.model} at {self._llm.where}")
        try:
            return await self._llm.complete(request, correction)
        except LlmError as error:
            if error.retry:
                self._waiting.say(f"waiting to ask {self._llm.model} again: {error}")
            raise
