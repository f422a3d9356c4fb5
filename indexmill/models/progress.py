"""Progress reports of long work to a listener; no output depends on them.

A report has the done and the total amount of the work, in tokens encoded or prompts answered, and perhaps counts of
items that users know: texts, prompts. Without a listener, a report costs the look-up of a context variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import NamedTuple


class Items(NamedTuple):
    """The number of items done, of a total. unit: in the singular, such as `text`."""

    done: int
    total: int
    unit: str


Listener = Callable[[int, int, Items | None], None]
"""A function called with the done and the total amount, and the items, if they are counted.

The first call, with nothing done, reports that the work has begun."""

_LISTENER: ContextVar[Listener | None] = ContextVar("progress", default=None)


def report_progress(done: int, total: int, items: Items | None = None) -> None:
    """Report the progress of the current work to its listener, if it has one."""
    listener = _LISTENER.get()
    if listener is not None:
        listener(done, total, items)


@contextlib.contextmanager
def listening(listener: Listener | None) -> Iterator[None]:
    """Report the progress of the block's work to a listener, which never raises."""
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)
