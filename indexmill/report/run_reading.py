"""Lenient reading of a run's record.

Older runs recorded less, newer ones more, and a damaged or hostile record may contain anything. So a value of an
unexpected form counts as not recorded, and an overlong value is cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from indexmill.errors import CorruptBlob
from indexmill.report.run_record import (
    FAILURES,
    Compared,
    CorpusCoverage,
    CoveredFiles,
    FallbackCounts,
    GateMeasurement,
    Missed,
    PlanFigure,
    RunRecord,
    StageRun,
    WorkSpan,
    WorkTimeline,
)
from indexmill.store.reader import StoreReader

_MOST_SPANS = 2000
_MOST_WARNINGS = 100
_MOST_MISSED = 500
_MOST_STAGES = 200
_MOST_REASONS = 50
_MOST_FOLDERS = 20
_MOST_QUESTIONS = 100_000
_MOST_METHODS = 50
_MOST_IDS = 100
_LONGEST_NAME = 200
_LONGEST = 2_000
_GREATEST = 1e15  # the maximum accepted number: no run reaches it, and sums of greater numbers may overflow


def read_run(store: StoreReader, run: str) -> tuple[RunRecord | None, str]:
    """Return a run's record (None if unreadable), and a sentence about missing records (empty if none is).

    If the record of the start or of the end is damaged, the other record is still used.
    """
    start, wrong = _read(store, run, "start")
    end, also_wrong = _read(store, run, "end")
    why = also_wrong or wrong
    if start is None and end is None:
        return None, why or "The store has no record of the run."
    if end is None and not why:
        why = "The run has no record of its end: it was killed after publishing."
    return record_of(run, start or {}, end or {}), why


def _read(store: StoreReader, run: str, record: Literal["start", "end"]) -> tuple[dict[str, Any] | None, str]:
    try:
        return store.run_record(run, record), ""
    except (CorruptBlob, ValueError) as error:
        return None, f"The record of the run's {record} cannot be read: {error}."


def record_of(run: str, start: Mapping[str, Any], end: Mapping[str, Any]) -> RunRecord:
    """Combine the records of a run's start and end."""
    report = _object(end.get("report"))
    totals = _object(report.get("totals"))
    stages = tuple(_stage(name, _object(value)) for name, value in _first(_object(report.get("stages")), _MOST_STAGES))
    warnings, refused = report.get("warnings"), report.get("refused")
    return RunRecord(
        run_id=run,
        is_whole=bool(end),
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
            FallbackCounts(name, _count(_object(value).get("texts")), _count(_object(value).get("stand_ins")))
            for name, value in _first(_object(report.get("stand_ins")), _MOST_STAGES)
        ),
        plan=tuple(_planned(name, _object(value)) for name, value in _first(_object(end.get("plan")), _MOST_REASONS)),
        quality=_quality(report.get("quality")),
        coverage=_coverage(report.get("coverage")),
    )


def _coverage(record: object) -> CorpusCoverage | None:
    value = _object(record)
    if not value:
        return None
    folders = [_covered(_text(_object(item).get("name")), _object(item)) for item in _list(value.get("folders"))]
    return CorpusCoverage(
        outcomes=_counts(value.get("files")),
        passed_over=_counts(value.get("passed_over")),
        formats=tuple(
            _covered(name, _object(item)) for name, item in _first(_object(value.get("formats")), _MOST_STAGES)
        ),
        folders=tuple(sorted(folders, key=lambda folder: (-folder.files, folder.name))[:_MOST_FOLDERS]),
        folders_left_out=_count(value.get("folders_left_out")) + max(0, len(folders) - _MOST_FOLDERS),
        worst=tuple(
            _covered(_text(_object(item).get("name"), _LONGEST_NAME), _object(item))
            for item in _list(value.get("worst"))[:_MOST_REASONS]
        ),
    )


def _covered(name: str, record: Mapping[str, Any]) -> CoveredFiles:
    names = ("files", "read", "bytes", "documents", "words", "text_words")
    counts = {count: _count(record.get(count)) for count in names}
    return CoveredFiles(_text(name, _LONGEST_NAME), left_out=_counts(record.get("left_out")), **counts)


def _stage(name: str, record: Mapping[str, Any]) -> StageRun:
    return StageRun(
        name=name,
        began=_number(record.get("began_seconds")) or 0.0,
        wall=_number(record.get("wall_seconds")) or 0.0,
        work=_number(record.get("seconds")) or 0.0,
        made=_count(record.get("parts_made")),
        reused=_count(record.get("parts_reused")),
        failed=_count(record.get("parts_failed")),
        differing=_count(record.get("parts_differing")),
        bytes_made=_count(record.get("bytes_made")),
        vectors_made=_count(record.get("vectors_made")),
        vectors_reused=_count(record.get("vectors_reused")),
        calls=_count(record.get("llm_calls")),
        ledger=_count(record.get("llm_ledger")),
        tokens=_count(record.get("llm_tokens")),
        embed_calls=_count(record.get("embed_calls")),
        embed_ledger=_count(record.get("embed_ledger")),
        embed_tokens=_count(record.get("embed_tokens")),
        cost=_number(record.get("cost")) or 0.0,
        refused_rows=_count(record.get("quarantined")),
        failures={shown: _count(record.get(key)) for key, shown in FAILURES.items() if _count(record.get(key))},
    )


def _timeline(record: Mapping[str, Any]) -> WorkTimeline | None:
    """Read a timeline; None if a span is malformed or its worker is unknown."""
    workers = tuple(_texts(record.get("workers")))
    spans = []
    for span in _list(record.get("spans"))[:_MOST_SPANS]:
        if not isinstance(span, list) or len(span) != 5 or not isinstance(span[1], str):
            return None
        worker, began, ended = span[0], _number(span[2]), _number(span[3])
        if type(worker) is not int or not 0 <= worker < len(workers) or began is None or ended is None:
            return None
        spans.append(WorkSpan(worker, _text(span[1], _LONGEST_NAME), began, max(began, ended), _count(span[4])))
    return WorkTimeline(workers, tuple(spans), _count(record.get("left_out"))) if spans else None


def _planned(name: str, record: Mapping[str, Any]) -> PlanFigure:
    planned = record.get("planned")
    if isinstance(planned, dict):
        low, high = _number(planned.get("low")), _number(planned.get("high"))
    else:
        low = high = _number(planned)
    return PlanFigure(name, low, high, _number(record.get("actual")))


def _quality(record: object) -> GateMeasurement | None:
    if not isinstance(record, dict):
        return None
    compared, by_question = record.get("compared"), _object(record.get("by_question"))
    questions = tuple(_texts(by_question.get("questions"))[:_MOST_QUESTIONS])
    recalls = {
        method: tuple(_number(value) for value in _list(values))
        for method, values in _first(_object(by_question.get("recall")), _MOST_METHODS)
        if len(_list(values)) == len(questions)
    }
    recall = _shares(record.get("recall"))
    missed = [_missed(_object(entry)) for entry in _list(record.get("missed"))]
    return GateMeasurement(
        k=_count(record.get("k")),
        questions=_count(record.get("questions")),
        unanswerable=_count(record.get("unanswerable")),
        missing_gold=_count(record.get("missing_gold")),
        recall=recall,
        compared=_compared(compared) if isinstance(compared, dict) else None,
        asked=questions,
        by_question=recalls,
        missed=tuple(
            sorted(
                missed, key=lambda missed_question: (-recall.get(missed_question.method, 0.0), missed_question.method)
            )[:_MOST_MISSED]
        ),
        lists_missed=isinstance(record.get("missed"), list),
    )


def _compared(record: Mapping[str, Any]) -> Compared:
    return Compared(
        version=_count(record.get("version")),
        questions=_count(record.get("questions")),
        before=_shares(record.get("before")),
        now=_shares(record.get("now")),
        lost_gold=_count(record.get("lost_gold")),
    )


def _missed(record: Mapping[str, Any]) -> Missed:
    return Missed(
        question=_text(record.get("question")),
        method=_text(record.get("method"), _LONGEST_NAME),
        missed=tuple(_texts(record.get("missed"))[:_MOST_IDS]),
        found=tuple(_texts(record.get("found"))[:_MOST_IDS]),
    )


# Values of any form


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _first(value: Mapping[str, Any], most: int) -> list[tuple[str, Any]]:
    """Return the first ``most`` items, sorted by name; overlong names are cut."""
    return [(_text(name, _LONGEST_NAME), item) for name, item in sorted(value.items())[:most]]


def _text(value: object, longest: int = _LONGEST) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= longest else value[: longest - 1] + "…"


def _texts(value: object) -> list[str]:
    return [_text(text) for text in _list(value) if isinstance(text, str)]


def _number(value: object) -> float | None:
    """Read a number from 0 to ``_GREATEST``; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 <= number <= _GREATEST else None


def _count(value: object) -> int:
    """Read a whole number of at least 0; 0 for anything else."""
    return int(_number(value) or 0)


def _counts(value: object) -> dict[str, int]:
    """Read numbers by name, the largest first."""
    counts = {name: _count(number) for name, number in _object(value).items()}
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:_MOST_REASONS]
    return {_text(name, _LONGEST_NAME): number for name, number in ordered}


def _shares(value: object) -> dict[str, float]:
    """Read numbers from 0 to 1 by name."""
    pairs = ((name, _number(item)) for name, item in _first(_object(value), _MOST_METHODS))
    return {name: number for name, number in pairs if number is not None and number <= 1}
