"""The same array of several packs as one sequence of rows; a pack is opened when one of its rows is first needed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt


class Consecutive(Sequence[npt.NDArray[Any]]):
    """Arrays whose rows are numbered consecutively. Thread-safe; an opened array stays open.

    lengths: the number of rows of each array. open_one: opens an array, given its number; may be called twice for a
    number.
    """

    def __init__(self, lengths: Sequence[int], open_one: Callable[[int], npt.NDArray[Any]]) -> None:
        self.starts = np.cumsum([0, *lengths], dtype=np.int64)
        """The first row of every array, then the total number of rows."""
        self._open = open_one
        self._opened: list[npt.NDArray[Any] | None] = [None] * len(lengths)

    def __len__(self) -> int:
        return len(self._opened)

    @overload
    def __getitem__(self, number: int) -> npt.NDArray[Any]: ...
    @overload
    def __getitem__(self, number: slice) -> list[npt.NDArray[Any]]: ...
    def __getitem__(self, number: int | slice) -> npt.NDArray[Any] | list[npt.NDArray[Any]]:
        if isinstance(number, slice):
            return [self[position] for position in range(*number.indices(len(self)))]
        array = self._opened[number]
        if array is None:
            array = self._opened[number] = self._open(range(len(self))[number])
        return array


def starts_of(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    """Return the number of the first row of every array, then the total number of rows."""
    if isinstance(arrays, Consecutive):
        return arrays.starts
    return np.cumsum([0, *map(len, arrays)], dtype=np.int64)
