"""The record of a run as a report reads it.

It is read leniently: an older run recorded less, a newer one records more, and what does not have the expected form
counts as not recorded. So every field but the name is optional in the record, and has a default here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from indexmill.errors import CorruptBlob
from indexmill.store.reader import StoreReader

__all__ = [
    "Compared",
    "Missed",
    "PlanFigure",
    "Quality",
    "RunRecord",
    "Span",
    "StageRun",
    "StandIns",
    "Timeline",
    "read_run",
    "record_of",
]

_MOST_SPANS = 2000
_MOST_WARNINGS = 100
_MOST_MISSED = 500
_MOST_STAGES = 200
_MOST_REASONS = 50
_MOST_QUESTIONS = 100_000
_MOST_METHODS = 50
_MOST_IDS = 100
_LONGEST_NAME = 200
_LONGEST = 2_000
_GREATEST = 1e15
"""No run counts further: above it, sums and times have no digits left for what they are about."""

_FAILURES = {
    "llm_refused": "refused prompts",
    "llm_retries": "calls tried again",
    "llm_repairs": "answers asked for again, since they did not have the form",
    "llm_maybe_billed": "calls without an answer that may be billed",
    "llm_batch_unusable": "unusable answers of batches",
    "llm_batch_unanswered": "unanswered requests of batches",
}
"""The counts of a stage that tell of failures of a language model, and what a report calls them."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a run. began: seconds after the run's start. wall: seconds with a part at work. work: over workers.

    cost: in the currency of the configured prices.
    """

    name: str
    began: float = 0.0
    wall: float = 0.0
    work: float = 0.0
    made: int = 0
    reused: int = 0
    failed: int = 0
    differing: int = 0
    bytes_made: int = 0
    vectors_made: int = 0
    vectors_reused: int = 0
    calls: int = 0
    ledger: int = 0
    tokens: int = 0
    cost: float = 0.0
    refused_rows: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """Parts of a stage that a worker computed in one stretch; worker: its place among the timeline's workers."""

    worker: int
    stage: str
    began: float
    ended: float
    parts: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """When which worker was at work on what, in seconds after the start. left_out: parts that no span tells of."""

    workers: tuple[str, ...]
    spans: tuple[Span, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class PlanFigure:
    """A figure of the approved plan, from ``low`` to ``high``, beside that of the run; None where it is not known."""

    name: str
    low: float | None
    high: float | None
    actual: float | None


@dataclass(frozen=True, slots=True)
class StandIns:
    """How many texts of a stage a language model did not write although it was asked."""

    stage: str
    texts: int
    stand_ins: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The recall of this version and of an earlier one by method, on the gold documents that count for both."""

    version: int
    questions: int
    before: Mapping[str, float]
    now: Mapping[str, float]
    lost_gold: int


@dataclass(frozen=True, slots=True)
class Missed:
    """A question of the gate some of whose documents were not found: their ids, and those of what was found instead."""

    question: str
    method: str
    missed: tuple[str, ...]
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quality:
    """The measurement of the gate. by_question: by method, each question's recall, None for one that does not count.

    missed: those of the method with the highest recall first.
    """

    k: int
    questions: int
    unanswerable: int
    missing_gold: int
    recall: Mapping[str, float]
    compared: Compared | None = None
    asked: tuple[str, ...] = ()
    by_question: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)
    missed: tuple[Missed, ...] = ()
    lists_missed: bool = False


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run. started, ended: ISO 8601, empty if not recorded. refused: rows by reason; None if not recorded.

    allowed: what a person allowed, such as ``shrink``, that a gate would have refused. more_warnings: how many there
    were beside those that are recorded.
    """

    run_id: str
    command: str = ""
    state: str = ""
    started: str = ""
    ended: str = ""
    parent: int | None = None
    error: str = ""
    stages: tuple[StageRun, ...] = ()
    refused_rows: int = 0
    refused: Mapping[str, int] | None = None
    warnings: tuple[str, ...] | None = None
    more_warnings: int = 0
    allowed: tuple[str, ...] = ()
    timeline: Timeline | None = None
    stand_ins: tuple[StandIns, ...] = ()
    plan: tuple[PlanFigure, ...] = ()
    quality: Quality | None = None

    @property
    def seconds(self) -> float | None:
        """The duration; None if start or end are not recorded."""
        began, ended = _moment(self.started), _moment(self.ended)
        return None if began is None or ended is None else max(0.0, round(ended - began, 3))

    def total(self, name: str) -> float:
        """A figure over all stages, such as ``cost``."""
        return math.fsum(getattr(stage, name) for stage in self.stages)

    def failures(self) -> dict[str, int]:
        """What went wrong with a language model, over all stages."""
        found = {name: sum(stage.failures.get(name, 0) for stage in self.stages) for name in _FAILURES.values()}
        return {name: number for name, number in found.items() if number}


def read_run(store: StoreReader, run: str) -> tuple[RunRecord | None, str]:
    """A run's record, None if there is none that can be read, and then in a sentence why."""
    try:
        start, end = store.run_record(run, "start"), store.run_record(run, "end")
    except (CorruptBlob, ValueError) as error:
        return None, f"The record of the run cannot be read: {error}."
    if start is None and end is None:
        return None, "The store has no record of the run."
    if end is None:
        why = "The run has no record of its end: it was killed once it had published."
        return record_of(run, start or {}, {}), why
    return record_of(run, start or {}, end), ""


def record_of(run: str, start: Mapping[str, Any], end: Mapping[str, Any]) -> RunRecord:
    """A run's record from what those of its start and end say."""
    report = _object(end.get("report"))
    totals = _object(report.get("totals"))
    stages = tuple(_stage(name, _object(value)) for name, value in _first(_object(report.get("stages")), _MOST_STAGES))
    warnings, refused = report.get("warnings"), report.get("refused")
    return RunRecord(
        run_id=run,
        command=_text(start.get("command")),
        state=_text(end.get("state")),
        started=_text(start.get("started")),
        ended=_text(end.get("ended")),
        parent=_count(start.get("parent")) or None,
        error=_text(end.get("error")),
        stages=tuple(sorted(stages, key=lambda stage: (stage.began, stage.name))),
        refused_rows=_count(totals.get("quarantined")) or sum(stage.refused_rows for stage in stages),
        refused=_counts(refused) if isinstance(refused, dict) else None,
        warnings=tuple(_texts(warnings)[:_MOST_WARNINGS]) if isinstance(warnings, list) else None,
        more_warnings=_count(report.get("warnings_left_out")),
        allowed=tuple(_texts(_object(start.get("details")).get("allowed"))[:_MOST_REASONS]),
        timeline=_timeline(_object(report.get("timeline"))),
        stand_ins=tuple(
            StandIns(name, _count(_object(value).get("texts")), _count(_object(value).get("stand_ins")))
            for name, value in _first(_object(report.get("stand_ins")), _MOST_STAGES)
        ),
        plan=tuple(_planned(name, _object(value)) for name, value in _first(_object(end.get("plan")), _MOST_REASONS)),
        quality=_quality(report.get("quality")),
    )


def _stage(name: str, said: Mapping[str, Any]) -> StageRun:
    return StageRun(
        name=name,
        began=_number(said.get("began_seconds")) or 0.0,
        wall=_number(said.get("wall_seconds")) or 0.0,
        work=_number(said.get("seconds")) or 0.0,
        made=_count(said.get("parts_made")),
        reused=_count(said.get("parts_reused")),
        failed=_count(said.get("parts_failed")),
        differing=_count(said.get("parts_differing")),
        bytes_made=_count(said.get("bytes_made")),
        vectors_made=_count(said.get("vectors_made")),
        vectors_reused=_count(said.get("vectors_reused")),
        calls=_count(said.get("llm_calls")),
        ledger=_count(said.get("llm_ledger")),
        tokens=_count(said.get("llm_tokens")),
        cost=_number(said.get("cost")) or 0.0,
        refused_rows=_count(said.get("quarantined")),
        failures={shown: _count(said.get(key)) for key, shown in _FAILURES.items() if _count(said.get(key))},
    )


def _timeline(said: Mapping[str, Any]) -> Timeline | None:
    """None if a span has another form than expected, or is of a worker that is not named."""
    workers = tuple(_texts(said.get("workers")))
    spans = []
    for one in _list(said.get("spans"))[:_MOST_SPANS]:
        if not isinstance(one, list) or len(one) != 5 or not isinstance(one[1], str):
            return None
        worker, began, ended = one[0], _number(one[2]), _number(one[3])
        if type(worker) is not int or not 0 <= worker < len(workers) or began is None or ended is None:
            return None
        spans.append(Span(worker, _text(one[1], _LONGEST_NAME), began, max(began, ended), _count(one[4])))
    return Timeline(workers, tuple(spans), _count(said.get("left_out"))) if spans else None


def _planned(name: str, said: Mapping[str, Any]) -> PlanFigure:
    planned = said.get("planned")
    if isinstance(planned, dict):
        low, high = _number(planned.get("low")), _number(planned.get("high"))
    else:
        low = high = _number(planned)
    return PlanFigure(name, low, high, _number(said.get("actual")))


def _quality(said: object) -> Quality | None:
    if not isinstance(said, dict):
        return None
    compared, by_question = said.get("compared"), _object(said.get("by_question"))
    asked = tuple(_texts(by_question.get("questions"))[:_MOST_QUESTIONS])
    recalls = {
        method: tuple(_number(one) for one in _list(values))
        for method, values in _first(_object(by_question.get("recall")), _MOST_METHODS)
        if len(_list(values)) == len(asked)
    }
    recall = _shares(said.get("recall"))
    missed = [_missed(_object(one)) for one in _list(said.get("missed"))]
    return Quality(
        k=_count(said.get("k")),
        questions=_count(said.get("questions")),
        unanswerable=_count(said.get("unanswerable")),
        missing_gold=_count(said.get("missing_gold")),
        recall=recall,
        compared=_compared(compared) if isinstance(compared, dict) else None,
        asked=asked,
        by_question=recalls,
        missed=tuple(sorted(missed, key=lambda one: (-recall.get(one.method, 0.0), one.method))[:_MOST_MISSED]),
        lists_missed=isinstance(said.get("missed"), list),
    )


def _compared(said: Mapping[str, Any]) -> Compared:
    return Compared(
        version=_count(said.get("version")),
        questions=_count(said.get("questions")),
        before=_shares(said.get("before")),
        now=_shares(said.get("now")),
        lost_gold=_count(said.get("lost_gold")),
    )


def _missed(said: Mapping[str, Any]) -> Missed:
    return Missed(
        question=_text(said.get("question")),
        method=_text(said.get("method"), _LONGEST_NAME),
        missed=tuple(_texts(said.get("missed"))[:_MOST_IDS]),
        found=tuple(_texts(said.get("found"))[:_MOST_IDS]),
    )


# Values of any form


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: Mapping[str, Any], most: int) -> list[tuple[str, Any]]:
    """The first pairs by name; a name that is longer than any that a run records is cut."""
    return [(_text(name, _LONGEST_NAME), one) for name, one in sorted(value.items())[:most]]


def _text(value: object, longest: int = _LONGEST) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= longest else value[: longest - 1] + "…"


def _texts(value: object) -> list[str]:
    return [_text(one) for one in _list(value) if isinstance(one, str)]


def _number(value: object) -> float | None:
    """A number from 0 to ``_GREATEST``; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number <= _GREATEST else None


def _count(value: object) -> int:
    """A whole number of at least 0; 0 for anything else."""
    return int(_number(value) or 0)


def _counts(value: object) -> dict[str, int]:
    """Numbers by name, the greatest first."""
    found = {name: _count(number) for name, number in _object(value).items()}
    ordered = sorted(found.items(), key=lambda one: (-one[1], one[0]))[:_MOST_REASONS]
    return {_text(name, _LONGEST_NAME): number for name, number in ordered}


def _shares(value: object) -> dict[str, float]:
    """Numbers from 0 to 1 by name."""
    pairs = ((name, _number(one)) for name, one in _first(_object(value), _MOST_METHODS))
    return {name: number for name, number in pairs if number is not None and number <= 1}


def _moment(text: str) -> float | None:
    """Seconds since 1970; a time without a zone is in UTC, whatever the zone of the machine that reads it."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
