from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.errors import CorruptBlob, StoreError
from indexmill.store.artifact_listing import describe_table
from indexmill.store.layout import blob_path
from indexmill.store.packs import open_pack
from indexmill.store.table_reader import ROWS_PER_GROUP
from schemas.tables import DOCUMENTS, MENTIONS, QUARANTINE, SENTENCES
from storage.arrays import put_pack
from storage.folder import FolderStore
from storage.table_blobs import put_table, read_table, table_bytes

ROWS = [{"passage_id": f"{n:032x}", "ordinal": n % 7, "start": n, "end": n + 5} for n in range(1000)]
TABLE = pa.Table.from_pylist(ROWS, schema=SENTENCES)


def test_a_table_comes_back_with_its_schema(store: FolderStore) -> None:
    digest, size = put_table(store, TABLE, SENTENCES)
    assert store.blob_size(digest) == size
    assert read_table(store, digest, SENTENCES).equals(TABLE)
    assert read_table(store, digest, SENTENCES, columns=["start"]).column_names == ["start"]
    assert read_table(store, digest).schema == SENTENCES


@pytest.mark.parametrize("schema", [SENTENCES, MENTIONS, QUARANTINE])
def test_an_empty_table_keeps_its_schema(store: FolderStore, schema: pa.Schema) -> None:
    digest, _ = put_table(store, schema.empty_table(), schema)
    assert read_table(store, digest, schema).schema == schema
    assert describe_table(pq.read_schema(store.open_local(digest))) == describe_table(schema)


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 1000), max_size=6))
def test_equal_rows_give_equal_bytes_however_they_are_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), 1000]
    pieces = [TABLE.slice(start, end - start) for start, end in pairwise(edges)]
    assert table_bytes(pa.concat_tables(pieces)) == table_bytes(TABLE)


def test_bytes_tell_nothing_of_where_the_table_came_from() -> None:
    marked = TABLE.replace_schema_metadata({"pandas": "{}", "made": "today"})
    wide = TABLE.cast(
        pa.schema([pa.field(f.name, pa.large_string() if f.name == "passage_id" else pa.int64()) for f in SENTENCES])
    )
    shuffled = wide.select(["end", "start", "ordinal", "passage_id"])
    assert table_bytes(marked) == table_bytes(TABLE) == table_bytes(shuffled, SENTENCES)


def test_row_groups_have_a_fixed_size() -> None:
    rows = pa.table({"x": np.arange(ROWS_PER_GROUP * 2 + 1)})
    meta = pq.read_metadata(pa.BufferReader(table_bytes(rows)))
    assert [meta.row_group(n).num_rows for n in range(meta.num_row_groups)] == [ROWS_PER_GROUP, ROWS_PER_GROUP, 1]


def test_a_table_that_does_not_conform_is_refused(store: FolderStore) -> None:
    with pytest.raises(ValueError, match="lacks the columns"):
        put_table(store, TABLE.drop_columns(["end"]), SENTENCES)
    digest, _ = put_table(store, TABLE, SENTENCES)
    with pytest.raises(StoreError, match="lacks the columns"):
        read_table(store, digest, MENTIONS)
    with pytest.raises(StoreError, match=digest):
        read_table(store, digest, MENTIONS, columns=["surface"])


def test_what_is_no_table_is_refused(store: FolderStore) -> None:
    digest = store.put_blob(b"PAR1 but not really")
    with pytest.raises(StoreError, match=digest):
        read_table(store, digest, SENTENCES)


def test_a_flipped_byte_in_a_table_is_found_before_it_is_parsed(store: FolderStore) -> None:
    digest, size = put_table(store, TABLE, SENTENCES)
    path = store.root / blob_path(digest)
    data = bytearray(path.read_bytes())
    data[size // 2] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(CorruptBlob, match=digest):
        read_table(store, digest, SENTENCES)


def test_arrays_become_a_blob_and_leave_no_file(store: FolderStore) -> None:
    vectors = np.arange(12, dtype="<f4").reshape(3, 4)
    digest, size = put_pack(store, "run1", {"passages": vectors})
    assert put_pack(store, "run1", {"passages": vectors}) == (digest, size)
    assert store.blob_size(digest) == size
    assert np.array_equal(open_pack(store.open_local(digest))["passages"], vectors)
    assert list(store.scratch("run1").iterdir()) == []


def test_locations_are_stored_where_a_document_has_some_and_cost_other_tables_nothing(store: FolderStore) -> None:
    row = {"document_id": "a", "title": "", "text": "one", "metadata": "{}", "content_hash": "0" * 64}
    place = [{"start": 0, "page": 1, "box": [1.0, 2.0, 3.0, 4.5]}, {"start": 2, "page": 2, "box": None}]
    plain = pa.Table.from_pylist([row], DOCUMENTS)
    digest, _ = put_table(store, plain, DOCUMENTS)
    assert "locations" not in read_table(store, digest).column_names
    assert digest == put_table(store, plain.drop_columns("locations"))[0]  # as before there were locations
    assert read_table(store, digest, DOCUMENTS).equals(plain)
    for columns in (["text", "locations"], ["locations"]):
        found = read_table(store, digest, DOCUMENTS, columns=columns)
        assert found.schema == pa.schema([DOCUMENTS.field(name) for name in columns])
        assert found["locations"].to_pylist() == [None]
    both = pa.Table.from_pylist([row, row | {"locations": place}], DOCUMENTS)
    digest, _ = put_table(store, both, DOCUMENTS)
    assert read_table(store, digest, DOCUMENTS).equals(both)
    assert describe_table(pq.read_schema(store.open_local(digest))) == describe_table(DOCUMENTS)
