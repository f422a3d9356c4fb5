"""A recorded run as a larger corpus would have made it: more parts of bounded size, longer parts of the whole.

Each stage follows a law, and `benchmarks.simulate scale` says which, and whether it was measured. So do the driver's
own seconds between rounds, and the end of a run; for each further part the driver takes as long as for a part of the
round in which it looked for its parts the quickest. What is not said to grow stays the same: openings of workers, the
seconds between steps, the layers of a tree.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.recorded_run import RecordedPart, RecordedRound, RecordedRun, RecordedStep

DRIVER, END = "(driver)", "(end)"
"""What grows besides stages: the driver's seconds in its steps, and those from the last step to the end."""

_OF_LAYERS = {"community_clusters", "community_graph", "community_levels", "lsh_segments"}
"""Stages with a part of each layer of a tree, which has all nodes of the layer."""

_OF_RANGES = {"pieces", "resolve"}
"""Stages with a part of each range of entities, of which there are 16 at most."""

_OF_PAIRS = {"compare_rows"}
"""Stages with a part of each range of rows that are compared with all, of which there are 64 at most."""

_GROUP = re.compile(r"[A-Za-z][01]*")
"""The label of a shard or a group, which are cut where they are full; others are of the whole corpus."""

_LEAST = 0.5
"""Seconds below which the time of a stage tells nothing about its growth."""


@dataclass(frozen=True, slots=True)
class Law:
    """How a stage grows with the corpus: the number of its parts, or the seconds and bytes of each part.

    exponent: of the factor of the corpus. logarithm: the seconds grow by that of the documents, too. most: the most
    parts; the exponent is then that of all parts' seconds together. why: where the law is from.
    """

    exponent: float
    of_parts: bool = False
    logarithm: bool = False
    most: int = 0
    why: str = "assumed"

    def __str__(self) -> str:
        if self.most:
            return f"N^{self.exponent:.2f} in at most {self.most} parts"
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
        if self.most:
            return min(max(recorded, self.most), max(1, round(recorded * factor)))
        return max(1, round(recorded * factor**self.exponent)) if self.of_parts and recorded else recorded


PARTS = Law(1.0, of_parts=True, why="its parts have a bounded size")
LINEAR = Law(1.0, why="assumed")
PAIRS = Law(2.0, most=64, why="compares all rows with all")


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
    """The law of each stage, of DRIVER and of END: one that is given, or by what its parts are of."""
    rounds = _rounds_of(run)
    of_shards = {round_.stage for step in run.steps if step.of_shards for round_ in step.rounds}
    found = {}
    for stage, its in rounds.items():
        parts = [part for round_ in its for part in round_.parts]
        if all(not part.shard for part in parts):  # files that are read, the opening of the encoder
            law = PARTS if stage == "scan" else Law(0.0, why="once in a run")
        elif stage in of_shards:
            law = PARTS
        elif not any(part.opened for part in parts):
            law = Law(0.0, why="reads nothing of the corpus")
        elif stage in _OF_PAIRS:
            law = PAIRS
        elif stage == "zoom_links" and not _OF_PAIRS & rounds.keys():
            law = Law(2.0, why="compares all rows with all")
        elif stage in _OF_LAYERS | _OF_RANGES or all(_is_of_the_whole(round_) for round_ in its):
            law = LINEAR
        else:
            law = PARTS
        found[stage] = law
    found |= {DRIVER: Law(0.0), END: Law(0.0)}
    return found | {stage: law for stage, law in (given or {}).items() if stage in found}


def _rounds_of(run: RecordedRun) -> dict[str, list[RecordedRound]]:
    found: dict[str, list[RecordedRound]] = {}
    for step in run.steps:
        for round_ in step.rounds:
            if round_.parts:
                found.setdefault(round_.stage, []).append(round_)
    return found


def _is_of_the_whole(round_: RecordedRound) -> bool:
    return all(part.shard and not _GROUP.fullmatch(part.shard) for part in round_.parts)


def measured_laws(runs: Sequence[RecordedRun]) -> dict[str, Law]:
    """Exponents from the smallest and the largest of some runs, except of stages of shards.

    What takes less than half a second in the largest is left out. Stages are told by their seconds of processors,
    DRIVER and END by those that passed.
    """
    ordered = sorted(runs, key=lambda run: run.documents)
    if len(ordered) < 2 or not 0 < ordered[0].documents < ordered[-1].documents:
        return {}
    small, large = ordered[0], ordered[-1]
    factor = math.log(large.documents / small.documents)
    took = [_seconds_of(run) for run in (small, large)]
    of_shards = {round_.stage for step in large.steps if step.of_shards for round_ in step.rounds}
    found = {}
    for stage, law in laws_of(large).items():
        if stage in {"scan", *of_shards} or not took[0][stage] or took[1][stage] < _LEAST:
            continue
        exponent = min(max(math.log(took[1][stage] / took[0][stage]) / factor, 0.0), 4.0)
        why = f"measured, {small.documents:,} and {large.documents:,} documents"
        found[stage] = Law(exponent, of_parts=law.of_parts, most=law.most, why=why)
    return found


def _seconds_of(run: RecordedRun) -> Counter[str]:
    found = Counter({END: run.end_seconds})
    for part in run.parts:
        found[part.stage] += part.processor_seconds
    for step in run.steps:
        found[DRIVER] += step.after + sum(round_.before - round_.looking for round_ in step.rounds)
    return found


def scaled(run: RecordedRun, factor: float, laws: Mapping[str, Law]) -> RecordedRun:
    """The run over so many times the documents."""
    growing = _Growing(run, factor, laws)
    steps = tuple(
        dataclasses.replace(
            step, rounds=tuple(map(growing.round, step.rounds)), after=step.after * growing.seconds(DRIVER)
        )
        for step in run.steps
    )
    end = run.end_seconds * growing.seconds(END)
    return dataclasses.replace(run, documents=round(run.documents * factor), steps=steps, end_seconds=end)


class _Growing:
    """What grows of a run."""

    def __init__(self, run: RecordedRun, factor: float, laws: Mapping[str, Law]) -> None:
        self._documents, self._factor, self._laws = run.documents, factor, laws
        looked = [
            round_.looking / len(round_.parts)
            for step in run.steps
            for round_ in step.rounds
            if any(part.shard for part in round_.parts)
        ]
        self._looking = min(looked, default=0.0)
        """Seconds of the driver for a further part of a round, at most."""

    def seconds(self, name: str) -> float:
        """How many times the seconds a stage, the driver or the end of the run takes."""
        return self._laws[name].of_seconds(self._documents, self._factor)

    def round(self, round_: RecordedRound) -> RecordedRound:
        """A round; the first parts of a stage in a process stay as many as they are."""
        law = self._laws.get(round_.stage, LINEAR)
        if law.of_parts and _is_of_the_whole(round_):  # of a stage that has parts of shards, too
            law = LINEAR
        found = _scaled_round(round_, self._documents, self._factor, law)
        own = (round_.before - round_.looking) * self.seconds(DRIVER)
        looking = round_.looking + self._looking * (len(found.parts) - len(round_.parts))
        return dataclasses.replace(found, before=own + looking, looking=looking)


def _scaled_round(round_: RecordedRound, documents: int, factor: float, law: Law) -> RecordedRound:
    if not round_.parts:
        return round_
    count = law.parts(len(round_.parts), factor)
    seconds, size = law.of_seconds(documents, factor), law.of_bytes(factor)
    if law.most:
        seconds *= len(round_.parts) / count
    rest = [part for part in round_.parts if not part.first] or list(round_.parts)
    parts = list(round_.parts[:count])
    parts += [rest[number % len(rest)] for number in range(count - len(parts))]
    return dataclasses.replace(round_, parts=tuple(_scaled_part(part, seconds, size) for part in parts))


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


def with_steps_of(run: RecordedRun, other: RecordedRun, names: Collection[str]) -> RecordedRun:
    """A run with some steps as another run over the same corpus made them, of another release or encoder.

    Raises ValueError if one of the runs has no such step.
    """
    found = {step.name: step for step in other.steps}
    if missing := sorted(set(names) - (found.keys() & {step.name for step in run.steps})):
        raise ValueError(f"not both runs have the steps {', '.join(missing)}")
    steps = (
        dataclasses.replace(found[step.name], group=step.group, needs=step.needs) if step.name in names else step
        for step in run.steps
    )
    return dataclasses.replace(run, steps=tuple(steps))


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
    """The rounds of a step for one wave, and the driver's share of looking for its parts."""
    rounds = []
    for round_ in step.rounds:
        parts = round_.parts[number * shards : (number + 1) * shards]
        share = len(parts) / len(round_.parts) if round_.parts else 0.0
        looking = round_.looking * share
        rounds.append(RecordedRound(round_.stage, round_.before - round_.looking + looking, parts, looking))
    return dataclasses.replace(step, group=number + 1, rounds=tuple(rounds))
