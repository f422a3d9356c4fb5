"""Charts of a report as SVG: bars, histograms, a timeline of workers, and series over versions.

Each function takes numbers and labels and returns markup that holds no script and no style of its own: the classes get
their colours from the page's stylesheet, for light, dark and paper. Scales begin at zero, and values stand beside what
they belong to. Coordinates are rounded to a tenth of a pixel: the same numbers give the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from indexmill.report.numbers import amount, clipped, duration

if TYPE_CHECKING:
    from markupsafe import Markup

_CHARACTER = 6.6
"""The width of a character of a label in pixels, on the safe side."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of a histogram: the values from ``low`` to ``high``, both included, and how many there are."""

    low: int
    high: int
    count: int


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a lane of a timeline, in seconds. tone: which colour, 0 for grey. told: for whoever points at it."""

    lane: int
    began: float
    ended: float
    tone: int
    label: str
    told: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One series over versions; values: one for each version, None where there is none. shown: the values in words."""

    name: str
    values: tuple[float | None, ...]
    shown: tuple[str, ...]
    most: float | None = None
    """The end of the scale; by default the greatest value."""


def bar(value: float, most: float, tone: int = 1) -> Markup:
    """A bar for the cell of a table that says the number itself; as long as the cell for ``most``.

    It is hidden from readers of the screen, which have the number.
    """
    length = 100 * value / most if most > 0 else 0.0
    return _markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f'<rect class="t{tone}" width="{_px(length)}" height="10"/></svg>'
    )


def histogram(key: str, title: str, bars: Sequence[Bar], *, of: str, doubling: bool) -> Markup:
    """Counts of whole numbers, grouped: one bar for each group, as high as its count.

    key: unique on the page. of: what is counted. doubling: True if the groups double.
    """
    width, height, left, top, bottom = 300, 150, 8, 20, 24
    highest = max((one.count for one in bars), default=0)
    step = (width - 2 * left) / max(len(bars), 1)
    floor = height - bottom
    parts, peak = [], True
    for number, one in enumerate(bars):
        length = (floor - top) * one.count / highest if highest else 0
        x = left + number * step
        wide = max(step - 1.5, 0.8)
        parts.append(
            f'<rect class="t1" x="{_px(x)}" y="{_px(floor - length)}" width="{_px(wide)}" height="{_px(length)}">'
            f"<title>{_range(one)}: {amount(one.count)}</title></rect>"
        )
        if peak and one.count == highest and highest:
            place = min(max(x + wide / 2, left + 4 * _CHARACTER), width - left - 4 * _CHARACTER)
            parts.append(_label(place, floor - length - 5, amount(one.count), "middle"))
            peak = False
    parts.append(f'<path class="axis" d="M{left} {floor}h{width - 2 * left}"/>')
    widest = max((len(amount(one.low)) for one in bars), default=1) * _CHARACTER + 6
    every = max(1, math.ceil(widest / step))
    for number, one in enumerate(bars[::every]):
        text = amount(one.low)
        x = left + number * every * step + step / 2
        parts.append(_label(max(x, len(text) * _CHARACTER / 2), height - 8, text, "middle"))
    total = sum(one.count for one in bars)
    groups = "The groups double." if doubling else ""
    told = f"{amount(total)} {of}; the tallest bar is {amount(highest)}. {groups}".strip()
    return _figure(key, width, height, title, told, parts, "small")


def timeline(
    key: str,
    title: str,
    told: str,
    lanes: Sequence[str],
    blocks: Sequence[Block],
    seconds: float,
    *,
    narrow: bool = False,
) -> Markup:
    """Lanes of work from zero to so many seconds. narrow: for the screen of a phone, on which nobody points."""
    width, left, top, lane = (360, 92, 6, 24) if narrow else (1040, 150, 6, 26)
    floor = top + lane * len(lanes)
    scale = (width - left - 14) / seconds if seconds > 0 else 0.0
    parts = []
    for tick in _ticks(seconds, 3 if narrow else 6):
        x = left + tick * scale
        parts.append(f'<path class="grid" d="M{_px(x)} {top}V{floor}"/>')
        anchor = "middle" if tick and x + 30 < width else "start" if not tick else "end"
        parts.append(_label(x, floor + 17, duration(tick), anchor))
    for number, name in enumerate(lanes):
        y = top + lane * number
        parts.append(_label(left - 8, y + lane / 2 + 4, clipped(name, 12 if narrow else 21), "end"))
        parts.append(f'<path class="grid" d="M{left} {_px(y + lane)}H{width}"/>')
    for one in blocks:
        x, wide = left + one.began * scale, max((one.ended - one.began) * scale, 0.8)
        y = top + lane * one.lane + 4
        shape = f'<rect class="t{one.tone}" x="{_px(x)}" y="{_px(y)}" width="{_px(wide)}" height="{lane - 8}"'
        parts.append(f"{shape}/>" if narrow else f"{shape}><title>{_text(one.told)}</title></rect>")
        if one.label and wide > len(one.label) * _CHARACTER + 8:
            parts.append(f'<text class="on{one.tone}" x="{_px(x + 5)}" y="{_px(y + 13)}">{_text(one.label)}</text>')
    parts.append(f'<path class="axis" d="M{left} {top}V{floor}H{width}"/>')
    return _figure(key, width, floor + 28, title, told, parts, "narrow" if narrow else "wide")


def series(
    key: str,
    title: str,
    told: str,
    versions: Sequence[int],
    panels: Sequence[Panel],
    flags: Sequence[tuple[int, str]],
    gone: Sequence[int],
    *,
    narrow: bool = False,
) -> Markup:
    """Panels over one axis of versions, each from zero.

    flags: versions, by their places, with what is written above them. gone: the places of versions that were withdrawn.
    narrow: for the screen of a phone: names and values stand above the panels, not beside them.
    """
    width, left, right, panel, gap = (360, 8, 8, 46, 38) if narrow else (1040, 150, 120, 60, 28)
    top = 26
    floor = top + len(panels) * (panel + gap)
    room = width - left - right
    places = [
        left + (room * number / (len(versions) - 1) if len(versions) > 1 else room / 2)
        for number in range(len(versions))
    ]
    parts = []
    free = 0.0
    for place, text in flags:
        shown = clipped(text, 24)
        half = len(shown) * _CHARACTER / 2
        x = min(max(places[place], half), width - half)
        parts.append(f'<path class="flag" d="M{_px(places[place])} {top - 6}V{floor}"/>')
        if x - half >= free:  # labels do not cover each other; the table has them all
            parts.append(_label(x, top - 11, shown, "middle"))
            free = x + half + 6
    for number, one in enumerate(panels):
        parts += _panel(one, versions, places, top + (number + 1) * (panel + gap) - panel, panel, left, width - right)
        if narrow:
            y = top + number * (panel + gap) + gap - 12
            parts.append(f'<text class="name" x="{left}" y="{_px(y)}">{_text(one.name)}</text>')
            parts.append(f'<text class="value" x="{width - right}" y="{_px(y)}" text-anchor="end">{_last(one)}</text>')
        else:
            y = top + (number + 1) * (panel + gap)
            parts.append(
                f'<text class="name" x="{left - 10}" y="{_px(y - 4)}" text-anchor="end">{_text(one.name)}</text>'
            )
            parts.append(f'<text class="value" x="{width - right + 12}" y="{_px(y - 4)}">{_last(one)}</text>')
    for place in gone:
        x = places[place]
        parts.append(f'<path class="gone" d="M{_px(x - 4)} {floor - 4}l8 8m0 -8l-8 8"/>')
    every = max(1, math.ceil(len(versions) * 34 / room))
    for number, version in enumerate(versions):
        if (len(versions) - 1 - number) % every == 0:
            half = len(str(version)) * _CHARACTER / 2
            parts.append(_label(min(max(places[number], half), width - half), floor + 17, str(version), "middle"))
    if not narrow:
        parts.append(_label(left - 10, floor + 17, "version", "end"))
    return _figure(key, width, floor + 24, title, told, parts, "narrow" if narrow else "wide")


def _panel(
    one: Panel, versions: Sequence[int], places: Sequence[float], y: float, height: float, left: float, right: float
) -> list[str]:
    known = [value for value in one.values if value is not None]
    most = one.most or max(known, default=0.0) or 1.0
    floor = y + height
    parts = [f'<path class="axis" d="M{_px(left)} {_px(floor)}H{_px(right)}"/>']
    runs: list[list[str]] = []
    dots = []
    before = -2
    for number, value in enumerate(one.values):
        if value is None:
            continue
        x, at = _px(places[number]), _px(floor - height * min(value / most, 1.0))
        if number == before + 1:
            runs[-1].append(f"{x} {at}")
        else:
            runs.append([f"{x} {at}"])
        before = number
        last = number == len(one.values) - 1
        told = f"version {versions[number]}: {one.shown[number]}"
        dots.append(
            f'<circle class="dot" cx="{x}" cy="{at}" r="{4 if last else 2.5}"><title>{_text(told)}</title></circle>'
        )
    parts += [f'<path class="line" d="M{"L".join(run)}"/>' for run in runs if len(run) > 1]
    return parts + dots


def _last(one: Panel) -> str:
    """The value of the newest version that has one."""
    return _text(next((shown for shown in reversed(one.shown) if shown), ""))


# Pieces


def _figure(key: str, width: int, height: int, title: str, told: str, parts: Sequence[str], kind: str) -> Markup:
    return _markup(
        f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" aria-labelledby="{key}-t {key}-d">'
        f'<title id="{key}-t">{_text(title)}</title><desc id="{key}-d">{_text(told)}</desc>{"".join(parts)}</svg>'
    )


def _label(x: float, y: float, text: str, anchor: str) -> str:
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{_px(x)}" y="{_px(y)}"{where}>{_text(text)}</text>'


def _range(one: Bar) -> str:
    return amount(one.low) if one.low == one.high else f"{amount(one.low)}–{amount(one.high)}"


def _ticks(seconds: float, most: int) -> list[float]:
    """Round lengths of time from zero, at most so many after it."""
    for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400):
        if seconds / step <= most:
            return [step * number for number in range(int(seconds / step) + 1)]
    return [0.0, seconds]


def _px(number: float) -> str:
    """A coordinate to a tenth of a pixel, without a zero behind the point."""
    return f"{number:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    from markupsafe import escape

    return str(escape(clipped(text, 200)))


def _markup(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)  # noqa: S704 - every text in it went through _text
