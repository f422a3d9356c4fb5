"""The vectors of the names of a snapshot's entities."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.retrieve.base import Vectors

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["names_of"]


def names_of(artifacts: Artifacts, keys: npt.NDArray[np.uint64]) -> tuple[list[Vectors], npt.NDArray[np.int64] | None]:
    """The vectors of names by entity shard, and the rows of their entities; no rows where every entity has one.

    A pack says by ``entity_keys``, ascending, whose names its vectors are; an entity without one has no vector.
    """
    vectors = artifacts.vectors("names", "vectors")
    if not vectors:
        return [], None
    owners = np.concatenate([cast("npt.NDArray[np.uint64]", own) for own in artifacts.vectors("names", "entity_keys")])
    rows = np.searchsorted(keys, owners)
    if len(owners) != sum(map(len, vectors)) or (rows >= len(keys)).any() or (keys[rows] != owners).any():
        raise CorruptBlob(f"{artifacts.path}: the vectors of {len(owners)} names do not fit the {len(keys)} entities")
    return vectors, None if len(rows) == len(keys) else rows.astype(np.int64)
