"""Formatting of durations, and timestamps of log lines."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

TIMESTAMPS = "INDEXMILL_TIMESTAMPS"
"""The environment variable that adds a timestamp to each line for users; `indexmill schedule` sets it."""


def duration(seconds: float) -> str:
    """Format a duration to the second, or to the tenth below ten seconds: `0.4 s`, `3 min 12 s`, `1 h 03 min`."""
    if round(seconds, 1) < 10:
        return f"{max(seconds, 0.0):.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def in_short(seconds: float) -> str:
    """Format an estimated duration: `40 s`, `12 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def stamp(clock: Callable[[], float] = time.time) -> str:
    """Return the timestamp of a log line: `2026-03-01T02:00:07Z`."""
    return f"{datetime.fromtimestamp(clock(), UTC):%Y-%m-%dT%H:%M:%SZ}"


def stamps_wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Return True if the environment requests a timestamp at the start of each line of output."""
    return environment.get(TIMESTAMPS, "") not in ("", "0")
