"""Time as an argument: a clock gives seconds since the epoch, a record keeps them as ISO 8601 in UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["Clock", "from_timestamp", "timestamp"]

Clock = Callable[[], float]
"""Seconds since the epoch, like `time.time`."""


def timestamp(seconds: float) -> str:
    """A time as a record keeps it: `2026-01-31T02:00:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_timestamp(text: str) -> float:
    """The seconds of a `timestamp`."""
    return datetime.fromisoformat(text).timestamp()
