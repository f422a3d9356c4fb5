"""Folders in memory for tests that make many stores: syncing a disk is most of their time, and proves nothing here."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_MEMORY = Path("/dev/shm")  # noqa: S108
_ENOUGH = 4 << 30
"""The bytes of memory that all folders of all tests fit in."""


def quick_root() -> Path | None:
    """Where a system keeps files in memory; None if there is no such place, or hardly any room."""
    if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ENOUGH:
        return _MEMORY
    return None


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A new folder, in memory where the system has such a place; removed at the end."""
    with tempfile.TemporaryDirectory(dir=quick_root(), prefix="indexmill-") as folder:
        yield Path(folder)
