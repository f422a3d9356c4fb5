"""The C-HNSW index over entities and communities, from their vectors (ArchRAG, sections 3.1.3 and A.2).

The index follows equations 1 and 2 rather than Algorithm 3: it first finds each node's nearest neighbours, then chooses
links among them, so it does not depend on the order of the nodes. Insertion as in HNSW was slower from 30,000 nodes on,
and its recall was no better.

Nearest neighbours are exact on levels of up to `exact` nodes. On larger levels they come from inverted lists, built by
k-means over a sample (tasks.core.neighbours). Links to the level below are exact for up to `products` pairs of nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.retrieve.grid import on_grid
from tasks.core.neighbours import Lists, ListSettings, nearest_of_all
from tasks.core.shards import id_hashes
from tasks.families.community_tree.level_links import ChnswLinkSettings, level_links

Rows = NDArray[np.int64]

_TILE = 16_384  # vectors rounded to the grid at once


@dataclass(frozen=True)
class ChnswSettings:
    """The settings of the index: its links, and the inverted lists of large levels.

    products: the maximum number of inner products for comparing each node with the whole level below. Above it, a node
    is compared only with the nodes in its nearest lists.
    """

    links: ChnswLinkSettings = field(default_factory=ChnswLinkSettings)
    lists: ListSettings = field(default_factory=ListSettings)
    products: int = 60_000_000_000


@dataclass(frozen=True)
class ChnswLevel:
    """The nodes of one level: distinct ids and unit vectors (n, d) float32 (or zeros), in any order."""

    ids: Sequence[str]
    vectors: NDArray[np.float32]


@dataclass(frozen=True)
class Built:
    """The index, and for each of its rows the position of the node in its input level."""

    index: Chnsw
    sources: Rows


def build_chnsw(levels: Sequence[ChnswLevel], setting: ChnswSettings | None = None) -> Built:
    """Build the index of levels, entities first; raises ValueError for repeated ids or missing vectors."""
    setting = setting or ChnswSettings()
    sources, vectors, orders = [], [], []
    for number, level in enumerate(levels):
        if len(set(level.ids)) != len(level.ids) or len(level.ids) != len(level.vectors):
            raise ValueError(f"level {number}: {len(level.ids)} ids; expected distinct ids, one per vector")
        source = np.array(sorted(range(len(level.ids)), key=level.ids.__getitem__), dtype=np.int64)
        hashes = id_hashes(level.ids[row] for row in source)
        sources.append(source)
        vectors.append(_gathered(level.vectors, source))
        orders.append(np.lexsort(hashes[:, :8].T[::-1]))
    offsets = np.concatenate([[0], np.cumsum([len(source) for source in sources])]).astype(np.int64)
    indptr, indices = [np.zeros(1, dtype=np.int64)], []
    down = np.full(offsets[-1], -1, dtype=np.int32)
    entries = np.full(len(levels), -1, dtype=np.int32)
    for number, (level_vectors, order, first) in enumerate(zip(vectors, orders, offsets[:-1].tolist(), strict=True)):
        if not len(level_vectors):
            continue
        lists = Lists(level_vectors, order, setting.lists)
        level_indptr, partners = level_links(lists, setting.links)
        indptr.append(level_indptr[1:] + indptr[-1][-1])
        indices.append((partners + first).astype(np.int32))
        entries[number] = first + _entry(level_vectors)
        if number + 1 < len(vectors):
            above = slice(offsets[number + 1], offsets[number + 2])
            down[above] = first + _below(vectors[number + 1], lists, setting.products)
    index = Chnsw(
        vectors=np.concatenate([held.astype(np.int16) for held in vectors]) if vectors else np.empty((0, 1), np.int16),
        level_offsets=offsets,
        indptr=np.concatenate(indptr),
        indices=np.concatenate([np.empty(0, dtype=np.int32), *indices]),
        down=down,
        entries=entries,
    )
    return Built(index, np.concatenate([np.empty(0, dtype=np.int64), *sources]))


def _below(above: NDArray[np.float32], lists: Lists, products: int) -> NDArray[np.int32]:
    """Return the row in `lists` of the node nearest to each node of the level above (eq. 2)."""
    near = lists.nearest(above, 1).rows[:, 0]
    if len(lists.members) > 1 and len(above) * len(lists.vectors) <= products:
        return nearest_of_all(above, lists.vectors, near)
    return near


def _gathered(vectors: NDArray[np.float32], rows: Rows) -> NDArray[np.float32]:
    """Return the given rows rounded to the grid, read in tiles because the vectors may be memory-mapped."""
    gathered = np.empty((len(rows), vectors.shape[1]), dtype=np.float32)
    for first in range(0, len(rows), _TILE):
        gathered[first : first + _TILE] = on_grid(vectors[rows[first : first + _TILE]])
    return gathered


def _entry(vectors: NDArray[np.float32]) -> int:
    """Return the row nearest to the mean, so that no part of the level is far from the entry point."""
    mean = np.rint(vectors.sum(axis=0, dtype=np.float64) / len(vectors)).astype(np.float32)
    return int(np.argmax(vectors @ mean))
