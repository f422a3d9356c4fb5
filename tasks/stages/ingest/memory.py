"""Detects out-of-memory errors, which readers raise instead of rejecting the file."""

from __future__ import annotations

import errno
import zlib

import zstandard


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out, rather than that the file is faulty."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, zlib.error):
        return str(error).startswith("Error -4 ")  # Z_MEM_ERROR
    if isinstance(error, zstandard.ZstdError):
        return "not enough memory" in str(error)
    return isinstance(error, MemoryError)  # pa.ArrowMemoryError is a subclass
