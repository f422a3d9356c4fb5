"""A run as its records tell it, and the graph that can be played on other workers.

The graph comes from the run's `end.json` (`tasks.core.run_graph`), its parts from their receipts
(`storage.receipts.Work`). What no record has is not made up: a run of an earlier release is refused.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from benchmarks.schedule import Round, Step, Task
from indexmill.errors import BadInput, CorruptBlob
from storage import runs
from storage.clock import from_timestamp
from storage.protocol import Store
from storage.receipts import Receipt, Work, scan
from tasks.core.part_runner import SEARCH_PRIORITY
from tasks.registry import STEPS

Clock = Literal["wall", "processor"]
"""Which seconds of a part count: those that passed, or those of processors where they are more; or the latter alone,
which hold on a busy machine, too. Those of processors are right for workers with one thread."""

_PRIORITIES = {stage.name: stage.priority for step in STEPS for stage in step.stages} | {
    "scan": SEARCH_PRIORITY,
    "fingerprint": SEARCH_PRIORITY,
}


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """A call that a worker made.

    gap: seconds in which its worker was idle although the part was called. first: of its stage in its process; while
    modules are imported for it, its seconds do not count yet. raised_bytes: by which it raised the most memory of its
    process, which had been `before_bytes`; 0 of the first part of a process.
    """

    stage: str
    shard: str
    seconds: float
    processor_seconds: float
    gap: float = 0.0
    first: bool = False
    opened: int = 0
    bytes_read: int = 0
    put: int = 0
    bytes_made: int = 0
    before_bytes: int = 0
    raised_bytes: int = 0

    @property
    def process_bytes(self) -> int:
        """The most memory of its process by its end."""
        return self.before_bytes + self.raised_bytes


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round: the driver's seconds before it, and its parts.

    looking: those of `before` in which it computed the keys of parts and looked for their receipts.
    """

    stage: str
    before: float
    parts: tuple[RecordedPart, ...]
    looking: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step in its group: the driver's seconds from the end of what it needs to its start, and after its rounds."""

    name: str
    group: int
    of_shards: bool
    needs: tuple[str, ...]
    before: float
    rounds: tuple[RecordedRound, ...]
    after: float


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run.

    start_seconds: until its first step; processes of workers start meanwhile. end_seconds: after its last step. pause:
    seconds of a worker between two parts. opening: seconds more of the first call of a worker, which imports modules.
    """

    run_id: str
    documents: int
    workers: int
    start_seconds: float
    end_seconds: float
    driver_processor_seconds: float
    steps: tuple[RecordedStep, ...]
    steps_seconds: float
    pause: float = 0.0
    opening: float = 0.0

    @property
    def seconds(self) -> float:
        """From its start to its end."""
        return self.start_seconds + self.steps_seconds + self.end_seconds

    @property
    def parts(self) -> list[RecordedPart]:
        """All parts."""
        return [part for step in self.steps for round_ in step.rounds for part in round_.parts]

    @property
    def driver_share(self) -> float:
        """The cores that the process of the driver takes on average."""
        return self.driver_processor_seconds / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class StoreModel:
    """What a store adds to the recorded seconds, which are those of the store of the run.

    latency: seconds of a request. bandwidth: bytes per second of a worker. readers: receipts that the driver reads at
    the same time.
    """

    latency: float = 0.0
    bandwidth: float = math.inf
    readers: int = 16

    def of(self, part: RecordedPart) -> float:
        """The seconds of a part: its blobs, and its receipt, which is looked for and created."""
        requests = part.opened + part.put + 2
        return requests * self.latency + (part.bytes_read + part.bytes_made) / self.bandwidth

    def of_driver(self, round_: RecordedRound) -> float:
        """The seconds of the driver, which looks for the receipt of each part."""
        return math.ceil(len(round_.parts) / self.readers) * self.latency


NO_STORE = StoreModel()


def run_of(store: Store, run_id: str | None) -> str:
    """The run of this id; by default the last that made the most parts. Raises BadInput if there is none."""
    found = [run for run in runs.list_runs(store) if run.end is not None and "graph" in run.end.report]
    if run_id is not None:
        found = [run for run in found if run.run_id == run_id]
    if not found:
        raise BadInput(
            f"{store.url} has no run{f' {run_id}' if run_id else ''} with a recorded graph; build into a new store"
        )
    return max(found, key=lambda run: (_number(run.end.report, "totals", "parts_made"), run.run_id)).run_id  # type: ignore[union-attr]


def read_run(store: Store, run_id: str | None = None) -> RecordedRun:
    """A run from its records and the receipts of the parts that it made.

    Raises BadInput if they do not suffice, CorruptBlob if the graph has another form than a run writes.
    """
    run = runs.read_run(store, run_of(store, run_id))
    if run.end is None or run.seconds is None:
        raise BadInput(f"the run {run.run_id} has no end")
    report: Any = run.end.report
    try:
        stages = list(dict.fromkeys(str(row[3]) for row in report["graph"]["rounds"]))
        receipts = [one for stage in stages for one in scan(store, stage) if one.run_id == run.run_id]
        return recorded(run.run_id, run.seconds, report, receipts)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CorruptBlob(
            f"{store.url}: the graph in the record of the run {run.run_id} is damaged: {error}"
        ) from error


def recorded(run_id: str, seconds: float, report: Any, receipts: Iterable[Receipt]) -> RecordedRun:
    """A run from its report and receipts; raises BadInput if a part is not told, or steps ran twice."""
    graph = report["graph"]
    if graph["left_out"]:
        raise BadInput(f"the record of the run {run_id} leaves out {graph['left_out']} steps and rounds")
    rounds = [_Row(*row) for row in graph["rounds"]]
    moments = _moments(run_id, receipts, {row.number: row for row in rounds})
    made = _parts_of(moments)
    opening = _worker_opening(rounds)
    by_step: dict[tuple[int, str], list[_Row]] = defaultdict(list)
    for row in rounds:
        by_step[row.group, row.step].append(row)
    rows = _in_order(run_id, graph["steps"])
    first = min((row[4] for row in rows), default=0.0)
    last = max((row[5] for row in rows), default=0.0)
    groups = sorted({row[3] for row in rows})
    free = dict.fromkeys(groups, first)
    for before, group in itertools.pairwise(groups):
        free[group] = max(row[5] for row in rows if row[3] == before)
    ended: dict[tuple[int, str], float] = {}
    steps: list[RecordedStep] = []
    for name, needs, of_shards, group, began, end in rows:
        known = tuple(need for need in needs if (group, need) in ended)
        since = max((ended[group, need] for need in known), default=free[group])
        told, at = [], began
        for row in by_step[group, name]:
            parts, before = _with_others(row, made.get(row.number, [])), max(0.0, row.called - at)
            told.append(RecordedRound(row.stage, before, parts, min(before, row.called - row.began)))
            # What passes between the end of the last part and the next call is the driver's.
            ends = [moment.ended for moment in moments if moment.work.round == row.number]
            at = min(row.ended, max(ends, default=row.ended))
        steps.append(
            RecordedStep(name, group, of_shards, known, max(0.0, began - since), tuple(told), max(0.0, end - at))
        )
        ended[group, name] = end
    pauses = [moment.gap for moment in moments if moment.follows and not moment.first]
    return RecordedRun(
        run_id=run_id,
        documents=int(_number(report, "stages", "ingest", "documents")),
        workers=len({moment.work.worker for moment in moments}),
        start_seconds=first,
        end_seconds=max(0.0, seconds - last),
        driver_processor_seconds=float(graph.get("driver_processor_seconds", 0.0)),
        steps=tuple(steps),
        steps_seconds=last - first,
        pause=statistics.median(pauses) if pauses else 0.0,
        opening=opening,
    )


class _Row(NamedTuple):
    """A round of the record."""

    number: int
    step: str
    group: int
    stage: str
    began: float
    called: float
    ended: float
    calls: int
    seconds: float


@dataclass(slots=True)
class _Moment:
    """A part in the time of the run. follows: its worker took it from others that it had just worked on."""

    receipt: Receipt
    work: Work
    seconds: float
    began: float
    first: bool = False
    gap: float = 0.0
    follows: bool = False

    @property
    def ended(self) -> float:
        return self.began + self.seconds


def _moments(run_id: str, receipts: Iterable[Receipt], rounds: Mapping[int, _Row]) -> list[_Moment]:
    """The parts in the order of their start, in seconds since the start of the run.

    The clock of a machine is set so that the part that began the soonest after it was called began at once.
    """
    found = []
    for receipt in receipts:
        if receipt.work is None or receipt.seconds is None:
            raise BadInput(f"the receipts of the run {run_id} do not tell their work: an earlier release made them")
        if receipt.work.round in rounds:
            found.append(_Moment(receipt, receipt.work, receipt.seconds, from_timestamp(receipt.work.began)))
    ahead: dict[str, float] = {}
    for moment in found:
        host = moment.work.worker.rpartition(":")[0]
        ahead[host] = min(ahead.get(host, math.inf), moment.began - rounds[moment.work.round].called)
    for moment in found:
        moment.began -= ahead[moment.work.worker.rpartition(":")[0]]
    found.sort(key=lambda one: (one.began, one.receipt.stage, one.receipt.shard))
    seen: set[tuple[str, str]] = set()
    idle: dict[str, float] = {}
    alone = len({moment.work.worker for moment in found}) == 1
    silent = [row for row in rounds.values() if row.calls and all(row.number != one.work.round for one in found)]
    for moment in found:
        worker, called = moment.work.worker, rounds[moment.work.round].called
        since = idle.get(worker, 0.0)
        if alone:  # calls that leave no receipt had the same worker
            known = (row.ended for row in silent if called < row.ended and row.ended - row.seconds < moment.began)
            since = max([since, *(min(ended, moment.began) for ended in known)])
        moment.first = (worker, moment.receipt.stage) not in seen
        moment.gap, moment.follows = max(0.0, moment.began - max(since, called)), since > called
        seen.add((worker, moment.receipt.stage))
        idle[worker] = max(since, moment.ended)
    return found


def _worker_opening(rounds: Sequence[_Row]) -> float:
    """What the first call of the run took besides its work, if it was alone in its round."""
    first = min((row for row in rounds if row.calls), key=lambda row: (row.called, row.number), default=None)
    return max(0.0, first.ended - first.called - first.seconds) if first is not None and first.calls == 1 else 0.0


def _in_order(run_id: str, steps: Any) -> list[tuple[Any, ...]]:
    """The steps, each after those of its group that it needs, which have ended before."""
    rows = [tuple(row) for row in steps]
    if len({(row[3], row[0]) for row in rows}) < len(rows):
        raise BadInput(f"the run {run_id} ran some steps twice: a document had to be refused; replay another")
    return sorted(rows, key=lambda row: (row[3], row[5], row[4]))


def _parts_of(moments: Sequence[_Moment]) -> dict[int, list[RecordedPart]]:
    """The parts by the number of their round, in the order in which they began."""
    peaks: dict[str, int] = {}
    made: dict[int, list[RecordedPart]] = defaultdict(list)
    for moment in moments:
        receipt, work = moment.receipt, moment.work
        before = peaks.get(work.worker, work.peak_bytes)
        peaks[work.worker] = max(before, work.peak_bytes)
        made[work.round].append(
            RecordedPart(
                stage=receipt.stage,
                shard=receipt.shard,
                seconds=moment.seconds,
                processor_seconds=work.processor_seconds,
                gap=moment.gap,
                first=moment.first,
                opened=work.opened,
                bytes_read=work.bytes_read,
                put=len(receipt.outputs),
                bytes_made=sum(receipt.bytes.values()),
                before_bytes=before,
                raised_bytes=peaks[work.worker] - before,
            )
        )
    return made


def _with_others(row: _Row, parts: Sequence[RecordedPart]) -> tuple[RecordedPart, ...]:
    """The parts of a round, and calls of equal length in the place of those that left no receipt."""
    lacking = row.calls - len(parts)
    if lacking <= 0:
        return tuple(parts)
    each = max(0.0, row.seconds - sum(part.seconds for part in parts)) / lacking
    return (*parts, *(RecordedPart(row.stage, "", each, each) for _ in range(lacking)))


def _number(said: Any, *names: str) -> float:
    for name in names:
        said = said.get(name, 0) if isinstance(said, dict) else 0
    return float(said) if isinstance(said, (int, float)) else 0.0


def graph_of(run: RecordedRun, clock: Clock = "wall", store: StoreModel = NO_STORE) -> list[Step]:
    """The graph of a run to play: the steps of a group need all of the group before."""
    openings = {stage: _Opening.of(its, clock, run.pause) for stage, its in _by_stage(run).items()}
    several = len({step.group for step in run.steps}) > 1
    names = {(step.group, step.name): f"{step.group} {step.name}" if several else step.name for step in run.steps}
    before = {group: earlier for earlier, group in itertools.pairwise(sorted({step.group for step in run.steps}))}
    found = []
    for step in run.steps:
        needs = [names[step.group, need] for need in step.needs]
        if step.group in before:
            needs += [name for (group, _), name in names.items() if group == before[step.group]]
        rounds = tuple(
            Round(
                round_.before + store.of_driver(round_),
                tuple(_task(part, clock, store, openings[part.stage]) for part in round_.parts),
            )
            for round_ in step.rounds
        )
        found.append(Step(names[step.group, step.name], rounds, tuple(needs), step.before, step.after))
    return found


def _task(part: RecordedPart, clock: Clock, store: StoreModel, opening: _Opening) -> Task:
    seconds = _seconds(part, clock) - (opening.within if part.first else 0.0)
    priority = _PRIORITIES.get(part.stage, 0)
    return Task(part.stage, seconds + store.of(part), priority, opening.within + opening.before)


class _Opening(NamedTuple):
    """What the first part of a stage in a process takes more than others: it imports modules and opens models.

    before: seconds before it begins to count its own. within: of those.
    """

    before: float
    within: float

    @classmethod
    def of(cls, rounds: Sequence[RecordedRound], clock: Clock, pause: float) -> _Opening:
        """From the gaps before first parts, and from the bytes that parts of their round read and make.

        If no process made another part in the round, what is within its seconds cannot be told from its work.
        """
        firsts = [part for round_ in rounds for part in round_.parts if part.first]
        if not firsts:
            return cls(0.0, 0.0)
        before = max(0.0, statistics.median(part.gap for part in firsts) - pause)
        more = []
        for round_ in rounds:
            others = [_seconds(part, clock) / _size(part) for part in round_.parts if not part.first and _size(part)]
            rate = statistics.median(others) if others else math.inf
            more += [_seconds(part, clock) - rate * _size(part) for part in round_.parts if part.first and _size(part)]
        within = statistics.median(more) if more else 0.0
        # Without it, no part takes less than nothing.
        return cls(before, max(0.0, min([within, *(_seconds(part, clock) for part in firsts)])))


def _by_stage(run: RecordedRun) -> dict[str, list[RecordedRound]]:
    found: dict[str, list[RecordedRound]] = defaultdict(list)
    for step in run.steps:
        for round_ in step.rounds:
            found[round_.stage].append(round_)
    return found


def _seconds(part: RecordedPart, clock: Clock) -> float:
    """The seconds of a part in a worker with one core: it may have had a second, as the encoder takes an idle one."""
    return part.processor_seconds if clock == "processor" else max(part.seconds, part.processor_seconds)


def _size(part: RecordedPart) -> int:
    return part.bytes_read + part.bytes_made
