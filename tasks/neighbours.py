"""The nearest of many vectors, by inner product: exactly, or in the inverted lists of a seeded k-means.

Vectors are on the grid of indexmill.retrieve.grid: products are exact integers, ties go to the lower row, and centroids
are sums of integers put on the grid again. So what is found is a function of the vectors and of the order that samples
are drawn in, whatever the number of threads and the size of the tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.grid import on_grid

__all__ = ["ListSettings", "Lists", "Nearest", "centroids"]

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

NOTHING = np.iinfo(np.int64).max

_CELLS = 1 << 22  # products held at once
_BLOCK = 2048  # vectors that a question is compared with at once
_ROUNDS = 6  # of k-means
_PER_LIST = 32  # vectors of the sample per list
_ROW = (1 << 32) - 1


@dataclass(frozen=True)
class ListSettings:
    """exact: sets of at most so many vectors are compared as a whole; larger ones lie in 2 sqrt(n) lists, of which
    each vector is compared with the `probes` nearest.
    """

    exact: int = 16_384
    probes: int = 16


@dataclass(frozen=True)
class Nearest:
    """rows (n, k) int32, nearest first, -1 where there is none; products (n, k) int32."""

    rows: NDArray[np.int32]
    products: NDArray[np.int32]


class Lists:
    """Vectors (n, d) on the grid in inverted lists; `order` holds all rows in the order that samples are drawn in."""

    def __init__(self, vectors: Floats, order: Rows, setting: ListSettings) -> None:
        self.vectors = vectors
        self.order = order
        self.setting = setting
        self.probes = 1
        self.centroids = np.zeros((1, vectors.shape[1]), dtype=np.float32)
        self.members = [np.arange(len(vectors))]
        if len(vectors) > setting.exact:
            self.centroids = centroids(vectors, order, 2 * int(np.sqrt(len(vectors))))
            self.probes = min(setting.probes, len(self.centroids))
        self.own = self.near(vectors, self.probes)  # the lists that each of the vectors is compared in
        if len(self.centroids) > 1:
            nearest = self.own[:, 0]
            sorted_rows = np.argsort(nearest, kind="stable")
            ends = np.cumsum(np.bincount(nearest, minlength=len(self.centroids)))
            self.members = np.split(sorted_rows, ends[:-1])

    def near(self, questions: Floats, count: int) -> NDArray[np.int32]:
        """The `count` nearest lists of each question, nearest first."""
        found = np.empty((len(questions), count), dtype=np.int32)
        tile = max(1, _CELLS // len(self.centroids))
        for first in range(0, len(questions), tile):
            products = questions[first : first + tile] @ self.centroids.T
            found[first : first + tile] = _smallest(_keys(products, np.arange(len(self.centroids))), count) & _ROW
        return found

    def nearest(self, questions: Floats, k: int, alone: bool = False) -> Nearest:
        """The k nearest vectors of each question, in its lists. alone: question i is vector i, and not its own."""
        best = np.full((len(questions), k), NOTHING)
        near = self.own if alone else self.near(questions, self.probes)
        for some in (near[:, :1], near[:, 1:]):  # the nearest list first: few of the others' vectors come up to it
            owners, lists = np.repeat(np.arange(len(near)), some.shape[1]), some.ravel()
            by_list = np.argsort(lists, kind="stable")
            ends = np.cumsum(np.bincount(lists, minlength=len(self.members)))
            for members, asking in zip(self.members, np.split(owners[by_list], ends[:-1]), strict=True):
                if len(members) and len(asking):
                    self._compare(questions, asking, members, best, alone)
        found = best != NOTHING
        return Nearest(
            np.where(found, best & _ROW, -1).astype(np.int32),
            np.where(found, -(best >> 32), 0).astype(np.int32),
        )

    def _compare(self, questions: Floats, asking: Rows, members: Rows, best: NDArray[np.int64], alone: bool) -> None:
        """Compare questions with the members of a list, a block of them at a time, and keep each one's best."""
        k = best.shape[1]
        for start in range(0, len(members), _BLOCK):
            block = members[start : start + _BLOCK]
            vectors = self.vectors[block]
            tile = max(1, _CELLS // len(block))
            for first in range(0, len(asking), tile):
                rows = asking[first : first + tile]
                products = questions[rows] @ vectors.T
                if alone:
                    at = np.minimum(np.searchsorted(block, rows), len(block) - 1)
                    mine = block[at] == rows
                    products[mine, at[mine]] = -np.inf
                last = best[rows, -1]
                if (last == NOTHING).all():
                    keys = _keys(products, block)
                else:
                    floor = np.where(last == NOTHING, -np.inf, -(last >> 32)).astype(np.float32)
                    keys = _kept(products, floor, block)
                best[rows] = _smallest(np.concatenate([best[rows], keys], axis=1), k)


def centroids(vectors: Floats, order: Rows, count: int, *, rounds: int = _ROUNDS, per_list: int = _PER_LIST) -> Floats:
    """Means of `count` lists, on the grid, by rounds of k-means over the first of `order`: `per_list` for each list."""
    sample = vectors[np.sort(order[: count * per_list])]
    found = vectors[order[:count]]
    tile = max(1, _CELLS // count)
    before = None
    for _ in range(rounds):
        nearest = np.concatenate(
            [np.argmax(sample[first : first + tile] @ found.T, axis=1) for first in range(0, len(sample), tile)]
        )
        if before is not None and np.array_equal(before, nearest):
            break
        before = nearest
        by_list = np.argsort(nearest, kind="stable")
        held, first_of = np.unique(nearest[by_list], return_index=True)
        sums = np.add.reduceat(sample[by_list], first_of, axis=0, dtype=np.float64)
        lengths = np.sqrt(np.add.reduce(sums * sums, axis=1))
        found[held] = on_grid((sums / np.maximum(lengths, 1.0)[:, None]).astype(np.float32))
    return found


def _keys(products: Floats, rows: Rows) -> NDArray[np.int64]:
    """Products and rows in one number, least for the highest product, and of equal ones for the lowest row."""
    missing = np.isneginf(products)
    keys: NDArray[np.int64] = np.where(missing, 0, -products).astype(np.int64)
    keys <<= 32
    keys += rows
    keys[missing] = NOTHING
    return keys


def _kept(products: Floats, floor: Floats, members: Rows) -> NDArray[np.int64]:
    """The keys of products that reach the floor of their row, side by side."""
    at, column = ((products >= floor[:, None]) & (products > -np.inf)).nonzero()
    counts = np.bincount(at, minlength=len(products))
    keys = np.full((len(products), int(counts.max(initial=0))), NOTHING)
    places = np.arange(len(at)) - (np.cumsum(counts) - counts)[at]
    keys[at, places] = (-products[at, column].astype(np.int64) << 32) + members[column]
    return keys


def _smallest(keys: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    if k < keys.shape[1]:
        keys = np.partition(keys, k - 1, axis=1)[:, :k]
    keys.sort(axis=1)
    if k > keys.shape[1]:
        more = np.full((len(keys), k - keys.shape[1]), NOTHING)
        keys = np.concatenate([keys, more], axis=1)
    return keys
