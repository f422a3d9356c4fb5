"""The reserve of a store in a folder: disk space set aside for runs that free space.

    .reserve        RESERVE bytes, allocated on the disk, without content

Taking the lease creates a record, so on a full disk no run could start to remove anything. A run that frees space
releases the reserve when one of its records finds no space, and restores it at its end; the record that removes a
version may use it in any run. Every other run restores it as soon as it holds the lease. The leading dot hides the file
from listings and collections of records.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from storage.faults import write_all

RESERVE = 1 << 20
"""The size in bytes: enough for 250 records of a block each, or for one record that names 10,000 blobs."""

_NAME = ".reserve"


def keep(root: Path) -> None:
    """Allocate the reserve if it is missing; on a full disk or in a read-only store, it stays missing."""
    path = root / _NAME
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            _allocate(descriptor)
        except OSError:
            path.unlink()  # a partial reserve would only fill the disk further
        finally:
            os.close(descriptor)


def _allocate(descriptor: int) -> None:
    """Allocate the file's space; on systems without such a call, such as macOS, write it."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, RESERVE)
    elif os.fstat(descriptor).st_size < RESERVE:
        write_all(descriptor, bytes(RESERVE))
        os.fsync(descriptor)


def give_up(root: Path) -> bool:
    """Release the space; False if there was no reserve."""
    try:
        (root / _NAME).unlink()
    except OSError:
        return False
    return True
