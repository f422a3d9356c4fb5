"""What a failed write means for the user."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from indexmill.errors import IndexmillError, StoreError, StoreNotWritable

__all__ = ["writing"]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextlib.contextmanager
def writing(path: Path, *, full: str, forbidden: str) -> Iterator[None]:
    """Turn an OSError of a write to a path into a StoreError, StoreNotWritable where the user can mend it.

    full, forbidden: what to do where there is no space, and where it is not allowed.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, IndexmillError):  # some are builtins, too
            raise
        if error.errno in _NO_SPACE:
            raise StoreNotWritable(f"{path} cannot be written: {error.strerror}; {full}") from error
        if error.errno in _NOT_ALLOWED:
            raise StoreNotWritable(f"{path} cannot be written: {error.strerror}; {forbidden}") from error
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error
