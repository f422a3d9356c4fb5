"""The free space of a file system, as worded in messages about a full disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from indexmill.text.counted import byte_size


def free_space(path: Path) -> str:
    """The free space at a path, whether it exists or not: `the file system at /data has 0 B of 50 MB free`.

    If files (inodes) have run out instead of bytes, the text says so. It is empty if the system reports nothing.
    """
    if not hasattr(os, "statvfs"):
        return ""
    try:
        folder = next(one for one in (path.absolute(), *path.absolute().parents) if one.is_dir())
        told = os.statvfs(folder)
    except (OSError, StopIteration):
        return ""
    mount = next(one for one in (folder.resolve(), *folder.resolve().parents) if one.is_mount())
    if told.f_files and not told.f_favail:
        return f"the file system at {mount} can hold no more files (inodes)"
    free, size = (byte_size(blocks * told.f_frsize) for blocks in (told.f_bavail, told.f_blocks))
    return f"the file system at {mount} has {free} of {size} free"


def temporary_folder() -> Path:
    """The folder for temporary files, even one so full that Python passes it over for another."""
    for variable in ("TMPDIR", "TEMP", "TMP"):
        named = os.environ.get(variable)
        if named and Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK):
            return Path(named).absolute()
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108
