"""Errors of failed writes, with advice for the user; a check of the free space for temporary files.

Programs and libraries report a full disk in their own words, if at all: SQLite, OpenVINO, a worker of Dask that does
not start. Writing a file here shows whether the disk is full.
"""

from __future__ import annotations

import contextlib
import errno
import tempfile
from collections.abc import Iterator
from pathlib import Path

from indexmill.errors import DiskFull, IndexmillError, StoreError, StoreNotWritable
from indexmill.store.free_space import temporary_folder
from indexmill.text.counted import byte_size

ROOM = 16 << 20
"""The free bytes that a run needs at its start: a private Prefect server writes a third of that in a short run."""
_FULL = 1 << 20
"""With fewer free bytes, a failure is attributed to the full disk."""
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


def check_room(size: int = _FULL) -> None:
    """Raise DiskFull if a file of `size` bytes does not fit into the folder for temporary files."""
    folder = temporary_folder()
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(size))
            file.flush()
    except OSError as error:
        advice = f"free {byte_size(max(size, ROOM))} there, or name a folder with more room in TMPDIR, and run again"
        if (full := DiskFull.of(error, folder, advice)) is not None:
            raise full from error
        raise
