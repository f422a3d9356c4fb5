"""Tables that come in pieces: row groups that are neither tiny nor too large, and nothing of another schema."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexmill.errors import StoreError
from indexmill.store.table_reader import ROWS_PER_GROUP
from storage import exports, faults
from storage.exports import write_file, write_table
from storage.folder import FolderStore
from storage.table_blobs import table_bytes

SCHEMA = pa.schema({"number": pa.int64(), "text": pa.string()})


def rows(first: int, count: int, text: str = "x") -> pa.Table:
    return pa.table({"number": pa.array(range(first, first + count)), "text": [text] * count}, schema=SCHEMA)


def groups(path: Path) -> list[int]:
    metadata = pq.ParquetFile(path).metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


def test_small_pieces_share_a_row_group(tmp_path: Path) -> None:
    write_table(tmp_path / "table", SCHEMA, (rows(number * 10, 10) for number in range(8)))
    assert groups(tmp_path / "table") == [80]
    assert pq.read_table(tmp_path / "table").equals(rows(0, 80))
    assert (tmp_path / "table").read_bytes() == table_bytes(rows(0, 80))


def test_a_row_group_is_bounded_in_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path / "rows", SCHEMA, [rows(0, ROWS_PER_GROUP - 1), rows(0, 2), rows(0, 5)])
    assert groups(tmp_path / "rows") == [ROWS_PER_GROUP, 1, 5]
    monkeypatch.setattr(exports, "_GROUP_BYTES", 1_000)
    write_table(tmp_path / "bytes", SCHEMA, (rows(0, 1, "x" * 400) for _ in range(5)))
    assert groups(tmp_path / "bytes") == [3, 2]


def test_no_piece_is_an_empty_table(tmp_path: Path) -> None:
    write_table(tmp_path / "table", SCHEMA, [])
    assert pq.read_table(tmp_path / "table").equals(SCHEMA.empty_table())


def test_a_piece_of_another_schema_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schema does not match"):
        write_table(tmp_path / "table", SCHEMA, [rows(0, 1).select(["text"])])


def test_two_that_export_at_the_same_moment_are_both_on_record(store: FolderStore) -> None:
    def recorded(path: str) -> exports.Export:
        fields = {"version": 1, "manifest": "1" * 64, "form": "snapshot", "run_id": "run"}
        return exports.record(store, lambda: 0.0, path=path, **fields)

    def hook(name: str) -> None:
        if name.startswith("create exports/"):
            faults.install(None)
            assert recorded("/theirs").number == 1

    faults.install(hook)
    assert recorded("/ours").number == 2
    assert [one.path for one in exports.exports(store)] == ["/theirs", "/ours"]


def test_a_file_that_is_there_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_bytes(b"a long text of theirs")
    with pytest.raises((FileExistsError, StoreError)):
        write_file(path, [b"ours"])
    assert path.read_bytes() == b"a long text of theirs"
