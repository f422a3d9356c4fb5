"""The rate and remaining time of a stage, estimated from the time in which it works; waiting does not count."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from indexmill.models.progress import Items

_WINDOW = 60.0
"""Seconds of work over which a rate is measured: long enough to be steady, short enough to follow changes."""

_SAMPLE = 1.0
"""Seconds of work between two samples of a rate."""

_LEAST_SECONDS = 5.0
_LEAST_SHARE = 0.02
"""The evidence needed to estimate a remaining time: seconds of work since the first progress, and the share done."""

_INERTIA = 8.0
"""Seconds of work after which most of a change in the rate shows in the estimate."""


class WorkRate:
    """A smoothed rate of work, and the remaining time. `worked`, the seconds of work so far, never decreases."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, int]] = deque()
        self._first: tuple[float, float] | None = None
        self._estimate: float | None = None
        self._estimated_at = 0.0

    def reached(self, worked: float, finished: float, items: int) -> None:
        """Record the finished parts and items after some seconds of work."""
        if not self._samples:
            self._samples.append((worked, finished, items))
            return
        began, before, _ = self._samples[0]
        if self._first is None and finished > before:
            # The time before the first progress, such as loading a model, says nothing about the rate.
            self._first = worked, finished
            self._samples = deque([(worked, finished, items)])
        elif worked - self._samples[-1][0] >= _SAMPLE:
            self._samples.append((worked, finished, items))
            while len(self._samples) > 2 and worked - self._samples[1][0] >= _WINDOW:
                self._samples.popleft()
        elif self._first is None:
            self._samples[0] = began, finished, items

    def items_per_second(self, worked: float, items: int) -> float | None:
        """Return the items per second of work; None without evidence."""
        if self._first is None or worked - self._first[0] < _LEAST_SECONDS:
            return None
        began, _, before = self._samples[0]
        return max(0, items - before) / max(worked - began, 1e-9)

    def seconds_left(self, worked: float, finished: float, parts: float) -> float | None:
        """Return the remaining seconds of work for `parts` parts; None without evidence. Changes gradually."""
        if self._first is None or finished >= parts:
            return None
        since, before = self._first
        if worked - since < _LEAST_SECONDS or finished - before < _LEAST_SHARE * parts:
            return None
        began, there, _ = self._samples[0]
        rate = (finished - there) / max(worked - began, 1e-9)
        if rate <= 0:
            return None  # nothing has been finished for a while
        fresh = (parts - finished) / rate
        if self._estimate is None:
            self._estimate, self._estimated_at = fresh, worked
        else:
            passed = max(0.0, worked - self._estimated_at)
            weight = min(1.0, passed / _INERTIA)
            expected = max(0.0, self._estimate - passed)
            self._estimate, self._estimated_at = expected + weight * (fresh - expected), worked
        return self._estimate


@dataclass
class _Part:
    """A part at work: its finished share, and its items."""

    share: float = 0.0
    items: Items | None = None


@dataclass
class StageAtWork:
    """A stage between its beginning and its end; times are arguments, in seconds.

    Time counts as work while at least one part is at work. Where starts of parts are not reported, all time counts.
    """

    name: str
    began: float
    parts: int = 0
    done: int = 0
    _computed: int = 0  # parts that were at work and are done
    _at_work: dict[str, _Part] = field(default_factory=dict)
    _items: dict[str, int] = field(default_factory=dict)  # items of computed parts, by unit
    _starts_reported: bool = False  # True once a part's start was reported
    _worked: float = 0.0
    _since: float | None = None  # the time when parts at work began; None if none is at work
    _pace: WorkRate = field(default_factory=WorkRate)

    def begin(self, parts: int) -> None:
        self.parts += parts

    def advance(self, now: float, parts: int) -> None:
        """Count parts as done."""
        self.done += parts
        self._note(now)

    def within(self, now: float, part: str, share: float | None, items: Items | None) -> None:
        """Record the share that a part at work has reached; None once it is no longer at work."""
        if share is None:
            ended = self._at_work.pop(part, None)
            if ended is not None:
                self._computed += 1
                if ended.items is not None:
                    unit = ended.items.unit
                    self._items[unit] = self._items.get(unit, 0) + ended.items.total
        else:
            self._starts_reported = True
            state = self._at_work.setdefault(part, _Part())
            state.share = min(max(share, 0.0), 1.0)
            state.items = items or state.items
        if self._at_work and self._since is None:
            self._since = now
        elif not self._at_work and self._since is not None:
            self._worked, self._since = self._worked + max(0.0, now - self._since), None
        self._note(now)

    @property
    def is_at_work(self) -> bool:
        """True unless every part is known to wait."""
        return bool(self._at_work) or not self._starts_reported

    @property
    def finished(self) -> float:
        """The number of finished parts, plus the shares of those in progress."""
        return min(self.done + sum(part.share for part in self._at_work.values()), self.parts)

    @property
    def share(self) -> float:
        return self.finished / self.parts if self.parts else 0.0

    @property
    def percent(self) -> int | None:
        """The percentage finished, if parts in progress report shares; None otherwise."""
        return int(100 * self.share) if any(part.share for part in self._at_work.values()) else None

    def items(self) -> Items | None:
        """Return the items of the parts computed or at work; the total is 0 (unknown) until every part has started.

        Calls and retries are those of all parts at work.
        None if no part counts items. If there are several units, the unit with the most items is used.
        """
        done, total = dict(self._items), dict(self._items)
        calls = retrying = 0
        reason = ""
        for part in self._at_work.values():
            if part.items is not None:
                calls, retrying = calls + part.items.calls, retrying + part.items.retrying
                reason = part.items.reason or reason
                unit = part.items.unit
                done[unit] = done.get(unit, 0) + part.items.done
                total[unit] = total.get(unit, 0) + part.items.total
        if not done:
            return None
        unit = max(sorted(total), key=lambda name: total[name])
        all_counted = self.done + len(self._at_work) >= self.parts and all(
            part.items is not None for part in self._at_work.values()
        )
        return Items(done[unit], total[unit] if all_counted else 0, unit, calls, retrying, reason)

    def worked(self, now: float) -> float:
        if not self._starts_reported:
            return max(0.0, now - self.began)
        return self._worked + (max(0.0, now - self._since) if self._since is not None else 0.0)

    def items_per_second(self, now: float) -> float | None:
        """Return the items per second of work; None without evidence."""
        items = self.items()
        return None if items is None else self._pace.items_per_second(self.worked(now), items.done)

    def seconds_left(self, now: float) -> float | None:
        """Return the remaining seconds of work; None without evidence."""
        return self._pace.seconds_left(self.worked(now), self._work_done, self._work)

    @property
    def _work_done(self) -> float:
        """The parts that this run has computed, with shares; reused parts are not work."""
        computed = self._computed if self._starts_reported else self.done
        return computed + sum(part.share for part in self._at_work.values())

    @property
    def _work(self) -> float:
        """The parts that this run has to compute."""
        return self.parts - (max(0, self.done - self._computed) if self._starts_reported else 0)

    def _note(self, now: float) -> None:
        items = self.items()
        self._pace.reached(self.worked(now), self._work_done, 0 if items is None else items.done)
