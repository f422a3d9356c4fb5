"""Opening and reading files that others wrote: regular files alone, of a bounded length.

A path may turn out to be a pipe, which would block, a device, which never ends, or a file that is far longer than what
it should hold. So the kind and the length of what was opened are looked at before any byte of it is read.
"""

from __future__ import annotations

import os
import stat
from io import BufferedReader
from pathlib import Path

from indexmill.counted import byte_size
from indexmill.errors import CorruptBlob

__all__ = ["BLOB_BYTES", "MANIFEST_BYTES", "RECORD_BYTES", "open_regular", "read_regular"]

RECORD_BYTES = 1 << 20
"""Most bytes of a small record, such as a ref."""

MANIFEST_BYTES = 64 << 20
"""Most bytes of a manifest, which then lists some 100,000 artifacts, and of the record of a run."""

BLOB_BYTES = 1 << 30
"""Most bytes of any other blob or record that is read as a whole, such as a lineage."""


def open_regular(path: Path, most: int | None = None) -> BufferedReader:
    """Open a regular file for reading; what is opened is what was checked.

    Raises OSError as ``open`` does, CorruptBlob where it is no regular file or has more than ``most`` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # no wait for a pipe's writer
    try:
        status, problem = os.fstat(descriptor), ""
        if not stat.S_ISREG(status.st_mode):
            problem = "cannot be read: it is no regular file"
        elif most is not None and status.st_size > most:
            problem = f"has {byte_size(status.st_size)}, more than the {byte_size(most)} that it may have"
        if problem:
            raise CorruptBlob(f"{path} {problem}: restore it from a copy")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most: int) -> bytes:
    """The bytes of a regular file of at most ``most``. Raises as ``open_regular`` does."""
    with open_regular(path, most) as file:
        data = file.read(most + 1)
    if len(data) > most:  # it has grown since
        raise CorruptBlob(f"{path} has more than the {byte_size(most)} that it may have: restore it from a copy")
    return data
