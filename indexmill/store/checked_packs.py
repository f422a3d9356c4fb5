"""Packs that a reader of this machine has checked, and that the next maps without reading them.

To open a pack is to hash its file and to check its header and values: half a millisecond, and all of its pages. The
reader of a large corpus opens thousands of them. What one reader has found of each counts for others as long as the
pack's file is the same: its inode, length and time of the last change.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from indexmill.errors import CorruptBlob
from indexmill.store.listing import Artifact
from indexmill.store.pack_schema import Arrays
from indexmill.store.packs import Pack, map_pack
from indexmill.store.regular_files import is_own

__all__ = ["CheckedPacks", "describe_packs"]

_NONE = (0, 0, 0, 0)
_BITS = (1 << 64) - 1


def describe_packs(packs: Collection[tuple[Artifact, Path]], check: Callable[[Artifact], Pack]) -> Arrays:
    """Check some packs, and return what ``CheckedPacks`` has to know of them.

    packs: artifacts with their files. check: opens and checks one; a pack for which it raises CorruptBlob is left to be
    checked by whoever uses it. The arrays are ``files``, ``(n_packs, 4) uint64``, what tells a file from others, and
    ``starts``, ``(n_packs,) int64``, the offsets of the data.
    """
    files, starts = [_NONE] * len(packs), [0] * len(packs)
    for number, (artifact, path) in enumerate(packs):
        with contextlib.suppress(CorruptBlob, OSError):
            before = _file_of(path.stat())
            starts[number] = check(artifact).start
            if _file_of(path.stat()) == before:
                files[number] = before
    return {"files": np.array(files, dtype=np.uint64).reshape(-1, 4), "starts": np.array(starts, dtype=np.int64)}


class CheckedPacks:
    """The packs of some artifacts, as ``describe_packs`` found them."""

    def __init__(self, artifacts: Collection[Artifact], described: Arrays) -> None:
        """Raises ValueError unless so many artifacts were described."""
        found = zip(map(tuple, described["files"].tolist()), described["starts"].tolist(), strict=True)
        self._known = dict(zip((artifact.name for artifact in artifacts), found, strict=True))

    def open(self, artifact: Artifact, path: Path | None) -> Pack | None:
        """Map the pack of an artifact in its file; None if it has to be checked."""
        known, start = self._known.get(artifact.name, (_NONE, 0))
        schema = artifact.schema_
        with contextlib.suppress(CorruptBlob, OSError):
            if path is not None and isinstance(schema, dict) and _file_of(path.stat()) == known:
                return map_pack(path, start, schema)
        return None


def _file_of(status: os.stat_result) -> tuple[int, int, int, int]:
    """What tells a file from others, and from itself after a change: inode, length, times of the last changes.

    The second time, of the file's status, is that of files which others can write: nobody can set it back.
    """
    status_time = 0 if is_own(status) else status.st_ctime_ns
    return status.st_ino & _BITS, status.st_size, status.st_mtime_ns & _BITS, status_time & _BITS
