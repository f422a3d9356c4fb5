"""The vectors of the names of a snapshot's entities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.retrieve.base import Vectors
from indexmill.retrieve.columns import positions

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["Keys", "name_vectors_of", "names_of"]

Keys = npt.NDArray[np.uint64]


def names_of(artifacts: Artifacts, keys: Keys) -> tuple[Sequence[Vectors], npt.NDArray[np.int64] | None]:
    """The vectors of names by entity shard, and the rows of their entities; None for the rows if every entity has one.

    Raises CorruptBlob for the name of an unknown entity.
    """
    vectors, owners = name_vectors_of(artifacts)
    rows, known = positions(owners, keys)
    if not known.all():
        raise CorruptBlob(f"{artifacts.path}: the vectors of {len(owners)} names do not fit the {len(keys)} entities")
    return vectors, None if not vectors or len(rows) == len(keys) else rows


def name_vectors_of(artifacts: Artifacts) -> tuple[Sequence[Vectors], Keys]:
    """The vectors of names by entity shard, and the key of each one's entity, ascending; an entity may have none."""
    vectors = artifacts.vectors("names", "vectors")
    owners = artifacts.vectors("names", "entity_keys") if vectors else []
    return vectors, np.concatenate([np.empty(0, np.uint64), *(cast("Keys", own) for own in owners)])
