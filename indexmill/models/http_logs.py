"""Log levels of the HTTP libraries: nothing below WARNING, where headers, including the key, are logged."""

from __future__ import annotations

import logging

from indexmill.models.secrets import redacted

_LOGGERS = ("openai", "httpx2", "httpcore2")


def silence() -> None:
    """Set the libraries' loggers to WARNING: at DEBUG they print headers, including the key."""
    known = logging.Logger.manager.loggerDict
    for name in [*_LOGGERS, *(one for one in list(known) if one.startswith(tuple(f"{top}." for top in _LOGGERS)))]:
        logger = logging.getLogger(name)
        if _audible not in logger.filters:
            logger.addFilter(_audible)


def _audible(record: logging.LogRecord) -> bool:
    if record.levelno < logging.WARNING:
        return False
    record.msg, record.args = redacted(record.getMessage()), None
    return True
