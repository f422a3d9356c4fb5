"""Unnamed temporary files for the bytes that a source reads; closing a file deletes it."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def filled(fill: Callable[[io.BufferedRandom], None], folder: Path | None = None) -> io.BufferedReader:
    """Return a file that `fill` wrote, positioned at its start; the caller closes it. Raises what `fill` raises.

    folder: the folder for the file, if it exists; otherwise the system's folder for temporary files is used.
    """
    with tempfile.TemporaryFile(dir=folder if folder is not None and folder.is_dir() else None) as file:
        fill(file)
        file.flush()
        descriptor = os.dup(file.fileno())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.fdopen(descriptor, "rb")
