"""A run on paper: steps of a driver, rounds of tasks, and workers that take what waits.

It follows what `flows/build.py` and `flows/dask_executor.py` do. A step begins when those that it needs have ended, and
asks for rounds of tasks, one after the other; each waits for all of its tasks. Rounds of steps that run side by side
share the workers: of what waits, the highest priority comes first, then what was submitted first. A round submits a
window of its tasks ahead of their results. The scheduler hands out one task after the other, one for each worker ahead,
which a task of higher priority does not overtake (Dask's `worker-saturation`, for workers of one thread).

Nothing here is measured or drawn: the same graph on the same workers gives the same seconds.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

WINDOW = 64
"""The tasks of a round under way, or four for each worker if that is more: `flows.dask_executor`."""

WORKERS, SCHEDULER, DRIVER = "workers", "scheduler", "driver"
"""What a run may wait for besides the last tasks of a stage: all workers are busy; idle ones wait for the scheduler;
none has anything to do."""


@dataclass(frozen=True, slots=True)
class Task:
    """A call on a worker: its seconds on a core of its own, and those of the first of its stage in a worker besides."""

    stage: str
    seconds: float
    priority: int = 0
    opening: float = 0.0


@dataclass(frozen=True, slots=True)
class Round:
    """Tasks that a step asks for together, after so many seconds of the driver's own work."""

    before: float
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """A step: the seconds between the end of what it needs and its start, its rounds, and the driver's after them."""

    name: str
    rounds: tuple[Round, ...]
    needs: tuple[str, ...] = ()
    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a run, a thread each.

    handing: seconds of the scheduler for a task, one after the other. pause: seconds of a worker between two tasks.
    opening: those that its first task takes longer, whichever it is.
    cores: of the machine that all of them share with the driver, which takes `driver` of them; None if each has its
    own. speeds: of a worker where one, two, ... of them are busy, against one alone, as memory and caches let them.
    """

    count: int
    handing: float = 0.0
    pause: float = 0.0
    opening: float = 0.0
    cores: float | None = None
    driver: float = 0.0
    speeds: tuple[float, ...] = ()

    def speed(self, busy: int) -> float:
        """The share of a core that each of so many busy workers has."""
        speed = self.speeds[min(busy, len(self.speeds)) - 1] if self.speeds and busy else 1.0
        if self.cores is None:
            return speed
        return speed * min(1.0, self.cores / (busy + self.driver)) if busy else 1.0


@dataclass(frozen=True, slots=True)
class Played:
    """A run that was played: its seconds, the steps' beginnings and ends, and the worker seconds of each stage.

    waited: seconds by what the run waited for: WORKERS, SCHEDULER, DRIVER, or the stage whose last tasks were at work
    while workers had nothing to do.
    """

    seconds: float
    steps: Mapping[str, tuple[float, float]]
    busy: Mapping[str, float]
    waited: Mapping[str, float]

    @property
    def bottleneck(self) -> str:
        """What the run waited for the longest."""
        return max(sorted(self.waited), key=lambda name: self.waited[name], default=DRIVER)


def critical_path(steps: Sequence[Step]) -> float:
    """The seconds of a run whose tasks never wait for a worker: its longest chain. Openings are left out."""
    ended: dict[str, float] = {}
    for step in steps:
        began = max((ended[need] for need in step.needs), default=0.0) + step.before
        rounds = (round_.before + max((task.seconds for task in round_.tasks), default=0.0) for round_ in step.rounds)
        ended[step.name] = began + sum(rounds) + step.after
    return max(ended.values(), default=0.0)


def play(steps: Sequence[Step], workers: Workers) -> Played:
    """Play a run. steps: each after those that it needs, all of which are among them; raises ValueError otherwise."""
    known: set[str] = set()
    for step in steps:
        if step.name in known or not known.issuperset(step.needs):
            raise ValueError(f"the step {step.name!r} stands twice, or before a step that it needs")
        known.add(step.name)
    if workers.count < 1:
        raise ValueError("a run needs at least one worker")
    return _Playing(steps, workers).run()


@dataclass(slots=True)
class _OpenRound:
    left: deque[Task]
    step: str
    under_way: int = 0


@dataclass(slots=True)
class _OpenStep:
    actions: Iterator[float | Round]
    waits_for: int
    before: float
    then: list[str] = field(default_factory=list)
    began: float = 0.0


class _Playing:
    """The state of a run at a moment.

    Busy workers are equally fast, so one virtual clock, which runs at their speed, orders the ends of their tasks.
    """

    def __init__(self, steps: Sequence[Step], workers: Workers) -> None:
        self._workers = workers
        self._window = max(WINDOW, 4 * workers.count)
        self._now = self._virtual = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._running: list[tuple[float, int, int, Task, _OpenRound]] = []  # by their ends on the virtual clock
        self._waiting: list[tuple[int, int, Task, _OpenRound]] = []  # for the scheduler
        self._handed: list[tuple[int, int, Task, _OpenRound]] = []  # for a worker
        self._handing = False
        self._idle = list(range(workers.count))
        self._opened: set[tuple[int, str]] = set()
        self._at_work: Counter[str] = Counter()
        self._steps = {step.name: _OpenStep(_actions(step), len(step.needs), step.before) for step in steps}
        for step in steps:
            for need in step.needs:
                self._steps[need].then.append(step.name)
        self._told: dict[str, tuple[float, float]] = {}
        self._busy: Counter[str] = Counter()
        self._waited: Counter[str] = Counter()

    def run(self) -> Played:
        # Known before any begins: one that takes no time begins those that wait for it at once.
        for name in [name for name, step in self._steps.items() if not step.waits_for]:
            self._begin(name)
        while len(self._told) < len(self._steps):
            self._hand_out()
            event = self._events[0][0] if self._events else math.inf
            speed = self._workers.speed(len(self._running))
            end = self._now + (self._running[0][0] - self._virtual) / speed if self._running else math.inf
            self._pass(min(event, end), speed)
            if end <= event:
                self._virtual = self._running[0][0]
                self._end_task()
            else:
                heapq.heappop(self._events)[2]()
        return Played(self._now, self._told, dict(self._busy), dict(self._waited))

    def _pass(self, moment: float, speed: float) -> None:
        """Let the time pass, and count what the run waits for meanwhile."""
        passed = moment - self._now
        if passed > 0:
            busy = len(self._running)
            for stage, tasks in self._at_work.items():
                self._busy[stage] += tasks * passed
            if busy == self._workers.count:
                self._waited[WORKERS] += passed
            elif self._waiting or self._handed or self._handing:
                self._waited[SCHEDULER] += passed
            elif busy:
                for stage, tasks in self._at_work.items():
                    self._waited[stage] += passed * tasks / busy
            else:
                self._waited[DRIVER] += passed
            self._virtual += passed * speed
        self._now = moment

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        if seconds > 0:
            heapq.heappush(self._events, (self._now + seconds, next(self._order), act))
        else:
            act()

    # Steps

    def _begin(self, name: str) -> None:
        def begin() -> None:
            self._steps[name].began = self._now
            self._go_on(name)

        self._after(self._steps[name].before, begin)

    def _go_on(self, name: str) -> None:
        """Let a step do what comes next."""
        step = self._steps[name]
        for action in step.actions:
            if isinstance(action, Round):
                opened = _OpenRound(deque(action.tasks), name)
                if opened.left:
                    self._submit(opened)
                    return
            elif action > 0:
                self._after(action, lambda: self._go_on(name))
                return
        self._told[name] = (step.began, self._now)
        for other in step.then:
            self._steps[other].waits_for -= 1
            if not self._steps[other].waits_for:
                self._begin(other)

    # Tasks

    def _submit(self, round_: _OpenRound) -> None:
        """Fill the window of a round."""
        while round_.left and round_.under_way < self._window:
            task = round_.left.popleft()
            round_.under_way += 1
            heapq.heappush(self._waiting, (-task.priority, next(self._order), task, round_))

    def _hand_out(self) -> None:
        """Let the scheduler hand out tasks, and idle workers take what it has handed out."""
        while True:
            while self._handed and self._idle:
                _, _, task, round_ = heapq.heappop(self._handed)
                self._start(heapq.heappop(self._idle), task, round_)
            if self._handing or not self._waiting or len(self._handed) >= self._workers.count:
                return
            entry = heapq.heappop(self._waiting)
            if self._workers.handing <= 0:
                heapq.heappush(self._handed, entry)
                continue
            self._handing = True

            def handed(entry: tuple[int, int, Task, _OpenRound] = entry) -> None:
                self._handing = False
                heapq.heappush(self._handed, entry)

            self._after(self._workers.handing, handed)

    def _start(self, worker: int, task: Task, round_: _OpenRound) -> None:
        seconds = task.seconds
        for stage, opening in (("", self._workers.opening), (task.stage, task.opening)):
            if (worker, stage) not in self._opened:
                self._opened.add((worker, stage))
                seconds += opening
        self._at_work[task.stage] += 1
        heapq.heappush(self._running, (self._virtual + seconds, next(self._order), worker, task, round_))

    def _end_task(self) -> None:
        _, _, worker, task, round_ = heapq.heappop(self._running)
        self._at_work[task.stage] -= 1
        if not self._at_work[task.stage]:
            del self._at_work[task.stage]
        self._after(self._workers.pause, lambda: heapq.heappush(self._idle, worker))
        round_.under_way -= 1
        self._submit(round_)
        if not round_.under_way:
            self._go_on(round_.step)


def _actions(step: Step) -> Iterator[float | Round]:
    """What a step does, one after the other: seconds of the driver, and rounds that it waits for."""
    for round_ in step.rounds:
        yield round_.before
        yield round_
    yield step.after
