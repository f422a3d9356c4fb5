"""Packs that a reader of this machine has checked, and that the next maps without reading them.

To open a pack is to hash its file and to check its header and values: half a millisecond, and all of its pages. The
reader of a large corpus opens thousands of them. What one reader has found of each counts for others as long as the
pack's file is the same: its device, inode, length and time of the last change.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

import numpy as np

from indexmill.errors import CorruptBlob
from indexmill.store.folder import Identity, identity_of
from indexmill.store.listing import Artifact
from indexmill.store.pack_schema import Arrays
from indexmill.store.packs import Pack, map_pack

__all__ = ["CheckedPacks", "describe_packs"]

_NONE: Identity = (0, 0, 0, 0)


def describe_packs(packs: Collection[tuple[Artifact, Path]], check: Callable[[Artifact], Pack]) -> Arrays:
    """Check some packs, and return what ``CheckedPacks`` has to know of them.

    packs: artifacts with their files. check: opens and checks one; whoever uses one of which it raises CorruptBlob has
    to check it. The arrays are ``files``, ``(n_packs, 4) uint64``, identities, and ``starts``, ``(n_packs,) int64``,
    the offsets of the data.
    """
    files, starts = [_NONE] * len(packs), [0] * len(packs)
    for number, (artifact, path) in enumerate(packs):
        with contextlib.suppress(CorruptBlob):
            starts[number] = check(artifact).start
            files[number] = identity_of(path.stat())
    return {"files": np.array(files, dtype=np.uint64).reshape(-1, 4), "starts": np.array(starts, dtype=np.int64)}


class CheckedPacks:
    """The packs of some artifacts, as ``describe_packs`` found them."""

    def __init__(self, artifacts: Collection[Artifact], described: Arrays) -> None:
        """Raises ValueError unless so many artifacts were described."""
        found = zip(map(tuple, described["files"].tolist()), described["starts"].tolist(), strict=True)
        self._known = dict(zip((artifact.name for artifact in artifacts), found, strict=True))

    def open(self, artifact: Artifact, path: Path | None) -> Pack | None:
        """Map the pack of an artifact in its file; None if it has to be checked.

        Raises CorruptBlob if it cannot be mapped.
        """
        identity, start = self._known.get(artifact.name, (_NONE, 0))
        schema = artifact.schema_
        with contextlib.suppress(OSError):
            if path is not None and isinstance(schema, dict) and identity_of(path.stat()) == identity:
                return map_pack(path, start, schema)
        return None
