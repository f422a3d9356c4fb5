"""Folders for temporary files that go with the process that made them, however that ends.

A process holds a lock (flock) on each of its folders, which the system drops when the process ends. So a folder without
a lock was left by a process that was killed, and whoever makes the next one beside it removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PREFIX", "scratch_folder"]

PREFIX = "indexmill-run-"
"""How their names begin."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for this process alone (mode 0700), in that of `tempfile`; it is gone after the block.

    Removes the folders that processes of the same user left there when they were killed.
    """
    place = Path(tempfile.gettempdir())
    _remove_abandoned(place)
    folder, lock = _locked_folder(place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # what cannot be removed now is left for the next process
        os.close(lock)


def _locked_folder(place: Path) -> tuple[Path, int]:
    """A new folder and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        try:
            lock = _opened(folder)
        except FileNotFoundError:  # before it had a lock another process took it for an abandoned one
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        except OSError:  # a file system without locks, where nobody removes what others left
            return folder, lock
        if _is_at(lock, folder):
            return folder, lock
        os.close(lock)


def _remove_abandoned(place: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):  # gone meanwhile, a link, another user's, or locked by its process
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(folder: Path) -> None:
    lock = _opened(folder)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(lock, folder):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _opened(folder: Path) -> int:
    """A descriptor of a folder; raises OSError for anything else, a link included."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _is_at(descriptor: int, folder: Path) -> bool:
    """Whether a path still leads to the folder that was opened."""
    try:
        return os.path.samestat(os.fstat(descriptor), folder.lstat())
    except FileNotFoundError:
        return False
