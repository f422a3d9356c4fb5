"""Links in blocks, so that a refresh writes those near a change (`indexmill.families.zoom_graph.similar`).

A block has the pairs whose lower row lies in its cell. One row of ROWS_PER_BLOCK, by its name alone, is a centre, and a
row lies in the cell of its nearest centre, ties by name. Names are hashes, so centres are spread like the rows. What
changes with a row are the links of rows that resemble it, and these lie in a few cells.

Other divisions were measured on techdocs (docs/measurements/zoom_graph.md). By name, every block has links of every
region, and a few changed rows rewrite all. Tries over hyperplanes keep hardly more neighbours together, since each
plane cuts through a neighbourhood. The cell nearest to both rows of a pair is no better than that of one of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.similar import NamedRows, pairs_of
from indexmill.store.pack_schema import smallest
from tasks.families.zoom_graph.choose import LinkedRows, Links

__all__ = ["ROWS_PER_BLOCK", "block_digest", "blocks_of", "cells_of", "joined_pairs"]

Rows = NDArray[np.int64]
Block = Mapping[str, NDArray[Any]]

ROWS_PER_BLOCK = 64
"""The rows of a block, on average."""

_LETTER = "z"  # of the labels; `tasks.core.groups` has those of others
_TILE = 4096  # rows whose centres are looked for at once


def blocks_of(links: Links, cells: Rows | None = None) -> dict[str, dict[str, NDArray[Any]]]:
    """The blocks of some links, by label: a letter and the name of the centre. cells: of all rows, where known."""
    rows = links.rows
    places = _centres(rows)
    cells = (cells_of(rows) if cells is None else cells)[links.low]
    order = cells.argsort(kind="stable")
    bounds = cells[order].searchsorted(np.arange(max(len(places), 1) + 1))
    found = {}
    for cell, (first, last) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)):
        if first < last:
            label = f"{_LETTER}{int(rows.names[places[cell]]):016x}" if len(places) else _LETTER
            found[label] = _block(links, order[first:last])
    return found


def joined_pairs(blocks: Iterable[Block], rows: LinkedRows) -> tuple[Rows, Rows, Rows]:
    """The pairs of some blocks, in the order that `Links` has; raises UnknownName."""
    named = NamedRows(rows.names)
    found = [pairs_of(block, named) for block in blocks]
    empty = np.empty(0, dtype=np.int64)
    low, high, steps = (np.concatenate([empty, *(pairs[i] for pairs in found)]) for i in range(3))
    order = np.argsort((low << 32) | high, kind="stable")
    return low[order], high[order], steps[order].astype(np.int64)


def block_digest(block: Block) -> NDArray[np.uint8]:
    """The first 16 bytes of a SHA-256 of a block's arrays."""
    digest = hashlib.sha256()
    for name in sorted(block):
        digest.update(f"{name} {block[name].dtype.str} {len(block[name])};".encode("ascii"))
        digest.update(np.ascontiguousarray(block[name]).view(np.uint8).data)
    return np.frombuffer(digest.digest()[:16], dtype=np.uint8)


def cells_of(rows: LinkedRows, some: slice = slice(None)) -> Rows:
    """The number of the nearest centre of each of some rows; 0 if there is none."""
    vectors, places = rows.vectors[some], _centres(rows)
    cells = np.zeros(len(vectors), dtype=np.int64)
    if len(places) > 1:
        centres = rows.vectors[places].astype(np.float32).T
        for first in range(0, len(vectors), _TILE):
            cells[first : first + _TILE] = (vectors[first : first + _TILE].astype(np.float32) @ centres).argmax(1)
    return cells


def _centres(rows: LinkedRows) -> Rows:
    """The rows that are centres."""
    return (rows.names < np.uint64((1 << 64) // ROWS_PER_BLOCK)).nonzero()[0]


def _block(links: Links, some: Rows) -> dict[str, NDArray[Any]]:
    low, high = links.low[some], links.high[some]
    ends = np.union1d(low, high)
    return {
        "names": links.rows.names[ends],
        "indptr": smallest(np.append(low.searchsorted(ends), len(low))),
        "partners": smallest(ends.searchsorted(high)),
        "steps": links.steps[some].astype(np.int16),
    }
