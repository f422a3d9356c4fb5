"""The community tree with GraphRAG's numbering: levels and communities are counted from the roots down.

In a snapshot level 1 is the lowest and a community is a row of the tree; GraphRAG's level 0 contains the roots, and the
numbers of its communities increase with the level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from indexmill.errors import CorruptBlob
from indexmill.export.entity_graph import how_to_extract, pieces, whole
from indexmill.retrieve.matrices import Rows, Sparse, both_ways
from indexmill.retrieve.method_registry import check_family

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts
    from indexmill.store.manifest import Manifest


def check_communities(manifest: Manifest, where: object) -> None:
    """Raise FamilyNotFound for a snapshot without communities."""
    check_family(manifest, where, "community_tree", f", so it has no communities; {how_to_extract()}")


class Hierarchy:
    """The communities of a snapshot by number. Raises FamilyNotFound if there are none, CorruptBlob if damaged.

    ids: strings. levels: ``(n_communities,) int64``, ascending, 0 for a root. parents: ``(n_communities,) int64``,
    the parent's number, -1 for a root. children: the matrix communities x communities. sizes: ``(n_communities,)
    int64``, the number of entities in the community and all communities below it.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        check_communities(artifacts.manifest, artifacts.path)
        self._artifacts = artifacts
        entities = sum(shard.rows or 0 for shard in artifacts.shards("described"))
        above = np.asarray(artifacts.arrays("community_tree/tree")["parents"]).astype(np.int64)
        ids = whole(artifacts, "communities", "community_id")["community_id"]
        count = len(ids)
        inside = np.flatnonzero(above >= 0)  # a parent comes after its members, which rules out cycles
        behind = above[inside] > np.maximum(inside, entities - 1)
        if len(above) != entities + count or not behind.all() or (above >= len(above)).any():
            raise CorruptBlob(
                f"{artifacts.path}: 'community_tree/tree' is not a tree of {entities} entities and {count} "
                "communities; check it with `indexmill verify`, or build again"
            )
        above = np.where(above < 0, -1, above - entities)
        rows = _levels(above[entities:])
        self._row = np.lexsort((np.arange(count), rows))
        self._number = np.empty(count + 1, np.int64)
        self._number[self._row] = np.arange(count)
        self._number[-1] = -1  # the parent of a root
        self.levels: Rows = rows[self._row]
        self.parents: Rows = self._number[above[entities:][self._row]]
        self._leaf = self._number[above[:entities]]
        self.ids: pa.Array = ids.take(pa.array(self._row))
        nested = np.flatnonzero(self.parents >= 0)
        self.children: Sparse = both_ways(self.parents[nested], nested, None, count, count)[0]
        self.sizes: Rows = np.zeros(count, np.int64)
        for level in range(self.depth):
            of = self.of_entities(level)
            self.sizes += np.bincount(of[of >= 0], minlength=count)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def depth(self) -> int:
        """The number of levels."""
        return int(self.levels[-1]) + 1 if len(self.levels) else 0

    def span(self, level: int) -> tuple[int, int]:
        """Return the range of community numbers on a level: the first, and the last plus one."""
        first, last = self.levels.searchsorted([level, level + 1])
        return int(first), int(last)

    def of_entities(self, level: int | None = None) -> Rows:
        """Return the number of each entity's community on a level (by default the one right above it); -1 for none."""
        number = self._leaf
        if level is None:
            return number
        parents, levels = np.append(self.parents, -1), np.append(self.levels, -1)
        for _ in range(self.depth):
            number = np.where(levels[number] > level, parents[number], number)
        return np.where(levels[number] == level, number, -1)

    def texts(self, *columns: str) -> Iterator[tuple[Rows, pa.Table]]:
        """Yield the communities in pieces, level by level from the roots: their numbers and the given columns."""
        shards, row = [], 0
        for artifact in self._artifacts.shards("communities"):
            shards.append((artifact.name, self._number[row : row + (artifact.rows or 0)]))
            row += artifact.rows or 0
        for level in range(self.depth):
            first, last = self.span(level)
            for name, numbers in shards:
                place = np.flatnonzero((numbers >= first) & (numbers < last))
                if len(place):
                    ((_, table),) = pieces(self._artifacts, name, columns)
                    yield numbers[place], table.take(pa.array(place))


def _levels(above: Rows) -> Rows:
    """Return the level of each community, which is the number of its ancestors. above: the rows of the parents."""
    levels = np.zeros(len(above), np.int64)
    number = above.copy()
    while (number >= 0).any():
        levels += number >= 0
        number = np.where(number >= 0, above[number], -1)
    return levels
