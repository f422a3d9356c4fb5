"""A rate: a token bucket that evens calls out, under a bound that holds in any minute."""

from __future__ import annotations

__all__ = ["MINUTE", "TokenBucket"]

MINUTE = 60.0
_BURST = 5.0
"""Seconds' worth that may start at once; an endpoint that counts by the second refuses more."""


class TokenBucket:
    """At most `limit` in any sixty seconds; what is larger than that has a minute of its own.

    Times are seconds that only grow. Whoever asks does so in the order of time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rate = limit / MINUTE
        self._full = max(1.0, self._rate * _BURST)
        self._level = self._full
        self._at: float | None = None
        self._taken: dict[str, tuple[float, int]] = {}  # in the last minute, by ticket: when, and how much
        self._sum = 0

    def wait(self, amount: int, now: float) -> float:
        """Seconds until so much may be taken; 0 for at once."""
        self._pass(now)
        wait = max(0.0, (min(amount, self._full) - self._level) / self._rate)
        over = self._sum + amount - self._limit
        for at, taken in self._taken.values():
            if over <= 0:
                break
            wait = max(wait, at + MINUTE - now)
            over -= taken
        return wait

    def take(self, ticket: str, amount: int, now: float) -> None:
        """Take so much, for which `wait` said 0. The level falls below zero for what is larger than the bucket."""
        self._level -= amount
        self._sum += amount
        self._taken[ticket] = now, amount

    def settle(self, ticket: str, amount: int) -> None:
        """Give back what a ticket has taken beyond so much, unless that was long ago."""
        if ticket in self._taken:
            at, taken = self._taken[ticket]
            self._taken[ticket] = at, amount
            self._sum += amount - taken
            self._level = min(self._full, self._level + taken - amount)

    def _pass(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self._full, self._level + (now - self._at) * self._rate)
        self._at = now
        while self._taken:
            ticket, (at, taken) = next(iter(self._taken.items()))
            if at + MINUTE > now:
                break
            del self._taken[ticket]
            self._sum -= taken
