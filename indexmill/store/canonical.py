"""Canonical bytes and the hashes taken of them: the ground that keys, ids and manifests stand on."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

__all__ = ["canonical_json", "content_id", "digest_of", "digest_of_file", "digest_of_texts", "strict_json"]

_DEEP = 200  # brackets that any parser takes, however they nest
_DIGITS = 1000  # of an integer; Python itself takes seconds for what is much longer


def canonical_json(value: Any) -> bytes:
    """The one UTF-8 encoding of a JSON value: sorted keys, no spaces, no NaN, a final newline.

    Raises ValueError for NaN and infinities, TypeError for what JSON cannot hold.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def strict_json(data: str | bytes) -> Any:
    """The JSON value of a text, or of UTF-8 bytes, that others wrote.

    Raises ValueError for what is no JSON, and for what Python's parser lets through: a name that an object has twice,
    NaN, infinities, a number beyond all bounds, a lone surrogate, and a depth that no parser takes.
    """
    text = data.decode("utf-8") if isinstance(data, bytes) else data
    try:
        value = _STRICT.decode(text)
        if "\\u" in text or text.count("[") + text.count("{") > _DEEP:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has a name twice")
    return value


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number beyond all bounds")
    return number


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise ValueError("a number beyond all bounds")
    return int(digits)


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number, parse_float=_finite, parse_int=_whole)


def digest_of(data: bytes) -> str:
    """SHA-256 of some bytes, 64 hex digits: the name of a blob."""
    return hashlib.sha256(data).hexdigest()


def digest_of_file(path: Path) -> str:
    """The same of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_id(kind: str, *parts: str) -> str:
    """An id made from content: 32 hex digits of SHA-256 over the kind and the length-prefixed parts.

    The prefixes keep ("ab", "c") and ("a", "bc") apart; the kind keeps a passage and an entity apart.
    """
    return digest_of_texts(kind, *parts)[:32]


def digest_of_texts(*texts: str) -> str:
    """SHA-256 over texts, each after its length in bytes, so that none runs into the next: 64 hex digits."""
    hashed = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8")
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()
