"""The charts and tables of a report, from its facts: what is drawn, in which words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexmill.report import charts
from indexmill.report.history import VersionFacts
from indexmill.report.inside import Histogram
from indexmill.report.numbers import amount, clipped, duration, moment, money, share
from indexmill.report.run_record import RunRecord, Span, StageRun, Timeline
from indexmill.text.counted import byte_size, counted

if TYPE_CHECKING:
    from markupsafe import Markup

_TONES = 7
"""Stages with a colour of their own, those with the most work; the others are grey."""
_LANES = 40
_GAP = 0.002
"""Stretches of one stage that are closer than this part of the whole time are drawn as one."""
_PANELS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, what it shows in a sentence, and its numbers as a table, the first column of which names the row.

    narrow: the same chart for narrow screens, where it is drawn in another form there.
    """

    chart: Markup
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    narrow: Markup | None = None


def stage_tones(stages: Sequence[StageRun]) -> dict[str, int]:
    """The colour of each stage: those with the most work have one of their own."""
    ordered = sorted(stages, key=lambda stage: (-stage.work, stage.name))
    return {stage.name: place if place <= _TONES else 0 for place, stage in enumerate(ordered, start=1)}


def timeline(run: RunRecord) -> Figure | None:
    """When which worker was at work on which stage; without a record of that, when the stages were at work."""
    tones = stage_tones(run.stages)
    if run.timeline is not None:
        return _of_workers(run.timeline, tones, run.seconds)
    if not run.stages:
        return None
    stages = [stage for stage in run.stages if stage.wall >= 0.05]
    seconds = max([run.seconds or 0.0, *(stage.began + stage.wall for stage in stages)])
    blocks = [
        charts.Block(
            number,
            stage.began,
            stage.began + stage.wall,
            tones[stage.name],
            duration(stage.wall),
            f"{stage.name}: {duration(stage.wall)} from {duration(stage.began)} on",
        )
        for number, stage in enumerate(stages[:_LANES])
    ]
    told = "One lane for each stage: where it began, and how long it was at work; pauses are not drawn."
    lanes = [stage.name for stage in stages[:_LANES]]
    chart = charts.timeline("timeline", "Stages over time", told, lanes, blocks, seconds)
    narrow = charts.timeline("lanes", "Stages over time", told, lanes, blocks, seconds, narrow=True)
    rows = tuple((stage.name, duration(stage.began), duration(stage.wall)) for stage in stages)
    return Figure(chart, told, ("stage", "began after", "at work for"), rows, narrow)


def _of_workers(found: Timeline, tones: Mapping[str, int], whole: float | None) -> Figure:
    seconds = max([whole or 0.0, *(span.ended for span in found.spans)])
    lanes = [f"worker {number}" for number in range(1, len(found.workers) + 1)]
    busy = sum(span.ended - span.began for span in found.spans)
    told = (
        f"{counted(len(lanes), 'worker')}, at work for {busy / (seconds * len(lanes)):.0%} of {duration(seconds)}. "
        "The table of stages has their colours; grey: little work."
        if seconds and lanes
        else "No work was recorded."
    )
    if found.left_out:
        told += f" The shortest stretches, of {counted(found.left_out, 'part')}, are left out."
    if len(lanes) > _LANES:
        told += f" The first {_LANES} are drawn."
    shown = "Workers over time", told, lanes[:_LANES]
    chart = charts.timeline("timeline", *shown, _blocks(found, tones, _GAP * seconds), seconds)
    narrow = charts.timeline("lanes", *shown, _blocks(found, tones, 3 * _GAP * seconds), seconds, narrow=True)
    work: dict[tuple[int, str], tuple[float, int]] = {}
    for span in found.spans:
        length, parts = work.get((span.worker, span.stage), (0.0, 0))
        work[span.worker, span.stage] = length + span.ended - span.began, parts + span.parts
    rows = tuple(
        (f"{lanes[worker]} ({clipped(found.workers[worker], 40)})", stage, duration(length), amount(parts))
        for (worker, stage), (length, parts) in sorted(work.items())
        if worker < _LANES
    )
    return Figure(chart, told, ("worker", "stage", "at work for", "parts"), rows, narrow)


def _blocks(found: Timeline, tones: Mapping[str, int], gap: float) -> list[charts.Block]:
    return [
        charts.Block(
            span.worker,
            span.began,
            span.ended,
            tones.get(span.stage, 0),
            span.stage,
            f"{span.stage}, {counted(span.parts, 'part')}: {duration(span.began)} to {duration(span.ended)}",
        )
        for span in _joined(found.spans, gap)
        if span.worker < _LANES
    ]


def _joined(spans: Sequence[Span], gap: float) -> list[Span]:
    """The spans, those of one worker and stage that follow each other closely as one."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: (one.worker, one.began, one.ended, one.stage)):
        last = found[-1] if found else None
        if last and (last.worker, last.stage) == (span.worker, span.stage) and span.began - last.ended <= gap:
            found[-1] = Span(last.worker, last.stage, last.began, max(last.ended, span.ended), last.parts + span.parts)
        else:
            found.append(span)
    return found


def over_time(versions: Sequence[VersionFacts]) -> Figure:
    """Documents, recall, cost, duration and bytes of the versions, on one axis."""
    methods = sorted({method for one in versions for method in one.recall})
    panels = [
        _panel("documents", versions, [one.documents for one in versions], amount),
        *(
            _panel(f"recall, {method}", versions, [one.recall.get(method) for one in versions], share, most=1.0)
            for method in methods[:_PANELS]
        ),
        _panel("cost", versions, [one.cost for one in versions], money),
        _panel("duration", versions, [one.seconds for one in versions], duration),
        _panel("size", versions, [one.bytes for one in versions], lambda value: byte_size(int(value))),
    ]
    shown = [panel for panel in panels if panel is not None]
    flags = [(place, " ".join(one.aliases)) for place, one in enumerate(versions) if one.aliases]
    gone = [place for place, one in enumerate(versions) if one.removed == "withdrawn"]
    told = (
        f"{counted(len(versions), 'version')}, from {versions[0].version} to {versions[-1].version}. Each panel begins "
        "at zero. A broken line names the version that an alias points to; a cross marks one that was withdrawn."
    )
    depths = sorted({one.k for one in versions if one.recall and one.k is not None})
    if len(depths) > 1:
        told += f" Recall was measured at different depths: {', '.join(map(str, depths))}."
    drawn = "Versions over time", told, [one.version for one in versions], shown, flags, gone
    chart = charts.series("versions", *drawn)
    narrow = charts.series("series", *drawn, narrow=True)
    header = ("version", "created", "documents", *(f"recall, {method}" for method in methods[:_PANELS]))
    rows = tuple(
        (
            str(one.version),
            moment(one.created),
            amount(one.documents),
            *(share(one.recall.get(method)) for method in methods[:_PANELS]),
            money(one.cost),
            duration(one.seconds),
            "–" if one.bytes is None else byte_size(one.bytes),
            _remark(one),
        )
        for one in reversed(versions)
    )
    return Figure(chart, told, (*header, "cost", "duration", "size", "remarks"), rows, narrow)


def _panel(
    name: str,
    versions: Sequence[VersionFacts],
    values: Sequence[float | None],
    shown: Callable[[float], str],
    most: float | None = None,
) -> charts.Panel | None:
    """A series; None if no version has a value, or all are zero."""
    if not any(values):
        return None
    words = tuple("" if value is None else shown(value) for value in values)
    return charts.Panel(name, tuple(values), words, most)


def _remark(one: VersionFacts) -> str:
    aliases = [f"<{alias}>" for alias in one.aliases]
    command = [one.command] if one.command not in ("", "build") else []
    return " ".join(part for part in (*aliases, one.removed, *command, clipped(one.note, 80)) if part)


def histogram(key: str, one: Histogram) -> Figure:
    """A distribution, and its groups as a table."""
    chart = charts.histogram(key, one.name, one.bars, of=one.of, doubling=one.doubling)
    told = (
        f"{amount(one.total)} {one.of}: {amount(one.least)} to {amount(one.most)}, the median is {amount(one.median)}."
        f"{' The groups double.' if one.doubling else ''}"
    )
    rows = tuple(
        (amount(bar.low) if bar.low == bar.high else f"{amount(bar.low)} to {amount(bar.high)}", amount(bar.count))
        for bar in one.bars
    )
    return Figure(chart, told, (one.name, one.of), rows)
