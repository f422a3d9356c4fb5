"""A recorded run as a larger corpus would have made it: more parts of bounded size, longer parts of the whole.

Each stage follows a law, and `benchmarks.simulate scale` says which, and whether it was measured. What is not said to
grow stays the same: openings of workers, the driver's seconds between steps, the layers of a tree.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.recorded_run import RecordedPart, RecordedRound, RecordedRun, RecordedStep

__all__ = ["LINEAR", "PARTS", "Law", "in_waves", "laws_of", "measured_laws", "parse_law", "scaled"]

_OF_LAYERS = {"community_clusters", "community_graph", "community_levels", "lsh_segments"}
"""Stages with a part of each layer of a tree, which has all nodes of the layer."""

_GROUP = re.compile(r"[A-Za-z][01]*")
"""The label of a shard or a group, which are cut where they are full; others are of the whole corpus."""

_LEAST = 0.5
"""Seconds below which the time of a stage tells nothing about its growth."""


@dataclass(frozen=True, slots=True)
class Law:
    """How a stage grows with the corpus: the number of its parts, or the seconds and bytes of each part.

    exponent: of the factor of the corpus. logarithm: the seconds grow by that of the documents, too. why: where the
    law is from.
    """

    exponent: float
    of_parts: bool = False
    logarithm: bool = False
    why: str = "assumed"

    def __str__(self) -> str:
        if self.of_parts:
            return f"parts x N^{self.exponent:.2f}" if self.exponent != 1 else "parts x N"
        shown = {0.0: "constant", 1.0: "N"}.get(self.exponent, f"N^{self.exponent:.2f}")
        return f"{shown} log N" if self.logarithm else shown

    def of_seconds(self, documents: int, factor: float) -> float:
        """The seconds of a part, against those of the recorded one."""
        if self.of_parts:
            return 1.0
        more = math.log(max(documents, 2) * factor) / math.log(max(documents, 2)) if self.logarithm else 1.0
        return factor**self.exponent * more

    def of_bytes(self, factor: float) -> float:
        """The bytes of a part, against those of the recorded one."""
        return 1.0 if self.of_parts else factor ** min(self.exponent, 1.0)

    def parts(self, recorded: int, factor: float) -> int:
        """The number of parts of a round."""
        return max(1, round(recorded * factor**self.exponent)) if self.of_parts and recorded else recorded


PARTS = Law(1.0, of_parts=True, why="its parts have a bounded size")
LINEAR = Law(1.0, why="assumed")


def parse_law(text: str) -> Law:
    """A law as an option names it: `parts`, `constant`, `linear`, `nlogn`, or an exponent. Raises ValueError."""
    named = {
        "parts": Law(1.0, of_parts=True, why="given"),
        "constant": Law(0.0, why="given"),
        "linear": Law(1.0, why="given"),
        "nlogn": Law(1.0, logarithm=True, why="given"),
    }
    law = named.get(text) or Law(float(text), why="given")
    if not 0 <= law.exponent <= 4:
        raise ValueError(f"an exponent is between 0 and 4, not {text}")
    return law


def laws_of(run: RecordedRun, given: Mapping[str, Law] | None = None) -> dict[str, Law]:
    """The law of each stage: one that is given, or by the labels of its parts."""
    labels: dict[str, set[str]] = {}
    of_shards: dict[str, bool] = {}
    for step in run.steps:
        for round_ in step.rounds:
            labels.setdefault(round_.stage, set()).update(part.shard for part in round_.parts)
            of_shards[round_.stage] = step.of_shards
    found = {}
    for stage, its in labels.items():
        if its == {""}:  # calls that leave no part: files of the corpus that are read, the opening of the encoder
            law = PARTS if stage == "scan" else Law(0.0, why="once in a run")
        elif of_shards[stage]:
            law = PARTS
        elif stage in _OF_LAYERS or not any(_GROUP.fullmatch(label) for label in its):
            law = LINEAR
        else:
            law = PARTS
        found[stage] = law
    return found | {stage: law for stage, law in (given or {}).items() if stage in found}


def measured_laws(runs: Sequence[RecordedRun]) -> dict[str, Law]:
    """Exponents of the stages of the whole corpus, from the smallest and the largest of some runs.

    A stage that takes less than half a second of processors in the largest is left out.
    """
    ordered = sorted(runs, key=lambda run: run.documents)
    if len(ordered) < 2 or not 0 < ordered[0].documents < ordered[-1].documents:
        return {}
    small, large = ordered[0], ordered[-1]
    factor = math.log(large.documents / small.documents)
    took = [_processor_seconds(run) for run in (small, large)]
    found = {}
    for stage, law in laws_of(large).items():
        if law.of_parts or not took[0][stage] or took[1][stage] < _LEAST:
            continue
        exponent = math.log(took[1][stage] / took[0][stage]) / factor
        found[stage] = Law(
            min(max(exponent, 0.0), 4.0), why=f"measured, {small.documents:,} and {large.documents:,} documents"
        )
    return found


def _processor_seconds(run: RecordedRun) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in run.parts:
        found[part.stage] += part.processor_seconds
    return found


def scaled(run: RecordedRun, factor: float, laws: Mapping[str, Law]) -> RecordedRun:
    """The run over so many times the documents."""
    steps = tuple(
        dataclasses.replace(
            step,
            rounds=tuple(_scaled_round(round_, run.documents, factor, laws[round_.stage]) for round_ in step.rounds),
        )
        for step in run.steps
    )
    return dataclasses.replace(run, documents=round(run.documents * factor), steps=steps)


def _scaled_round(round_: RecordedRound, documents: int, factor: float, law: Law) -> RecordedRound:
    """The driver looks for as many times the parts; the first of a stage in a process stay as many as they are."""
    count = law.parts(len(round_.parts), factor)
    seconds, size = law.of_seconds(documents, factor), law.of_bytes(factor)
    rest = [part for part in round_.parts if not part.first] or list(round_.parts)
    parts = list(round_.parts[:count])
    parts += [rest[number % len(rest)] for number in range(count - len(parts))]
    before = round_.before * (count / len(round_.parts) if round_.parts else 1.0)
    return RecordedRound(round_.stage, before, tuple(_scaled_part(part, seconds, size) for part in parts))


def _scaled_part(part: RecordedPart, seconds: float, size: float) -> RecordedPart:
    if seconds == size == 1.0:
        return part
    return dataclasses.replace(
        part,
        seconds=part.seconds * seconds,
        processor_seconds=part.processor_seconds * seconds,
        bytes_read=round(part.bytes_read * size),
        bytes_made=round(part.bytes_made * size),
        raised_bytes=round(part.raised_bytes * size),
    )


def in_waves(run: RecordedRun, shards: int) -> RecordedRun:
    """A run of one group as a backfill: its shards in waves of so many, each after all of the one before.

    Raises ValueError for a run that was a backfill itself.
    """
    if {step.group for step in run.steps} - {0}:
        raise ValueError("the run was a backfill: replay a build")
    if shards < 1:
        raise ValueError("a wave has at least one shard")
    parts = max((len(round_.parts) for step in run.steps if step.of_shards for round_ in step.rounds), default=0)
    waves = max(1, math.ceil(parts / shards))
    steps: list[RecordedStep] = []
    for step in run.steps:
        if step.of_shards:
            steps += [_wave(step, number, shards) for number in range(waves)]
        else:
            steps.append(dataclasses.replace(step, group=0 if step.name in {"encoder", "scan"} else waves + 1))
    grouped = {(step.group, step.name) for step in steps}
    steps = [
        dataclasses.replace(step, needs=tuple(need for need in step.needs if (step.group, need) in grouped))
        for step in steps
    ]
    return dataclasses.replace(run, steps=tuple(sorted(steps, key=lambda step: step.group)))


def _wave(step: RecordedStep, number: int, shards: int) -> RecordedStep:
    """The rounds of a step for one wave, with its share of the driver's work before them."""
    rounds = []
    for round_ in step.rounds:
        parts = round_.parts[number * shards : (number + 1) * shards]
        share = len(parts) / len(round_.parts) if round_.parts else 0.0
        rounds.append(RecordedRound(round_.stage, round_.before * share, parts))
    return dataclasses.replace(step, group=number + 1, rounds=tuple(rounds))
