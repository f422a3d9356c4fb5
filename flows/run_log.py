"""The log file of runs, named by `run.log`: messages with their times, appended to a file of limited size.

At ten megabytes, the file is renamed `FILE.1`, the previous one `FILE.2`, and so on up to `FILE.4`. Keys and passwords
are redacted. Once the file is open, a failure to write to it does not end the run.
"""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import traceback
from collections.abc import Iterator
from pathlib import Path

from flows.build_run import BuildOutcome
from flows.progress_lines import Lines
from indexmill.errors import ConfigurationError, IndexmillError
from indexmill.models.progress import Items
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted
from indexmill.text.durations import duration
from indexmill.text.printable import one_line
from schemas.config import Configuration
from tasks.core.report import Forwarding, Progress

MOST_BYTES = 10_000_000
ROTATED_FILES = 4
"""The size at which a log is rotated, and the number of rotated files kept."""


class RunLog:
    """The log of a run. progress: for the run to use. lines: writes to the log file; None without a log file."""

    def __init__(self, progress: Progress, lines: Lines | None = None) -> None:
        self.progress = progress if lines is None else _Both(progress, lines)
        self._lines = lines

    def ended(self, outcome: BuildOutcome | BaseException | None) -> None:
        """Write how the run ended; only the first call counts."""
        if outcome is not None and self._lines is not None:
            for line in (*_trace(outcome), _end(outcome)):
                self._lines.note(line)
            self._lines = None


@contextlib.contextmanager
def logged(command: str, configuration: Configuration, progress: Progress) -> Iterator[RunLog]:
    """Log a run during the block; writes nothing unless `run.log` names a file.

    An exception that leaves the block is logged as the end of the run. Raises ConfigurationError if the file cannot be
    opened.
    """
    path = configuration.run.log
    if path is None:
        yield RunLog(progress)
        return
    try:
        file = _File(path)
    except OSError as error:
        raise ConfigurationError(
            f"run.log: {path}: cannot be written: {error.strerror or error}; name a file in a folder that this user "
            "may write"
        ) from error
    with contextlib.closing(file):
        lines = Lines(_Stream(file), stamped=True)
        lines.note(f"indexmill {command} begins: store {configuration.store}")
        log = RunLog(progress, lines)
        try:
            yield log
        except BaseException as error:
            log.ended(error)
            raise


class _File(logging.handlers.RotatingFileHandler):
    """The log file, to which whole lines are added."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            path, maxBytes=MOST_BYTES, backupCount=ROTATED_FILES, encoding="utf-8", errors="backslashreplace"
        )

    def add(self, line: str) -> None:
        """Append a line, with secrets redacted."""
        self.handle(logging.LogRecord("indexmill", logging.INFO, "", 0, redacted(line), None, None))

    def close(self) -> None:
        """Close the file; lines that do not fit on a full disk are lost."""
        with contextlib.suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - of logging
        """Drop the line: a log on a full disk must not end the run."""


class _Stream(io.StringIO):
    """The file as an unbuffered stream: every write is a line."""

    def __init__(self, file: _File) -> None:
        super().__init__()
        self._file = file

    def write(self, text: str) -> int:
        self._file.add(text.removesuffix("\n"))
        return len(text)


def _trace(outcome: BuildOutcome | BaseException) -> list[str]:
    """The traceback of an unexpected error, by lines."""
    if not isinstance(outcome, Exception) or isinstance(outcome, IndexmillError):
        return []
    return "".join(traceback.format_exception(outcome)).splitlines()


def _end(outcome: BuildOutcome | BaseException) -> str:
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


class _Both(Forwarding):
    """A progress that also writes to the log, including the steps before the first stage."""

    def __init__(self, progress: Progress, log: Lines) -> None:
        super().__init__(progress)
        self._log = log

    def begin(self, stage: str, parts: int) -> None:
        super().begin(stage, parts)
        self._log.begin(stage, parts)

    def advance(self, stage: str, parts: int = 1) -> None:
        super().advance(stage, parts)
        self._log.advance(stage, parts)

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        super().within(stage, part, share, items)
        self._log.within(stage, part, share, items)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        super().end(stage, summary, seconds)
        self._log.end(stage, summary, seconds)

    def abandon(self, stage: str) -> None:
        super().abandon(stage)
        self._log.abandon(stage)

    def doing(self, what: str) -> None:
        super().doing(what)
        self._log.note(one_line(what))

    def warn(self, message: str) -> None:
        super().warn(message)
        self._log.warn(message)

    def note(self, message: str) -> None:
        super().note(message)
        self._log.note(message)
