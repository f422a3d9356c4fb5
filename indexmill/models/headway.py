"""How far long work is, told by who does it to whoever listens; nothing that is made depends on it.

A count of done and all, of whatever the work counts: tokens encoded, prompts answered. Where nobody listens, telling
costs the look-up of a context variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

__all__ = ["Listener", "headway", "listening"]

Listener = Callable[[int, int], None]
"""Told how much is done, and of how much."""

_LISTENER: ContextVar[Listener | None] = ContextVar("headway", default=None)


def headway(done: int, total: int) -> None:
    """Tell how far the work at hand is."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total)


@contextlib.contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Have what is done in the block told to a listener, which never raises."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
