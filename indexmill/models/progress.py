"""Reporting the progress of long work to a listener; no output depends on it.

A report gives the completed and the total amount of work, such as tokens to encode or prompts to answer, and may count
items that mean something to users, such as texts. Without a listener, a report costs one look-up of a context variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple


class Items(NamedTuple):
    """The number of completed items, and the total. unit: the name of an item in the singular, such as `text`.

    calls: calls to an endpoint that are in flight. retrying: calls that failed and wait to be sent again. reason: why
    the last of them failed.
    """

    done: int
    total: int
    unit: str
    calls: int = 0
    retrying: int = 0
    reason: str = ""


Listener = Callable[[int, int, Items | None], None]
"""A function that is called with the completed and the total amount, and with the items if they are counted.

The first call, with nothing completed, reports that the work has begun."""

_LISTENER: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report_progress(done: int, total: int, items: Items | None = None) -> None:
    """Report the progress of the current work to its listener, if it has one."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total, items)


@contextlib.contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Report the progress of the work in the block to a listener, which must not raise."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
