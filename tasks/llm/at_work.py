"""Locks on prompts in flight: a caller with the same prompt waits, then finds the answer in the ledger."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class _Place(NamedTuple):
    owner: str
    turn: concurrent.futures.Future[None]


class PromptsAtWork:
    """A queue for each prompt; its first entry holds the lock. Shared by threads and event loops."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, deque[_Place]] = {}

    async def hold(self, key: str, owner: str) -> None:
        """Lock a prompt, waiting until no other caller holds it; `release` unlocks it."""
        place = _Place(owner, concurrent.futures.Future())
        with self._lock:
            self._lines.setdefault(key, deque()).append(place)
            self._go_on(key)
        try:
            await asyncio.wrap_future(place.turn)
        except asyncio.CancelledError:
            self._without(key, lambda entry: entry is not place)
            raise

    def release(self, key: str, owner: str) -> None:
        """Unlock a prompt if the owner holds it."""
        with self._lock:
            line = self._lines.get(key)
            if line and line[0].owner == owner and line[0].turn.done():
                line.popleft()
                self._go_on(key)

    def leave(self, owner: str) -> None:
        with self._lock:
            keys = list(self._lines)
        for key in keys:
            self._without(key, lambda entry: entry.owner != owner)

    def _without(self, key: str, stays: Callable[[_Place], bool]) -> None:
        with self._lock:
            self._lines[key] = deque(filter(stays, self._lines.get(key, ())))
            self._go_on(key)

    def _go_on(self, key: str) -> None:
        """Pass a prompt's lock to the first in its queue; drop an empty queue. The caller holds `_lock`."""
        line = self._lines[key]
        while line and not line[0].turn.done():
            if line[0].turn.set_running_or_notify_cancel():
                line[0].turn.set_result(None)
            else:
                line.popleft()
        if not line:
            del self._lines[key]
