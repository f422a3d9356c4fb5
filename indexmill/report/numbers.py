"""Formatting numbers for a report, with units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from indexmill.text import durations
from indexmill.text.printable import one_line

NOTHING = "–"


def amount(number: float | None) -> str:
    """Format a number with thousands separators; to three digits if it is not whole."""
    if number is None:
        return NOTHING
    return f"{number:,.0f}" if number == int(number) or abs(number) >= 1000 else f"{number:.3g}"


def signed(number: float, shown: Callable[[Any], str] = amount) -> str:
    """Format a difference with its sign: "+12", "−3", "±0". shown: formats its size, for example as "1.2 MB"."""
    return "±0" if not number else f"{'+' if number > 0 else '−'}{shown(abs(number))}"


def share(number: float | None) -> str:
    """Format a recall with three decimal places."""
    return NOTHING if number is None else f"{number:.3f}"


def money(number: float | None) -> str:
    """Format an amount of money without its currency; a small amount has four decimal places."""
    if number is None:
        return NOTHING
    return "0" if not number else f"{number:,.2f}" if number >= 0.1 else f"{number:.4f}"


def duration(seconds: float | None) -> str:
    """Format a duration as commands print it."""
    return NOTHING if seconds is None else durations.duration(seconds)


def moment(timestamp: str) -> str:
    """Format an ISO 8601 time to the minute: "2026-11-25 14:20 UTC"."""
    return f"{timestamp[:16].replace('T', ' ')} UTC" if timestamp else NOTHING


def clipped(text: str, most: int = 160) -> str:
    """Format corpus text as one line of limited length."""
    line = " ".join(one_line(text[: 4 * most]).split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1].rstrip() + "…"
