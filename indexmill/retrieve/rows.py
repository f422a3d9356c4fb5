"""A snapshot's table by row: its shards one after the other, each read once, when a row in it is first wanted."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.forks import Lock

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["Rows"]

_Cell = Callable[[int], Any]


class Rows:
    """Some columns of ``name/<shard>``. Thread-safe; a shard's columns stay in memory once they are read."""

    def __init__(self, artifacts: Artifacts, name: str, columns: Sequence[str]) -> None:
        self._artifacts = artifacts
        self._columns = list(columns)
        self.tables = artifacts.shards(name)
        counts = [artifact.rows for artifact in self.tables if artifact.rows is not None]
        if len(counts) < len(self.tables):
            raise CorruptBlob(f"{artifacts.path}: the manifest does not say how many rows {name!r} has")
        self.starts = [0, *itertools.accumulate(counts)]
        """The first row of every shard, and the number of all rows."""
        self._bounds = np.array(self.starts, dtype=np.int64)
        self._shards: dict[int, dict[str, Any]] = {}
        self._cells: dict[int, dict[str, _Cell]] = {}
        self._lock = Lock()

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
                    shard = self._shards[number] = self._read(number, self._columns)
        return shard

    def cells(self, number: int) -> dict[str, Callable[[int], Any]]:
        """By column of one shard, what gives the value at a place. Raises CorruptBlob."""
        cells = self._cells.get(number)
        if cells is None:
            cells = self._cells[number] = {name: _cell(array) for name, array in self.shard(number).items()}
        return cells

    def value(self, row: int, column: str) -> Any:
        """One value of one row."""
        number, place = self.locate(row)
        return self.cells(number)[column](place)

    def take(self, rows: npt.NDArray[np.int64], column: str) -> list[Any]:
        """The values of some rows, in their order."""
        numbers, places = self.places(rows)
        cell = {number: self.cells(number)[column] for number in set(numbers)}
        return [cell[number](place) for number, place in zip(numbers, places, strict=True)]

    def places(self, rows: npt.NDArray[np.int64]) -> tuple[list[int], list[int]]:
        """The numbers of the shards that some rows are in, and their places there."""
        numbers = self._bounds.searchsorted(rows, side="right") - 1
        return numbers.tolist(), (rows - self._bounds[numbers]).tolist()

    def column(self, number: int, name: str) -> pa.Array:
        """Any column of one shard, which does not stay in memory. Raises CorruptBlob."""
        return self._read(number, [name])[name]

    def _read(self, number: int, columns: list[str]) -> dict[str, Any]:
        from indexmill.store.tables import read_table

        artifact = self.tables[number]
        table = read_table(self._artifacts.file(artifact.name), artifact, columns)
        return {name: table.column(name).combine_chunks() for name in columns}


def _cell(array: pa.Array) -> _Cell:
    """What gives the value at a place of an array.

    Texts and integers are read from the array's own buffers: a third of the time of Arrow's scalars.
    """
    import pyarrow as pa

    kind = array.type
    if array.null_count == 0 and array.offset == 0 and len(array):
        if pa.types.is_integer(kind):
            return _view(array.buffers()[1], _INTEGERS[str(kind)], len(array)).__getitem__
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            _, offsets, characters = array.buffers()
            ends = _view(offsets, "i" if pa.types.is_string(kind) else "q", len(array) + 1)
            texts = memoryview(characters or b"")
            return lambda place: str(texts[ends[place] : ends[place + 1]], "utf-8")
    return lambda place: array[place].as_py()


_INTEGERS = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
}


def _view(buffer: pa.Buffer, kind: str, length: int) -> memoryview:
    """The first numbers of a buffer, of a kind of ``struct``."""
    return memoryview(buffer).cast("B").cast(kind)[:length]  # type: ignore[call-overload, no-any-return]
