"""How fast a stage works, and how long it will take: from its work alone, not from the time in which it waits."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from indexmill.models.headway import Items

_WINDOW = 60.0
"""Seconds of work that a rate is taken over: long enough to be steady, short enough to follow what changes."""

_SAMPLE = 1.0
"""Seconds of work between two samples of a rate."""

_LEAST_SECONDS = 5.0
_LEAST_SHARE = 0.02
"""The evidence for a time that is left: so much work since the first progress, and such a share finished in it."""

_INERTIA = 8.0
"""Seconds of work in which most of a change of the estimate is shown."""


class Pace:
    """A rate of work and the time that is left, smoothed. The time of every call counts work only, and never falls."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float, int]] = deque()
        self._first: tuple[float, float] | None = None
        self._left: float | None = None
        self._told = 0.0

    def reached(self, worked: float, finished: float, items: int) -> None:
        """Note what is finished, in parts, and how many items, after so many seconds of work."""
        if not self._samples:
            self._samples.append((worked, finished, items))
            return
        began, before, _ = self._samples[0]
        if self._first is None and finished > before:
            # What comes before the first progress, such as loading a model, says nothing of the rate.
            self._first = worked, finished
            self._samples = deque([(worked, finished, items)])
        elif worked - self._samples[-1][0] >= _SAMPLE:
            self._samples.append((worked, finished, items))
            while len(self._samples) > 2 and worked - self._samples[1][0] >= _WINDOW:
                self._samples.popleft()
        elif self._first is None:
            self._samples[0] = began, finished, items

    def items_per_second(self, worked: float, items: int) -> float | None:
        """The items of a second of work; None without evidence."""
        if self._first is None or worked - self._first[0] < _LEAST_SECONDS:
            return None
        began, _, before = self._samples[0]
        return max(0, items - before) / max(worked - began, 1e-9)

    def left(self, worked: float, finished: float, parts: float) -> float | None:
        """The seconds of work that are left of so many parts; None without evidence. It changes gradually."""
        if self._first is None or finished >= parts:
            return None
        since, before = self._first
        if worked - since < _LEAST_SECONDS or finished - before < _LEAST_SHARE * parts:
            return None
        began, there, _ = self._samples[0]
        rate = (finished - there) / max(worked - began, 1e-9)
        if rate <= 0:
            return None  # nothing has been finished for a while: nobody knows
        fresh = (parts - finished) / rate
        if self._left is None:
            self._left, self._told = fresh, worked
        else:
            passed = max(0.0, worked - self._told)
            weight = min(1.0, passed / _INERTIA)
            expected = max(0.0, self._left - passed)
            self._left, self._told = expected + weight * (fresh - expected), worked
        return self._left


@dataclass
class _Part:
    """A part at work: its finished share, and its items."""

    share: float = 0.0
    items: Items | None = None


@dataclass
class StageAtWork:
    """A stage between its beginning and its end; every time is an argument, in seconds.

    Work counts while at least one part is at work. Where nothing says when a part begins, it counts from the beginning.
    """

    name: str
    began: float
    parts: int = 0
    done: int = 0
    _made: int = 0  # of those done, the parts that were seen at work
    _at_work: dict[str, _Part] = field(default_factory=dict)
    _items: dict[str, int] = field(default_factory=dict)  # of made parts, by unit
    _told: bool = False  # that parts begin
    _worked: float = 0.0
    _since: float | None = None  # the time at which parts began to be at work
    _pace: Pace = field(default_factory=Pace)

    def begin(self, parts: int) -> None:
        """So many more parts."""
        self.parts += parts

    def advance(self, now: float, parts: int) -> None:
        """Some parts are there."""
        self.done += parts
        self._note(now)

    def within(self, now: float, part: str, share: float | None, items: Items | None) -> None:
        """A part at work has reached a share; None if it is not at work any more."""
        if share is None:
            ended = self._at_work.pop(part, None)
            if ended is not None:
                self._made += 1
                if ended.items is not None:
                    unit = ended.items.unit
                    self._items[unit] = self._items.get(unit, 0) + ended.items.total
        else:
            self._told = True
            one = self._at_work.setdefault(part, _Part())
            one.share = min(max(share, 0.0), 1.0)
            one.items = items or one.items
        if self._at_work and self._since is None:
            self._since = now
        elif not self._at_work and self._since is not None:
            self._worked, self._since = self._worked + max(0.0, now - self._since), None
        self._note(now)

    @property
    def is_at_work(self) -> bool:
        """True unless every part waits, as far as anyone knows."""
        return bool(self._at_work) or not self._told

    @property
    def finished(self) -> float:
        """The finished parts, with the shares of those at work."""
        return min(self.done + sum(part.share for part in self._at_work.values()), self.parts)

    @property
    def share(self) -> float:
        """The finished share of the stage."""
        return self.finished / self.parts if self.parts else 0.0

    @property
    def percent(self) -> int | None:
        """The finished percentage, where parts at work say more than the count of parts."""
        return int(100 * self.share) if any(part.share for part in self._at_work.values()) else None

    def items(self) -> Items | None:
        """The items of the parts that are made or at work; the total is 0 while parts are to come: nobody knows theirs.

        None if nothing counts any. If there are several units, that of the most.
        """
        done, total = dict(self._items), dict(self._items)
        for part in self._at_work.values():
            if part.items is not None:
                unit = part.items.unit
                done[unit] = done.get(unit, 0) + part.items.done
                total[unit] = total.get(unit, 0) + part.items.total
        if not done:
            return None
        unit = max(sorted(total), key=lambda name: total[name])
        known = self.done + len(self._at_work) >= self.parts and all(
            part.items is not None for part in self._at_work.values()
        )
        return Items(done[unit], total[unit] if known else 0, unit)

    def worked(self, now: float) -> float:
        """The seconds of work until now."""
        if not self._told:
            return max(0.0, now - self.began)
        return self._worked + (max(0.0, now - self._since) if self._since is not None else 0.0)

    def items_per_second(self, now: float) -> float | None:
        """The items of a second of work; None without evidence."""
        items = self.items()
        return None if items is None else self._pace.items_per_second(self.worked(now), items.done)

    def left(self, now: float) -> float | None:
        """The seconds of work that are left; None without evidence."""
        return self._pace.left(self.worked(now), self._work_done, self._work)

    @property
    def _work_done(self) -> float:
        """The parts that this run has made, with shares; those found are no work."""
        made = self._made if self._told else self.done
        return made + sum(part.share for part in self._at_work.values())

    @property
    def _work(self) -> float:
        """The parts that this run has to make."""
        return self.parts - (max(0, self.done - self._made) if self._told else 0)

    def _note(self, now: float) -> None:
        items = self.items()
        self._pace.reached(self.worked(now), self._work_done, 0 if items is None else items.done)
