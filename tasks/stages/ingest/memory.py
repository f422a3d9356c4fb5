"""Errors that say that memory does not suffice: readers raise them, and make no refusal of them."""

from __future__ import annotations

import errno
import zlib

import zstandard


def lacks_memory(error: BaseException) -> bool:
    """True for an error that says that memory does not suffice: nothing is wrong with the file."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    if isinstance(error, zlib.error):
        return str(error).startswith("Error -4 ")  # Z_MEM_ERROR
    if isinstance(error, zstandard.ZstdError):
        return "not enough memory" in str(error)
    return isinstance(error, MemoryError)  # pa.ArrowMemoryError is a subclass
