"""The charts and tables of a report, drawn from its facts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexmill.report import charts
from indexmill.report.history import VersionFacts
from indexmill.report.inside import Histogram
from indexmill.report.numbers import amount, clipped, duration, moment, money, share
from indexmill.report.run_record import RunRecord, StageRun, WorkSpan, WorkTimeline
from indexmill.text.counted import byte_size, counted

if TYPE_CHECKING:
    from markupsafe import Markup

_TONES = 7  # the stages with the most work have their own colour; the others are grey
_LANES = 40
_GAP = 0.002  # blocks of one stage are drawn as one if their distance is below this share of the whole time
_PANELS = 4


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart, its caption, and its numbers as a table whose first column names the row. narrow: for small screens."""

    chart: Markup
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    narrow: Markup | None = None


def stage_tones(stages: Sequence[StageRun]) -> dict[str, int]:
    """Return the colour number of each stage: unique for the stages with the most work, 0 (grey) for the others."""
    ordered = sorted(stages, key=lambda stage: (-stage.work, stage.name))
    return {stage.name: place if place <= _TONES else 0 for place, stage in enumerate(ordered, start=1)}


def timeline(run: RunRecord) -> Figure | None:
    """Draw the timeline of workers and their stages, or the timeline of stages if no workers were recorded."""
    tones = stage_tones(run.stages)
    if run.timeline is not None:
        return _of_workers(run.timeline, tones, run.seconds)
    if not run.stages:
        return None
    stages = [stage for stage in run.stages if stage.wall >= 0.05]
    seconds = max([run.seconds or 0.0, *(stage.began + stage.wall for stage in stages)])
    blocks = [
        charts.TimelineBlock(
            number,
            stage.began,
            stage.began + stage.wall,
            tones[stage.name],
            duration(stage.wall),
            f"{stage.name}: {duration(stage.wall)} from {duration(stage.began)} on",
        )
        for number, stage in enumerate(stages[:_LANES])
    ]
    caption = "One lane per stage: when it began, and how long it worked; pauses are not drawn."
    lanes = [stage.name for stage in stages[:_LANES]]
    chart = charts.timeline("timeline", "Stages over time", caption, lanes, blocks, seconds)
    narrow = charts.timeline("lanes", "Stages over time", caption, lanes, blocks, seconds, narrow=True)
    rows = tuple((stage.name, duration(stage.began), duration(stage.wall)) for stage in stages)
    return Figure(chart, caption, ("stage", "began after", "at work for"), rows, narrow)


def _of_workers(timeline: WorkTimeline, tones: Mapping[str, int], whole: float | None) -> Figure:
    seconds = max([whole or 0.0, *(span.ended for span in timeline.spans)])
    lanes = [f"worker {number}" for number in range(1, len(timeline.workers) + 1)]
    busy = sum(span.ended - span.began for span in timeline.spans)
    caption = (
        f"{counted(len(lanes), 'worker')}, at work for {busy / (seconds * len(lanes)):.0%} of {duration(seconds)}. "
        "The table of stages has their colours; grey: little work."
        if seconds and lanes
        else "No work was recorded."
    )
    if timeline.left_out:
        caption += f" The shortest spans, of {counted(timeline.left_out, 'part')}, are left out."
    if len(lanes) > _LANES:
        caption += f" The first {_LANES} are drawn."
    shown = "Workers over time", caption, lanes[:_LANES]
    chart = charts.timeline("timeline", *shown, _blocks(timeline, tones, _GAP * seconds), seconds)
    narrow = charts.timeline("lanes", *shown, _blocks(timeline, tones, 3 * _GAP * seconds), seconds, narrow=True)
    work: dict[tuple[int, str], tuple[float, int]] = {}
    for span in timeline.spans:
        length, parts = work.get((span.worker, span.stage), (0.0, 0))
        work[span.worker, span.stage] = length + span.ended - span.began, parts + span.parts
    rows = tuple(
        (f"{lanes[worker]} ({clipped(timeline.workers[worker], 40)})", stage, duration(length), amount(parts))
        for (worker, stage), (length, parts) in sorted(work.items())
        if worker < _LANES
    )
    return Figure(chart, caption, ("worker", "stage", "at work for", "parts"), rows, narrow)


def _blocks(timeline: WorkTimeline, tones: Mapping[str, int], gap: float) -> list[charts.TimelineBlock]:
    return [
        charts.TimelineBlock(
            span.worker,
            span.began,
            span.ended,
            tones.get(span.stage, 0),
            span.stage,
            f"{span.stage}, {counted(span.parts, 'part')}: {duration(span.began)} to {duration(span.ended)}",
        )
        for span in _joined(timeline.spans, gap)
        if span.worker < _LANES
    ]


def _joined(spans: Sequence[WorkSpan], gap: float) -> list[WorkSpan]:
    """Join spans of the same worker and stage that follow each other closely."""
    joined: list[WorkSpan] = []
    for span in sorted(spans, key=lambda span: (span.worker, span.began, span.ended, span.stage)):
        last = joined[-1] if joined else None
        if last and (last.worker, last.stage) == (span.worker, span.stage) and span.began - last.ended <= gap:
            joined[-1] = WorkSpan(
                last.worker, last.stage, last.began, max(last.ended, span.ended), last.parts + span.parts
            )
        else:
            joined.append(span)
    return joined


def over_time(versions: Sequence[VersionFacts]) -> Figure:
    """Draw the documents, recall, cost, duration and size of versions over one axis."""
    methods = sorted({method for version in versions for method in version.recall})
    panels = [
        _panel("documents", [version.documents for version in versions], amount),
        *(
            _panel(f"recall, {method}", [version.recall.get(method) for version in versions], share, most=1.0)
            for method in methods[:_PANELS]
        ),
        _panel("cost", [version.cost for version in versions], money),
        _panel("duration", [version.seconds for version in versions], duration),
        _panel("size", [version.bytes for version in versions], lambda value: byte_size(int(value))),
    ]
    shown = [panel for panel in panels if panel is not None]
    flags = [(place, " ".join(version.aliases)) for place, version in enumerate(versions) if version.aliases]
    gone = [place for place, version in enumerate(versions) if version.removed == "withdrawn"]
    caption = (
        f"{counted(len(versions), 'version')}, from {versions[0].version} to {versions[-1].version}. Each panel begins "
        "at zero. A dashed line marks a version that an alias points to; a cross marks a withdrawn version."
    )
    depths = sorted({version.k for version in versions if version.recall and version.k is not None})
    if len(depths) > 1:
        caption += f" Recall was measured at different depths: {', '.join(map(str, depths))}."
    drawn = "Versions over time", caption, [version.version for version in versions], shown, flags, gone
    chart = charts.series("versions", *drawn)
    narrow = charts.series("series", *drawn, narrow=True)
    header = ("version", "created", "documents", *(f"recall, {method}" for method in methods[:_PANELS]))
    rows = tuple(
        (
            str(version.version),
            moment(version.created),
            amount(version.documents),
            *(share(version.recall.get(method)) for method in methods[:_PANELS]),
            money(version.cost),
            duration(version.seconds),
            "–" if version.bytes is None else byte_size(version.bytes),
            _remark(version),
        )
        for version in reversed(versions)
    )
    return Figure(chart, caption, (*header, "cost", "duration", "size", "remarks"), rows, narrow)


def _panel(
    name: str,
    values: Sequence[float | None],
    shown: Callable[[float], str],
    most: float | None = None,
) -> charts.Panel | None:
    """Return the panel of a series; None if no version has a value, or all values are zero."""
    if not any(values):
        return None
    words = tuple("" if value is None else shown(value) for value in values)
    return charts.Panel(name, tuple(values), words, most)


def _remark(version: VersionFacts) -> str:
    aliases = [f"<{alias}>" for alias in version.aliases]
    command = [version.command] if version.command not in ("", "build") else []
    return " ".join(part for part in (*aliases, version.removed, *command, clipped(version.note, 80)) if part)


def histogram(key: str, distribution: Histogram) -> Figure:
    """Draw a distribution, and list its groups in a table."""
    chart = charts.histogram(
        key, distribution.name, distribution.bars, of=distribution.of, doubling=distribution.doubling
    )
    caption = (
        f"{amount(distribution.total)} {distribution.of}: {amount(distribution.least)} to {amount(distribution.most)}, "
        f"the median is {amount(distribution.median)}."
        f"{' The groups double.' if distribution.doubling else ''}"
    )
    rows = tuple(
        (amount(bar.low) if bar.low == bar.high else f"{amount(bar.low)} to {amount(bar.high)}", amount(bar.count))
        for bar in distribution.bars
    )
    return Figure(chart, caption, (distribution.name, distribution.of), rows)
