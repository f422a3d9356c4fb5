"""A rate limit: a token bucket that spreads calls evenly, with a hard limit in any minute."""

from __future__ import annotations

MINUTE = 60.0
_BURST = 5.0
"""The largest burst, in seconds of the rate; an endpoint that limits per second refuses a larger one."""


class TokenBucket:
    """Allows at most `limit` in any minute; a larger amount gets its own minute. now: seconds of a monotonic clock."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rate = limit / MINUTE
        self._full = max(1.0, self._rate * _BURST)
        self._level = self._full
        self._at: float | None = None
        self._recent: dict[str, tuple[float, int]] = {}  # time and amount in the last minute, by ticket
        self._sum = 0

    def wait(self, amount: int, now: float) -> float:
        """Return the seconds until an amount may be taken; 0 if it may be taken now."""
        self._pass(now)
        wait = max(0.0, (min(amount, self._full) - self._level) / self._rate)
        over = self._sum + amount - self._limit
        for at, spent in self._recent.values():
            if over <= 0:
                break
            wait = max(wait, at + MINUTE - now)
            over -= spent
        return wait

    def take(self, ticket: str, amount: int, now: float) -> None:
        """Take an amount after `wait` returned 0. An amount larger than the bucket makes the level negative."""
        self._level -= amount
        self._sum += amount
        self._recent[ticket] = now, amount

    def settle(self, ticket: str, amount: int) -> None:
        """Correct the amount of a ticket, if it was taken in the last minute."""
        if ticket in self._recent:
            at, spent = self._recent[ticket]
            self._recent[ticket] = at, amount
            self._sum += amount - spent
            self._level = min(self._full, self._level + spent - amount)

    def _pass(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self._full, self._level + (now - self._at) * self._rate)
        self._at = now
        while self._recent:
            ticket, (at, spent) = next(iter(self._recent.items()))
            if at + MINUTE > now:
                break
            del self._recent[ticket]
            self._sum -= spent
