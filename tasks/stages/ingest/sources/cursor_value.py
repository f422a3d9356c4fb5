"""Values of a cursor column: compares them, stores them as JSON, and restores them exactly, with their types."""

from __future__ import annotations

import datetime
import decimal
import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any


class CursorError(ValueError):
    """A value cannot be a cursor. The message begins with "found" and the value or its type."""


def to_json(value: Any) -> dict[str, str]:
    """Return a value and its type for JSON; timestamps with a zone are converted to UTC, to the microsecond."""
    if isinstance(value, bool) or value is None:
        raise CursorError(f"found {type(value).__name__}: a cursor is a timestamp, number, string, UUID or bytes")
    if isinstance(value, datetime.datetime):
        return {"type": "timestamp", "value": (value if value.tzinfo is None else _utc(value)).isoformat()}
    if isinstance(value, datetime.date):
        return {"type": "date", "value": value.isoformat()}
    if isinstance(value, int):
        return {"type": "integer", "value": str(value)}
    if isinstance(value, float):
        if not math.isfinite(value):
            raise CursorError(f"found {value}, which is not finite")
        return {"type": "float", "value": value.hex()}
    if isinstance(value, decimal.Decimal):
        if not value.is_finite():
            raise CursorError(f"found {value}, which is not finite")
        return {"type": "decimal", "value": str(value)}
    if isinstance(value, str):
        return {"type": "text", "value": value}
    if isinstance(value, uuid.UUID):
        return {"type": "uuid", "value": str(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"type": "bytes", "value": bytes(value).hex()}
    raise CursorError(
        f"found {type(value).__name__}: a cursor is a timestamp, number, string, UUID or bytes: cast the column"
    )


_RESTORED: Mapping[str, Callable[[str], Any]] = {
    "timestamp": datetime.datetime.fromisoformat,
    "date": datetime.date.fromisoformat,
    "integer": int,
    "float": float.fromhex,
    "decimal": decimal.Decimal,
    "text": str,
    "uuid": uuid.UUID,
    "bytes": bytes.fromhex,
}


def from_json(stored: Any) -> Any:
    """Return the value that `to_json` stored. Raises CursorError for anything else."""
    try:
        return _RESTORED[stored["type"]](stored["value"])
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise CursorError(f"found a damaged cursor ({type(error).__name__})") from error


def greater(first: Any, second: Any) -> Any:
    """Return the greater of two values. Raises CursorError if they cannot be compared."""
    try:
        return first if first > second else second
    except TypeError as error:
        raise CursorError(
            f"found {_kind(first)} beside {_kind(second)}: cast the column to a single type in the query"
        ) from error


def earlier(value: Any, seconds: float) -> Any:
    """Subtract seconds from a timestamp, or whole days (rounded up) from a date. Raises CursorError for other types."""
    if not seconds:
        return value
    try:
        if isinstance(value, datetime.datetime):
            return value - datetime.timedelta(seconds=seconds)
        if isinstance(value, datetime.date):
            return value - datetime.timedelta(days=math.ceil(seconds / 86_400))
    except OverflowError:
        return type(value).min if not getattr(value, "tzinfo", None) else _utc(datetime.datetime.min)
    raise CursorError(
        f"found {_kind(value)}, from which no seconds can be subtracted: cast it to a timestamp in the query, or leave "
        "out overlap_seconds and subtract the overlap from :cursor in the query"
    )


def _kind(value: Any) -> str:
    zone = isinstance(value, datetime.datetime) and (" with a zone" if value.tzinfo else " without a zone")
    return f"{type(value).__name__}{zone or ''}"


def _utc(value: datetime.datetime) -> datetime.datetime:
    if value.tzinfo is None:
        return value.replace(tzinfo=datetime.UTC)
    return value.astimezone(datetime.UTC)
