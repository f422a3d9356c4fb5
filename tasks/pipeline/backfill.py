"""A build in waves: bounded groups of shards, each of which passes all per-shard stages before the next begins.

The shards of a wave bound its memory and its work in flight, and its spill files are deleted afterwards. Parts are
found by their receipts, so a run stopped in the middle of a wave resumes there. The whole-corpus stages run at the end,
and optionally after every few waves, to publish the shards so far as a version.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from indexmill.models.progress import Items
from indexmill.store.manifest import Manifest
from indexmill.text.counted import counted
from indexmill.text.durations import in_short
from tasks.core.report import Forwarding, Progress, Silent
from tasks.core.step import Step
from tasks.pipeline.build import Build
from tasks.pipeline.lookup import are_made
from tasks.stages.ingest.shard_plan import Shard

_FIRST = ("encoder", "scan")
"""The steps before the first wave."""

WAVE_TOKENS = 4_000_000
"""The estimated tokens of a wave if its number of shards is not set: about 20 shards, enough for 8 workers."""

Together = Callable[[str, Sequence[Step]], None]
"""Runs steps of a build, each after the steps that it needs; the text is a prefix of their names."""


@dataclass(frozen=True)
class Waves:
    """The grouping of a corpus's shards into waves, and the interval of publishing.

    shards: the number of shards per wave; None for waves of WAVE_TOKENS. publish_every: the number of waves between
    versions; None to publish only at the end.
    """

    shards: int | None = None
    publish_every: int | None = None

    def cut(self, shards: Sequence[Shard]) -> list[tuple[Shard, ...]]:
        """Group shards into waves in the order of their labels; a single empty wave if there are no shards."""
        cut: list[list[Shard]] = [[]]
        tokens = 0
        for shard in shards:
            full = tokens + shard.tokens > WAVE_TOKENS if self.shards is None else len(cut[-1]) == self.shards
            if cut[-1] and full:
                cut.append([])
                tokens = 0
            cut[-1].append(shard)
            tokens += shard.tokens
        return [tuple(wave) for wave in cut]


class WaveRate:
    """The rate at which waves are made, and the remaining time at that rate. Reused waves do not count."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._documents = self._tokens = 0

    def record(self, wave: Sequence[Shard], remaining: int) -> str:
        """Record a finished wave; returns the rates and, if `remaining` tokens are left, the remaining time as text."""
        self._documents += sum(shard.documents for shard in wave)
        self._tokens += sum(shard.tokens for shard in wave)
        seconds = max(self._clock() - self._began, 1e-9)
        rates = f"{self._documents / seconds:,.1f} documents/s, {self._tokens / seconds:,.0f} tokens/s"
        return f"{rates}, {in_short(remaining * seconds / self._tokens)} left" if remaining and self._tokens else rates


class Phases(NamedTuple):
    """The steps of a backfill: before the first wave, of each wave, and after the last."""

    first: tuple[Step, ...]
    of_shards: tuple[Step, ...]
    of_corpus: tuple[Step, ...]


def phases(steps: Sequence[Step]) -> Phases:
    """Group steps by the phase in which a backfill runs them."""
    first = tuple(step for step in steps if step.name in _FIRST)
    of_shards = tuple(step for step in steps if step.of_shards)
    return Phases(first, of_shards, tuple(step for step in steps if step not in (*first, *of_shards)))


def backfill(
    build: Build, waves: Waves, together: Together, publish: Callable[[Manifest], None], pace: WaveRate | None = None
) -> Manifest:
    """Run the stages of a build in waves; returns the manifest of the whole corpus, as a plain build does.

    `publish`: commits an intermediate version and makes it the parent of the build.
    """
    first, of_shards, of_corpus = phases(build.steps)
    together("", first)
    corpus = build.corpus.plan
    progress = build.progress
    cut = waves.cut(corpus.shards)
    done = [not build.cold and are_made(build, wave) for wave in cut]
    progress.end(
        "ingest",
        f"{counted(corpus.documents, 'document')} of about {counted(corpus.tokens, 'token')}, "
        f"{counted(len(corpus.shards), 'shard')} in {counted(len(cut), 'wave')}; read",
    )
    if any(done):
        several = sum(done) > 1
        progress.note(f"wave{'s' if several else ''} {_ranges(done)} of {len(cut)} {'were' if several else 'was'} done")
    tokens = [0 if there else sum(shard.tokens for shard in wave) for wave, there in zip(cut, done, strict=True)]
    pace = pace or WaveRate()
    for number, wave in enumerate(cut, 1):
        title = f"wave {number} of {len(cut)}"
        build.corpus.take(wave)
        build.progress = Silent() if done[number - 1] else _Wave(progress, title, len(wave) * len(of_shards))
        try:
            together(f"{title}: ", of_shards)
        finally:
            build.progress = progress
        if not done[number - 1]:
            documents = counted(sum(shard.documents for shard in wave), "document")
            summary = f"shards {wave[0].label} to {wave[-1].label}, {documents}" if wave else "nothing"
            progress.end(title, f"{summary}; {pace.record(wave, sum(tokens[number:]))}; made")
        if waves.publish_every and number % waves.publish_every == 0 and number < len(cut):
            _publish(build, f"up to wave {number} of {len(cut)}", of_corpus, together, publish)
    together("", of_corpus)
    return build.manifest()


def _publish(
    build: Build, title: str, steps: Sequence[Step], together: Together, publish: Callable[[Manifest], None]
) -> None:
    """Publish the shards so far as a version, unless it would have fewer documents than the parent."""
    before = build.parent.manifest.corpus.documents if build.parent and build.parent.manifest else 0
    if build.corpus.documents < before:
        build.progress.note(
            f"{title} there are {counted(build.corpus.documents, 'document')}, version "
            f"{build.parent.version if build.parent else 0} has {before:,}: not published"
        )
        return
    # Gold documents may be in later waves, so quality is measured at the end.
    together(f"{title}: ", [step for step in steps if step.name != "quality"])
    publish(build.manifest())


class _Wave(Forwarding):
    """Reports the progress of all stages of a wave as one stage."""

    def __init__(self, progress: Progress, title: str, parts: int) -> None:
        super().__init__(progress)
        self._title = title
        progress.begin(title, parts)

    def begin(self, stage: str, parts: int) -> None:
        pass

    def advance(self, stage: str, parts: int = 1) -> None:
        super().advance(self._title, parts)

    def within(self, stage: str, part: str, share: float | None, items: Items | None = None) -> None:
        super().within(self._title, f"{stage} {part}", share)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        pass

    def abandon(self, stage: str) -> None:
        super().abandon(self._title)


def _ranges(chosen: Sequence[bool]) -> str:
    """List the 1-based positions of true values as ranges: `1-7, 9`."""
    ranges = []
    for is_chosen, group in groupby(enumerate(chosen, 1), key=lambda pair: pair[1]):
        numbers = [number for number, _ in group]
        if is_chosen:
            ranges.append(f"{numbers[0]}-{numbers[-1]}" if numbers[1:] else f"{numbers[0]}")
    return ", ".join(ranges)
