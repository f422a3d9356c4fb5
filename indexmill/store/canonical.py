"""Canonical JSON and hashes, on which keys, ids and manifests are based."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

_DEEP = 200  # the number of brackets that any parser accepts, however they nest
_DIGITS = 1000  # the maximum digits of an integer; Python takes seconds to parse much longer ones


def canonical_json(value: Any) -> bytes:
    """Encode a JSON value in its canonical form: UTF-8, sorted keys, no spaces, no NaN, and a final newline.

    Raises ValueError for NaN and infinities, TypeError for values that JSON cannot represent.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def strict_json(data: str | bytes) -> Any:
    """Parse untrusted JSON, a string or UTF-8 bytes.

    Raises ValueError for invalid JSON, and for input that Python's parser accepts: a duplicate key in an object, NaN,
    infinities, a number out of range, a lone surrogate, and nesting too deep for a parser.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        value = _STRICT.decode(text)
        if "\\u" in text or text.count("[") + text.count("{") > _DEEP:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def json_object(data: str | bytes) -> dict[str, Any] | None:
    """Parse a JSON object from a string or UTF-8 bytes; None for invalid JSON and for any other value."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has a duplicate key")
    return value


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number out of range")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number out of range")
    return int(digits)


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes as 64 hex digits, such as the name of a blob."""
    return hashlib.sha256(data).hexdigest()


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file, in the form of ``digest_of``."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_id(kind: str, *parts: str) -> str:
    """Derive an id from content: 32 hex digits of the SHA-256 over the kind and the length-prefixed parts.

    The prefixes distinguish ("ab", "c") from ("a", "bc"); the kind distinguishes a passage from an entity.
    """
    return digest_of_texts(kind, *parts)[:32]


def digest_of_texts(*texts: str) -> str:
    """Return the SHA-256 over strings as 64 hex digits; each string is prefixed with its length in bytes."""
    hashed = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8")
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()
