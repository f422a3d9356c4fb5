"""Snapshots whose artifacts do not fit together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from indexmill.store.layout import blob_path
from indexmill.store.packs import open_pack
from tests.indexmill.small_snapshot import SnapshotWriter

Change = Callable[[SnapshotWriter], None]


def overwrite(path: Path, data: bytes) -> None:
    """Write to a file of a store, which are read-only."""
    path.chmod(0o644)
    path.write_bytes(data)


def flip(path: Path, at: int) -> None:
    """Change a bit of a file of a store."""
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    overwrite(path, bytes(data))


def without(name: str) -> Change:
    """Without the artifacts whose names begin so."""

    def change(writer: SnapshotWriter) -> None:
        writer.artifacts = [one for one in writer.artifacts if not one.name.startswith(name)]

    return change


def changed(name: str, array: str, change: Callable[[np.ndarray], np.ndarray] | None) -> Change:
    """An array of a pack in another form; left out without one."""

    def rewritten(writer: SnapshotWriter) -> None:
        (artifact,) = [one for one in writer.artifacts if one.name == name]
        path = writer.store.root / blob_path(artifact.digest)
        arrays = {one: np.array(held) for one, held in open_pack(path).items()}
        if change is None:
            del arrays[array]
        else:
            arrays[array] = change(arrays[array])
        without(name)(writer)
        writer.arrays(name, arrays)
        writer.artifacts.sort(key=lambda one: one.name)

    return rewritten
