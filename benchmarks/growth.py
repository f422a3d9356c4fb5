"""Scale a recorded run to a larger corpus: more parts of bounded size, longer whole-corpus parts.

Each stage follows a growth law, and so do the driver's own seconds between rounds and the end of a run;
`benchmarks.simulate scale` prints the laws and whether they were measured. For each additional part the driver takes as
long as for a part of the round with the quickest lookups. Everything else stays the same: worker start-up, the seconds
between steps, the layers of a tree.
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
"""Names of the other growing times: the driver's seconds in its steps, and those from the last step to the end."""

_OF_LAYERS = {"community_clusters", "community_graph", "community_levels", "lsh_segments"}
"""Stages with one part per layer of a tree, which has all nodes of the layer."""

_OF_RANGES = {"pieces", "resolve"}
"""Stages with one part per range of entities, at most 16."""

_OF_PAIRS = {"compare_rows"}
"""Stages with one part per range of rows that are compared with all rows, at most 64."""

_GROUP = re.compile(r"[A-Za-z][01]*")
"""The label of a shard or a group, which split when full; any other label is of the whole corpus."""

_LEAST = 0.5
"""Seconds below which a stage is too short to measure its growth."""


@dataclass(frozen=True, slots=True)
class Law:
    """How a stage grows with the corpus: the number of its parts, or the seconds and bytes of each part.

    exponent: of the factor of the corpus. logarithm: whether the seconds also grow with the logarithm of the documents.
    most: the maximum of parts; the exponent is then that of the seconds of all parts together. why: the law's origin.
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
        """Return the seconds of a part, as a multiple of the recorded one."""
        if self.of_parts:
            return 1.0
        more = math.log(max(documents, 2) * factor) / math.log(max(documents, 2)) if self.logarithm else 1.0
        return factor**self.exponent * more

    def of_bytes(self, factor: float) -> float:
        """Return the bytes of a part, as a multiple of the recorded one."""
        return 1.0 if self.of_parts else factor ** min(self.exponent, 1.0)

    def parts(self, recorded: int, factor: float) -> int:
        """Return the number of parts of a round."""
        if self.most:
            return min(max(recorded, self.most), max(1, round(recorded * factor)))
        return max(1, round(recorded * factor**self.exponent)) if self.of_parts and recorded else recorded


PARTS = Law(1.0, of_parts=True, why="its parts have a bounded size")
LINEAR = Law(1.0, why="assumed")
PAIRS = Law(2.0, most=64, why="compares all rows with all")


def parse_law(text: str) -> Law:
    """Parse an option's law: `parts`, `constant`, `linear`, `nlogn`, or an exponent. Raises ValueError."""
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


def laws_of(run: RecordedRun, overrides: Mapping[str, Law] | None = None) -> dict[str, Law]:
    """Return the law of each stage, of DRIVER and of END: the override, or the law of the kind of its parts."""
    rounds = _rounds_of(run)
    of_shards = {round_.stage for step in run.steps if step.of_shards for round_ in step.rounds}
    laws = {}
    for stage, stage_rounds in rounds.items():
        parts = [part for round_ in stage_rounds for part in round_.parts]
        if all(not part.shard for part in parts):  # scanned files, opening the encoder
            law = PARTS if stage == "scan" else Law(0.0, why="once in a run")
        elif stage in of_shards:
            law = PARTS
        elif not any(part.opened for part in parts):
            law = Law(0.0, why="reads nothing of the corpus")
        elif stage in _OF_PAIRS:
            law = PAIRS
        elif stage == "zoom_links" and not _OF_PAIRS & rounds.keys():
            law = Law(2.0, why="compares all rows with all")
        elif stage in _OF_LAYERS | _OF_RANGES or all(_is_of_the_whole(round_) for round_ in stage_rounds):
            law = LINEAR
        else:
            law = PARTS
        laws[stage] = law
    laws |= {DRIVER: Law(0.0), END: Law(0.0)}
    return laws | {stage: law for stage, law in (overrides or {}).items() if stage in laws}


def _rounds_of(run: RecordedRun) -> dict[str, list[RecordedRound]]:
    rounds: dict[str, list[RecordedRound]] = {}
    for step in run.steps:
        for round_ in step.rounds:
            if round_.parts:
                rounds.setdefault(round_.stage, []).append(round_)
    return rounds


def _is_of_the_whole(round_: RecordedRound) -> bool:
    return all(part.shard and not _GROUP.fullmatch(part.shard) for part in round_.parts)


def measured_laws(runs: Sequence[RecordedRun]) -> dict[str, Law]:
    """Measure exponents between the smallest and the largest run, except of shard stages.

    Stages that take less than half a second in the largest run are left out. Stages are measured in CPU seconds, DRIVER
    and END in wall seconds.
    """
    ordered = sorted(runs, key=lambda run: run.documents)
    if len(ordered) < 2 or not 0 < ordered[0].documents < ordered[-1].documents:
        return {}
    small, large = ordered[0], ordered[-1]
    factor = math.log(large.documents / small.documents)
    took = [_seconds_of(run) for run in (small, large)]
    of_shards = {round_.stage for step in large.steps if step.of_shards for round_ in step.rounds}
    laws = {}
    for stage, law in laws_of(large).items():
        if stage in {"scan", *of_shards} or not took[0][stage] or took[1][stage] < _LEAST:
            continue
        exponent = min(max(math.log(took[1][stage] / took[0][stage]) / factor, 0.0), 4.0)
        why = f"measured, {small.documents:,} and {large.documents:,} documents"
        laws[stage] = Law(exponent, of_parts=law.of_parts, most=law.most, why=why)
    return laws


def _seconds_of(run: RecordedRun) -> Counter[str]:
    seconds = Counter({END: run.end_seconds})
    for part in run.parts:
        seconds[part.stage] += part.processor_seconds
    for step in run.steps:
        seconds[DRIVER] += step.after + sum(round_.before - round_.looking for round_ in step.rounds)
    return seconds


def scaled(run: RecordedRun, factor: float, laws: Mapping[str, Law]) -> RecordedRun:
    """Return the run over `factor` times the documents."""
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
    """The growth of a run's rounds and seconds."""

    def __init__(self, run: RecordedRun, factor: float, laws: Mapping[str, Law]) -> None:
        self._documents, self._factor, self._laws = run.documents, factor, laws
        looked = [
            round_.looking / len(round_.parts)
            for step in run.steps
            for round_ in step.rounds
            if any(part.shard for part in round_.parts)
        ]
        self._looking = min(looked, default=0.0)
        """The driver's seconds for each additional part of a round."""

    def seconds(self, name: str) -> float:
        """Return the growth factor of the seconds of a stage, the driver or the end of the run."""
        return self._laws[name].of_seconds(self._documents, self._factor)

    def round(self, round_: RecordedRound) -> RecordedRound:
        """Scale a round; the number of first parts of a stage in a process does not change."""
        law = self._laws.get(round_.stage, LINEAR)
        if law.of_parts and _is_of_the_whole(round_):  # the stage has shard parts, too
            law = LINEAR
        grown = _scaled_round(round_, self._documents, self._factor, law)
        driver_seconds = (round_.before - round_.looking) * self.seconds(DRIVER)
        looking = round_.looking + self._looking * (len(grown.parts) - len(round_.parts))
        return dataclasses.replace(grown, before=driver_seconds + looking, looking=looking)


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


def with_steps_of(run: RecordedRun, donor: RecordedRun, names: Collection[str]) -> RecordedRun:
    """Replace some steps of a run by those of another run over the same corpus, of another release or encoder.

    Raises ValueError if one of the runs lacks such a step.
    """
    replacements = {step.name: step for step in donor.steps}
    if missing := sorted(set(names) - (replacements.keys() & {step.name for step in run.steps})):
        raise ValueError(f"not both runs have the steps {', '.join(missing)}")
    steps = (
        dataclasses.replace(replacements[step.name], group=step.group, needs=step.needs) if step.name in names else step
        for step in run.steps
    )
    return dataclasses.replace(run, steps=tuple(steps))


def in_waves(run: RecordedRun, shards: int) -> RecordedRun:
    """Turn a run of one group into a backfill: waves of so many shards, one after the other.

    Raises ValueError if the run was a backfill itself.
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
    """Return the step of one wave: its parts of each round, and their share of the driver's lookups."""
    rounds = []
    for round_ in step.rounds:
        parts = round_.parts[number * shards : (number + 1) * shards]
        share = len(parts) / len(round_.parts) if round_.parts else 0.0
        looking = round_.looking * share
        rounds.append(RecordedRound(round_.stage, round_.before - round_.looking + looking, parts, looking))
    return dataclasses.replace(step, group=number + 1, rounds=tuple(rounds))
