"""Tables as blobs: Parquet whose bytes depend on the rows and the schema alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from indexmill.errors import StoreError
from indexmill.store import table_reader
from schemas.tables import conform, stored
from storage.protocol import Store

_FEW = 10_000
"""The number of rows that one thread can read before other threads have started."""


def table_bytes(table: pa.Table, schema: pa.Schema | None = None) -> bytes:
    """Return a table as Parquet (zstd, fixed row groups, no metadata but the schema), conformed to any given `schema`.

    Locations that are all null are dropped. Equal rows give equal bytes, however the table is cut into chunks. Raises
    ValueError if it does not conform.
    """
    if schema is not None:
        table = conform(table, schema)
    plain = stored(table).replace_schema_metadata(None).combine_chunks()
    sink = pa.BufferOutputStream()
    with writer(sink, plain.schema) as parquet:
        parquet.write_table(plain, row_group_size=table_reader.ROWS_PER_GROUP)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer for a file-like object, with all settings fixed."""
    return pq.ParquetWriter(
        sink,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=3,
        use_dictionary=True,
        write_statistics=True,
        store_schema=True,
    )


def put_table(store: Store, table: pa.Table, schema: pa.Schema | None = None) -> tuple[str, int]:
    """Store a table as a blob; returns its digest and length. ValueError if it does not conform to the schema."""
    data = table_bytes(table, schema)
    return store.put_blob(data), len(data)


def read_table(
    store: Store, digest: str, schema: pa.Schema | None = None, *, columns: Sequence[str] | None = None
) -> pa.Table:
    """Read a table from its blob and check it against its digest and its declared schema. columns: None for all.

    Raises CorruptBlob if the blob is missing or damaged, StoreError if it is not a table with this schema.
    """
    path = store.open_local(digest)
    if schema is not None and columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    try:
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            several = file.metadata.num_rows > _FEW
            table = file.read(columns=None if columns is None else list(columns), use_threads=several)
        return table if schema is None else conform(table, schema)
    except (ValueError, OSError) as error:  # Arrow's errors are ValueErrors
        raise StoreError(f"{path} is not a table with the expected columns: {error}") from error
