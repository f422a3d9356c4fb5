"""Folders in memory for tests that make many stores: syncing a disk is most of their time, and proves nothing here."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["quick_folder"]


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A new folder, in memory where the system has such a place; removed at the end."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None, prefix="indexmill-") as folder:
        yield Path(folder)
