"""Descriptions of a file system's free space, for messages about a full disk."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from indexmill.text.counted import byte_size


def free_space(path: Path) -> str:
    """Describe the free space at a path, which need not exist: `the file system at /data has 0 B of 50 MB free`.

    If inodes have run out instead of bytes, the text says so. It is empty if the system reports nothing.
    """
    if not hasattr(os, "statvfs"):
        return ""
    try:
        folder = next(above for above in (path.absolute(), *path.absolute().parents) if above.is_dir())
        status = os.statvfs(folder)
    except (OSError, StopIteration):
        return ""
    mount = next(above for above in (folder.resolve(), *folder.resolve().parents) if above.is_mount())
    if status.f_files and not status.f_favail:
        return f"the file system at {mount} can hold no more files (inodes)"
    free, size = (byte_size(blocks * status.f_frsize) for blocks in (status.f_bavail, status.f_blocks))
    return f"the file system at {mount} has {free} of {size} free"


def temporary_folder() -> Path:
    """Return the folder for temporary files, even if it is so full that Python would choose another folder."""
    for variable in ("TMPDIR", "TEMP", "TMP"):
        named = os.environ.get(variable)
        if named and Path(named).is_dir() and os.access(named, os.W_OK | os.X_OK):
            return Path(named).absolute()
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108
