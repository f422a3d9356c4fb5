"""Simulate a run: a driver's steps, their rounds of tasks, and the workers that run them.

The model follows `flows/build.py` and `flows/dask_executor.py`. A step begins when the steps it needs have ended, and
submits rounds of tasks one after the other; each round waits for all of its tasks. Rounds of concurrent steps share the
workers: the highest priority runs first, then the earliest submission. A round keeps a window of its tasks submitted.
The scheduler hands out one task after the other, one ahead for each worker, which a task of higher priority does not
overtake (Dask's `worker-saturation`, for workers of one thread).

The simulation is deterministic: the same graph on the same workers takes the same seconds.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

WINDOW = 64
"""The submitted tasks of a round, or four for each worker if that is more: `flows.dask_executor`."""

WORKERS, SCHEDULER, DRIVER = "workers", "scheduler", "driver"
"""What a run may wait for besides the last tasks of a stage. WORKERS: all are busy. SCHEDULER: idle workers wait for a
task. DRIVER: no task is submitted."""


@dataclass(frozen=True, slots=True)
class Task:
    """A call on a worker: its seconds on its own core. opening: additional seconds of a stage's first call there."""

    stage: str
    seconds: float
    priority: int = 0
    opening: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedRound:
    """Tasks that a step submits together. before: the driver's own seconds until then."""

    before: float
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class SimulatedStep:
    """A step and its rounds. before, after: the driver's seconds since the end of its needs, and after its rounds."""

    name: str
    rounds: tuple[SimulatedRound, ...]
    needs: tuple[str, ...] = ()
    before: float = 0.0
    after: float = 0.0


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers of a run, with one thread each.

    handing: seconds of the scheduler for a task, one after the other. pause: seconds of a worker between two tasks.
    opening: additional seconds of a worker's first task.
    cores: of the machine that all workers share with the driver, which uses `driver` of them; None if each has its own
    core.
    """

    count: int
    handing: float = 0.0
    pause: float = 0.0
    opening: float = 0.0
    cores: float | None = None
    driver: float = 0.0

    def speed(self, busy: int) -> float:
        """Return the share of a core that each of `busy` busy workers has."""
        return min(1.0, self.cores / (busy + self.driver)) if busy and self.cores is not None else 1.0


@dataclass(frozen=True, slots=True)
class Played:
    """A simulated run: its seconds, the start and end of each step, and the worker seconds of each stage.

    waited: seconds by cause: WORKERS, SCHEDULER, DRIVER, or the stage whose last tasks were running while other workers
    were idle.
    """

    seconds: float
    steps: Mapping[str, tuple[float, float]]
    busy: Mapping[str, float]
    waited: Mapping[str, float]


def critical_path(steps: Sequence[SimulatedStep]) -> float:
    """Return the seconds of a run's longest chain: no task waits for a worker. Openings are left out."""
    ended: dict[str, float] = {}
    for step in steps:
        began = max((ended[need] for need in step.needs), default=0.0) + step.before
        rounds = (round_.before + max((task.seconds for task in round_.tasks), default=0.0) for round_ in step.rounds)
        ended[step.name] = began + sum(rounds) + step.after
    return max(ended.values(), default=0.0)


def play(steps: Sequence[SimulatedStep], workers: Workers) -> Played:
    """Simulate a run. Raises ValueError unless every step follows all the steps that it needs."""
    names: set[str] = set()
    for step in steps:
        if step.name in names or not names.issuperset(step.needs):
            raise ValueError(f"the step {step.name!r} occurs twice, or before a step that it needs")
        names.add(step.name)
    if workers.count < 1:
        raise ValueError("a run needs at least one worker")
    return _Playing(steps, workers).run()


@dataclass(slots=True)
class _OpenRound:
    remaining: deque[Task]
    step: str
    under_way: int = 0


@dataclass(slots=True)
class _OpenStep:
    actions: Iterator[float | SimulatedRound]
    waits_for: int
    before: float
    then: list[str] = field(default_factory=list)
    began: float = 0.0


class _Playing:
    """The state of a simulated run.

    All busy workers have the same speed, so one virtual clock at that speed orders the ends of their tasks.
    """

    def __init__(self, steps: Sequence[SimulatedStep], workers: Workers) -> None:
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
        self._spans: dict[str, tuple[float, float]] = {}
        self._busy: Counter[str] = Counter()
        self._waited: Counter[str] = Counter()

    def run(self) -> Played:
        # Listed before any begins, since a step without duration begins its successors at once.
        for name in [name for name, step in self._steps.items() if not step.waits_for]:
            self._begin(name)
        while len(self._spans) < len(self._steps):
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
        return Played(self._now, self._spans, dict(self._busy), dict(self._waited))

    def _pass(self, moment: float, speed: float) -> None:
        """Advance the clock, and count what the run waits for meanwhile."""
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
        """Run a step's next actions, until it waits or ends."""
        step = self._steps[name]
        for action in step.actions:
            if isinstance(action, SimulatedRound):
                opened = _OpenRound(deque(action.tasks), name)
                if opened.remaining:
                    self._submit(opened)
                    return
            elif action > 0:
                self._after(action, lambda: self._go_on(name))
                return
        self._spans[name] = (step.began, self._now)
        for successor in step.then:
            self._steps[successor].waits_for -= 1
            if not self._steps[successor].waits_for:
                self._begin(successor)

    # Tasks

    def _submit(self, round_: _OpenRound) -> None:
        """Fill the window of a round."""
        while round_.remaining and round_.under_way < self._window:
            task = round_.remaining.popleft()
            round_.under_way += 1
            heapq.heappush(self._waiting, (-task.priority, next(self._order), task, round_))

    def _hand_out(self) -> None:
        """Hand out tasks, and start them on idle workers."""
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


def _actions(step: SimulatedStep) -> Iterator[float | SimulatedRound]:
    """Yield a step's actions in order: seconds of the driver, and rounds to wait for."""
    for round_ in step.rounds:
        yield round_.before
        yield round_
    yield step.after
