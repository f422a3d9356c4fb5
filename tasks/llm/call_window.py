"""How many calls an endpoint gets at once: few at first, more while it answers promptly, fewer when it is overloaded.

The window opens as TCP's congestion window does (additive increase, multiplicative decrease; RFC 5681). It is adjusted
once for every window of calls that have ended, and at least four, by the share of them that met an overload, so that
one prompt that is never answered does not slow down the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

Outcome = Literal["answered", "queued", "overloaded", "other"]
"""How a call ended: answered promptly; answered after it waited in the endpoint's queue; not answered, because of a
timeout or a full endpoint; or otherwise."""

FIRST = 2
"""The number of calls at once before any has ended."""

_LEAST_CALLS = 4
_OVERLOADED = 0.25
"""The fewest calls by which the window is adjusted, and the share of overloaded ones above which it is halved."""

_ROUNDS = 6
"""The number of windows of calls after which the window grows by one once there was an overload; then by two, four."""


class CallWindow:
    """The window of one endpoint. size: the number of calls that may run at once."""

    def __init__(self, first: int = FIRST) -> None:
        self.size = first
        self.running = 0
        self._ended: Counter[Outcome] = Counter()
        self._full = False  # whether the window limited the calls
        self._met_overload = False  # the window doubles until then
        self._rounds = 0  # windows of calls that were answered since the size last changed
        self._step = 1  # by which it grows next
        self._stale = 0  # calls still running that began before the last overload

    def is_full(self) -> bool:
        """Return True if no further call may start now."""
        full = self.running >= self.size
        self._full = self._full or full
        return full

    def begin(self) -> None:
        self.running += 1

    def end(self, outcome: Outcome = "other") -> None:
        """Count a call that has ended, and adjust the window once as many as its size have."""
        self.running -= 1
        if self._stale:  # it began before the window was halved
            self._stale -= 1
            return
        self._ended[outcome] += 1
        calls = self._ended.total()
        if calls < max(self.size, _LEAST_CALLS):
            return
        if self._ended["overloaded"] > _OVERLOADED * calls:
            self.size = max(1, self.size // 2)
            self._met_overload, self._rounds, self._step, self._stale = True, 0, 1, self.running
        elif self._full and self._ended["answered"] > calls / 2:
            self._rounds += 1
            if not self._met_overload:
                self.size *= 2
            elif self._rounds >= _ROUNDS:
                self.size += self._step
                self._rounds, self._step = 0, 2 * self._step
        self._ended.clear()
        self._full = False
