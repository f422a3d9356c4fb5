"""Where passages stand in the files of their documents: on which pages, slides or cells, and in which boxes there.

A document's locations are a list in its row of ``documents``: where in the text a block begins, and where that block
stands. Shards without such documents lack the column, and are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.hits import Box
from indexmill.retrieve.rows import Rows
from indexmill.store.tables import LOCATIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.retrieve.artifacts import Artifacts

MOST_BOXES = 32
"""The most boxes of a passage; where there would be more, those of a page are joined."""


class Place(NamedTuple):
    """pages: the page where a passage begins, and the last page that it is on. boxes: those of its blocks."""

    pages: tuple[int, int]
    boxes: tuple[Box, ...]


class Locations:
    """The locations of a snapshot's documents, read from the shards of the documents asked for."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._path = artifacts.path
        self._rows = Rows(artifacts, "documents", [LOCATIONS])
        self._there = np.array([one.has_column(LOCATIONS) for one in self._rows.tables], dtype=np.bool_)

    def __bool__(self) -> bool:
        """False for a snapshot in which no document has locations."""
        return bool(self._there.any())

    def places(self, documents: npt.NDArray[np.int64], spans: Sequence[tuple[int, int]]) -> list[Place | None]:
        """Where some spans of documents stand; None where that is not known. documents: their rows, as passages' are.

        Raises CorruptBlob for locations that no build writes.
        """
        found: list[Place | None] = [None] * len(spans)
        numbers, rows = self._rows.places(documents)
        for at in np.flatnonzero(self._there[numbers]).tolist():
            column = self._rows.shard(int(numbers[at]))[LOCATIONS]
            found[at] = place_of(column, int(rows[at]), spans[at], self._path)
        return found


def place_of(column: pa.ListArray, row: int, span: tuple[int, int], where: object) -> Place | None:
    """The place of a span of the document in a row of ``locations``; None where it has no location before its end.

    Raises CorruptBlob, which names ``where``, for locations that no build writes.
    """
    held = column[row].values
    if held is None or not len(held):
        return None
    starts = held.field("start")
    if held.null_count or starts.null_count:
        raise CorruptBlob(f"{where}: a document has locations that are null")
    begins = starts.to_numpy()
    if begins[0] < 0 or bool((begins[1:] <= begins[:-1]).any()):
        raise CorruptBlob(f"{where}: the locations of a document do not ascend")
    first = max(int(begins.searchsorted(span[0], side="right")) - 1, 0)
    end = int(begins.searchsorted(span[1], side="left"))
    if first >= end:
        return None
    blocks = held.slice(first, end - first).to_pylist()
    pages = [_page(block["page"], where) for block in blocks]
    boxes = [_box(page, block["box"], where) for page, block in zip(pages, blocks, strict=True) if block["box"]]
    return Place((pages[0], max(pages)), _joined(boxes))


def _page(page: Any, where: object) -> int:
    if not isinstance(page, int) or page < 1:
        raise CorruptBlob(f"{where}: a location is on the page {page}; expected 1 or more")
    return page


def _box(page: int, sides: Sequence[Any], where: object) -> Box:
    if len(sides) == 4 and all(isinstance(side, float) and math.isfinite(side) for side in sides):
        left, top, right, bottom = (round(side, 2) for side in sides)  # as the text's reader gave them
        if left <= right and top <= bottom:
            return Box(page, left, top, right, bottom)
    raise CorruptBlob(f"{where}: a location has the box {sides!r:.80}; expected left, top, right and bottom")


def _joined(boxes: Sequence[Box]) -> tuple[Box, ...]:
    """The boxes of a passage, each once; where they are too many, one of each page that holds all of them there."""
    distinct = tuple(dict.fromkeys(boxes))
    if len(distinct) <= MOST_BOXES:
        return distinct
    whole: dict[int, Box] = {}
    for box in distinct:
        other = whole.get(box.page, box)
        whole[box.page] = Box(
            box.page,
            min(box.left, other.left),
            min(box.top, other.top),
            max(box.right, other.right),
            max(box.bottom, other.bottom),
        )
    return tuple(whole.values())[:MOST_BOXES]
