"""Packs that one reader on this machine has checked, so that later readers map them without checking them again.

Opening a pack hashes its file and checks its header and values, which takes half a millisecond and reads the whole
file. A reader of a large corpus opens thousands of packs. A check stays valid for other readers while the pack's file
is unchanged (inode, length and time of the last change), also in the next version, which shares most packs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from indexmill.errors import CorruptBlob
from indexmill.store.artifact_listing import Artifact
from indexmill.store.pack_schema import Arrays
from indexmill.store.packs import Pack, map_pack
from indexmill.store.regular_files import is_own

_File = tuple[int, int, int, int]
_Location = tuple[_File, int]

_NONE: _File = (0, 0, 0, 0)
_BITS = (1 << 64) - 1


@dataclass(frozen=True)
class PackFile:
    """A pack on this machine. key: a SHA-256 of all inputs of its check, including the pack's digest."""

    artifact: Artifact
    path: Path
    key: bytes


def describe_packs(
    packs: Collection[PackFile], check: Callable[[Artifact], Pack], earlier: Iterable[Arrays] = ()
) -> Arrays:
    """Check packs, and return their description for ``CheckedPacks``.

    check: opens and checks a pack; if it raises CorruptBlob, the pack is checked again at its first use. earlier:
    descriptions from other snapshots; packs in them are not checked again. Returns the arrays ``keys``, ``(n_packs, 32)
    uint8``; ``files``, ``(n_packs, 4) uint64``, the identities of the files; and ``starts``, ``(n_packs,) int64``, the
    offsets of the data.
    """
    files, starts = [_NONE] * len(packs), [0] * len(packs)
    located = {key: location for described in earlier for key, location in _locations(described)}
    for number, pack in enumerate(packs):
        with contextlib.suppress(CorruptBlob, OSError):
            before = _file_of(pack.path.stat())
            file, start = located.get(pack.key, (_NONE, 0))
            starts[number] = start if file == before else check(pack.artifact).start
            if _file_of(pack.path.stat()) == before:
                files[number] = before
    return {
        "keys": np.frombuffer(b"".join(pack.key for pack in packs), dtype=np.uint8).reshape(-1, 32),
        "files": np.array(files, dtype=np.uint64).reshape(-1, 4),
        "starts": np.array(starts, dtype=np.int64),
    }


def _locations(described: Arrays) -> Iterator[tuple[bytes, _Location]]:
    """Yield each pack's key with its location: the identity of its file and the offset of its data."""
    keys = (key.tobytes() for key in described["keys"])
    files = ((file[0], file[1], file[2], file[3]) for file in described["files"].tolist())
    return zip(keys, zip(files, described["starts"].tolist(), strict=True), strict=True)


class CheckedPacks:
    """The packs of some artifacts, as ``describe_packs`` describes them."""

    def __init__(self, artifacts: Collection[Artifact], described: Arrays) -> None:
        """Index the descriptions; raises ValueError unless each artifact has a description."""
        locations = (location for _, location in _locations(described))
        self._located = dict(zip((artifact.name for artifact in artifacts), locations, strict=True))

    def open(self, artifact: Artifact, path: Path | None) -> Pack | None:
        """Map an artifact's pack from its file; None if the pack has to be checked first."""
        checked_file, start = self._located.get(artifact.name, (_NONE, 0))
        schema = artifact.schema_
        with contextlib.suppress(CorruptBlob, OSError):
            if path is not None and isinstance(schema, dict) and _file_of(path.stat()) == checked_file:
                return map_pack(path, start, schema)
        return None


def _file_of(status: os.stat_result) -> _File:
    """Return a file's identity, which changes with its content: inode, length, and times of the last changes.

    The time of the status change is used only for files that other users can write, since no user can set it back.
    """
    status_time = 0 if is_own(status) else status.st_ctime_ns
    return status.st_ino & _BITS, status.st_size, status.st_mtime_ns & _BITS, status_time & _BITS
