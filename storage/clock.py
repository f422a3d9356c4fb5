"""Clocks, which are passed as arguments and return seconds since the epoch; records store ISO 8601 in UTC."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from storage.protocol import Store

Clock = Callable[[], float]
"""Seconds since the epoch, like `time.time`."""


def clock_of(store: Store) -> Clock:
    """Return a store's clock: its time is read once, then advanced by this machine's elapsed time, suspension included.

    So machines whose clocks differ agree on the time, and setting a machine's clock does not change it.
    """
    before = _elapsed()
    ahead = store.now() - (before + _elapsed()) / 2
    return lambda: _elapsed() + ahead


def _elapsed() -> float:
    """Return seconds of a monotonic clock; on Linux they include the time a machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC)


def timestamp(seconds: float) -> str:
    """Format a time as records store it: `2026-01-31T02:00:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_timestamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
