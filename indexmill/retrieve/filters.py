"""Filters that restrict a retrieval to some documents.

In Python a filter is a mapping from fields to required values; on the command line each ``--where`` is one condition.
All conditions must be met:

    {"year": 2024}                              --where year=2024           equal
    {"lang": ["en", "de"]}                      --where lang=en,de          equal to any of these
    {"lang": {"!=": ["en", "de"]}}              --where 'lang!=en,de'       equal to none of these, or missing
    {"date": {">=": "2024-01-01", "<": "2025"}} --where 'date>=2024-01-01' --where 'date<2025'
    {"author": {"exists": True}}                --where 'author exists'     or 'author missing', {"exists": False}
                                                --where '{"lang": "en"}'    the mapping as JSON

A field is a key of the metadata, a path into it (``author.name``), or ``document_id``, ``title`` or ``source`` of the
document; ``metadata.title`` is the metadata's title if both have one. A list matches if one of its elements does.
A field that is null, an empty list or an empty title is missing.

A number compares with numbers and with numeric strings, since CSV files contain only strings. A string compares with
strings, by code points, so ISO dates are in order. A boolean equals only itself. On the command line a value has no
type: it compares as a number with numbers and numeric strings, and as a string with other strings. ``true`` and
``false`` also equal booleans. A value in JSON double quotes is a string, and may contain commas.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from indexmill.errors import BadInput

DOCUMENT_FIELDS = ("document_id", "title", "source")
"""The fields of a document that a filter can name in addition to its metadata."""

_CONDITION = re.compile(r"([^=!<>]+)(==|!=|<=|>=|=|<|>)(.*)", re.DOTALL)
_PRESENCE = re.compile(r"(.+)\s(exists|missing)", re.DOTALL)
_QUOTED = re.compile(r'\s*("(?:[^"\\]|\\.)*")\s*(?=,|\Z)', re.DOTALL)
_ORDER = frozenset({"<", "<=", ">", ">="})
_NUMBER = re.compile(r"[+-]?[0-9]{1,300}(\.[0-9]{1,300})?([eE][+-]?[0-9]{1,3})?", re.ASCII)

Number = int | float


class Value(NamedTuple):
    """A value to compare a field with; a ``word`` comes from the command line and has no type."""

    kind: Literal["number", "text", "truth", "word"]
    value: Number | str


class Condition(NamedTuple):
    """A condition: ``operator`` is one of ``= < <= > >= exists``; ``holds`` is False for a negated condition.

    values: for ``=``, any number, of which one has to match; for an inequality, exactly one; for ``exists``, none.
    """

    field: str
    operator: str
    values: tuple[Value, ...]
    holds: bool = True


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions, all of which must be met."""

    conditions: tuple[Condition, ...]

    @classmethod
    def of(cls, where: Where) -> Filter:
        """Parse a filter, passed as a mapping or as strings in the syntax of ``--where``; raises BadInput."""
        if isinstance(where, Filter):
            return where
        if isinstance(where, Mapping):
            return cls(
                tuple(condition for field, required in where.items() for condition in _conditions(field, required))
            )
        if isinstance(where, str):
            where = [where]
        if not isinstance(where, Sequence) or not all(isinstance(text, str) for text in where):
            raise BadInput(f"where is {where!r}; expected a mapping of fields, or conditions as --where takes them")
        return cls(tuple(condition for text in where for condition in _parsed(text)))


Where = Mapping[str, object] | Sequence[str] | Filter
"""The types that ``where=`` accepts."""


def _conditions(field: object, required: object) -> Iterator[Condition]:
    if not isinstance(field, str) or not field:
        raise BadInput(f"where: {field!r} is not a field name")
    _check_text(field, f"where: the field {field!r}")
    if not isinstance(required, Mapping):
        yield Condition(field, "=", _values(field, required))
        return
    if not required:
        raise BadInput(f"where: {field!r} has an empty condition; expected an operator, such as {{'>=': 2024}}")
    for sign, value in required.items():
        if sign in ("=", "==", "!="):
            yield Condition(field, "=", _values(field, value), sign != "!=")
        elif sign in _ORDER:
            bound = _value(field, value)
            if bound.kind == "truth":
                raise BadInput(f"where: {field!r} {sign} {value!r}: truth values have no order")
            yield Condition(field, str(sign), (bound,))
        elif sign == "exists":
            if not isinstance(value, bool):
                raise BadInput(f"where: {field!r} exists {value!r}; expected True or False")
            yield Condition(field, "exists", (), value)
        else:
            raise BadInput(f"where: {field!r} has no operator {sign!r}; expected = != < <= > >= or exists")


def _values(field: str, values: object) -> tuple[Value, ...]:
    if isinstance(values, np.ndarray):
        values = values.tolist()
    if isinstance(values, list | tuple | set | frozenset):
        return tuple(_value(field, value) for value in values)
    return (_value(field, values),)


def _value(field: str, value: object) -> Value:
    """Convert a Python value; a date becomes ISO text, as in metadata."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return Value("truth", value)
    if isinstance(value, int):
        return Value("number", value)
    if isinstance(value, float) and math.isfinite(value):
        return Value("number", int(value) if value.is_integer() else value)
    if isinstance(value, datetime.date | datetime.time):
        return Value("text", value.isoformat())
    if isinstance(value, str):
        _check_text(value, f"where: {field!r}: the value {value!r}")
        return Value("text", value)
    hint = (
        "{'exists': False} matches a missing field" if value is None else "expected a string, a number or a truth value"
    )
    raise BadInput(f"where: {field!r} is compared with {value!r}; {hint}")


def _check_text(text: str, what: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadInput(f"{what} is not valid Unicode text (character {error.start})") from error


def _parsed(text: str) -> Iterator[Condition]:
    stripped = text.strip()
    _check_text(stripped, f"where: {stripped!r}")
    if stripped.startswith("{"):
        try:
            mapping = json.loads(stripped)
        except (ValueError, RecursionError) as error:
            raise BadInput(f"where: {stripped!r} is not valid JSON: {error}") from error
        yield from Filter.of(mapping).conditions
    elif compared := _CONDITION.fullmatch(stripped):
        field, sign, values_text = compared.groups()
        values = tuple(_words(stripped, values_text))
        if sign in _ORDER and len(values) > 1:
            raise BadInput(f"where: {stripped!r}: {sign} takes one value; put a value with a comma in double quotes")
        yield Condition(field.rstrip(), sign if sign in _ORDER else "=", values, sign != "!=")
    elif presence := _PRESENCE.fullmatch(stripped):
        yield Condition(presence[1].rstrip(), "exists", (), presence[2] == "exists")
    else:
        raise BadInput(
            f"where: {stripped!r} is not a condition; expected FIELD=VALUE[,VALUE...], one of != < <= > >= instead of "
            "=, 'FIELD exists', 'FIELD missing', or a JSON object"
        )


def _words(condition: str, values_text: str) -> Iterator[Value]:
    """Yield the values of one condition, separated by commas."""
    at = 0
    while at <= len(values_text):
        if quoted := _QUOTED.match(values_text, at):
            try:
                text = str(json.loads(quoted[1], strict=False))
            except ValueError as error:
                raise BadInput(f"where: {condition!r}: {quoted[1]} is not a valid JSON string: {error}") from error
            _check_text(text, f"where: {condition!r}: {text!r}")
            yield Value("text", text)
            at = quoted.end() + 1
        else:
            end = values_text.find(",", at)
            end = len(values_text) if end < 0 else end
            word = values_text[at:end].strip()
            if not word:
                raise BadInput(f'where: {condition!r} lacks a value; write "" for the empty string')
            yield Value("word", word)
            at = end + 1


def number_of(text: str) -> Number | None:
    """Parse a decimal number; None for any other string."""
    matched = _NUMBER.fullmatch(text)
    if not matched:
        return None
    if matched[1] is None and matched[2] is None:
        return int(text)
    number = float(text)
    return None if math.isinf(number) else int(number) if number.is_integer() else number
