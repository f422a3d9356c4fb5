"""The estimated duration of a plan, from the rates of the store's past runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from schemas.config import EmbedSettings
from storage.clock import from_timestamp
from storage.runs import StoredRun

_RUNS = 20
"""The number of newest runs that are used."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Bounds of the wall-clock time and of the work of all workers, from the rates of past runs.

    runs: the runs that gave the rates. unjudged: stages with work to do that no past run has done.
    """

    low: float
    high: float
    work_low: float
    work_high: float
    runs: Annotated[tuple[str, ...], Field(strict=False)]
    unjudged: Annotated[tuple[str, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True)
class StageWork:
    """The numbers of parts and vectors that a stage has to make."""

    parts: int
    vectors: int = 0


def seconds_of(
    history: Iterable[StoredRun], work: Mapping[str, StageWork], embed: Mapping[str, Any], workers: int
) -> Seconds | None:
    """Estimate the time for the work of all stages; None if no run has made anything yet.

    The bounds use a stage's fastest and slowest past rate per part, or per vector. `embed`: the settings of the
    encoder; rates per vector from other settings are ignored.
    """
    ended = [run for run in history if run.end is not None and stage_counts(run)][-_RUNS:]
    rates: dict[str, list[float]] = {}
    used: dict[str, None] = {}
    for run in ended:
        same_encoder = _embed(run) == EmbedSettings.of_encoder(embed)
        for stage, counts in stage_counts(run).items():
            unit = int(counts["vectors_made"] if "vectors_made" in counts else counts["parts_made"])
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


def _wall(ended: list[StoredRun], low: float, high: float, workers: int) -> tuple[float, float]:
    """Return bounds of the wall-clock time for `low` to `high` seconds of work.

    The work is scaled by the best past ratio of wall time to work. The lower bound adds the smallest past overhead. The
    upper bound adds the largest, but at least the smallest time that a past run took beyond that of fully busy workers.
    """
    took = []
    for run in ended:
        if run.end is not None and run.end.exit_code == 0:
            seconds = from_timestamp(run.end.ended) - from_timestamp(run.started)
            took.append((max(seconds, 0.0), sum(counts["seconds"] for counts in stage_counts(run).values())))
    paces = [wall / work for wall, work in took if work > 0]
    if not paces:
        return low, high
    pace = min(paces)
    beside = [max(wall - pace * work, 0.0) for wall, work in took]
    most = min(max(wall - work / workers, 0.0) for wall, work in took)
    return pace * low + min(beside), pace * high + max(most, *beside)


def stage_counts(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return the counts of a run's report, by stage; empty if the run has not ended."""
    stages = run.end.report.get("stages") if run.end is not None else None
    return {
        name: counts
        for name, counts in (stages if isinstance(stages, dict) else {}).items()
        if isinstance(counts, dict) and {"parts_made", "seconds"} <= counts.keys()
    }


def _by_vector(ended: Iterable[StoredRun]) -> set[str]:
    return {stage for run in ended for stage, counts in stage_counts(run).items() if "vectors_made" in counts}


def _embed(run: StoredRun) -> dict[str, Any]:
    """Return the encoder settings that a run recorded; empty if it recorded none."""
    configuration = run.start.details.get("configuration")
    settings = configuration.get("embed") if isinstance(configuration, dict) else None
    return EmbedSettings.of_encoder(settings) if isinstance(settings, dict) else {}
