"""Readings: what a run found in its corpus, so that the next one reads only what changed.

    runs/<run id>/reading.json   the tables of files and rows, as Parquet blobs; where places of records ended

A reading is recorded before its run publishes. It is of use to a later run only if the version that run starts from
holds the very documents of the reading (`ReadingRecord.fingerprint`): so it counts once the ref is created, and not
before, and a rollback returns to the reading of its version.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Annotated

import pyarrow as pa
from pydantic import Field, JsonValue

from indexmill.store.layout import run_name, run_prefix
from indexmill.store.record import Digest, Record
from storage.protocol import Store
from storage.records import find_record
from storage.tables import put_table, read_table

_NAME = "reading"
_LOOKED_AT = 256
"""The most recent runs among which a reading is looked for."""

_Digests = Annotated[tuple[Digest, ...], Field(strict=False)]


class ReadingRecord(Record):
    """What a run read. fingerprint: of the corpus, as in a manifest. formats: by format, what shapes a document's row.

    files, rows, refused: digests of tables. cursors: by the key of a place of records.
    """

    fingerprint: Digest
    formats: dict[str, Digest]
    files: _Digests
    rows: _Digests
    refused: _Digests
    cursors: dict[str, JsonValue] = Field(default_factory=dict)


def put_reading(store: Store, run_id: str, record: ReadingRecord) -> None:
    """Record what a run read, in place of what it recorded before: at any moment there is the one or the other."""
    name, data = run_name(run_id, _NAME), record.to_bytes()
    if not store.create(name, data):
        store.replace(name, data)


def find_reading(store: Store, fingerprint: str, also: Collection[str] = ()) -> ReadingRecord | None:
    """The newest reading of a corpus with this fingerprint whose blobs are there; None if there is none.

    also: other blobs that it is of no use without, looked for in the same listing of a bucket.
    """
    names = sorted((name for name in store.list(run_prefix()) if name.endswith(f"/{_NAME}.json")), reverse=True)
    for name in names[:_LOOKED_AT]:
        record = find_record(store, name, ReadingRecord)
        if record is not None and record.fingerprint == fingerprint:
            needed = {*record.files, *record.rows, *record.refused, *also}
            if needed <= store.blob_sizes(needed).keys():
                return record
    return None


def tables_of(store: Store, digests: Iterable[str], schema: pa.Schema) -> pa.Table:
    """Some tables of a reading as one; raises CorruptBlob or StoreError for a damaged one."""
    return pa.concat_tables([schema.empty_table(), *(read_table(store, digest, schema) for digest in digests)])


def put_tables(store: Store, tables: Iterable[pa.Table], schema: pa.Schema) -> tuple[str, ...]:
    """Store tables of a reading; empty ones are left out."""
    return tuple(put_table(store, table, schema)[0] for table in tables if table.num_rows)
