"""Rows of a table whose shards stand one after the other."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import indexmill
from indexmill.retrieve import table_rows
from indexmill.retrieve.passage_rows import passages_of
from tests.indexmill.small_snapshot import publish


def test_values_are_taken_from_all_shards_in_the_order_asked(tmp_path: Path) -> None:
    publish(tmp_path / "store")
    with indexmill.open(tmp_path / "store") as snapshot:
        table = table_rows.TableRows(snapshot, "passages", ["text", "tokens"])
        assert len(table.tables) > 1
        wanted = np.array([4, 0, 3, 0, 2])
        for column in ("text", "tokens"):
            expected = snapshot.table("passages").column(column).take(wanted).to_pylist()
            assert table.take(wanted, column) == expected
            assert [table.value(row, column) for row in wanted.tolist()] == expected
        assert table.take(wanted[:0], "text") == []
        assert passages_of(snapshot).texts(wanted) == table.take(wanted, "text")
