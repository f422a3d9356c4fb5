"""Packs that a reader of this machine has checked, and that the next maps without reading them.

To open a pack is to hash its file and to check its header and values: half a millisecond, and all of its pages. The
reader of a large corpus opens thousands of them. What one reader has found of each counts for others as long as the
pack's file is the same: its inode, length and time of the last change. It also counts for the next version, which has
most of the packs as well.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexmill.errors import CorruptBlob
from indexmill.store.listing import Artifact
from indexmill.store.pack_schema import Arrays
from indexmill.store.packs import Pack, map_pack
from indexmill.store.regular_files import is_own

_File = tuple[int, int, int, int]
_Found = tuple[_File, int]

_NONE: _File = (0, 0, 0, 0)
_BITS = (1 << 64) - 1


@dataclass(frozen=True)
class PackFile:
    """A pack on this machine. key: a SHA-256 of all that its check depends on, its digest included."""

    artifact: Artifact
    path: Path
    key: bytes


def describe_packs(
    packs: Collection[PackFile], check: Callable[[Artifact], Pack], earlier: Iterable[Arrays] = ()
) -> Arrays:
    """Check some packs, and return what ``CheckedPacks`` has to know of them.

    check: opens and checks one; a pack for which it raises CorruptBlob is left to be checked by whoever uses it.
    earlier: descriptions of packs of other snapshots, which are not checked again. The arrays are ``keys``,
    ``(n_packs, 32) uint8``; ``files``, ``(n_packs, 4) uint64``, what tells a file from others; and ``starts``,
    ``(n_packs,) int64``, the offsets of the data.
    """
    files, starts = [_NONE] * len(packs), [0] * len(packs)
    known = {key: found for described in earlier for key, found in _found(described)}
    for number, pack in enumerate(packs):
        with contextlib.suppress(CorruptBlob, OSError):
            before = _file_of(pack.path.stat())
            file, start = known.get(pack.key, (_NONE, 0))
            starts[number] = start if file == before else check(pack.artifact).start
            if _file_of(pack.path.stat()) == before:
                files[number] = before
    return {
        "keys": np.frombuffer(b"".join(pack.key for pack in packs), dtype=np.uint8).reshape(-1, 32),
        "files": np.array(files, dtype=np.uint64).reshape(-1, 4),
        "starts": np.array(starts, dtype=np.int64),
    }


def _found(described: Arrays) -> Iterator[tuple[bytes, _Found]]:
    """By key: what tells a pack's file from others, and the offset of its data."""
    keys = (key.tobytes() for key in described["keys"])
    files = ((file[0], file[1], file[2], file[3]) for file in described["files"].tolist())
    return zip(keys, zip(files, described["starts"].tolist(), strict=True), strict=True)


class CheckedPacks:
    """The packs of some artifacts, as ``describe_packs`` found them."""

    def __init__(self, artifacts: Collection[Artifact], described: Arrays) -> None:
        """Raises ValueError unless so many artifacts were described."""
        found = (found for _, found in _found(described))
        self._known = dict(zip((artifact.name for artifact in artifacts), found, strict=True))

    def open(self, artifact: Artifact, path: Path | None) -> Pack | None:
        """Map the pack of an artifact in its file; None if it has to be checked."""
        known, start = self._known.get(artifact.name, (_NONE, 0))
        schema = artifact.schema_
        with contextlib.suppress(CorruptBlob, OSError):
            if path is not None and isinstance(schema, dict) and _file_of(path.stat()) == known:
                return map_pack(path, start, schema)
        return None


def _file_of(status: os.stat_result) -> _File:
    """What tells a file from others, and from itself after a change: inode, length, times of the last changes.

    The second time, of the file's status, is that of files which others can write: nobody can set it back.
    """
    status_time = 0 if is_own(status) else status.st_ctime_ns
    return status.st_ino & _BITS, status.st_size, status.st_mtime_ns & _BITS, status_time & _BITS
