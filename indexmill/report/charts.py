"""Charts of a report as SVG: bars, histograms, a timeline of workers, and series over versions.

Each function takes numbers and labels and returns markup without scripts or styles: the page's stylesheet colours the
classes, for light and dark screens and for paper. Scales begin at zero, and each value is shown beside its bar, line or
point. Coordinates are rounded to a tenth of a pixel, so that the same numbers give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexmill.report.numbers import amount, clipped, duration

if TYPE_CHECKING:
    from markupsafe import Markup

_CHARACTER = 6.6  # an upper estimate of a label's width per character, in pixels


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a histogram: the number of values from ``low`` to ``high``, inclusive."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class TimelineBlock:
    """A block in a lane of a timeline; times in seconds. tone: the colour's number, 0 for grey. tooltip: hover text."""

    lane: int
    began: float
    ended: float
    tone: int
    label: str
    tooltip: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One series over versions. values: the value of each version, or None. shown: the formatted values."""

    name: str
    values: tuple[float | None, ...]
    shown: tuple[str, ...]
    most: float | None = None
    """The end of the scale; by default the maximum value."""


def bar(value: float, most: float, tone: int = 1) -> Markup:
    """Draw a bar for a table cell; the value ``most`` fills the cell. Screen readers read only the number beside it."""
    length = 100 * value / most if most > 0 else 0.0
    return _markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="t{tone}" width="{_px(length)}" height="10"/></svg>'
    )


def histogram(key: str, title: str, bars: Sequence[Bar], *, of: str, doubling: bool) -> Markup:
    """Draw a histogram. key: an id that is unique on the page. of: a plural noun for the things that are counted."""
    width, height, margin, top, bottom = 300, 150, 8, 20, 24
    highest = max((one.count for one in bars), default=0)
    step = (width - 2 * margin) / max(len(bars), 1)
    floor = height - bottom
    parts, peak = [], True
    for number, group in enumerate(bars):
        length = (floor - top) * group.count / highest if highest else 0
        x = margin + number * step
        wide = max(step - 1.5, 0.8)
        parts.append(
            f'<rect class="t1" x="{_px(x)}" y="{_px(floor - length)}" width="{_px(wide)}" height="{_px(length)}">'
            f"<title>{_range(group)}: {amount(group.count)}</title></rect>"
        )
        if peak and group.count == highest and highest:
            place = min(max(x + wide / 2, margin + 4 * _CHARACTER), width - margin - 4 * _CHARACTER)
            parts.append(_label(place, floor - length - 5, amount(group.count), "middle"))
            peak = False
    parts.append(f'<path class="axis" d="M{margin} {floor}h{width - 2 * margin}"/>')
    widest = max((len(amount(group.low)) for group in bars), default=1) * _CHARACTER + 6
    every = max(1, math.ceil(widest / step))
    for number, group in enumerate(bars[::every]):
        text = amount(group.low)
        x = margin + number * every * step + step / 2
        parts.append(_label(max(x, len(text) * _CHARACTER / 2), height - 8, text, "middle"))
    total = sum(group.count for group in bars)
    groups = "The groups double." if doubling else ""
    description = f"{amount(total)} {of}; the tallest bar is {amount(highest)}. {groups}".strip()
    return _figure(key, width, height, title, description, parts, "small")


def timeline(
    key: str,
    title: str,
    description: str,
    lanes: Sequence[str],
    blocks: Sequence[TimelineBlock],
    seconds: float,
    *,
    narrow: bool = False,
) -> Markup:
    """Draw lanes of work from zero to ``seconds``. narrow: True for a phone's screen; hover texts are left out."""
    width, left_margin, top, lane = (360, 92, 6, 24) if narrow else (1040, 150, 6, 26)
    floor = top + lane * len(lanes)
    scale = (width - left_margin - 14) / seconds if seconds > 0 else 0.0
    parts = []
    for tick in _ticks(seconds, 3 if narrow else 6):
        x = left_margin + tick * scale
        parts.append(f'<path class="grid" d="M{_px(x)} {top}V{floor}"/>')
        anchor = "middle" if tick and x + 30 < width else "start" if not tick else "end"
        parts.append(_label(x, floor + 17, duration(tick), anchor))
    for number, name in enumerate(lanes):
        y = top + lane * number
        parts.append(_label(left_margin - 8, y + lane / 2 + 4, clipped(name, 12 if narrow else 21), "end"))
        parts.append(f'<path class="grid" d="M{left_margin} {_px(y + lane)}H{width}"/>')
    for block in blocks:
        x, wide = left_margin + block.began * scale, max((block.ended - block.began) * scale, 0.8)
        y = top + lane * block.lane + 4
        shape = f'<rect class="t{block.tone}" x="{_px(x)}" y="{_px(y)}" width="{_px(wide)}" height="{lane - 8}"'
        parts.append(f"{shape}/>" if narrow else f"{shape}><title>{_text(block.tooltip)}</title></rect>")
        if block.label and wide > len(block.label) * _CHARACTER + 8:
            parts.append(f'<text class="on{block.tone}" x="{_px(x + 5)}" y="{_px(y + 13)}">{_text(block.label)}</text>')
    parts.append(f'<path class="axis" d="M{left_margin} {top}V{floor}H{width}"/>')
    return _figure(key, width, floor + 28, title, description, parts, "narrow" if narrow else "wide")


def series(
    key: str,
    title: str,
    description: str,
    versions: Sequence[int],
    panels: Sequence[Panel],
    flags: Sequence[tuple[int, str]],
    gone: Sequence[int],
    *,
    narrow: bool = False,
) -> Markup:
    """Draw panels over a shared axis of versions; each panel begins at zero.

    flags: pairs of a version's position and its label. gone: the positions of withdrawn versions. narrow: True for a
    phone's screen, with names and values above the panels instead of beside them.
    """
    width, left_margin, right, panel, gap = (360, 8, 8, 46, 38) if narrow else (1040, 150, 120, 60, 28)
    top = 26
    floor = top + len(panels) * (panel + gap)
    room = width - left_margin - right
    places = [
        left_margin + (room * number / (len(versions) - 1) if len(versions) > 1 else room / 2)
        for number in range(len(versions))
    ]
    parts = []
    free = 0.0
    for place, text in flags:
        shown = clipped(text, 24)
        half = len(shown) * _CHARACTER / 2
        x = min(max(places[place], half), width - half)
        parts.append(f'<path class="flag" d="M{_px(places[place])} {top - 6}V{floor}"/>')
        if x - half >= free:  # labels must not overlap; the table has all of them
            parts.append(_label(x, top - 11, shown, "middle"))
            free = x + half + 6
    for number, chart_panel in enumerate(panels):
        parts += _panel(
            chart_panel, versions, places, top + (number + 1) * (panel + gap) - panel, panel, left_margin, width - right
        )
        y = top + (number + 1) * (panel + gap) - (panel + 12 if narrow else 4)
        names_at, values_at = (
            ((left_margin, "start"), (width - right, "end"))
            if narrow
            else ((left_margin - 10, "end"), (width - right + 12, "start"))
        )
        newest = next((shown for shown in reversed(chart_panel.shown) if shown), "")
        parts.append(_label(names_at[0], y, chart_panel.name, names_at[1], "name"))
        parts.append(_label(values_at[0], y, newest, values_at[1], "value"))
    for place in gone:
        x = places[place]
        parts.append(f'<path class="gone" d="M{_px(x - 4)} {floor - 4}l8 8m0 -8l-8 8"/>')
    every = max(1, math.ceil(len(versions) * 34 / room))
    for number, version in enumerate(versions):
        if (len(versions) - 1 - number) % every == 0:
            half = len(str(version)) * _CHARACTER / 2
            parts.append(_label(min(max(places[number], half), width - half), floor + 17, str(version), "middle"))
    if not narrow:
        parts.append(_label(left_margin - 10, floor + 17, "version", "end"))
    return _figure(key, width, floor + 24, title, description, parts, "narrow" if narrow else "wide")


def _panel(
    panel: Panel,
    versions: Sequence[int],
    places: Sequence[float],
    y: float,
    height: float,
    left_edge: float,
    right_edge: float,
) -> list[str]:
    values = [value for value in panel.values if value is not None]
    most = panel.most or max(values, default=0.0) or 1.0
    floor = y + height
    parts = [f'<path class="axis" d="M{_px(left_edge)} {_px(floor)}H{_px(right_edge)}"/>']
    runs: list[list[str]] = []
    dots = []
    before = -2
    for number, value in enumerate(panel.values):
        if value is None:
            continue
        x, at = _px(places[number]), _px(floor - height * min(value / most, 1.0))
        if number == before + 1:
            runs[-1].append(f"{x} {at}")
        else:
            runs.append([f"{x} {at}"])
        before = number
        last = number == len(panel.values) - 1
        tooltip = f"version {versions[number]}: {panel.shown[number]}"
        dots.append(
            f'<circle class="dot" cx="{x}" cy="{at}" r="{4 if last else 2.5}"><title>{_text(tooltip)}</title></circle>'
        )
    parts += [f'<path class="line" d="M{"L".join(run)}"/>' for run in runs if len(run) > 1]
    return parts + dots


# Pieces


def _figure(key: str, width: int, height: int, title: str, description: str, parts: Sequence[str], kind: str) -> Markup:
    return _markup(
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{_text(title)}</title><desc id="{key}-d">{_text(description)}</desc>'
        f"{''.join(parts)}</svg>"
    )


def _label(x: float, y: float, text: str, anchor: str, style: str = "") -> str:
    before = f' class="{style}"' if style else ""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text{before} x="{_px(x)}" y="{_px(y)}"{where}>{_text(text)}</text>'


def _range(group: Bar) -> str:
    low, high = amount(group.low), amount(group.high)
    return low if group.low == group.high else f"{low}–{high}"


def _ticks(seconds: float, most: int) -> list[float]:
    """Return zero, and at most ``most`` round times after it."""
    for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400):
        if seconds / step <= most:
            return [step * number for number in range(int(seconds / step) + 1)]
    return [0.0, seconds]


def _px(number: float) -> str:
    """Format a coordinate to a tenth of a pixel, without a trailing ``.0``."""
    return f"{number:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    from markupsafe import escape

    return str(escape(clipped(text, 200)))


def _markup(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - every text in it went through _text
