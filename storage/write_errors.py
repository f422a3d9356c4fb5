"""Errors of failed writes, with advice for the user."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from indexmill.errors import DiskFull, IndexmillError, StoreError, StoreNotWritable

_NOT_ALLOWED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@contextlib.contextmanager
def writing(path: Path, *, full: str, forbidden: str) -> Iterator[None]:
    """Turn an OSError of a write into DiskFull (with advice `full`), StoreNotWritable (`forbidden`) or StoreError."""
    try:
        yield
    except OSError as error:
        if isinstance(error, IndexmillError):  # some subclasses are also builtin exceptions
            raise
        if (no_space := DiskFull.of(error, path, f"the disk of {_folder_of(path)} is full: {full}")) is not None:
            raise no_space from error
        if error.errno in _NOT_ALLOWED:
            raise StoreNotWritable(f"{path} cannot be written: {error.strerror}; {forbidden}") from error
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from error


def writing_to_store(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turn write errors into a StoreError, as `writing` does, with advice for a store."""
    return writing(
        path,
        full="free some space and run again; nothing is lost, and the next run continues",
        forbidden="choose a store that this user may write to",
    )


def _folder_of(path: Path) -> Path:
    return next((folder for folder in (path, *path.parents) if folder.is_dir()), path.parent)
