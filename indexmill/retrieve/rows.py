"""A snapshot's table by row: its shards one after the other, each read once, when a row in it is first wanted."""

from __future__ import annotations

import bisect
import itertools
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from indexmill.errors import CorruptBlob

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["Rows"]


class Rows:
    """Some columns of ``name/<shard>``. Thread-safe; a shard's columns stay in memory once they are read."""

    def __init__(self, snapshot: Snapshot, name: str, columns: Sequence[str]) -> None:
        self._snapshot = snapshot
        self._columns = list(columns)
        self.tables = snapshot.shards(name)
        counts = [artifact.rows for artifact in self.tables if artifact.rows is not None]
        if len(counts) < len(self.tables):
            raise CorruptBlob(f"{snapshot.path}: the manifest does not say how many rows {name!r} has")
        self.starts = [0, *itertools.accumulate(counts)]
        """The first row of every shard, and the number of all rows."""
        self._shards: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self.starts[-1]

    def locate(self, row: int) -> tuple[int, int]:
        """The number of the shard that holds a row, and the row's place in it."""
        number = bisect.bisect_right(self.starts, row) - 1
        return number, row - self.starts[number]

    def shard(self, number: int) -> dict[str, Any]:
        """The columns of one shard as Arrow arrays by name. Raises CorruptBlob."""
        shard = self._shards.get(number)
        if shard is None:
            with self._lock:
                shard = self._shards.get(number)
                if shard is None:
                    shard = self._shards[number] = self._read(number)
        return shard

    def value(self, row: int, column: str) -> Any:
        """One value of one row."""
        number, place = self.locate(row)
        return self.shard(number)[column][place].as_py()

    def _read(self, number: int) -> dict[str, Any]:
        from indexmill.snapshot import read_table

        artifact = self.tables[number]
        table = read_table(self._snapshot.file(artifact.name), artifact.name, self._columns)
        if len(table) != artifact.rows:
            raise CorruptBlob(
                f"{self._snapshot.path}: the table {artifact.name!r} has {len(table)} rows; "
                f"the manifest says {artifact.rows}"
            )
        return {name: table.column(name).combine_chunks() for name in self._columns}
