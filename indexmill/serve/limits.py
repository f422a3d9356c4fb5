"""The limits of a server: sizes, lengths, times, and request rates."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from indexmill.errors import BadInput
from indexmill.serve.rejections import TooMany

_CALLERS = 10_000
"""The maximum number of callers with a bucket; the least recent callers are dropped."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The limits of a server.

    body: the bytes of a request. question: the characters of a question. k: the number of hits; the limit of
    rerank_depth is ten times k. batch: the questions in a batch. at_once: concurrent batches. waiting: waiting
    questions. answers: concurrent answers. seconds: the time from a request's first byte to its response;
    answer_seconds: the same for an answer. rate: requests per second and caller; None for no limit.
    """

    body: int = 65_536
    question: int = 4_096
    k: int = 100
    batch: int = 64
    at_once: int = 1
    waiting: int = 512
    answers: int = 8
    seconds: float = 30.0
    answer_seconds: float = 120.0
    rate: float | None = None

    def __post_init__(self) -> None:
        for name in ("body", "question", "k", "batch", "at_once", "waiting", "answers"):
            if getattr(self, name) < 1:
                raise BadInput(f"the limit {name} is {getattr(self, name)}; expected at least 1")
        for name in ("seconds", "answer_seconds", "rate"):
            value = getattr(self, name)
            if value is not None and not (0 < value < math.inf):
                raise BadInput(f"the limit {name} is {value}; expected more than 0")


class CallerRates:
    """A token bucket for each caller: ``rate`` requests per second, and a burst of twice as many."""

    def __init__(self, rate: float | None, clock: Callable[[], float]) -> None:
        self._rate, self._clock = rate, clock
        self._burst = max(1.0, 2 * (rate or 0))
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take one request from a caller's bucket; raises TooMany if the bucket is empty."""
        if self._rate is None:
            return
        now = self._clock()
        level, before = self._buckets.pop(caller, (self._burst, now))
        level = min(self._burst, level + (now - before) * self._rate)
        allowed = level >= 1
        self._buckets[caller] = (level - 1 if allowed else level, now)
        if len(self._buckets) > _CALLERS:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = (1 - level) / self._rate
            raise TooMany(f"more than {self._rate:g} requests a second; try again in {wait:.2g} s", wait)
