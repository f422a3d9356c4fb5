"""Formats numbers as a spreadsheet shows them: as an ISO date, a time, a percentage, or digits with their unit.

Thousands are not separated, so that the same number reads alike in every document.
"""

from __future__ import annotations

import datetime
import math
import re
from dataclasses import dataclass, replace
from decimal import ROUND_HALF_UP, Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Literal

from tasks.stages.ingest.formats.markdown_marks import one_line

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
_MAX_ZEROS = 15
_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.|\[(?!h+\]|m+\]|s+\])[^\[\]]*\]', re.IGNORECASE)
_SECTION_END = re.compile(r'("[^"]*"|\\.|[_*].|\[[^\[\]]*\])|;')
_CONDITION = re.compile(r"\[([<>]=?|<>|=)(-?\d{1,15}(?:\.\d{1,15})?)\]")
_PIECE = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|[_*].|\[\$(?P<currency>[^\[\]-]*)[^\[\]]*\]|\[[^\[\]]*\]'
    r"|(?P<digits>general|[0#?@.][0#?.,]*(?:e[+-]0+)?|%|/\d+)|(?P<plain>.)",
    re.IGNORECASE | re.DOTALL,
)
_SIGNS = str.maketrans("", "", "()+-\u2212")
_ZEROS = re.compile(r"0{2,30}")
_NUMBER = re.compile(r"[+-]?(\d{1,400}\.?\d{0,400}|\.\d{1,400})([eE][+-]?\d{1,4})?")
_LAST_DAY = 2_958_466
"""The day after 9999-12-31."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A number format.

    zeros: the minimum number of digits, as in 00123. decimals: the number of decimals shown; -1: no limit. At least two
    decimals are shown, since a narrow column may hide decimals that the surrounding text mentions. before, after: the
    unit or currency around the number. thousands: how often the number is divided by 1,000. is_absolute: whether
    the unit says that the number is negative, as in `loss 5`. is_text: whether `before` is shown instead of the number.
    sections: the formats for numbers that compare so, such as (`<`, 0), tested in order.
    """

    kind: Kind = "number"
    zeros: int = 0
    decimals: int = -1
    before: str = ""
    after: str = ""
    thousands: int = 0
    is_absolute: bool = False
    is_text: bool = False
    sections: tuple[tuple[str, float, NumberFormat], ...] = ()

    def shown(self, value: str, *, since_1904: bool = False) -> str:
        """Return a cell's value as the spreadsheet shows it; the value itself if it is not a number."""
        if self.kind == "nothing":
            return ""
        if not _NUMBER.fullmatch(value):
            return value
        number = float(value)
        if not math.isfinite(number):
            return value
        for operator, limit, section in self.sections:
            if _COMPARISONS[operator](number, limit):
                return section.shown(value)
        if self.is_text:
            return self.before
        if self.kind == "duration" and 0 <= number < _LAST_DAY:
            seconds = round(number * 86_400)
            return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        if self.kind in ("date", "time", "moment") and 0 <= number < _LAST_DAY - 1_462 * since_1904:
            return self._date(number, since_1904)
        factor = Decimal(100) if self.kind == "percent" else Decimal(1).scaleb(-3 * self.thousands)
        if factor != 1:
            number = float(Decimal(f"{number:.15g}") * factor)
        text = self._rounded(abs(number))
        if self.decimals > 0 and (self.before or self.after) and "E" not in text:  # prices and measures keep zeros
            whole, _, fraction = text.partition(".")
            text = f"{whole}.{fraction.ljust(min(self.decimals, _MAX_ZEROS), '0')}"
        sign = "-" if number < 0 and text.strip("0.") and not self.is_absolute else ""
        text = text.zfill(self.zeros) if self.zeros and text.isdigit() else text
        return f"{sign}{self.before}{text}{'%' if self.kind == 'percent' else ''}{self.after}"

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


_COMPARISONS = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}


def number_format(name: int, code: str | None) -> NumberFormat:
    """Return the number format with an id in a file. code: such as `dd.mm.yyyy`; None if the file states none."""
    if code is None:
        return NumberFormat(_BUILT_IN.get(name, "number"), decimals=_BUILT_IN_DECIMALS.get(name, -1))
    if code.strip() and not code.replace(";", "").strip():
        return NumberFormat("nothing")
    first, *others = _SECTION_END.sub(lambda match: match[1] or "\n", code).split("\n")
    form = _section(first) or NumberFormat()
    if form.kind not in ("number", "percent"):
        return form
    sections = [first, *(other for other in others[:2] if "@" not in other)]
    conditions = [_CONDITION.search(section) for section in sections[:2]]
    if any(conditions):  # the last section is for all other numbers
        tests = [(match[1], float(match[2])) if match is not None else ("<", 0.0) for match in conditions]
        pairs = [(*test, _section(section)) for test, section in zip(tests, sections[:-1], strict=False)]
        form = _section(sections[-1]) or form
    else:
        tests = [("<", 0.0), ("=", 0.0)]
        pairs = [(*test, _signed(section, form)) for test, section in zip(tests, sections[1:], strict=False)]
    return replace(form, sections=tuple((test, limit, other) for test, limit, other in pairs if other is not None))


def _section(section: str) -> NumberFormat | None:
    """Return the format that a section states; None if it shows neither digits nor words."""
    before, after, digits = "", "", ""
    for piece in _PIECE.finditer(section):
        if piece["digits"]:
            before, after, digits = before if digits else after, "", piece["digits"]
        else:
            after += piece["quoted"] or piece["escaped"] or piece["currency"] or piece["plain"] or ""
    letters = _LITERAL.sub("", section).lower()
    kind = _kind(letters)
    if kind not in ("number", "percent"):
        return NumberFormat(kind)
    if not digits:
        return NumberFormat(before=one_line(after), is_text=True) if any(map(str.isalpha, after)) else None
    before = before.rstrip("(").lstrip() if before.translate(_SIGNS).strip() else ""
    after = after.lstrip(")").rstrip()
    thousands = len(digits) - len(digits.rstrip(","))
    zeros = len(letters) if _ZEROS.fullmatch(letters) else 0
    return NumberFormat(kind, zeros, -1 if zeros else _decimals(letters), before, after, thousands)


def _signed(section: str, positive: NumberFormat) -> NumberFormat | None:
    """Return the format of a section for negative numbers or zero. Parentheses are read as a minus sign."""
    form = _section(section)
    if form is None or form.is_text:
        return form
    before, after = form.before.translate(_SIGNS), form.after.translate(_SIGNS)
    has_words = any(map(str.isalpha, before + after))
    is_absolute = has_words and (before.strip(), after.strip()) != (positive.before.strip(), positive.after.strip())
    return replace(form, before=before.lstrip(), after=after.rstrip(), is_absolute=is_absolute)


def _kind(letters: str) -> Kind:
    """Return the kind of a section in lower case, without its literal text."""
    if re.search(r"\[(h+|m+|s+)\]", letters):
        return "duration"
    if "general" in letters or (any(mark in letters for mark in "0#?@") and not re.search(r"[ydhm]", letters)):
        return "percent" if "%" in letters else "number"
    has_day = re.search(r"[yd]|mmm|^m+$|[ge]+", letters) is not None
    has_time = re.search(r"h|s|am/pm", letters) is not None
    if has_day or has_time:
        return "moment" if has_day and has_time else "date" if has_day else "time"
    return "percent" if "%" in letters else "number"


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
