"""Checks of a snapshot's encoder files, made before native libraries load them.

The tokenizers library trusts its files: it allocates the size that a character table declares, and some malformed files
cause a panic (which is not an Exception) or abort the process. The graph that OpenVINO loads cannot be checked here:
trust it only if you trust the snapshot's author.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from indexmill.errors import CorruptBlob, IndexmillError
from indexmill.store.regular_files import MANIFEST_BYTES, RECORD_BYTES, read_regular

_LONGEST_TEXT = 4096
"""The maximum length of a string in a tokenizer's steps, in characters: it may be inserted into every text."""

_MOST_STEPS = 10_000
"""The maximum number of values in a tokenizer's steps."""

_STEPS = ("normalizer", "pre_tokenizer", "post_processor")

_CHARACTERS = "precompiled_charsmap"


def check_encoder_files(files: Mapping[str, Path]) -> None:
    """Raise CorruptBlob for invalid settings or tokenizers. files: the encoder's files by name; some may be missing."""
    if "encoder.json" in files:
        path = files["encoder.json"]
        settings = _json(path, RECORD_BYTES)
        longest = settings.get("max_tokens")
        if not isinstance(longest, int) or not 3 <= longest <= 1 << 20:
            raise CorruptBlob(f"{path}: max_tokens is {longest!r:.80}; expected a whole number of at least 3")
    for path in (path for name, path in sorted(files.items()) if name.rpartition("/")[2] == "tokenizer.json"):
        tokenizer = _json(path, MANIFEST_BYTES)
        try:
            _check_steps({name: tokenizer.get(name) for name in _STEPS})
        except ValueError as error:
            raise CorruptBlob(f"{path}: is not a usable tokenizer: {error}") from error


@contextmanager
def encoder_errors(where: Path | str) -> Iterator[None]:
    """Raise CorruptBlob if a snapshot's encoder fails, including a panic of its tokenizer.

    Errors about missing memory, files or libraries are not the snapshot's fault, so they are raised unchanged.
    """
    try:
        yield
    except (IndexmillError, MemoryError, OSError, ImportError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CorruptBlob(
            f"{where}: the encoder of the snapshot cannot be used ({type(error).__name__}: {error!s:.300}); "
            "check it with `indexmill verify`, or pass the questions' vectors with vectors="
        ) from error


def _json(path: Path, most: int) -> dict[str, Any]:
    try:
        value = json.loads(read_regular(path, most))
    except (ValueError, RecursionError) as error:
        raise CorruptBlob(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise CorruptBlob(f"{path}: expected a JSON object")
    return value


def _check_steps(steps: Mapping[str, Any]) -> None:
    """Raise ValueError if a tokenizer's steps are too large, or contain an invalid character table."""
    remaining: list[tuple[str, Any]] = list(steps.items())
    for seen in range(_MOST_STEPS):
        if not remaining:
            return
        name, value = remaining.pop()
        if isinstance(value, dict):
            remaining += value.items()
        elif isinstance(value, list):
            remaining += ((name, element) for element in value[: _MOST_STEPS - seen])
        elif isinstance(value, str) and name == _CHARACTERS:
            _check_characters(value)
        elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
            raise ValueError(f"{name} has {len(value):,} characters; expected at most {_LONGEST_TEXT:,}")
    raise ValueError(f"its steps contain more than {_MOST_STEPS:,} values")


def _check_characters(encoded: str) -> None:
    """Raise ValueError unless a character table contains a trie of the length that its first four bytes declare."""
    try:
        table = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{_CHARACTERS} is not base64") from error
    trie = int.from_bytes(table[:4], "little")
    if trie % 4 or not 4 <= trie <= len(table) - 4:
        raise ValueError(f"{_CHARACTERS} has {len(table)} bytes, but declares a trie of {trie} bytes")
