"""Time as an argument: a clock gives seconds since the epoch, a record keeps them as ISO 8601 in UTC."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from storage.protocol import Store

Clock = Callable[[], float]
"""Seconds since the epoch, like `time.time`."""


def clock_of(store: Store) -> Clock:
    """The clock of a store: read once, then counted on by this machine, the seconds asleep included.

    So machines whose clocks differ agree about it, and setting a machine's clock meanwhile does not change it.
    """
    before = _elapsed()
    ahead = store.now() - (before + _elapsed()) / 2
    return lambda: _elapsed() + ahead


def _elapsed() -> float:
    """Seconds since some moment, which nobody can set; on Linux a suspended machine counts on."""
    return time.clock_gettime(time.CLOCK_BOOTTIME if sys.platform == "linux" else time.CLOCK_MONOTONIC)


def timestamp(seconds: float) -> str:
    """A time as a record keeps it: `2026-01-31T02:00:00.123Z`."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_timestamp(text: str) -> float:
    """The seconds of a `timestamp`."""
    return datetime.fromisoformat(text).timestamp()
