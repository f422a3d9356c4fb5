"""Lineage: which parts a snapshot was made from, kept as a blob that its manifest names."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Annotated

from pydantic import Field, field_validator

from indexmill.store.manifest import Digest, Record, Word
from storage.protocol import Store
from storage.receipts import Receipt, overlap
from storage.records import get_record_blob

__all__ = ["Lineage", "LineageEntry", "blobs", "put", "read"]


class LineageEntry(Record):
    """One part of a snapshot: the outputs of a stage for a shard, and their key."""

    stage: Word
    shard: str
    key: Word
    outputs: dict[str, Digest]
    row_space: str = ""

    @classmethod
    def of(cls, receipt: Receipt) -> LineageEntry:
        """The part that a receipt describes."""
        return cls(**receipt.model_dump(include=set(cls.model_fields)))


class Lineage(Record):
    """The parts of a snapshot, ordered by stage, shard and key."""

    entries: Annotated[tuple[LineageEntry, ...], Field(strict=False)] = ()

    @field_validator("entries", mode="after")
    @classmethod
    def _order(cls, entries: Iterable[LineageEntry]) -> tuple[LineageEntry, ...]:
        return tuple(sorted(entries, key=lambda entry: (entry.stage, entry.shard, entry.key)))

    def candidates(self, stage: str, row_space: str, shard: str) -> list[LineageEntry]:
        """The parts that may hold rows for a shard: same row space, overlapping prefix, the nearest first."""
        ranked = [
            ((distance, entry.shard, entry.key), entry)
            for entry in self.entries
            if entry.stage == stage and entry.row_space == row_space
            if (distance := overlap(shard, entry.shard)) is not None
        ]
        return [entry for _, entry in sorted(ranked, key=itemgetter(0))]


def put(store: Store, lineage: Lineage) -> str:
    """Keep a lineage; returns the digest for the manifest."""
    return store.put_blob(lineage.to_bytes())


def blobs(lineage: Lineage) -> set[str]:
    """The digests of all outputs of its parts."""
    return {digest for part in lineage.entries for digest in part.outputs.values()}


def read(store: Store, digest: str) -> Lineage:
    """The lineage of this digest; CorruptBlob if it is missing or damaged."""
    return get_record_blob(store, digest, Lineage)
