"""The progress of a run, also written to the logs of its flow run and task runs."""

from __future__ import annotations

import contextlib
import logging
import time

from prefect import get_run_logger
from prefect.exceptions import MissingContextError

from indexmill.models.headway import Items
from indexmill.text.printable import one_line
from tasks.core.report import Progress

__all__ = ["LoggingProgress"]


class LoggingProgress:
    """Forwards to another progress, and logs the ends of stages, warnings and notes in the current run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._began: dict[str, float] = {}

    def begin(self, stage: str, parts: int) -> None:
        self._began.setdefault(stage, time.monotonic())
        self._progress.begin(stage, parts)

    def advance(self, stage: str, parts: int = 1) -> None:
        self._progress.advance(stage, parts)

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        self._progress.within(stage, part, share, items)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        began = self._began.pop(stage, time.monotonic())
        took = time.monotonic() - began if seconds is None else seconds
        _log(logging.INFO, f"{stage}: {summary} in {took:.1f} s")
        self._progress.end(stage, summary, seconds)

    def doing(self, what: str) -> None:
        self._progress.doing(what)

    def warn(self, message: str) -> None:
        _log(logging.WARNING, message)
        self._progress.warn(message)

    def note(self, message: str) -> None:
        _log(logging.INFO, message)
        self._progress.note(message)


def _log(level: int, message: str) -> None:
    with contextlib.suppress(MissingContextError):  # a thread that belongs to no run
        get_run_logger().log(level, "%s", one_line(message))
