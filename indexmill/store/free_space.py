"""What a file system has free, as messages about a full disk say it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from indexmill.text.counted import byte_size

__all__ = ["free_space", "temporary_folder"]


def free_space(path: Path) -> str:
    """How much is free where a file or folder lies, or would lie: `the file system at /data has 0 B of 50 MB free`.

    Where it is not bytes that are missing but files (inodes), that is said. Nothing where the system does not tell.
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
    """The folder for temporary files, also where it is so full that Python takes it for none."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108
