"""The record of a run, as a report shows it. Every field except the name has a default; see ``run_reading``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

FAILURES = {
    "llm_refused": "refused prompts",
    "llm_retries": "calls tried again",
    "llm_repairs": "malformed answers asked for again",
    "llm_salvaged": "answers cut off, used as far as they are complete",
    "llm_worthless": "texts that were too short, or repeated themselves or the prompt",
    "llm_maybe_billed": "calls without an answer that may be billed",
    "llm_batch_unusable": "unusable answers of batches",
    "llm_batch_unanswered": "unanswered requests of batches",
    "embed_refused": "texts without a vector",
    "embed_retries": "calls for vectors tried again",
    "embed_maybe_billed": "calls for vectors without an answer that may be billed",
}
"""The counts of a stage that are failures of a model behind an endpoint, and their names in a report."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """One stage of a run. began: seconds since the run's start. wall: seconds during which any part was being computed.

    work: seconds of work, summed over workers. embed_calls, embed_ledger, embed_tokens: use of an encoder behind an
    endpoint; calls, ledger, tokens: use of a language model. cost: the cost of both, in the currency of the configured
    prices.
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
    embed_calls: int = 0
    embed_ledger: int = 0
    embed_tokens: int = 0
    cost: float = 0.0
    refused_rows: int = 0
    failures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkSpan:
    """Parts of a stage that one worker computed without a pause. worker: an index into the timeline's workers."""

    worker: int
    stage: str
    began: float
    ended: float
    parts: int


@dataclass(frozen=True, slots=True)
class WorkTimeline:
    """The work of each worker over time, in seconds since the start. left_out: the number of parts without a span."""

    workers: tuple[str, ...]
    spans: tuple[WorkSpan, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class PlanFigure:
    """A planned figure, from ``low`` to ``high``, and the ``actual`` figure of the run; each None if unknown."""

    name: str
    low: float | None
    high: float | None
    actual: float | None

    @property
    def is_over(self) -> bool:
        """True if the run took more than planned, beyond the rounding of the plan."""
        return self.high is not None and self.actual is not None and self.actual > self.high * 1.005


@dataclass(frozen=True, slots=True)
class FallbackCounts:
    """A stage's number of texts, and the number of fallback texts among them, used where a model wrote none."""

    stage: str
    texts: int
    stand_ins: int


@dataclass(frozen=True, slots=True)
class Compared:
    """The recalls of this version and an earlier one by method, on the gold documents that count for both."""

    version: int
    questions: int
    before: Mapping[str, float]
    now: Mapping[str, float]
    lost_gold: int


@dataclass(frozen=True, slots=True)
class Missed:
    """A question of the gate with missed documents: their ids, and the ids of the documents found."""

    question: str
    method: str
    missed: tuple[str, ...]
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GateMeasurement:
    """The gate's measurement. by_question: each question's recall by method; None if the question does not count.

    missed: the questions with missed documents by method, the method with the highest recall first.
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
class CoveredFiles:
    """The files of a format or a folder. read: the number that was read. bytes, words: those of the files.

    text_words: words of the documents. left_out: words by reason. Words are counted only for files that become one
    document.
    """

    name: str
    files: int
    read: int = 0
    bytes: int = 0
    documents: int = 0
    words: int = 0
    text_words: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def unexplained(self) -> float:
        """The share of words that are missing in the documents for no known reason."""
        return self.left_out.get("unexplained", 0) / self.words if self.words else 0.0


@dataclass(frozen=True, slots=True)
class CorpusCoverage:
    """What became of the files of the corpus. outcomes, passed_over: numbers of files by outcome, and by reason.

    worst: the files that lost most words. folders_left_out: the number of folders that are not listed.
    """

    outcomes: Mapping[str, int]
    passed_over: Mapping[str, int]
    formats: tuple[CoveredFiles, ...]
    folders: tuple[CoveredFiles, ...]
    folders_left_out: int
    worst: tuple[CoveredFiles, ...]

    @property
    def read(self) -> int:
        """The number of files that were read."""
        return sum(files for outcome, files in self.outcomes.items() if outcome != "passed-over")


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run. started, ended: ISO 8601 times; empty if not recorded. refused: quarantined rows by reason, or None.

    is_whole: False if the record of the run's end, which has most of the facts, is missing. allowed: the gates that an
    operator overrode, such as ``shrink``. more_warnings: the number of warnings that are not recorded.
    """

    run_id: str
    is_whole: bool = True
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
    timeline: WorkTimeline | None = None
    stand_ins: tuple[FallbackCounts, ...] = ()
    plan: tuple[PlanFigure, ...] = ()
    quality: GateMeasurement | None = None
    coverage: CorpusCoverage | None = None

    @property
    def seconds(self) -> float | None:
        """The duration in seconds; None if the start or the end is not recorded."""
        began, ended = _moment(self.started), _moment(self.ended)
        return None if began is None or ended is None else max(0.0, round(ended - began, 3))

    def total(self, name: str) -> float:
        """Sum a figure over all stages, such as ``cost``."""
        return math.fsum(getattr(stage, name) for stage in self.stages)

    def failures(self) -> dict[str, int]:
        """Count the failures of models, over all stages."""
        counts = {name: sum(stage.failures.get(name, 0) for stage in self.stages) for name in FAILURES.values()}
        return {name: number for name, number in counts.items() if number}


def _moment(text: str) -> float | None:
    """Return the seconds since 1970; a time without a zone is taken as UTC, whatever this machine's zone."""
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
