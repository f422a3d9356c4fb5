"""Readings: records of the corpus as a run read it, so that the next run reads only changes.

    runs/<run id>/reading.json   the tables of files and rows, as Parquet blobs; the cursors of sources of records

A reading is recorded before its run publishes. A later run can use it only if the version that it starts from has
exactly the documents of the reading (`ReadingRecord.fingerprint`). So a reading counts only once the ref is
created, and a rollback returns to the reading of its version.
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
from storage.table_blobs import put_table, read_table

_NAME = "reading"
_RECENT_RUNS = 256
"""The number of most recent runs whose readings are searched."""

_Digests = Annotated[tuple[Digest, ...], Field(strict=False)]


class ReadingRecord(Record):
    """The reading of a run.

    fingerprint: the corpus fingerprint, as in a manifest. formats: for each file format, a digest of the settings and
    libraries that determine the rows of documents.
    files, rows, refused: digests of tables. cursors: the cursor of each source of records, by the source's key.
    """

    fingerprint: Digest
    formats: dict[str, Digest]
    files: _Digests
    rows: _Digests
    refused: _Digests
    cursors: dict[str, JsonValue] = Field(default_factory=dict)


def put_reading(store: Store, run_id: str, record: ReadingRecord) -> None:
    """Record the reading of a run, or replace it: others see either the old or the new record."""
    name, data = run_name(run_id, _NAME), record.to_bytes()
    if not store.create(name, data):
        store.replace(name, data)


def find_reading(store: Store, fingerprint: str, also: Collection[str] = ()) -> ReadingRecord | None:
    """Return the newest reading of a corpus with this fingerprint whose blobs exist; None if there is none.

    also: digests of other blobs that must exist, so that a bucket is listed only once.
    """
    names = sorted((name for name in store.list(run_prefix()) if name.endswith(f"/{_NAME}.json")), reverse=True)
    for name in names[:_RECENT_RUNS]:
        record = find_record(store, name, ReadingRecord)
        if record is not None and record.fingerprint == fingerprint:
            needed = {*record.files, *record.rows, *record.refused, *also}
            if needed <= store.blob_sizes(needed).keys():
                return record
    return None


def readings_until(store: Store, run_id: str | None = None) -> list[tuple[str, ReadingRecord]]:
    """Return the readings of a run (the last, if `run_id` is None) and of the run before, with the ids of the runs.

    Empty if the run has no readable record; without the second if the run before has none.
    """
    ids = (name.split("/")[1] for name in store.list(run_prefix()) if name.endswith(f"/{_NAME}.json"))
    latest = sorted((name for name in ids if run_id is None or name <= run_id), reverse=True)[:2]
    if not latest or run_id not in (None, latest[0]):
        return []
    readings: list[tuple[str, ReadingRecord]] = []
    for name in latest:
        record = find_record(store, run_name(name, _NAME), ReadingRecord)
        if record is None:
            break
        readings.append((name, record))
    return readings


def tables_of(store: Store, digests: Iterable[str], schema: pa.Schema) -> pa.Table:
    """Read tables of a reading and concatenate them; raises CorruptBlob or StoreError if one is damaged."""
    return pa.concat_tables([schema.empty_table(), *(read_table(store, digest, schema) for digest in digests)])


def put_tables(store: Store, tables: Iterable[pa.Table], schema: pa.Schema) -> tuple[str, ...]:
    """Store tables of a reading, except empty ones; returns their digests."""
    return tuple(put_table(store, table, schema)[0] for table in tables if table.num_rows)
