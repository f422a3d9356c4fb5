"""The progress of a run, also written to the logs of its flow run and task runs."""

from __future__ import annotations

import contextlib
import logging
import time

from prefect import get_run_logger
from prefect.exceptions import MissingContextError

from indexmill.text.durations import duration
from indexmill.text.printable import one_line
from tasks.core.report import Forwarding, Progress


class LoggingProgress(Forwarding):
    """A progress that also logs finished stages, warnings and notes in the current flow or task run."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(progress)
        self._began: dict[str, float] = {}

    def begin(self, stage: str, parts: int) -> None:
        self._began.setdefault(stage, time.monotonic())
        super().begin(stage, parts)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        began = self._began.pop(stage, time.monotonic())
        took = time.monotonic() - began if seconds is None else seconds
        _log(logging.INFO, f"{stage}: {summary} in {duration(took)}")
        super().end(stage, summary, seconds)

    def abandon(self, stage: str) -> None:
        self._began.pop(stage, None)
        super().abandon(stage)

    def warn(self, message: str) -> None:
        _log(logging.WARNING, message)
        super().warn(message)

    def note(self, message: str) -> None:
        _log(logging.INFO, message)
        super().note(message)


def _log(level: int, message: str) -> None:
    with contextlib.suppress(MissingContextError):  # a thread that belongs to no run
        get_run_logger().log(level, "%s", one_line(message))
