"""Ranges of entities: how many there are, which rows a part reads, and that shards are those of one trie."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from indexmill.text.canonical_names import entity_id
from storage.table_blobs import table_bytes
from tasks.stages.resolve.entity_ranges import SHARDS_PER_RANGE, cut, entity_ranges, range_rows, ranged_bytes

IDS = sorted(entity_id(f"name {number}") for number in range(300))
TABLE = pa.table({"entity_id": IDS, "number": np.arange(300)})


@pytest.mark.parametrize(
    ("shards", "count"),
    [
        (0, 1),
        (SHARDS_PER_RANGE, 1),
        (SHARDS_PER_RANGE + 1, 2),
        (2 * SHARDS_PER_RANGE + 1, 4),
        (8 * SHARDS_PER_RANGE + 1, 16),
        (100 * SHARDS_PER_RANGE, 16),
    ],
)
def test_ranges_double_with_the_shards_up_to_one_for_each_first_digit(shards: int, count: int) -> None:
    labels = entity_ranges(shards)
    assert (len(labels), labels == sorted(set(labels))) == (count, True)
    assert {1 << len(label[1:]) for label in labels} == {count}


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_the_rows_of_all_ranges_are_the_table(tmp_path: Path, count: int) -> None:
    path = tmp_path / "sums"
    path.write_bytes(ranged_bytes(TABLE, TABLE.column("entity_id")))
    bits = count.bit_length() - 1
    for label in entity_ranges(count * SHARDS_PER_RANGE):
        rows = range_rows([path, path], label, TABLE.schema)
        own = [one for one in IDS if f"{int(one, 16):0128b}"[:bits] == label[1:]]
        assert rows["entity_id"].to_pylist() == own * 2


def test_a_digit_without_rows_is_there_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "sums"
    for some in (TABLE[:0], TABLE[:1], TABLE[-1:]):
        path.write_bytes(ranged_bytes(some, some.column("entity_id")))
        assert pq.read_metadata(path).num_row_groups == 16
        found = [range_rows([path], label, TABLE.schema) for label in entity_ranges(16 * SHARDS_PER_RANGE)]
        assert pa.concat_tables(found) == some
    assert range_rows([], "e", TABLE.schema) == TABLE[:0]


def test_the_shards_of_ranges_are_those_of_one_trie() -> None:
    ids = TABLE.column("entity_id")
    twice = pa.concat_tables([TABLE, TABLE]).sort_by("entity_id")
    whole = cut({"one": TABLE, "two": twice}, ids, "e", 8)
    assert max(map(len, (table for name, table in whole.items() if name.startswith("one/")))) <= 8
    parts: dict[str, pa.Table] = {}
    for label in entity_ranges(4 * SHARDS_PER_RANGE):
        low, high = (int(np.searchsorted(IDS, f"{int(label[1:], 2) + more << 2:x}")) for more in (0, 1))
        high = len(IDS) if label == "e11" else high
        own = [one[low:high] for one in (TABLE,)]
        parts |= cut({"one": own[0], "two": twice[2 * low : 2 * high]}, ids[low:high], label, 8)
    assert {name: table_bytes(table) for name, table in parts.items()} == {
        name: table_bytes(table) for name, table in whole.items()
    }
    assert cut({"one": TABLE[:0]}, ids[:0], "e", 8) == {}
