"""Cells of tables: read from Arrow's buffers, they are what Arrow's own scalars say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import indexmill
from indexmill.retrieve import rows
from indexmill.retrieve.passages import passages_of
from tests.indexmill.small_snapshot import publish


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["a", "", "Bråk 𝐀 \n"]),
        pa.array(["a", "", "Bråk"], pa.large_string()),
        pa.array(["", ""]),
        pa.array(["a", None, "b"]),
        pa.array(["a", "b", "c"]).slice(1),
        pa.array([3, -1, 2], pa.int32()),
        pa.array([3, 2**40], pa.int64()),
        pa.array([3, None], pa.int32()),
        pa.array([255, 0], pa.uint8()),
        pa.array([0.5, 1.5]),
        pa.array([["a"], []]),
        pa.array([], pa.string()),
    ],
    ids=lambda array: f"{array.type}-{len(array)}",
)
def test_a_cell_is_what_the_array_holds(array: Any) -> None:
    cell = rows._cell(array)
    assert [cell(place) for place in range(len(array))] == array.to_pylist()
    assert [type(cell(place)) for place in range(len(array))] == [type(value) for value in array.to_pylist()]


def test_values_are_taken_from_all_shards_in_the_order_asked(tmp_path: Path) -> None:
    publish(tmp_path / "store")
    with indexmill.open(tmp_path / "store") as snapshot:
        table = rows.Rows(snapshot, "passages", ["text", "tokens"])
        assert len(table.tables) > 1
        wanted = np.array([4, 0, 3, 0, 2])
        for column in ("text", "tokens"):
            expected = snapshot.table("passages").column(column).take(wanted).to_pylist()
            assert table.take(wanted, column) == expected
            assert [table.value(row, column) for row in wanted.tolist()] == expected
        assert table.take(wanted[:0], "text") == []
        assert passages_of(snapshot).texts(wanted) == table.take(wanted, "text")
