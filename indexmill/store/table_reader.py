"""Reading a snapshot's tables: a file's schema and decoded size are checked before it is decoded.

A few bytes of Parquet can encode many rows, and any number of cells can share one dictionary value. So strings are
read as dictionaries, whose decoded size is known before they are decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.errors import CorruptBlob
from indexmill.store.artifact_listing import Artifact, describe_table
from indexmill.text.counted import byte_size

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

LOCATIONS = "locations"
"""A column of the documents' table, which is missing if none of its documents has locations."""

ROWS_PER_GROUP = 65_536
"""The maximum number of rows of a row group: see ``docs/format.md``."""

COLUMN_TYPES: Mapping[str, str] = {
    **dict.fromkeys(("start", "end", "ordinal", "tokens", "sentence", "layer", "level", "members"), "integer"),
    **dict.fromkeys(("mentions", "passages", "documents", "pieces", "relations"), "integer"),
    **dict.fromkeys(("rating", "cosine", "likeness", "weight"), "float"),
    "stand_in": "bool",
    "findings": "list",
    LOCATIONS: "locations",
}
"""The types of columns in a snapshot's tables, by name; all other columns contain strings."""

NULLABLE = frozenset({"source", LOCATIONS})
"""The columns that may contain nulls."""

_DECODED_BYTES = 256 << 20
_DECODED_RATIO = 100
"""The maximum size of a decoded table is the sum of the first, and the second times the length of its file."""


def locations_type() -> pa.DataType:
    """Return the type of the column ``locations``: the start in the text, the page, and the box on the page or null."""
    import pyarrow as pa

    box = pa.list_(pa.field("element", pa.float32()))
    fields = [pa.field("start", pa.int32(), nullable=False), pa.field("page", pa.int32(), nullable=False)]
    return pa.list_(pa.field("element", pa.struct([*fields, pa.field("box", box)])))


def read_table(path: Path, artifact: Artifact, columns: Sequence[str] | None = None) -> pa.Table:
    """Read all or some columns of an artifact's Parquet file; missing locations are null.

    Raises CorruptBlob if the file is not Parquet, differs from the manifest's description, lacks a column, or would
    take far more memory than a snapshot's tables do.
    """
    with _opened(path, artifact, columns) as (file, decoded):
        return decoded(file.read)


def read_batch(path: Path, artifact: Artifact, columns: Sequence[str]) -> pa.RecordBatch:
    """Read columns of a table in the given order, each as one array. Raises as ``read_table`` does."""
    import pyarrow as pa

    table = read_table(path, artifact, columns).select(columns)
    return pa.record_batch([column.combine_chunks() for column in table.columns], schema=table.schema)


def row_groups(path: Path, artifact: Artifact, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the table one row group at a time. Raises as ``read_table`` does."""
    with _opened(path, artifact, columns) as (file, decoded):
        for number in range(file.num_row_groups):
            yield decoded(partial(file.read_row_group, number))


@contextmanager
def _opened(
    path: Path, artifact: Artifact, columns: Sequence[str] | None
) -> Iterator[tuple[pq.ParquetFile, Callable[[Callable[..., pa.Table]], pa.Table]]]:
    """Yield a checked file that reads strings as dictionaries, and a function that reads and decodes tables."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    where = f"{path}: the table {artifact.name!r}"
    try:
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
            stored = file.schema_arrow
            missing = [column for column in columns or () if column not in (*stored.names, LOCATIONS)]
            if missing:
                raise CorruptBlob(f"{where} lacks the columns {missing}")
            requested = pa.schema([field for field in stored if columns is None or field.name in columns])
            _check_declared(file, artifact, requested, where)
            lacking = LOCATIONS in (columns or ()) and LOCATIONS not in stored.names
        texts = [field.name for field in requested if pa.types.is_string(field.type)]
        with pq.ParquetFile(path, memory_map=True, pre_buffer=False, read_dictionary=texts) as file:
            yield file, lambda read: _decoded(read(columns=requested.names), requested, lacking, artifact, where)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: a column's name
        raise CorruptBlob(f"{where} cannot be read as Parquet: {error}") from error


def _decoded(table: pa.Table, requested: pa.Schema, lacking: bool, artifact: Artifact, where: str) -> pa.Table:
    """Decode dictionaries; CorruptBlob if the table is too large or has wrong nulls. lacking: add null locations."""
    import pyarrow as pa

    _check_size(_decoded_bytes(table), artifact, where)
    for field in requested:
        if field.name not in NULLABLE and table.column(field.name).null_count:
            raise CorruptBlob(f"{where} has nulls in the column {field.name!r}")
    decoded = table.cast(requested)
    decoded.validate(full=True)  # raises for strings that are not UTF-8
    if not lacking:
        return decoded
    nulls = pa.nulls(table.num_rows, locations_type())
    return pa.table([*decoded.columns, nulls], schema=requested.append(pa.field(LOCATIONS, nulls.type)))


def _check_declared(file: pq.ParquetFile, artifact: Artifact, requested: pa.Schema, where: str) -> None:
    """Raise CorruptBlob unless a file's metadata matches the manifest, and its columns have the types of snapshots."""
    metadata = file.metadata
    if artifact.rows is not None and metadata.num_rows != artifact.rows:
        raise CorruptBlob(f"{where} has {metadata.num_rows:,} rows; the manifest says {artifact.rows:,}")
    if artifact.schema_ is not None and describe_table(file.schema_arrow) != artifact.schema_:
        raise CorruptBlob(f"{where} does not have the columns that the manifest declares")
    if len(set(requested.names)) < len(requested):
        raise CorruptBlob(f"{where} has two columns with the same name")
    for field in requested:
        if not _is(COLUMN_TYPES.get(field.name, "text"), field.type):
            expected = COLUMN_TYPES.get(field.name, "text")
            raise CorruptBlob(f"{where} has {field.type} in the column {field.name!r}; expected {expected}")
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    longest = max((group.num_rows for group in groups), default=0)
    if longest > ROWS_PER_GROUP or sum(group.num_rows for group in groups) != metadata.num_rows:
        raise CorruptBlob(f"{where} has a row group of {longest:,} rows; expected {ROWS_PER_GROUP:,} at most")
    names, stored = set(requested.names), 0
    for group in groups:
        chunks = (group.column(number) for number in range(group.num_columns))
        stored += sum(
            chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.partition(".")[0] in names
        )
    _check_size(max(stored, 4 * metadata.num_rows * len(requested)), artifact, where)


def _is(expected: str, kind: pa.DataType) -> bool:
    import pyarrow as pa

    check = {
        "integer": pa.types.is_integer,
        "float": pa.types.is_floating,
        "bool": pa.types.is_boolean,
        "list": pa.types.is_list,
        "locations": locations_type().equals,
        "text": pa.types.is_string,
    }
    return bool(check[expected](kind))


def _decoded_bytes(table: pa.Table) -> int:
    """Return the size in bytes of a table after its dictionaries are decoded."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total: int = table.nbytes
    for column in table.itercolumns():
        if pa.types.is_dictionary(column.type):
            for chunk in column.chunks:
                lengths = pc.take(pc.binary_length(chunk.dictionary).cast(pa.int64()), chunk.indices)
                total += pc.sum(lengths).as_py() or 0
    return total


def _check_size(size: int, artifact: Artifact, where: str) -> None:
    most = _DECODED_BYTES + _DECODED_RATIO * artifact.bytes
    if not 0 <= size <= most:
        raise CorruptBlob(
            f"{where} would take {byte_size(size)} of memory; the maximum for a file of {byte_size(artifact.bytes)} is "
            f"{byte_size(most)}: open a snapshot that a build published"
        )
