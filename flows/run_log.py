"""The log file of runs, `run.log`: what a run tells, with the time before each line, appended and bounded.

A file that has grown to ten megabytes is set aside as `FILE.1`, and the one before as `FILE.2`, up to `FILE.4`. Keys
and passwords are left out of every line. Once the file is open, no failure to write it ends a run.
"""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from flows.progress import Lines
from flows.run import Outcome
from indexmill.errors import ConfigurationError, IndexmillError
from indexmill.models.headway import Items
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted
from indexmill.text.durations import duration
from indexmill.text.printable import one_line
from schemas.config import Configuration
from tasks.core.report import Progress

MOST_BYTES = 10_000_000
KEPT = 4
"""The size at which a log is set aside, and how many of those are kept."""


class RunLog(Protocol):
    """The log of a run at work. progress: to be used by the run."""

    progress: Progress

    def ended(self, outcome: Outcome | BaseException | None) -> None:
        """Write how the run ended."""
        ...


@contextlib.contextmanager
def logged(command: str, configuration: Configuration, progress: Progress) -> Iterator[RunLog]:
    """The log of a run during the block; it writes nothing unless `run.log` names a file.

    An exception that leaves the block is logged as the end of the run. Raises ConfigurationError if the file cannot be
    opened.
    """
    path = configuration.run.log
    if path is None:
        yield _NoLog(progress)
        return
    try:
        file = _File(path)
    except OSError as error:
        raise ConfigurationError(
            f"run.log: {path}: cannot be written: {error.strerror or error}; name a file in a folder that this user "
            "may write"
        ) from error
    with contextlib.closing(file):
        log = _Log(progress, Lines(_Stream(file), stamped=True))
        log.lines.note(f"indexmill {command} begins: store {configuration.store}")
        try:
            yield log
        except BaseException as error:
            log.ended(error)
            raise


class _File(logging.handlers.RotatingFileHandler):
    """The file, to which whole lines are added."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=MOST_BYTES, backupCount=KEPT, encoding="utf-8", errors="backslashreplace")

    def add(self, line: str) -> None:
        """Append a line, without secrets."""
        self.handle(logging.LogRecord("indexmill", logging.INFO, "", 0, redacted(line), None, None))

    def close(self) -> None:
        """Close the file; what a full disk does not take is lost."""
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - of logging
        """Lose the line: a full disk must not end the run through its log."""


class _Stream(io.StringIO):
    """The file as a stream that keeps nothing: every write is a line."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._file = file

    def write(self, text: str) -> int:
        self._file.add(text.removesuffix("\n"))
        return len(text)


class _NoLog:
    def __init__(self, progress: Progress) -> None:
        self.progress = progress

    def ended(self, outcome: Outcome | BaseException | None) -> None:
        pass


class _Log:
    def __init__(self, progress: Progress, lines: Lines) -> None:
        self.lines = lines
        self.progress: Progress = _Both(progress, lines)
        self._ended = False

    def ended(self, outcome: Outcome | BaseException | None) -> None:
        if outcome is not None and not self._ended:
            self._ended = True
            self.lines.note(_end(outcome))


def _end(outcome: Outcome | BaseException) -> str:
    """How a run ended, on one line."""
    if isinstance(outcome, KeyboardInterrupt):
        return f"interrupted by {outcome if outcome.args else 'Ctrl-C'}: exit code 130"
    if isinstance(outcome, IndexmillError):
        return f"error: {outcome} (exit code {outcome.exit_code})"
    if isinstance(outcome, BaseException):
        return f"error: {type(outcome).__name__}: {outcome} (exit code 1)"
    published = "published version" if outcome.published else "nothing to do, version"
    return (
        f"{published} {outcome.version}: {counted(outcome.documents, 'document')}, "
        f"{counted(outcome.passages, 'passage')}; {counted(outcome.parts_made, 'part')} made, "
        f"{outcome.parts_reused:,} reused; run {outcome.run}, {duration(outcome.seconds)}"
    )


class _Both:
    """Forwards to two listeners of progress; the log also has the steps before the first stage."""

    def __init__(self, first: Progress, log: Lines) -> None:
        self._both = first, log
        self._log = log

    def begin(self, stage: str, parts: int) -> None:
        for one in self._both:
            one.begin(stage, parts)

    def advance(self, stage: str, parts: int = 1) -> None:
        for one in self._both:
            one.advance(stage, parts)

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        for one in self._both:
            one.within(stage, part, share, items)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        for one in self._both:
            one.end(stage, summary, seconds)

    def abandon(self, stage: str) -> None:
        for one in self._both:
            one.abandon(stage)

    def doing(self, what: str) -> None:
        self._both[0].doing(what)
        self._log.note(one_line(what))

    def warn(self, message: str) -> None:
        for one in self._both:
            one.warn(message)

    def note(self, message: str) -> None:
        for one in self._both:
            one.note(message)
