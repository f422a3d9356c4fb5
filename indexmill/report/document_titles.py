"""Reading the titles and lengths of some documents in a snapshot, shard by shard."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.snapshot import Snapshot
from indexmill.store.table_reader import row_groups


@dataclass(frozen=True, slots=True)
class Described:
    """A document's title, which may be empty, and the length of its text in characters; None if not requested."""

    title: str
    characters: int | None


def only_in(snapshot: Snapshot, other_snapshot: Snapshot | None, table: str = "documents") -> frozenset[str]:
    """Return the names of a table's shards whose content another snapshot lacks."""
    other_digests = set() if other_snapshot is None else {shard.digest for shard in other_snapshot.shards(table)}
    return frozenset(shard.name for shard in snapshot.shards(table) if shard.digest not in other_digests)


def describe(
    snapshot: Snapshot, ids: Collection[str], shards: Collection[str] | None = None, *, lengths: bool = False
) -> dict[str, Described]:
    """Read the titles of documents, given their ids; unknown ids are left out.

    shards: the names of the shards that may contain the documents; None for all. lengths: True to measure the texts
    too. Raises CorruptBlob.
    """
    documents: dict[str, Described] = {}
    requested_ids = pa.array(sorted(ids), pa.string())
    columns = ["document_id", "title", *["text"] * lengths]
    for shard in snapshot.shards("documents"):
        if len(documents) == len(requested_ids):
            break
        if shards is not None and shard.name not in shards:
            continue
        for table in row_groups(snapshot.file(shard.name), shard, columns):
            chosen = table.filter(pc.is_in(table["document_id"], value_set=requested_ids))
            sizes = pc.utf8_length(chosen["text"]).to_pylist() if lengths else [None] * len(chosen)
            for identity, title, size in zip(
                chosen["document_id"].to_pylist(), chosen["title"].to_pylist(), sizes, strict=True
            ):
                documents[identity] = Described(title, size)
    return documents
