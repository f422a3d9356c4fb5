"""The locations of passages in the files of their documents: pages, slides or cells, and boxes on them.

A document's locations are a list in its row of ``documents``: the offset in the text where a block begins, and the
block's page and box. Shards without such documents lack the column, and are not read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.hits import Box
from indexmill.retrieve.table_rows import TableRows
from indexmill.store.table_reader import LOCATIONS

if TYPE_CHECKING:
    import pyarrow as pa

    from indexmill.retrieve.artifacts import Artifacts

MOST_BOXES = 32
"""The maximum number of boxes per passage; beyond it, the boxes of each page are merged."""


class Place(NamedTuple):
    """The location of a passage. pages: the page where it begins, and its last page. boxes: its blocks' boxes."""

    pages: tuple[int, int]
    boxes: tuple[Box, ...]


class Locations:
    """The locations of a snapshot's documents; reads only the shards of the requested documents."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._path = artifacts.path
        self._rows = TableRows(artifacts, "documents", [LOCATIONS])
        self._has_locations = np.array([table.has_column(LOCATIONS) for table in self._rows.tables], dtype=np.bool_)

    def __bool__(self) -> bool:
        """Return False for a snapshot in which no document has locations."""
        return bool(self._has_locations.any())

    def places(self, documents: npt.NDArray[np.int64], spans: Sequence[tuple[int, int]]) -> list[Place | None]:
        """Locate spans of documents, given their rows; None if unknown. Raises CorruptBlob as ``place_of`` does."""
        places: list[Place | None] = [None] * len(spans)
        numbers, rows = self._rows.places(documents)
        for at in np.flatnonzero(self._has_locations[numbers]).tolist():
            column = self._rows.shard(int(numbers[at]))[LOCATIONS]
            places[at] = place_of(column, int(rows[at]), spans[at], self._path)
        return places


def place_of(column: pa.ListArray, row: int, span: tuple[int, int], where: object) -> Place | None:
    """Locate a span of the document in a row of ``locations``; None if no location precedes the span's end.

    Raises CorruptBlob, which names ``where``, for malformed locations.
    """
    locations = column[row].values
    if locations is None or not len(locations):
        return None
    starts = locations.field("start")
    if locations.null_count or starts.null_count:
        raise CorruptBlob(f"{where}: a document has locations that are null")
    begins = starts.to_numpy()
    if begins[0] < 0 or bool((begins[1:] <= begins[:-1]).any()):
        raise CorruptBlob(f"{where}: the locations of a document do not ascend")
    first = max(int(begins.searchsorted(span[0], side="right")) - 1, 0)
    end = int(begins.searchsorted(span[1], side="left"))
    if first >= end:
        return None
    blocks = locations.slice(first, end - first).to_pylist()
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
    """Remove duplicate boxes of a passage; if there are too many boxes, merge them into one box per page."""
    distinct = tuple(dict.fromkeys(boxes))
    if len(distinct) <= MOST_BOXES:
        return distinct
    whole: dict[int, Box] = {}
    for box in distinct:
        union = whole.get(box.page, box)
        whole[box.page] = Box(
            box.page,
            min(box.left, union.left),
            min(box.top, union.top),
            max(box.right, union.right),
            max(box.bottom, union.bottom),
        )
    return tuple(whole.values())[:MOST_BOXES]
