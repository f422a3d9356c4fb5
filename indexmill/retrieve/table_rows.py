"""A snapshot's table by row: its shards concatenated, each mapped from a cache or read once, on first access."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.forks import Lock

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.retrieve.artifacts import Artifacts

_FEW = 8
"""Fewer values than this are read one by one, which is faster than gathering them first."""


class TableRows:
    """Some columns of the tables ``name/<shard>``. Thread-safe; a shard's columns stay in memory once read."""

    def __init__(self, artifacts: Artifacts, name: str, columns: Sequence[str]) -> None:
        self._artifacts, self._name = artifacts, name
        self._columns = list(columns)
        self.tables = artifacts.shards(name)
        counts = [artifact.rows for artifact in self.tables if artifact.rows is not None]
        if len(counts) < len(self.tables):
            raise CorruptBlob(f"{artifacts.path}: the manifest does not say how many rows {name!r} has")
        self.starts = [0, *itertools.accumulate(counts)]
        """The first row of every shard, then the total number of rows."""
        self._bounds = np.array(self.starts, dtype=np.int64)
        self._shards: dict[int, dict[str, Any]] = {}
        self._lock = Lock()

    def __len__(self) -> int:
        return self.starts[-1]

    def locate(self, row: int) -> tuple[int, int]:
        """Return the number of a row's shard, and the row's position in it."""
        number = bisect.bisect_right(self.starts, row) - 1
        return number, row - self.starts[number]

    def shard(self, number: int) -> dict[str, Any]:
        """Return the columns of one shard as Arrow arrays by name. Raises CorruptBlob."""
        shard = self._shards.get(number)
        if shard is None:
            # Outside the lock: this may wait for a thread that opens artifacts and itself waits for the lock.
            mapped = self._map(number)
            with self._lock:
                shard = self._shards.get(number)
                if shard is None:
                    shard = self._shards[number] = mapped or self._read(number, self._columns)
        return shard

    def value(self, row: int, column: str) -> Any:
        """Return the value of one row in a column."""
        number, place = self.locate(row)
        return self.shard(number)[column][place].as_py()

    def take(self, rows: npt.NDArray[np.int64], column: str) -> list[Any]:
        """Return the values of rows in a column, in the same order."""
        return self.take_columns(rows, [column])[0]

    def take_columns(self, rows: npt.NDArray[np.int64], columns: Sequence[str]) -> list[list[Any]]:
        """Return the values of rows in each of some columns, in the same order."""
        numbers, places = self.places(rows)
        of_shards: dict[int, list[int]] = {}
        for i, number in enumerate(numbers.tolist()):
            of_shards.setdefault(number, []).append(i)
        results: list[list[Any]] = [[None] * len(rows) for _ in columns]
        for number, at in of_shards.items():
            shard, positions = self.shard(number), places[at]
            few = positions.tolist() if len(at) < _FEW else None
            for column, result in zip(columns, results, strict=True):
                values = shard[column]
                if few is None:
                    of_shard = values.take(positions).to_pylist()
                else:
                    of_shard = [values[place].as_py() for place in few]
                for i, value in zip(at, of_shard, strict=True):
                    result[i] = value
        return results

    def places(self, rows: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the shard numbers of some rows, and the rows' positions in their shards."""
        numbers = self._bounds.searchsorted(rows, side="right") - 1
        return numbers, rows - self._bounds[numbers]

    def column(self, number: int, name: str) -> pa.Array:
        """Read any column of one shard, without caching it. Raises CorruptBlob."""
        return self._read(number, [name])[name]

    def _map(self, number: int) -> dict[str, Any] | None:
        """Map the columns of one shard; None if no cache stores the tables, or if the cached tables are damaged."""
        batches = self._artifacts.unpacked(self._name, self._columns)
        try:
            return None if batches is None else dict(zip(self._columns, batches[number].columns, strict=True))
        except CorruptBlob:
            return None

    def _read(self, number: int, columns: list[str]) -> dict[str, Any]:
        from indexmill.store.table_reader import read_batch

        artifact = self.tables[number]
        batch = read_batch(self._artifacts.file(artifact.name), artifact, columns)
        return dict(zip(columns, batch.columns, strict=True))
