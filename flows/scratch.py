"""Folders for temporary files that are removed with their process, even one that is killed.

A process holds a lock (flock) on each of its folders, which the system releases when the process ends, and names itself
in a file there. An unlocked folder that names a process of this boot of this machine was left by a killed process; the
next process to make a folder beside it removes it. Two kinds of folders stay unless empty: those of other machines,
whose locks may not be visible (NFS), and those that name no process, which may belong to something else.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from indexmill.errors import StoreError
from indexmill.store.free_space import temporary_folder
from storage.processes import Process, alive, same_boot, this_process
from storage.write_errors import ROOM, check_room

PREFIX = "indexmill-run-"
"""The prefix of the folders' names."""

_OWNER = "owner.json"
"""The file that names the process of a folder, written first and removed last."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make a folder for this process alone (mode 0700), in the folder of `tempfile`; it is removed after the block.

    Also removes folders that killed processes of the same user left there. Raises DiskFull.
    """
    parent = temporary_folder()
    _remove_abandoned(parent)
    check_room(ROOM)
    folder, lock = _locked_folder(parent)
    try:
        yield folder
    finally:
        _remove(folder)  # the next process removes the rest
        os.close(lock)


def _locked_folder(parent: Path) -> tuple[Path, int]:
    """Make a folder that names this process; returns it and the descriptor that holds its lock."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        try:
            lock = _open_folder(folder)
        except FileNotFoundError:  # another process removed it as abandoned while it was empty
            continue
        try:
            _lock_and_name(folder, lock)
        except (BlockingIOError, FileNotFoundError):  # another process is removing it, or has removed it
            os.close(lock)
            continue
        except BaseException:
            _remove(folder)
            os.close(lock)
            raise
        return folder, lock


def _lock_and_name(folder: Path, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks, where leftovers cannot be recognised
        return
    (folder / _OWNER).write_bytes(this_process().to_bytes())


def _remove_abandoned(parent: Path) -> None:
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with contextlib.suppress(OSError):  # removed meanwhile, a link, another user's, or locked
                    _remove_unlocked(Path(entry.path))


def _remove_unlocked(folder: Path) -> None:
    lock = _open_folder(folder)
    try:
        if os.fstat(lock).st_uid != os.geteuid():
            return
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _leads_to(lock, folder):
            return
        if _owner_is_gone(folder):
            _remove(folder)
        else:
            folder.rmdir()  # fails unless it is empty: its process was killed before it named itself
    finally:
        os.close(lock)


def _owner_is_gone(folder: Path) -> bool:
    """Return True if an unlocked folder names a process that has certainly ended."""
    try:
        owner = Process.from_bytes((folder / _OWNER).read_bytes(), f"{folder}/{_OWNER}")
    except (OSError, StoreError):
        return False
    living = alive(owner)
    return living is False or (living is None and same_boot(owner))  # in another container here


def _remove(folder: Path) -> None:
    """Remove a folder as far as possible; what remains still names its process, or is empty."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in list(entries):
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                elif entry.name != _OWNER:
                    Path(entry.path).unlink()
    with contextlib.suppress(OSError):
        if [path.name for path in folder.iterdir()] == [_OWNER]:
            (folder / _OWNER).unlink()
        folder.rmdir()


def _open_folder(folder: Path) -> int:
    """Open a folder as a descriptor; raises OSError for anything else, a symbolic link included."""
    return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


def _leads_to(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), folder.lstat())
    except FileNotFoundError:
        return False
