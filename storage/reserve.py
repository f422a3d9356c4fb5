"""The reserve of a store in a folder: space that is set aside for what makes space.

    .reserve        RESERVE bytes, allocated on the disk, without content

Taking the lease is creating a record, so on a full disk nothing could begin to remove anything. A run that frees space
gives the reserve up when a record of its own finds no room, and sets it aside again at its end; the record that a
version is no longer there may use it in any run. Every other run sets it aside as soon as it holds the lease. A leading
dot is no name of a store: whoever lists or collects records does not see it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from storage.faults import write_all

__all__ = ["RESERVE", "give_up", "keep"]

RESERVE = 1 << 20
"""Bytes: 250 records of a block each, or one that names 10,000 blobs."""

_NAME = ".reserve"


def keep(root: Path) -> None:
    """Set the reserve aside, if it is not; a disk without room for it, or a store that may only be read, has none."""
    path = root / _NAME
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            _allocate(descriptor)
        except OSError:
            path.unlink()  # a part of it would only make the disk fuller
        finally:
            os.close(descriptor)


def _allocate(descriptor: int) -> None:
    """Have the system give a file its space; where it cannot be asked to, as on macOS, write it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, RESERVE)
    elif os.fstat(descriptor).st_size < RESERVE:
        write_all(descriptor, bytes(RESERVE))
        os.fsync(descriptor)


def give_up(root: Path) -> bool:
    """Give the space back to the disk; False if nothing was set aside."""
    try:
        (root / _NAME).unlink()
    except OSError:
        return False
    return True
