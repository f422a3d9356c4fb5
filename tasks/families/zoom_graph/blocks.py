"""Links in blocks, so that a refresh writes only blocks near a change (`indexmill.families.zoom_graph.similar`).

A block has the pairs whose lower row is in its cell. About one in ROWS_PER_BLOCK rows, chosen by name alone, is a
centre, and a row is in the cell of its nearest centre, ties by name. Names are hashes, so centres are spread like the
rows. A changed row changes the links of similar rows, and these are in a few cells.

Other ways to divide the links of the corpus techdocs did worse. In blocks by name, every block has links of every
region, and a few changed rows rewrite all blocks. Tries over hyperplanes hardly keep more neighbours together, since
each plane cuts through a neighbourhood. Assigning a pair to the cell nearest to both rows is no better than using the
cell of one row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.similar import NamedRows, pairs_of
from indexmill.store.pack_checks import row_lengths
from indexmill.store.pack_schema import smallest
from tasks.families.zoom_graph.choose import Coding, LinkedRows, Links

Rows = NDArray[np.int64]
Names = NDArray[np.uint64]
Block = Mapping[str, NDArray[Any]]

ROWS_PER_BLOCK = 64
"""The average number of rows in a block."""

_LETTER = "z"  # begins the labels; `tasks.core.groups` lists the letters of other labels
_TILE = 4096  # maximum rows compared with centres at once
_PRODUCTS = 1 << 24  # maximum products with centres at once
_PIECE = 1 << 20  # pairs that are decoded at once


def blocks_of(links: Links, cells: Rows | None = None) -> Iterator[tuple[int | None, dict[str, NDArray[Any]]]]:
    """Yield each block with its centre's name (None without centres), in order. cells: all rows' cells, if known."""
    rows, coding = links.rows, Coding(len(links.rows))
    centres = rows.names[_centres(rows)].tolist() or [None]
    cells = cells_of(rows) if cells is None else cells
    order = cells.argsort(kind="stable")  # rows are renumbered by cell, so that sorting the pairs groups them
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    pairs = np.empty_like(links.pairs)
    for first in range(0, len(pairs), _PIECE):
        low, high, steps = coding.ends(links.pairs[first : first + _PIECE])
        pairs[first : first + _PIECE] = coding.joined(place[low], high, steps)
    pairs.sort()
    bounds = pairs.searchsorted(coding.first_pairs(cells[order].searchsorted(np.arange(len(centres) + 1))))
    for centre, first, last in zip(centres, bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        if first < last:
            low, high, steps = coding.ends(pairs[first:last])
            yield centre, _block(rows.names, order[low], high, steps)


def label_of(centre: int | None) -> str:
    """Return the label of a block: a letter, and the name of its centre."""
    return _LETTER if centre is None else f"{_LETTER}{centre:016x}"


def joined_pairs(blocks: Iterable[Block], rows: LinkedRows) -> NDArray[np.int64]:
    """Join the pairs of some blocks, in the form of `Links.pairs`; raises UnknownName for a row that does not exist."""
    named, coding = NamedRows(rows.names), Coding(len(rows))
    parts = [np.empty(0, dtype=np.int64)]
    for block in blocks:
        low, high, steps = pairs_of(block, named)
        parts.append(coding.joined(low, high, steps.astype(np.int64)))
    pairs = np.concatenate(parts)
    pairs.sort()
    return pairs


def lower_names(block: Block) -> Names:
    """Return the names of the lower rows of a block's pairs, which are the rows in its cell."""
    return block["names"][row_lengths(block["indptr"]) > 0]


def block_digest(block: Block) -> bytes:
    """Return the first 16 bytes of a SHA-256 of a block's arrays."""
    digest = hashlib.sha256()
    for name in sorted(block):
        digest.update(f"{name} {block[name].dtype.str} {len(block[name])};".encode("ascii"))
        digest.update(np.ascontiguousarray(block[name]).view(np.uint8).data)
    return digest.digest()[:16]


def cells_of(rows: LinkedRows, some: slice | Rows = slice(None)) -> Rows:
    """Return the number of each row's nearest centre; 0 if there are no centres."""
    numbers, places = np.arange(len(rows))[some], _centres(rows)
    cells = np.zeros(len(numbers), dtype=np.int64)
    if len(places) > 1:
        centres = rows.vectors[places].astype(np.float32).T
        width = max(min(_TILE, _PRODUCTS // len(places)), 1)
        for first in range(0, len(numbers), width):
            tile = rows.vectors[numbers[first : first + width]].astype(np.float32)
            cells[first : first + width] = (tile @ centres).argmax(1)
    return cells


def refreshed_cells(rows: LinkedRows, origins: Rows, earlier: Mapping[int, Rows]) -> Rows:
    """Return the cells of all rows, most of them from an earlier set.

    origins: see `Links`. earlier: the rows of the earlier set in each cell, by the name of its centre. Rows in no
    earlier cell are compared with all centres, like new rows.
    """
    places = _centres(rows)
    is_kept = origins[places] >= 0
    was = np.full(origins.max(initial=-1) + 2, -1)  # the cell of each earlier row; the last is for new rows
    for number, centre in zip(is_kept.nonzero()[0].tolist(), rows.names[places[is_kept]].tolist(), strict=True):
        lay = earlier.get(centre, origins[:0])
        was[lay[lay < len(was) - 1]] = number
    cells: Rows = was[origins]
    placed, new_centres = (cells >= 0).nonzero()[0], (~is_kept).nonzero()[0]
    if len(new_centres):
        centres = rows.vectors[places].astype(np.float32)
        for first in range(0, len(placed), _TILE):
            some = placed[first : first + _TILE]
            tile = rows.vectors[some].astype(np.float32)
            current, products = np.einsum("ij,ij->i", tile, centres[cells[some]]), tile @ centres[new_centres].T
            best = products.argmax(1)
            value, cell = products[np.arange(len(some)), best], new_centres[best]
            cells[some] = np.where((value > current) | ((value == current) & (cell < cells[some])), cell, cells[some])
    (rest,) = (cells < 0).nonzero()
    cells[rest] = cells_of(rows, rest)
    return cells


def _centres(rows: LinkedRows) -> Rows:
    return (rows.names < np.uint64((1 << 64) // ROWS_PER_BLOCK)).nonzero()[0]


def _block(names: Names, low: Rows, high: Rows, steps: Rows) -> dict[str, NDArray[Any]]:
    ends = np.union1d(low, high)
    return {
        "names": names[ends],
        "indptr": smallest(np.append(low.searchsorted(ends), len(low))),
        "partners": smallest(ends.searchsorted(high)),
        "steps": steps.astype(np.int16),
    }
