"""Read a run from its records, as a graph that can be replayed on other workers.

The graph comes from the run's `end.json` (`tasks.core.run_graph`), its parts from their receipts
(`storage.receipts.Work`). Missing records are not estimated.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from benchmarks.schedule import SimulatedRound, SimulatedStep, Task
from indexmill.errors import BadInput, CorruptBlob
from storage import runs
from storage.clock import from_timestamp
from storage.protocol import Store
from storage.receipts import Receipt, Work, scan
from tasks.core.part_runner import SEARCH_PRIORITY
from tasks.registry import STEPS

Clock = Literal["wall", "processor"]
"""Which seconds of a part count. "wall": wall seconds, or CPU seconds if they are more. "processor": CPU seconds alone,
which a busy machine does not change; they are right for workers with one thread."""

_PRIORITIES = {stage.name: stage.priority for step in STEPS for stage in step.stages} | {
    "scan": SEARCH_PRIORITY,
    "fingerprint": SEARCH_PRIORITY,
}


@dataclass(frozen=True, slots=True)
class RecordedPart:
    """A call that a worker ran.

    gap: seconds in which its worker was idle although the part was submitted. first: whether it is the first of its
    stage in its process; its seconds exclude the import of modules. raised_bytes: the increase of its process's peak
    memory, which was `before_bytes`; 0 for the first part of a process.
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
        """The peak memory of its process by its end."""
        return self.before_bytes + self.raised_bytes


@dataclass(frozen=True, slots=True)
class RecordedRound:
    """A round: the driver's seconds before it, and its parts.

    looking: the seconds of `before` spent on the keys of parts and the lookup of their receipts.
    """

    stage: str
    before: float
    parts: tuple[RecordedPart, ...]
    looking: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step in its group. before, after: the driver's seconds since the end of its needs, and after its rounds."""

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

    start_seconds: until its first step, while the workers start. end_seconds: after its last step. pause: seconds of a
    worker between two parts. opening: additional seconds of a worker's first call, which imports modules.
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
        """Seconds from its start to its end."""
        return self.start_seconds + self.steps_seconds + self.end_seconds

    @property
    def parts(self) -> list[RecordedPart]:
        """All parts."""
        return [part for step in self.steps for round_ in step.rounds for part in round_.parts]

    @property
    def driver_share(self) -> float:
        """The average number of cores that the driver's process uses."""
        return self.driver_processor_seconds / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class StoreModel:
    """The time that a slower store adds to the recorded seconds.

    latency: seconds of a request. bandwidth: bytes per second of a worker. readers: receipts that the driver reads
    concurrently.
    """

    latency: float = 0.0
    bandwidth: float = math.inf
    readers: int = 16

    def of(self, part: RecordedPart) -> float:
        """Return the added seconds of a part: its blobs, and the lookup and creation of its receipt."""
        requests = part.opened + part.put + 2
        return requests * self.latency + (part.bytes_read + part.bytes_made) / self.bandwidth

    def of_driver(self, round_: RecordedRound) -> float:
        """Return the added seconds of the driver, which looks up the receipt of each part."""
        return math.ceil(len(round_.parts) / self.readers) * self.latency


NO_STORE = StoreModel()


def run_of(store: Store, run_id: str | None) -> str:
    """Return the id of a run; by default the one that made the most parts. Raises BadInput if there is none."""
    candidates = [run for run in runs.list_runs(store) if run.end is not None and "graph" in run.end.report]
    if run_id is not None:
        candidates = [run for run in candidates if run.run_id == run_id]
    if not candidates:
        raise BadInput(
            f"{store.url} has no run{f' {run_id}' if run_id else ''} with a recorded graph; build into a new store"
        )
    return max(candidates, key=lambda run: (_number(run.end.report, "totals", "parts_made"), run.run_id)).run_id  # type: ignore[union-attr]


def read_run(store: Store, run_id: str | None = None) -> RecordedRun:
    """Read a run from its records and the receipts of the parts that it made.

    Raises BadInput if the records are incomplete, CorruptBlob if the graph is malformed.
    """
    run = runs.read_run(store, run_of(store, run_id))
    if run.end is None or run.seconds is None:
        raise BadInput(f"the run {run.run_id} has no end")
    report: Any = run.end.report
    try:
        stages = list(dict.fromkeys(str(row[3]) for row in report["graph"]["rounds"]))
        receipts = [receipt for stage in stages for receipt in scan(store, stage) if receipt.run_id == run.run_id]
        return recorded(run.run_id, run.seconds, report, receipts)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CorruptBlob(
            f"{store.url}: the graph in the record of the run {run.run_id} is damaged: {error}"
        ) from error


def recorded(run_id: str, seconds: float, report: Any, receipts: Iterable[Receipt]) -> RecordedRun:
    """Return a run from its report and receipts. Raises BadInput if records are missing or steps ran twice."""
    graph = report["graph"]
    if graph["left_out"]:
        raise BadInput(f"the record of the run {run_id} leaves out {graph['left_out']} steps and rounds")
    rounds = [_Row(*row) for row in graph["rounds"]]
    moments = _moments(run_id, receipts, {row.number: row for row in rounds})
    parts_by_round = _parts_of(moments)
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
        ended_needs = tuple(need for need in needs if (group, need) in ended)
        since = max((ended[group, need] for need in ended_needs), default=free[group])
        step_rounds, at = [], began
        for row in by_step[group, name]:
            parts, before = _with_others(row, parts_by_round.get(row.number, [])), max(0.0, row.called - at)
            step_rounds.append(RecordedRound(row.stage, before, parts, min(before, row.called - row.began)))
            # The driver takes the time between the end of the last part and the next call.
            ends = [moment.ended for moment in moments if moment.work.round == row.number]
            at = min(row.ended, max(ends, default=row.ended))
        steps.append(
            RecordedStep(
                name, group, of_shards, ended_needs, max(0.0, began - since), tuple(step_rounds), max(0.0, end - at)
            )
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
    """A part on the clock of the run. follows: whether its worker was busy with another part when it was submitted."""

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
    """Return the parts in the order of their start, in seconds since the start of the run.

    Each machine's clock is shifted so that the part that began the soonest after its submission began at once.
    """
    moments = []
    for receipt in receipts:
        if receipt.work is None or receipt.seconds is None:
            raise BadInput(f"a receipt of the run {run_id} does not record its work")
        if receipt.work.round in rounds:
            moments.append(_Moment(receipt, receipt.work, receipt.seconds, from_timestamp(receipt.work.began)))
    ahead: dict[str, float] = {}
    for moment in moments:
        host = moment.work.worker.rpartition(":")[0]
        ahead[host] = min(ahead.get(host, math.inf), moment.began - rounds[moment.work.round].called)
    for moment in moments:
        moment.began -= ahead[moment.work.worker.rpartition(":")[0]]
    moments.sort(key=lambda moment: (moment.began, moment.receipt.stage, moment.receipt.shard))
    seen: set[tuple[str, str]] = set()
    idle: dict[str, float] = {}
    alone = len({moment.work.worker for moment in moments}) == 1
    silent = [
        row for row in rounds.values() if row.calls and all(row.number != moment.work.round for moment in moments)
    ]
    for moment in moments:
        worker, called = moment.work.worker, rounds[moment.work.round].called
        since = idle.get(worker, 0.0)
        if alone:  # calls without a receipt had the same worker
            ends = (row.ended for row in silent if called < row.ended and row.ended - row.seconds < moment.began)
            since = max([since, *(min(ended, moment.began) for ended in ends)])
        moment.first = (worker, moment.receipt.stage) not in seen
        moment.gap, moment.follows = max(0.0, moment.began - max(since, called)), since > called
        seen.add((worker, moment.receipt.stage))
        idle[worker] = max(since, moment.ended)
    return moments


def _worker_opening(rounds: Sequence[_Row]) -> float:
    """Return the first call's seconds besides its work, if it was alone in its round."""
    first = min((row for row in rounds if row.calls), key=lambda row: (row.called, row.number), default=None)
    return max(0.0, first.ended - first.called - first.seconds) if first is not None and first.calls == 1 else 0.0


def _in_order(run_id: str, steps: Any) -> list[tuple[Any, ...]]:
    """Return the steps by group and end, so that each follows those it needs."""
    rows = [tuple(row) for row in steps]
    if len({(row[3], row[0]) for row in rows}) < len(rows):
        raise BadInput(f"the run {run_id} ran some steps twice: a document was quarantined; replay another run")
    return sorted(rows, key=lambda row: (row[3], row[5], row[4]))


def _parts_of(moments: Sequence[_Moment]) -> dict[int, list[RecordedPart]]:
    """Return the parts by the number of their round, in the order of their start."""
    peaks: dict[str, int] = {}
    parts: dict[int, list[RecordedPart]] = defaultdict(list)
    for moment in moments:
        receipt, work = moment.receipt, moment.work
        before = peaks.get(work.worker, work.peak_bytes)
        peaks[work.worker] = max(before, work.peak_bytes)
        parts[work.round].append(
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
    return parts


def _with_others(row: _Row, parts: Sequence[RecordedPart]) -> tuple[RecordedPart, ...]:
    """Return the parts of a round, with calls of equal length for those without a receipt."""
    lacking = row.calls - len(parts)
    if lacking <= 0:
        return tuple(parts)
    each = max(0.0, row.seconds - sum(part.seconds for part in parts)) / lacking
    return (*parts, *(RecordedPart(row.stage, "", each, each) for _ in range(lacking)))


def _number(value: Any, *names: str) -> float:
    for name in names:
        value = value.get(name, 0) if isinstance(value, dict) else 0
    return float(value) if isinstance(value, (int, float)) else 0.0


def graph_of(run: RecordedRun, clock: Clock = "wall", store: StoreModel = NO_STORE) -> list[SimulatedStep]:
    """Return the graph of a run for replay: the steps of a group need all steps of the previous group."""
    openings = {stage: _Opening.of(stage_rounds, clock, run.pause) for stage, stage_rounds in _by_stage(run).items()}
    several = len({step.group for step in run.steps}) > 1
    names = {(step.group, step.name): f"{step.group} {step.name}" if several else step.name for step in run.steps}
    before = {group: earlier for earlier, group in itertools.pairwise(sorted({step.group for step in run.steps}))}
    steps = []
    for step in run.steps:
        needs = [names[step.group, need] for need in step.needs]
        if step.group in before:
            needs += [name for (group, _), name in names.items() if group == before[step.group]]
        rounds = tuple(
            SimulatedRound(
                round_.before + store.of_driver(round_),
                tuple(_task(part, clock, store, openings[part.stage]) for part in round_.parts),
            )
            for round_ in step.rounds
        )
        steps.append(SimulatedStep(names[step.group, step.name], rounds, tuple(needs), step.before, step.after))
    return steps


def _task(part: RecordedPart, clock: Clock, store: StoreModel, opening: _Opening) -> Task:
    seconds = _seconds(part, clock) - (opening.within if part.first else 0.0)
    priority = _PRIORITIES.get(part.stage, 0)
    return Task(part.stage, seconds + store.of(part), priority, opening.within + opening.before)


class _Opening(NamedTuple):
    """Additional seconds of the first part of a stage in a process, which imports modules and opens models.

    before: seconds before the part's own clock starts. within: seconds on the part's own clock.
    """

    before: float
    within: float

    @classmethod
    def of(cls, rounds: Sequence[RecordedRound], clock: Clock, pause: float) -> _Opening:
        """Estimate from the gaps before first parts, and from the bytes that parts of their rounds read and write.

        Without another part in the round, `within` cannot be separated from the part's work.
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
        # Subtracting it must leave no part with negative seconds.
        return cls(before, max(0.0, min([within, *(_seconds(part, clock) for part in firsts)])))


def _by_stage(run: RecordedRun) -> dict[str, list[RecordedRound]]:
    rounds: dict[str, list[RecordedRound]] = defaultdict(list)
    for step in run.steps:
        for round_ in step.rounds:
            rounds[round_.stage].append(round_)
    return rounds


def _seconds(part: RecordedPart, clock: Clock) -> float:
    """Return a part's seconds on a worker with one core: the encoder may have used a second, idle one."""
    return part.processor_seconds if clock == "processor" else max(part.seconds, part.processor_seconds)


def _size(part: RecordedPart) -> int:
    return part.bytes_read + part.bytes_made
