"""Progress reports of long work to a listener; no output depends on them.

A report has the done and the total count of the work's units: tokens encoded, prompts answered. Without a listener, a
report costs the look-up of a context variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

__all__ = ["Listener", "headway", "listening"]

Listener = Callable[[int, int], None]
"""A function called with the done and the total count."""

_LISTENER: ContextVar[Listener | None] = ContextVar("headway", default=None)


def headway(done: int, total: int) -> None:
    """Report the progress of the current work."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total)


@contextlib.contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Report the progress of the block's work to a listener, which never raises."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
