"""The links of one level of C-HNSW: symmetric, M to 2 M per node, with all nodes connected (ArchRAG, 3.1.3).

Each node chooses M of its nearest neighbours: first those nearer to it than to any neighbour chosen before (the HNSW
heuristic, which makes links point in different directions), then the nearest of the rest. Nodes in nested samples also
choose links within their sample, which cross clusters. A node with more than 2 M links drops the excess, beginning with
links that it did not choose itself. A node with fewer than M is linked to near nodes that have room, or inserted
between two linked nodes, whose degrees stay the same. Finally, components are joined.

Vectors are on the grid of indexmill.retrieve.grid and ties go to the lower row, so the links depend only on the vectors
and on the order in which samples are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.core.neighbours import Lists, ListSettings, Nearest

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

_TILE = 256  # nodes whose candidates are compared with each other at once


@dataclass(frozen=True)
class ChnswLinkSettings:
    """least: the minimum number of links of a node (the paper's M, 1 or more); the maximum is twice that.

    candidates: the number of nearest neighbours that a node chooses from, at least M. far: the number of links that a
    node chooses within each of its samples, at most M. thinning: the ratio of the sizes of successive samples.
    """

    least: int = 16
    candidates: int = 40
    far: int = 6
    thinning: int = 8

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.candidates or not 0 <= self.far <= self.least or self.thinning < 2:
            raise ValueError(f"{self}: expected 1 <= least <= candidates, 0 <= far <= least and thinning >= 2")


def level_links(lists: Lists, setting: ChnswLinkSettings) -> tuple[Rows, Rows]:
    """Return links as indptr (n + 1,) and indices, ascending per node. If n <= 2 M + 1, all pairs are linked."""
    vectors = lists.vectors
    n = len(vectors)
    if n <= 2 * setting.least + 1:
        linked = ~np.eye(n, dtype=np.bool_)
        return np.arange(n + 1) * max(n - 1, 0), linked.nonzero()[1]
    near = lists.nearest(vectors, min(setting.candidates, n - 1), alone=True)
    chosen = [_choices(vectors, np.arange(n), near, setting.least), *_far_choices(lists, setting)]
    owners, partners, products = (np.concatenate(parts) for parts in zip(*chosen, strict=True))
    graph = _Graph(vectors, setting.least)
    graph.fill(*_trim(owners, partners, products, n, 2 * setting.least))
    for row in np.flatnonzero(graph.degrees < setting.least).tolist():
        if not graph.complete(row, near.rows[row][near.rows[row] >= 0]):
            graph.complete(row, np.arange(n))
    while graph.join():
        pass
    return graph.links()


# --- choosing ---


def _choices(vectors: Floats, rows: Rows, near: Nearest, count: int) -> tuple[Rows, Rows, Rows]:
    """Return owners, partners and inner products of the links that `rows` choose: at most `count` of `near` each."""
    parts = []
    for first in range(0, len(rows), _TILE):
        candidates, to_owner = near.rows[first : first + _TILE], near.products[first : first + _TILE]
        there = candidates >= 0
        candidate_vectors = vectors[rows[candidates]]
        mutual = candidate_vectors @ candidate_vectors.transpose(0, 2, 1)
        apart = np.zeros(candidates.shape, dtype=np.bool_)
        for place in range(candidates.shape[1]):
            hidden = (mutual[:, place, :place] > to_owner[:, place, None]) & apart[:, :place]
            apart[:, place] = there[:, place] & ~hidden.any(axis=1)
        places = np.argsort(np.where(apart, 0, np.where(there, 1, 2)), axis=1, kind="stable")[:, :count]
        chosen = np.take_along_axis(there, places, axis=1)
        owners = np.repeat(rows[first : first + len(candidates)], chosen.sum(axis=1))
        partners = rows[np.take_along_axis(candidates, places, axis=1)[chosen]]
        parts.append((owners, partners, np.take_along_axis(to_owner, places, axis=1)[chosen].astype(np.int64)))
    owners, partners, products = (np.concatenate(part) for part in zip(*parts, strict=True))
    return owners, partners, products


def _far_choices(lists: Lists, setting: ChnswLinkSettings) -> list[tuple[Rows, Rows, Rows]]:
    choices = []
    size = len(lists.vectors) // setting.thinning
    while setting.far and size > setting.far:
        rows = np.sort(lists.order[:size])
        sample = Lists(lists.vectors[rows], np.searchsorted(rows, lists.order[:size]), lists.setting)
        near = sample.nearest(sample.vectors, min(3 * setting.far, size - 1), alone=True)
        choices.append(_choices(lists.vectors, rows, near, setting.far))
        size //= setting.thinning
    return choices


def _trim(owners: Rows, partners: Rows, products: Rows, n: int, most: int) -> tuple[Rows, Rows]:
    """Return the pairs (low, high) that both nodes rank among their first `most`: own choices, then by product."""
    mine = np.sort(owners * n + partners)
    pairs, once = np.unique(np.minimum(owners, partners) * n + np.maximum(owners, partners), return_index=True)
    low, high = np.divmod(pairs, n)
    crowded = np.bincount(low, minlength=n) + np.bincount(high, minlength=n) > most
    of_low, of_high = np.flatnonzero(crowded[low]), np.flatnonzero(crowded[high])  # other nodes keep all their links
    both = np.concatenate([low[of_low], high[of_high]])
    others = np.concatenate([high[of_low], low[of_high]])
    places = np.concatenate([of_low, of_high])
    keys = both * n + others
    chose = mine[np.minimum(np.searchsorted(mine, keys), len(mine) - 1)] == keys
    order = np.lexsort((others, -products[once[places]], ~chose, both))
    ranked = both[order]
    late = np.arange(len(ranked)) - np.searchsorted(ranked, ranked) >= most
    stays = np.ones(len(pairs), dtype=np.bool_)
    stays[places[order[late]]] = False
    return low[stays], high[stays]


# --- repairing ---


class _Graph:
    """Links as a table (n, 2 M) int32, filled from the left and padded with -1, and the degree of each node."""

    def __init__(self, vectors: Floats, least: int) -> None:
        self.vectors = vectors
        self.least = least
        self.most = 2 * least
        self.table = np.full((len(vectors), self.most), -1, dtype=np.int32)
        self.degrees = np.zeros(len(vectors), dtype=np.int64)

    def fill(self, low: Rows, high: Rows) -> None:
        """Fill the empty table with the given pairs."""
        owners, partners = np.concatenate([low, high]), np.concatenate([high, low])
        order = np.lexsort((partners, owners))
        owners, partners = owners[order], partners[order]
        self.degrees = np.bincount(owners, minlength=len(self.table))
        self.table[owners, np.arange(len(owners)) - (np.cumsum(self.degrees) - self.degrees)[owners]] = partners

    def links(self) -> tuple[Rows, Rows]:
        """Return indptr and indices, ascending."""
        owners, places = (self.table >= 0).nonzero()
        partners = self.table[owners, places].astype(np.int64)
        indptr = np.concatenate([[0], np.cumsum(self.degrees)]).astype(np.int64)
        return indptr, partners[np.lexsort((partners, owners))]

    def of(self, row: int) -> NDArray[np.int32]:
        return self.table[row, : self.degrees[row]]

    def add(self, first: int, second: int) -> None:
        for row, partner in ((first, second), (second, first)):
            self.table[row, self.degrees[row]] = partner
            self.degrees[row] += 1

    def replace(self, row: int, old: int, new: int) -> None:
        """Replace the neighbour `old` of `row` by `new`; the caller updates the rows of `old` and `new`."""
        self.table[row, np.flatnonzero(self.of(row) == old)[0]] = new

    def put_between(self, row: int, first: int, second: int) -> None:
        """Replace the link between two nodes by a path of two links through `row`."""
        self.replace(first, second, row)
        self.replace(second, first, row)
        self.table[row, self.degrees[row] : self.degrees[row] + 2] = first, second
        self.degrees[row] += 2

    def complete(self, row: int, candidates: NDArray[np.integer[Any]]) -> bool:
        """Give a node M links: to the first candidates with room, else between a candidate and one of its neighbours.

        Return False if the candidates do not suffice. The set of all nodes always suffices: if none has room, a node
        not linked to `row` has 2 M links, fewer than M of them to nodes that are linked to `row`, so one can be split.
        """
        while self.degrees[row] < self.least:
            free = candidates[(candidates != row) & ~np.isin(candidates, self.of(row))]
            room = free[self.degrees[free] < self.most]
            if len(room):
                self.add(row, int(room[0]))
                continue
            for candidate in free.tolist():
                others = self.of(candidate)
                others = others[(others != row) & ~np.isin(others, self.of(row))]
                if len(others):
                    nearest = np.lexsort((others, -(self.vectors[others] @ self.vectors[row])))[0]
                    self.put_between(row, candidate, int(others[nearest]))
                    break
            else:
                return False
        return True

    def components(self) -> Rows:
        """Return the lowest row in each node's connected component."""
        labels = np.arange(len(self.table))
        ends = np.where(self.table >= 0, self.table, labels[:, None])
        while True:
            lower = labels.copy()
            np.minimum.at(lower, labels, labels[ends].min(axis=1))
            lower = lower[lower]
            if np.array_equal(lower, labels):
                return labels
            labels = lower

    def join(self) -> bool:
        """Link each component to its nearest component; return False if there was only one.

        A component is represented by the node with room that is nearest to its mean.
        """
        labels = self.components()
        names, numbers = np.unique(labels, return_inverse=True)
        if len(names) == 1:
            return False
        members = np.split(np.argsort(numbers, kind="stable"), np.cumsum(np.bincount(numbers))[:-1])
        represented = np.array([self._representative(rows) for rows in members])
        closed = self.degrees[represented] == self.most  # no member has room
        sample = self.vectors[represented]
        lists = Lists(sample, np.arange(len(sample)), ListSettings(exact=len(sample)))
        nearest = lists.nearest(sample, 1, alone=True).rows[:, 0]
        joined = list(range(len(names)))
        exchanged: set[int] = set()
        for component, neighbour in enumerate(nearest.tolist()):
            if _root(joined, component) == _root(joined, neighbour):
                continue
            if closed[component] or closed[neighbour]:
                if {component, neighbour} & exchanged:
                    continue
                exchanged |= {component, neighbour}
                self._exchange(int(represented[component]), int(represented[neighbour]))
            elif (self.degrees[represented[[component, neighbour]]] < self.most).all():
                self.add(int(represented[component]), int(represented[neighbour]))
            else:
                continue  # no room left in this round: the next picks another representative
            joined[_root(joined, component)] = _root(joined, neighbour)
        return True

    def _representative(self, rows: Rows) -> int:
        room = rows[self.degrees[rows] < self.most]
        room = room if len(room) else rows
        mean = np.rint(self.vectors[rows].sum(axis=0, dtype=np.float64) / len(rows)).astype(np.float32)
        return int(room[np.argmax(self.vectors[room] @ mean)])

    def _exchange(self, first: int, second: int) -> None:
        """Replace one link within each of two components by two links across them.

        In one of the components every node has 2 M links. Such a component stays connected if any one link is removed:
        a part attached by a single link would have an odd sum of degrees. So all nodes are connected afterwards.
        """
        end, far_end = self._farthest(first), self._farthest(second)
        for row, old, new in (
            (first, end, second),
            (end, first, far_end),
            (second, far_end, first),
            (far_end, second, end),
        ):
            self.replace(row, old, new)

    def _farthest(self, row: int) -> int:
        linked = np.sort(self.of(row))
        return int(linked[np.argmin(self.vectors[linked] @ self.vectors[row])])


def _root(joined: list[int], number: int) -> int:
    while joined[number] != number:
        joined[number] = joined[joined[number]]
        number = joined[number]
    return number
