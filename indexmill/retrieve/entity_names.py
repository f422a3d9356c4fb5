"""The vectors of the names of a snapshot's entities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.retrieve.columns import positions
from indexmill.retrieve.retrieval_method import Vectors

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

Keys = npt.NDArray[np.uint64]


def names_of(artifacts: Artifacts, keys: Keys) -> tuple[Sequence[Vectors], npt.NDArray[np.int64] | None]:
    """Return the name vectors as one shard, and their entities' rows (None if all have one). Raises CorruptBlob."""
    vectors, owners = name_vectors_of(artifacts)
    rows, exists = positions(owners, keys)
    if not exists.all():
        raise CorruptBlob(f"{artifacts.path}: the vectors of {len(owners)} names do not fit the {len(keys)} entities")
    return vectors, None if not vectors or len(rows) == len(keys) else rows


def name_vectors_of(artifacts: Artifacts) -> tuple[Sequence[Vectors], Keys]:
    """Return the name vectors as one shard, and the ascending keys of the entities that have one."""
    if not artifacts.shards("names"):
        return [], np.empty(0, np.uint64)

    def join() -> dict[str, npt.NDArray[Any]]:
        return {
            name: np.concatenate(list[npt.NDArray[Any]](artifacts.vectors("names", name)))
            for name in ("vectors", "entity_keys")
        }

    arrays = artifacts.assembled("names.1", join)
    return [arrays["vectors"]], arrays["entity_keys"]
