"""The names of a snapshot's entities: found by what a question says, and their vectors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.retrieve.base import Vectors
from indexmill.retrieve.columns import positions
from indexmill.text.name_filter import NameFilter
from indexmill.text.names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["MOST_NAMES", "Keys", "name_index", "name_vectors_of", "names_of"]

MOST_NAMES = 1 << 20
"""Of more names no filter is made: reading them would take a second."""

Bytes = npt.NDArray[np.uint8]
Rows = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


def name_index(artifacts: Artifacts, keys: Keys) -> NameIndex:
    """Finds the entities of these keys by name, with the filter of all names of the snapshot."""

    def likely() -> NameFilter | None:
        (found,) = artifacts.once("name filter", lambda: (_open_filter(artifacts),))
        return found

    return NameIndex(keys, likely)


def _open_filter(artifacts: Artifacts) -> NameFilter | None:
    """The filter of the names of all entities of a snapshot, made of their table; None where they are too many."""
    shards = [shard for shard in artifacts.shards("entities") if shard.kind == "table"]
    count = sum(shard.rows or 0 for shard in shards)
    if not 0 < count <= MOST_NAMES:
        return None

    def read() -> Iterator[tuple[Bytes, Rows]]:
        import pyarrow as pa

        from indexmill.store.tables import read_table

        for shard in shards:
            names = read_table(artifacts.file(shard.name), shard, ["name"]).column("name").combine_chunks()
            _, bounds, text = pa.concat_arrays(
                [names.cast(pa.large_string())]
            ).buffers()  # begins where its buffer does
            offsets = np.frombuffer(bounds, np.int64, len(names) + 1)
            yield np.frombuffer(text or b"", np.uint8)[: offsets[-1]], offsets

    return NameFilter(read(), count)


def names_of(artifacts: Artifacts, keys: Keys) -> tuple[list[Vectors], npt.NDArray[np.int64] | None]:
    """The vectors of names by entity shard, and the rows of their entities; no rows where every entity has one.

    Raises CorruptBlob for the name of another entity.
    """
    vectors, owners = name_vectors_of(artifacts)
    rows, known = positions(owners, keys)
    if not known.all():
        raise CorruptBlob(f"{artifacts.path}: the vectors of {len(owners)} names do not fit the {len(keys)} entities")
    return vectors, None if not vectors or len(rows) == len(keys) else rows


def name_vectors_of(artifacts: Artifacts) -> tuple[list[Vectors], Keys]:
    """The vectors of names by entity shard, and the key of each one's entity, ascending; an entity may have none."""
    vectors = artifacts.vectors("names", "vectors")
    owners = artifacts.vectors("names", "entity_keys") if vectors else []
    return vectors, np.concatenate([np.empty(0, np.uint64), *(cast("Keys", own) for own in owners)])
