"""Lineage: the parts that a snapshot was made from, stored as a blob that its manifest names.

The blob is a table with a row for each output of each part, most of it digests: as JSON it would be more than three
times as large.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Annotated, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, ValidationError, field_validator

from indexmill.errors import CorruptBlob
from indexmill.store.record import RECORD_ADVICE, Digest, Record, Word
from storage.protocol import Store
from storage.receipts import Receipt, overlap
from storage.records import get_record_blob
from storage.table_blobs import table_bytes

_PARTS = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in ("stage", "shard", "key", "row_space")),
        pa.field("output", pa.string()),
        pa.field("digest", pa.binary(32)),
    ]
)
"""A row for each output of each part; for a part without outputs, one row without output and digest."""


class LineageEntry(Record):
    """One part of a snapshot: the outputs of a stage for a shard, and their key."""

    stage: Word
    shard: str
    key: Word
    outputs: dict[str, Digest]
    row_space: str = ""

    @classmethod
    def of(cls, receipt: Receipt) -> LineageEntry:
        return cls(**receipt.model_dump(include=set(cls.model_fields)))


class Lineage(Record):
    """The parts of a snapshot, ordered by stage, shard and key."""

    entries: Annotated[tuple[LineageEntry, ...], Field(strict=False)] = ()

    @field_validator("entries", mode="after")
    @classmethod
    def _order(cls, entries: Iterable[LineageEntry]) -> tuple[LineageEntry, ...]:
        return tuple(sorted(entries, key=lambda entry: (entry.stage, entry.shard, entry.key)))

    def to_bytes(self) -> bytes:
        """Return the lineage as a table (`docs/format.md`), in the order of its entries, outputs by name."""
        rows: list[tuple[str | bytes | None, ...]] = []
        for entry in self.entries:
            part = (entry.stage, entry.shard, entry.key, entry.row_space)
            outputs = sorted(entry.outputs.items())
            rows += [(*part, name, bytes.fromhex(digest)) for name, digest in outputs] or [(*part, None, None)]
        columns = zip(*rows, strict=True) if rows else [()] * len(_PARTS)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _PARTS, strict=True)]
        return table_bytes(pa.table(arrays, _PARTS))

    @classmethod
    def from_bytes(cls, data: bytes, where: str) -> Self:
        try:
            table = pq.read_table(pa.BufferReader(data), use_threads=False).cast(_PARTS)
            parts: dict[tuple[str, ...], dict[str, str]] = {}
            for *part, output, digest in zip(*(column.to_pylist() for column in table.columns), strict=True):
                outputs = parts.setdefault(tuple(part), {})
                if output is not None:
                    outputs[output] = digest.hex()
            entries = [
                LineageEntry(stage=stage, shard=shard, key=key, row_space=row_space, outputs=outputs)
                for (stage, shard, key, row_space), outputs in parts.items()
            ]
        except (ValueError, OSError, AttributeError, ValidationError) as error:
            raise CorruptBlob(
                f"{where} is not a readable lineage ({len(data)} bytes): {error}; {RECORD_ADVICE}"
            ) from error
        return cls(entries=tuple(entries))

    def candidates(self, stage: str, row_space: str, shard: str) -> list[LineageEntry]:
        """Return the parts that may have rows for a shard, nearest first: same row space, overlapping prefix."""
        ranked = [
            ((distance, entry.shard, entry.key), entry)
            for entry in self.entries
            if entry.stage == stage and entry.row_space == row_space
            if (distance := overlap(shard, entry.shard)) is not None
        ]
        return [entry for _, entry in sorted(ranked, key=itemgetter(0))]


def put(store: Store, lineage: Lineage) -> str:
    """Store a lineage; returns the digest for the manifest."""
    return store.put_blob(lineage.to_bytes())


def blobs(lineage: Lineage) -> set[str]:
    """Return the digests of all outputs of the parts."""
    return {digest for part in lineage.entries for digest in part.outputs.values()}


def read(store: Store, digest: str) -> Lineage:
    """Read the lineage that has the given digest; CorruptBlob if it is missing or damaged."""
    return get_record_blob(store, digest, Lineage)
