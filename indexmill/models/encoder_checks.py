"""Checks of a snapshot's encoder files, made before the libraries that run them load them.

The tokenizers library is native code that takes a file of its own to be right: it allocates what a table of characters
says it has, and some mistakes end in a panic, which is no Exception, others in the end of the process. OpenVINO
reads the graph, which cannot be checked here: trust it only if you trust whoever made the snapshot.
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
"""Characters of a text in the steps of a tokenizer, which may be put into every text that it is given."""

_MOST_STEPS = 10_000
"""Values in the steps of a tokenizer."""

_STEPS = ("normalizer", "pre_tokenizer", "post_processor")

_CHARACTERS = "precompiled_charsmap"


def check_encoder_files(files: Mapping[str, Path]) -> None:
    """Raise CorruptBlob where the settings or the tokenizer of an encoder are not what the encoder reads.

    files: by name, such as ``tokenizer.json``; those that are missing are the business of the encoder.
    """
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
            raise CorruptBlob(f"{path}: is no tokenizer that can be used: {error}") from error


@contextmanager
def encoder_errors(where: Path | str) -> Iterator[None]:
    """Raise CorruptBlob where an encoder that a snapshot carries fails, a panic of its tokenizer included.

    What this machine lacks is not the snapshot's fault, and passes: memory, files, libraries.
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
        found = json.loads(read_regular(path, most))
    except (ValueError, RecursionError) as error:
        raise CorruptBlob(f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise CorruptBlob(f"{path}: expected a JSON object")
    return found


def _check_steps(steps: Mapping[str, Any]) -> None:
    """Raise ValueError where the steps of a tokenizer hold too much, or a table of characters that is none."""
    left: list[tuple[str, Any]] = list(steps.items())
    for seen in range(_MOST_STEPS):
        if not left:
            return
        name, value = left.pop()
        if isinstance(value, dict):
            left += value.items()
        elif isinstance(value, list):
            left += ((name, one) for one in value[: _MOST_STEPS - seen])
        elif isinstance(value, str) and name == _CHARACTERS:
            _check_characters(value)
        elif isinstance(value, str) and len(value) > _LONGEST_TEXT:
            raise ValueError(f"{name} has {len(value):,} characters; expected {_LONGEST_TEXT:,} at most")
    raise ValueError(f"its steps hold more than {_MOST_STEPS:,} values")


def _check_characters(encoded: str) -> None:
    """Raise ValueError unless a table of characters is as long as it says: the length of its trie, then that."""
    try:
        table = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        raise ValueError(f"{_CHARACTERS} is not base64") from error
    trie = int.from_bytes(table[:4], "little")
    if trie % 4 or not 4 <= trie <= len(table) - 4:
        raise ValueError(f"{_CHARACTERS} has {len(table)} bytes, and says that its trie has {trie}")
