"""Canonical bytes and the hashes taken of them: the ground that keys, ids and manifests stand on."""

from __future__ import annotations

import hashlib
import json
from typing import Any

__all__ = ["canonical_json", "content_id", "digest_of"]


def canonical_json(value: Any) -> bytes:
    """The one UTF-8 encoding of a JSON value: sorted keys, no spaces, no NaN, a final newline.

    Raises ValueError for NaN and infinities, TypeError for what JSON cannot hold.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def digest_of(data: bytes) -> str:
    """SHA-256 of some bytes, 64 hex digits: the name of a blob."""
    return hashlib.sha256(data).hexdigest()


def content_id(kind: str, *parts: str) -> str:
    """An id made from content: 32 hex digits of SHA-256 over the kind and the length-prefixed parts.

    The prefixes keep ("ab", "c") and ("a", "bc") apart; the kind keeps a passage and an entity apart.
    """
    hashed = hashlib.sha256()
    for part in (kind, *parts):
        data = part.encode("utf-8")
        hashed.update(len(data).to_bytes(8, "little"))
        hashed.update(data)
    return hashed.hexdigest()[:32]
