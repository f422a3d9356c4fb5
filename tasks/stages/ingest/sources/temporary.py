"""Unnamed temporary files for the bytes that a source reads; closing one deletes it."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def filled(fill: Callable[[io.BufferedRandom], None], folder: Path | None = None) -> io.BufferedReader:
    """Return a file that `fill` wrote, at its start, for the caller to close. Raises what `fill` raises.

    folder: where to put the file, if that folder exists.
    """
    with tempfile.TemporaryFile(dir=folder if folder is not None and folder.is_dir() else None) as file:
        fill(file)
        file.flush()
        descriptor = os.dup(file.fileno())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.fdopen(descriptor, "rb")
