from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tasks.registry  # noqa: F401 - declares the tables of families
from indexmill.errors import CorruptBlob
from indexmill.store.artifact_listing import Artifact, describe_table
from indexmill.store.table_reader import COLUMN_TYPES, NULLABLE, ROWS_PER_GROUP, read_table, row_groups
from schemas.tables import TABLES
from storage.table_blobs import table_bytes

KINDS = {"integer": pa.types.is_integer, "float": pa.types.is_floating, "bool": pa.types.is_boolean}


def written(path: Path, table: pa.Table, rows_per_group: int = ROWS_PER_GROUP) -> Artifact:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows_per_group, compression="zstd")
    path.write_bytes(sink.getvalue())
    return Artifact(
        name="documents/p",
        kind="table",
        digest="0" * 64,
        bytes=len(sink.getvalue()),
        rows=len(table),
        schema=describe_table(table.schema),
    )


def text_table(**columns: list[str]) -> pa.Table:
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in columns])
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()}, schema=schema)


def test_the_reader_knows_the_columns_that_are_written() -> None:
    for table in TABLES.values():
        for field in table.schema:
            kind = COLUMN_TYPES.get(field.name, "text")
            assert KINDS.get(kind, pa.types.is_string if kind == "text" else pa.types.is_list)(field.type), field
            assert field.name in NULLABLE or not field.nullable


def test_a_row_group_has_as_many_rows_as_the_reader_takes() -> None:
    table = text_table(text=["a"] * (ROWS_PER_GROUP + 1))
    written = pq.ParquetFile(pa.BufferReader(table_bytes(table))).metadata
    assert [written.row_group(i).num_rows for i in range(written.num_row_groups)] == [ROWS_PER_GROUP, 1]


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = text_table(document_id=["a", "b", "c"], text=["one", "", "three \N{BRIDGE AT NIGHT}"])
    artifact = written(tmp_path / "t", table, rows_per_group=2)
    assert read_table(tmp_path / "t", artifact).equals(table)
    assert read_table(tmp_path / "t", artifact, ["text", "document_id"]).column_names == table.column_names
    assert [len(group) for group in row_groups(tmp_path / "t", artifact, ["text"])] == [2, 1]


@pytest.mark.slow
def test_few_bytes_do_not_become_many_rows(tmp_path: Path) -> None:
    count = 6_000_000
    column = pa.DictionaryArray.from_arrays(pa.array(bytes(count), pa.int8()), ["0" * 32]).cast(pa.string())
    table = pa.table({"document_id": column, "text": column})
    artifact = written(tmp_path / "t", table)
    del table, column
    assert artifact.bytes < 1 << 20
    with pytest.raises(CorruptBlob, match="would take"):
        read_table(tmp_path / "t", artifact)


@pytest.mark.slow
def test_a_long_text_does_not_become_many(tmp_path: Path) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(bytes(60_000), pa.int8()), ["x" * 30_000]).cast(pa.large_string())
    table = pa.table({"text": pa.chunked_array([chunk.cast(pa.string()) for chunk in _pieces(column, 10_000)])})
    artifact = written(tmp_path / "t", table)
    assert artifact.bytes < 1 << 16
    with pytest.raises(CorruptBlob, match=r"would take 1\.\d+ GB"):
        read_table(tmp_path / "t", artifact)


def _pieces(column: pa.Array, length: int) -> list[pa.Array]:
    return [column.slice(first, length) for first in range(0, len(column), length)]


@pytest.mark.parametrize(
    ("table", "told", "why"),
    [
        (text_table(text=["a"]), {"rows": 2}, "has 1 rows; the manifest says 2"),
        (text_table(text=["a"]), {"schema_": []}, "does not have the columns that the manifest declares"),
        (text_table(start=["a"]), {}, "has string in the column 'start'; expected integer"),
        (pa.table({"text": [1]}), {}, "has int64 in the column 'text'; expected text"),
        (pa.table({"text": pa.array(["a"], pa.large_string())}), {}, "has large_string in the column 'text'"),
        (pa.table({"text": ["a", None]}), {}, "has nulls in the column 'text'"),
        (pa.table({"text": pa.array([b"\xff"]).view(pa.string())}), {}, "cannot be read as Parquet: .*UTF8"),
        (
            pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], ["text", "text"]),
            {},
            "two columns with the same name",
        ),
        (text_table(text=["a"] * (ROWS_PER_GROUP + 1)), {}, "row group of 65,537 rows"),
    ],
)
def test_a_table_that_is_not_as_declared_is_corrupt(
    tmp_path: Path, table: pa.Table, told: dict[str, object], why: str
) -> None:
    artifact = written(tmp_path / "t", table, rows_per_group=1 << 20).model_copy(update=told)
    with pytest.raises(CorruptBlob, match=why):
        read_table(tmp_path / "t", artifact)
