"""Time as an argument: a clock gives seconds since the epoch, a record keeps them as ISO 8601 in UTC."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from storage.protocol import Store

__all__ = ["Clock", "clock_of", "from_timestamp", "timestamp"]

Clock = Callable[[], float]
"""Seconds since the epoch, like `time.time`."""


def clock_of(store: Store) -> Clock:
    """The clock of a store, which is looked at once; this machine's runs beside it."""
    ahead = store.now() - time.time()
    return lambda: time.time() + ahead


def timestamp(seconds: float) -> str:
    """A time as a record keeps it: `2026-01-31T02:00:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_timestamp(text: str) -> float:
    """The seconds of a `timestamp`."""
    return datetime.fromisoformat(text).timestamp()
