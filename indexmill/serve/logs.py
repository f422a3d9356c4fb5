"""The log of a server: a JSON object per line on standard error, without text of questions or documents."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import traceback
from types import TracebackType
from typing import Any

from indexmill.errors import IndexmillError
from indexmill.models.secrets import redacted

_LOG = logging.getLogger("indexmill.serve")


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: time, level, and either the event, or the logger and message."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {"time": time, "level": record.levelname.lower()}
        fields = getattr(record, "event", None)
        if isinstance(fields, dict):
            line |= fields
        else:
            line |= {"event": "message", "logger": record.name, "message": redacted(record.getMessage())}
        if record.exc_info is not None and record.exc_info[1] is not None:
            line["cause"] = cause(record.exc_info[1])
        return json.dumps(line, ensure_ascii=False, default=str)


def cause(error: BaseException) -> str:
    """Describe an error: indexmill's by message; others by type and location, since a message may quote a question."""
    if isinstance(error, IndexmillError):
        return redacted(f"{type(error).__name__}: {error}")
    return f"{type(error).__name__} at {_place(error.__traceback__)}"


def _place(trace: TracebackType | None) -> str:
    frames = traceback.extract_tb(trace)[-3:]
    return " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in reversed(frames)) or "unknown"


def event(name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    _LOG.log(level, name, extra={"event": {"event": name, **fields}})


def log_to_standard_error() -> None:
    """Write this process's logs as JSON lines to standard error; from libraries, only warnings and errors."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("indexmill").setLevel(logging.INFO)
