"""A filter for the loggers of the HTTP libraries: below WARNING they log headers, including the key."""

from __future__ import annotations

import logging

from indexmill.models.secrets import redacted

_LOGGERS = ("openai", "httpx2", "httpcore2")


def silence() -> None:
    """Drop the libraries' log records below WARNING, and redact the others."""
    existing = list(logging.Logger.manager.loggerDict)
    children = tuple(f"{top}." for top in _LOGGERS)
    for name in [*_LOGGERS, *(name for name in existing if name.startswith(children))]:
        logger = logging.getLogger(name)
        if _audible not in logger.filters:
            logger.addFilter(_audible)


def _audible(record: logging.LogRecord) -> bool:
    if record.levelno < logging.WARNING:
        return False
    record.msg, record.args = redacted(record.getMessage()), None
    return True
