"""Numbers with units for messages: "1 document", "1,200 documents", "1.23 MB"."""

from __future__ import annotations

import re

_SIZE = re.compile(r"([0-9]+) ?(KB|MB|GB|TB|)", re.IGNORECASE)
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def byte_size(length: int) -> str:
    """Format a number of bytes: `1.23 MB`."""
    amount, units = float(length), ["B", "kB", "MB", "GB", "TB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop(0)
    return f"{amount:.3g} {units[0]}"


def bytes_of(text: str) -> int:
    """Parse a number of bytes: `1000`, `20 MB`, `1TB`. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a number of bytes; expected a size such as 20MB")
    return int(match[1]) * _UNITS[match[2].upper()]


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """Format a number with thousands separators, followed by its noun in the singular or plural.

    plural: the plural, such as "rows were" for "row was"; by default derived from ``singular``, which ends in a noun.
    """
    if number == 1:
        return f"1 {singular}"
    if plural is None:
        ending = "es" if singular.endswith(("ch", "s", "x")) else "s"
        plural = f"{singular[:-1]}ies" if singular.endswith("y") else singular + ending
    return f"{number:,} {plural}"


def range_text(low: float, high: float, expected: float | None = None) -> str:
    """Format bounds, and the number that is expected: `about 20 (4 to 900)`; one number if the bounds are equal."""
    if low == high:
        return f"{low:,}"
    bounds = f"{low:,} to {high:,}"
    return bounds if expected is None else f"about {expected:,} ({bounds})"


def figure_text(figure: object) -> str:
    """Format a figure of a run record: a number, a mapping with the arguments of ``range_text``, or None."""
    if isinstance(figure, dict):
        return range_text(figure["low"], figure["high"], figure.get("expected"))
    if figure is None:
        return ""
    return f"{figure:,}" if isinstance(figure, int | float) else str(figure)
