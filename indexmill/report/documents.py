"""Titles and lengths of some documents of a snapshot, read shard by shard."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.snapshot import Snapshot
from indexmill.store.tables import row_groups


@dataclass(frozen=True, slots=True)
class Described:
    """A document's title, which may be empty, and the characters of its text, None if they were not asked for."""

    title: str
    characters: int | None


def only_in(snapshot: Snapshot, other: Snapshot | None, table: str = "documents") -> frozenset[str]:
    """The names of the shards of a table whose bytes another snapshot does not have."""
    there = set() if other is None else {shard.digest for shard in other.shards(table)}
    return frozenset(shard.name for shard in snapshot.shards(table) if shard.digest not in there)


def described(
    snapshot: Snapshot, ids: Collection[str], shards: Collection[str] | None = None, *, lengths: bool = False
) -> dict[str, Described]:
    """Documents by id, those that the snapshot has.

    shards: the names of those that may hold them; None for all. lengths: True to read their texts, too. Raises
    CorruptBlob.
    """
    found: dict[str, Described] = {}
    wanted = pa.array(sorted(ids), pa.string())
    columns = ["document_id", "title", *["text"] * lengths]
    for shard in snapshot.shards("documents"):
        if len(found) == len(wanted):
            break
        if shards is not None and shard.name not in shards:
            continue
        for table in row_groups(snapshot.file(shard.name), shard, columns):
            chosen = table.filter(pc.is_in(table["document_id"], value_set=wanted))
            sizes = pc.utf8_length(chosen["text"]).to_pylist() if lengths else [None] * len(chosen)
            for identity, title, size in zip(
                chosen["document_id"].to_pylist(), chosen["title"].to_pylist(), sizes, strict=True
            ):
                found[identity] = Described(title, size)
    return found
