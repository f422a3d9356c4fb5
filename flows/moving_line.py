"""The moving line of a terminal: the stages at work on one line, with bars, counts, rates and remaining time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flows.work_rate import StageAtWork
from indexmill.text.counted import counted
from indexmill.text.durations import in_short
from indexmill.text.terminal import PLAIN, Glyphs, TerminalStyle, display_width, fitted

_MOST = 2
"""The maximum number of stages shown; the others are counted."""


class _Detail(NamedTuple):
    """How much of each stage is shown. bar: the width of its bar; 0 for none."""

    bar: int
    items: bool
    rate: bool
    remaining: bool


_DETAILS = (
    *(_Detail(bar, True, True, True) for bar in (24, 16, 10)),
    *(_Detail(bar, True, False, True) for bar in (16, 10, 6)),
    *(_Detail(bar, False, False, True) for bar in (16, 10, 6)),
    _Detail(0, True, False, True),
    _Detail(0, False, False, True),
    _Detail(0, False, False, False),
)
"""From the most to the least detail; bars have few widths, so that a line does not jump with every digit."""


def clock(seconds: float) -> str:
    """Format the time since a command began: `0:07`, `1:02:03`."""
    minutes, rest = divmod(int(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def waiting_line(since: float, what: str, columns: int, turning: str, style: TerminalStyle = PLAIN) -> str:
    """Format the time, a spinner and the current step, in at most `columns` columns."""
    time = clock(since)
    if display_width(f"{time} {turning} ") >= columns:
        return fitted(time, columns)
    description = fitted(what, columns - display_width(f"{time} {turning} "))
    return f"{style.dim(time)} {turning} {description}"


def moving_line(
    stages: Sequence[StageAtWork], since: float, now: float, columns: int, glyphs: Glyphs, style: TerminalStyle = PLAIN
) -> str:
    """Format the stages, in the order in which they began, in at most `columns` columns.

    Stages at work come before waiting ones. Two are shown if both fit with bars and items, otherwise one. since: the
    seconds since the command began.
    """
    first = [stage for stage in stages if stage.is_at_work] or list(stages)
    for shown in (first[:_MOST], first[:1]):
        more = len(stages) - len(shown)
        for detail in _DETAILS:
            if len(shown) > 1 and not (detail.bar and detail.items):
                break
            plain, line = (_line(shown, more, since, now, detail, glyphs, chosen) for chosen in (PLAIN, style))
            if display_width(plain) <= columns:
                return line
    return fitted(f"{clock(since)}  {_segment(first[0], now, _DETAILS[-1], glyphs, PLAIN)}", columns)


def _line(
    stages: Sequence[StageAtWork],
    more: int,
    since: float,
    now: float,
    detail: _Detail,
    glyphs: Glyphs,
    style: TerminalStyle,
) -> str:
    parts = [style.dim(clock(since)), *(_segment(stage, now, detail, glyphs, style) for stage in stages)]
    return "  ".join([*parts, *[style.dim(f"+{more} more")] * bool(more)])


def _segment(stage: StageAtWork, now: float, detail: _Detail, glyphs: Glyphs, style: TerminalStyle) -> str:
    bar = f"{glyphs.bar(stage.share, detail.bar)} " if detail.bar else ""
    heading = f"{style.bold(stage.name)} {bar}{counts(stage)}"
    words = progress_words(stage, now, items=detail.items, rate=detail.rate, remaining=detail.remaining)
    return "  ".join([heading, *words])


def counts(stage: StageAtWork) -> str:
    """Format the finished and total parts of a stage, with the percentage if parts at work report shares."""
    return f"{stage.done}/{stage.parts}" + ("" if stage.percent is None else f" {stage.percent}%")


def progress_words(
    stage: StageAtWork, now: float, *, items: bool = True, rate: bool = True, remaining: bool = True
) -> list[str]:
    """Format the items of a stage, its calls, its items per second, and its remaining time, as far as they are known.

    The reason of retries is shown with the rate.
    """
    words, done_items = [], stage.items()
    if items and done_items is not None:
        of = f"{done_items.done:,} of {counted(done_items.total, done_items.unit)}"
        words.append(of if done_items.total else counted(done_items.done, done_items.unit))
    if items and done_items is not None and done_items.calls:
        words.append(f"{counted(done_items.calls, 'call')} in flight")
    if items and done_items is not None and done_items.retrying:
        words.append(f"{done_items.retrying:,} to retry" + (f" ({done_items.reason})" if rate else ""))
    if rate and done_items is not None and (speed := stage.items_per_second(now)) is not None:
        words.append(f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.1f}/s")
    if remaining and (seconds := stage.seconds_left(now)) is not None:
        words.append(f"{in_short(seconds)} left")
    return words
