"""Progress events of calls on Dask workers, sent to the run through the scheduler."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from indexmill.models.progress import Items, listening

_INTERVAL = 0.5
"""Seconds between two events of a call after its first event; a short call sends only that one."""


def report_worker_progress(topic: str, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function on a worker and report its progress as events of a topic: ``[key, done, total, items]``.

    The first event says that the call has begun. items: ``[done, total, unit]``, or None.
    """
    from distributed import get_worker

    worker = get_worker()
    sent = time.monotonic()

    def send(done: int, total: int, items: Items | None) -> None:
        with contextlib.suppress(Exception):  # the call must not fail because its progress report does
            worker.log_event(topic, [key, done, total, None if items is None else list(items)])

    def report(done: int, total: int, items: Items | None) -> None:
        nonlocal sent
        now = time.monotonic()
        if now - sent >= _INTERVAL:
            sent = now
            send(done, total, items)

    send(0, 1, None)
    with listening(report):
        return function(*arguments)
