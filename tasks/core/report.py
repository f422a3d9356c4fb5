"""Progress events of a run, and its report: counts per stage."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from indexmill.models.progress import Items
from indexmill.models.secrets import redacted
from indexmill.text.counted import counted
from schemas.config import Price
from tasks.core.timeline import Timeline
from tasks.llm.account import Spent, price_of

MOST_WARNINGS = 100
"""The maximum number of warnings in the record of a run."""


@dataclass(frozen=True, slots=True)
class Fallbacks:
    """The number of a stage's texts that a language model should write, and of the fallbacks among them.

    worthless: the number of texts of this run that the model wrote, but which are of no use.
    """

    stage: str
    texts: int
    stand_ins: int
    worthless: int = 0

    def __str__(self) -> str:
        share = f"{self.stand_ins:,} of {counted(self.texts, 'text')} of {self.stage}"
        reasons = f" (in this run, {self.worthless:,} were too short, or repeated themselves or the prompt)"
        return share + reasons * bool(self.worthless)


class Progress(Protocol):
    """Receives the progress of each stage; implementations print, and never fail."""

    def begin(self, stage: str, parts: int) -> None:
        """Report that a stage starts, with `parts` parts to make or find."""
        ...

    def advance(self, stage: str, parts: int = 1) -> None:
        """Report finished parts of a stage."""
        ...

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        """Report a part's finished share, 0 to 1; None once the part ends. items: countable items, such as texts."""
        ...

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        """Report the end of a stage, with a summary. seconds: its working time; by default the time since its start."""
        ...

    def abandon(self, stage: str) -> None:
        """Report that a stage stopped early; it may begin again."""
        ...

    def doing(self, what: str) -> None:
        """Report the current activity in a few words, before the first stage."""
        ...

    def warn(self, message: str) -> None:
        """Warn the user; the run continues."""
        ...

    def note(self, message: str) -> None:
        """Inform the user of something that is not a problem."""
        ...


class Silent:
    """Progress that prints nothing."""

    def begin(self, stage: str, parts: int) -> None:
        pass

    def advance(self, stage: str, parts: int = 1) -> None:
        pass

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        pass

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        pass

    def abandon(self, stage: str) -> None:
        pass

    def doing(self, what: str) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    def note(self, message: str) -> None:
        pass


class Forwarding:
    """Forwards progress to another object; subclasses override the methods that they observe or change."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def begin(self, stage: str, parts: int) -> None:
        self._progress.begin(stage, parts)

    def advance(self, stage: str, parts: int = 1) -> None:
        self._progress.advance(stage, parts)

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        self._progress.within(stage, part, share, items)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        self._progress.end(stage, summary, seconds)

    def abandon(self, stage: str) -> None:
        self._progress.abandon(stage)

    def doing(self, what: str) -> None:
        self._progress.doing(what)

    def warn(self, message: str) -> None:
        self._progress.warn(message)

    def note(self, message: str) -> None:
        self._progress.note(message)


class RecordedWarnings(Forwarding):
    """Forwards progress, and adds the warnings, without secrets, to a list for the record of the run."""

    def __init__(self, progress: Progress, warnings: list[str]) -> None:
        super().__init__(progress)
        self._warnings = warnings

    def warn(self, message: str) -> None:
        self._warnings.append(redacted(message))
        super().warn(message)


@dataclass
class StageReport:
    """Counts of one stage: parts, rows by outcome, bytes, calls.

    began_seconds: the time of the stage's start since the start of the run. wall_seconds: the time with at least one
    part at work, without waiting for other stages or a worker. seconds: work summed over workers. bytes_made: the size
    of the blobs of new parts, from their receipts. cost: the cost in the currency of the configured prices.
    """

    parts_made: int = 0
    parts_reused: int = 0
    parts_differing: int = 0
    parts_failed: int = 0
    began_seconds: float = 0.0
    wall_seconds: float = 0.0
    seconds: float = 0.0
    bytes_made: int = 0
    cost: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def add_llm_use(self, spent: Spent, price: Price | None) -> None:
        """Raise the counts to the quota's amounts, which include unfinished parts, and set the cost of all counts."""
        amounts = {
            "llm_calls": spent.calls,
            "llm_input_tokens": spent.input_tokens,
            "llm_output_tokens": spent.output_tokens,
            "llm_tokens": spent.input_tokens + spent.output_tokens,
        }
        for name, number in amounts.items():
            if number > self.counts[name]:
                self.counts[name] = number
        kinds = ("input_tokens", "output_tokens")
        batched = [self.counts[f"llm_batch_{kind}"] for kind in kinds]
        direct = [self.counts[f"llm_{kind}"] - tokens for kind, tokens in zip(kinds, batched, strict=True)]
        self.cost = float(price_of(price, *direct) + price_of(price, *batched, batch=True))

    def add_encoder_use(self, spent: Spent, price: Price | None) -> None:
        """Raise the counts to the quota's amounts for the encoder, and add their cost; call it after `add_llm_use`."""
        amounts = {"calls": spent.calls, "input_tokens": spent.input_tokens, "tokens": spent.input_tokens}
        for name, number in amounts.items():
            if number > self.counts[f"embed_{name}"]:
                self.counts[f"embed_{name}"] = number
        self.cost += float(price_of(price, self.counts["embed_input_tokens"], 0))

    def to_json(self) -> dict[str, Any]:
        return {
            "parts_made": self.parts_made,
            "parts_reused": self.parts_reused,
            "parts_differing": self.parts_differing,
            "parts_failed": self.parts_failed,
            "quarantined": self.counts["quarantined"],
            "began_seconds": round(self.began_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
            "seconds": round(self.seconds, 3),
            "bytes_made": self.bytes_made,
            "llm_calls": self.counts["llm_calls"],
            "llm_tokens": self.counts["llm_tokens"],
            "cost": round(self.cost, 6),
            **dict(sorted(self.counts.items())),
        }


_TOTALS = (
    "parts_made",
    "parts_reused",
    "parts_differing",
    "parts_failed",
    "quarantined",
    "seconds",
    "bytes_made",
    "vectors_made",
    "vectors_reused",
    "llm_calls",
    "llm_ledger",
    "llm_tokens",
    "llm_input_tokens",
    "llm_output_tokens",
    "embed_calls",
    "embed_ledger",
    "embed_tokens",
    "cost",
)


class RunReport:
    """The report of a run: counts by stage, in the order of their start, and the measurements before publishing.

    clock: returns monotonic seconds, like `time.perf_counter`.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.stages: dict[str, StageReport] = {}
        self.changed_files: tuple[str, ...] = ()  # files that changed while they were read
        self.quality: Mapping[str, Any] | None = None
        self.quality_details: Mapping[str, Any] = {}  # quality by question, only for the record
        self.stand_ins: dict[str, Fallbacks] = {}  # by stage, if a language model did not write every text
        self.corpus_files: str | None = None  # a digest of the files' bytes, if it was computed
        self.requests: Counter[str] = Counter()  # requests to an object store, by kind, and their bytes
        self.refused: Counter[str] = Counter()  # rejected rows of the corpus, by reason
        self.coverage: Mapping[str, Any] = {}  # of its files: see `tasks.stages.ingest.corpus_coverage`
        self.warnings: list[str] = []
        self.timeline = Timeline()
        self._clock = clock
        self._began = clock()
        self._at_work: dict[str, list[tuple[float, float]]] = {}  # disjoint intervals of time, in order
        self._lock = threading.Lock()

    def stage(self, name: str) -> StageReport:
        """Return the report of a stage, created if it is new."""
        with self._lock:
            return self.stages.setdefault(name, StageReport(began_seconds=self._clock() - self._began))

    @contextlib.contextmanager
    def at_work(self, name: str) -> Iterator[StageReport]:
        """Count the time of the block for the stage; overlapping time counts once."""
        stage, began = self.stage(name), self._clock()
        try:
            yield stage
        finally:
            self.count_work(name, self._clock() - began)

    def count_work(self, name: str, seconds: float) -> None:
        """Count work on a stage that took `seconds` and has just ended; overlapping time counts once."""
        stage = self.stage(name)
        with self._lock:
            end = self._clock()
            began, stretches = end - seconds, self._at_work.setdefault(name, [])
            while stretches and stretches[-1][1] >= began:
                since, until = stretches.pop()
                stage.wall_seconds -= until - since
                began = min(began, since)
            stretches.append((began, end))
            stage.wall_seconds += end - began

    def count_part(self, name: str, worker: str, seconds: float) -> None:
        """Count a part that a worker has just finished, in `seconds`."""
        end = self._clock() - self._began
        self.timeline.add(worker, name, end - seconds, end)
        self.count_work(name, seconds)

    def total(self, count: str) -> int:
        """Sum a count over all stages."""
        return sum(stage.counts[count] for stage in self.stages.values())

    @property
    def cost(self) -> float:
        """The cost of all language models and encoders, in the currency of the configured prices."""
        return round(sum(stage.cost for stage in self.stages.values()), 6)

    @property
    def parts_made(self) -> int:
        return sum(stage.parts_made for stage in self.stages.values())

    @property
    def parts_reused(self) -> int:
        return sum(stage.parts_reused for stage in self.stages.values())

    def to_json(self) -> dict[str, Any]:
        """Return the report in the form of the run's record: `stages` by name, their `totals`, and other facts."""
        with self._lock:
            stages = {name: stage.to_json() for name, stage in self.stages.items()}
        totals = {name: sum(stage.get(name, 0) for stage in stages.values()) for name in _TOTALS}
        totals |= {name: round(totals[name], 6) for name in ("seconds", "cost")}
        totals["wall_seconds"] = round(self._clock() - self._began, 3)
        record: dict[str, Any] = {
            "stages": stages,
            "totals": totals,
            "timeline": self.timeline.to_json(),
            "refused": dict(sorted(self.refused.items())),
            "warnings": self.warnings[:MOST_WARNINGS],
            "warnings_left_out": max(0, len(self.warnings) - MOST_WARNINGS),
        }
        if self.stand_ins:
            record["stand_ins"] = {
                stage: {"texts": found.texts, "stand_ins": found.stand_ins}
                for stage, found in sorted(self.stand_ins.items())
            }
        if self.coverage:
            record["coverage"] = self.coverage
        if self.corpus_files is not None:
            record["corpus_files"] = self.corpus_files
        if self.requests:
            record["requests"] = dict(sorted(self.requests.items()))
        if self.quality is not None:
            record["quality"] = {**self.quality, **self.quality_details}
        return record
