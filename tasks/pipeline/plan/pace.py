"""How long the work of a plan may take, judged from what the runs of the store took."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from storage.clock import from_timestamp
from storage.runs import Run

__all__ = ["Seconds", "Work", "seconds_of"]

_RUNS = 20
"""The newest runs that are looked at."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Bounds of the time from start to end, and of the work summed over workers, from the rates of past runs.

    runs: those that the rates are of. unjudged: stages that have work to do and that no past run has done.
    """

    low: float
    high: float
    work_low: float
    work_high: float
    runs: Annotated[tuple[str, ...], Field(strict=False)]
    unjudged: Annotated[tuple[str, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True)
class Work:
    """What a stage has to make."""

    parts: int
    vectors: int = 0


def seconds_of(
    history: Iterable[Run], work: Mapping[str, Work], embed: Mapping[str, Any], workers: int
) -> Seconds | None:
    """The time for some work by stage; None where no run has made anything yet.

    A stage takes what the slowest and the quickest of the past took for a part, or for a vector. `embed` are the
    settings of the encoder: another one's vectors tell nothing.
    """
    ended = [run for run in history if run.end is not None and _stages(run)][-_RUNS:]
    rates: dict[str, list[float]] = {}
    used: dict[str, None] = {}
    for run in ended:
        same_encoder = _embed(run) == dict(embed)
        for stage, counts in _stages(run).items():
            unit = _unit(counts)
            if unit and (same_encoder or "vectors_made" not in counts):
                rates.setdefault(stage, []).append(counts["seconds"] / unit)
                used[run.run_id] = None
    if not used:
        return None
    low = high = 0.0
    unjudged = []
    for stage, todo in work.items():
        if not todo.parts:
            continue
        if stage not in rates:
            unjudged.append(stage)
            continue
        amount = todo.vectors if stage in _by_vector(ended) else todo.parts
        low, high = low + amount * min(rates[stage]), high + amount * max(rates[stage])
    wall_low, wall_high = _wall(ended, low, high, workers)
    return Seconds(
        low=round(wall_low, 1),
        high=round(wall_high, 1),
        work_low=round(low, 1),
        work_high=round(high, 1),
        runs=tuple(used),
        unjudged=tuple(unjudged),
    )


def _wall(ended: list[Run], low: float, high: float, workers: int) -> tuple[float, float]:
    """Time on the clock for some seconds of work: the best pace of a past run, and what others took beside it.

    What a run takes beside its work is no more than any run took beyond its work on perfectly busy workers.
    """
    took = []
    for run in ended:
        if run.end is not None and run.end.exit_code == 0:
            seconds = from_timestamp(run.end.ended) - from_timestamp(run.started)
            took.append((max(seconds, 0.0), sum(counts["seconds"] for counts in _stages(run).values())))
    paces = [wall / work for wall, work in took if work > 0]
    if not paces:
        return low, high
    pace = min(paces)
    beside = [max(wall - pace * work, 0.0) for wall, work in took]
    most = min(max(wall - work / workers, 0.0) for wall, work in took)
    return pace * low + min(beside), pace * high + max(most, *beside)


def _stages(run: Run) -> dict[str, dict[str, Any]]:
    """The stages of a run's report."""
    stages = run.end.report.get("stages") if run.end is not None else None
    return {
        name: counts
        for name, counts in (stages if isinstance(stages, dict) else {}).items()
        if isinstance(counts, dict) and {"parts_made", "seconds"} <= counts.keys()
    }


def _unit(counts: Mapping[str, Any]) -> int:
    return int(counts["vectors_made"] if "vectors_made" in counts else counts["parts_made"])


def _by_vector(ended: Iterable[Run]) -> set[str]:
    return {stage for run in ended for stage, counts in _stages(run).items() if "vectors_made" in counts}


def _embed(run: Run) -> Any:
    configuration = run.start.details.get("configuration")
    return configuration.get("embed") if isinstance(configuration, dict) else None
