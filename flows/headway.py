"""Progress events of calls on Dask workers, sent to the run through the scheduler."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from indexmill.models.headway import listening

__all__ = ["report_headway"]

_INTERVAL = 0.5
"""Seconds between two events of a call, and before the first, so that short calls send none."""


def report_headway(topic: str, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a worker; events of a topic, ``[key, done, total]``, report its progress."""
    from distributed import get_worker

    worker = get_worker()
    sent = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal sent
        now = time.monotonic()
        if now - sent >= _INTERVAL:
            sent = now
            with contextlib.suppress(Exception):  # the call must not fail because its progress report does
                worker.log_event(topic, [key, done, total])

    with listening(report):
        return function(*arguments)
