"""Formats numbers as a spreadsheet shows them: as an ISO date, a time, a percentage, or digits."""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal

Kind = Literal["number", "date", "time", "moment", "duration", "percent", "nothing"]

_BUILT_IN: dict[int, Kind] = {
    9: "percent",
    10: "percent",
    **dict.fromkeys((14, 15, 16, 17), "date"),
    **dict.fromkeys((18, 19, 20, 21, 45, 47), "time"),
    22: "moment",
    46: "duration",
    **dict.fromkeys((*range(27, 32), 36, *range(50, 59)), "date"),  # in East Asian versions of Excel
    **dict.fromkeys(range(32, 36), "time"),
}
_BUILT_IN_DECIMALS = {1: 0, 2: 2, 3: 0, 4: 2, 9: 0, 10: 2, 37: 0, 38: 0, 39: 2, 40: 2, 44: 2}
_MAX_ROUNDED = 1e13
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\]]*\]', re.IGNORECASE)
_ZEROS = re.compile(r"0{2,30}")
_NUMBER = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})([eE][+-]?\d{1,4})?")
_LAST_DAY = 2_958_466
"""The day after 9999-12-31."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A number format.

    zeros: the minimum number of digits, as in 00123. decimals: the number of decimals shown; -1: no limit. At least two
    decimals are shown, since a narrow column may hide decimals that the surrounding text mentions.
    """

    kind: Kind = "number"
    zeros: int = 0
    decimals: int = -1

    def shown(self, value: str, *, since_1904: bool = False) -> str:
        """Return a cell's value as the spreadsheet shows it; the value itself if it is not a number."""
        if self.kind == "nothing":
            return ""
        if not _NUMBER.fullmatch(value):
            return value
        number = float(value)
        if not math.isfinite(number):
            return value
        if self.kind == "percent":
            return self._rounded(float(Decimal(f"{number:.15g}") * 100)) + "%"
        if self.kind == "duration" and 0 <= number < _LAST_DAY:
            seconds = round(number * 86_400)
            return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        if self.kind in ("date", "time", "moment") and 0 <= number < _LAST_DAY - 1_462 * since_1904:
            return self._date(number, since_1904)
        text = self._rounded(number)
        return text.zfill(self.zeros) if self.zeros and text.isdigit() else text

    def _rounded(self, number: float) -> str:
        text = _digits(number)
        if self.decimals < 0 or "." not in text or abs(number) >= _MAX_ROUNDED:
            return text
        places = max(self.decimals, 2)
        if len(text) - text.index(".") - 1 <= places:
            return text
        return _digits(float(Decimal(text).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)))

    def _date(self, number: float, since_1904: bool) -> str:
        days, seconds = divmod(round(number * 86_400), 86_400)
        time = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        if self.kind == "time" and days == 0:
            return time
        if not since_1904 and days in (0, 60):  # days that Excel counts but the calendar lacks
            day = "1900-01-00" if days == 0 else "1900-02-29"
        else:
            first = datetime.date(1904, 1, 1) if since_1904 else datetime.date(1899, 12, 31 if days < 60 else 30)
            if days > (datetime.date.max - first).days:
                return _digits(number)
            day = (first + datetime.timedelta(days)).isoformat()
        return day if self.kind == "date" else f"{day} {time}"


def number_format(name: int, code: str | None) -> NumberFormat:
    """Return the number format with an id in a file. code: such as `dd.mm.yyyy`; None if the file states none."""
    if code is None:
        return NumberFormat(_BUILT_IN.get(name, "number"), decimals=_BUILT_IN_DECIMALS.get(name, -1))
    first = code.split(";")[0]
    if code.strip() and not code.replace(";", "").strip():
        return NumberFormat("nothing")
    letters = _LITERAL.sub("", first).lower()
    if _ZEROS.fullmatch(letters):
        return NumberFormat("number", len(letters))
    if re.search(r"\[(h+|m+|s+)\]", letters):
        return NumberFormat("duration")
    if "general" in letters or (any(mark in letters for mark in "0#?@") and not re.search(r"[ydhm]", letters)):
        return NumberFormat("percent" if "%" in letters else "number", decimals=_decimals(letters))
    has_day = re.search(r"[yd]|mmm|^m+$|[ge]+", letters) is not None
    has_time = re.search(r"h|s|am/pm", letters) is not None
    if has_day and has_time:
        return NumberFormat("moment")
    if has_day or has_time:
        return NumberFormat("date" if has_day else "time")
    return NumberFormat("percent" if "%" in letters else "number")


def _decimals(letters: str) -> int:
    """Return how many decimals a code such as #,##0.00 shows; -1 for no limit, scientific notation and fractions."""
    if "0" not in letters or "e" in letters or "/" in letters:
        return -1
    _, point, after = letters.partition(".")
    return len(re.match(r"[0#?]*", after)[0]) if point else 0  # type: ignore[index]


def _digits(number: float) -> str:
    """Format a number with at most 15 digits, the precision of spreadsheets; huge and tiny numbers get an exponent."""
    text = f"{number:.15g}"
    if "e" not in text:
        return "0" if text == "-0" else text
    if 1e-9 < abs(number) < 1e21:
        return format(Decimal(text), "f")
    return text.replace("e+", "E").replace("e-0", "E-").replace("e", "E")
