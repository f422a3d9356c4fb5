"""Nearest-neighbour search by inner product: exact, or in the inverted lists of a seeded k-means.

Vectors are on the grid of indexmill.retrieve.grid: products are exact integers, ties go to the lower row, and centroids
are sums of integers, rounded to the grid. So the result is a function of the vectors and of the order of the sample,
whatever the number of threads and the size of the tiles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.grid import on_grid

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]

NOTHING = np.iinfo(np.int64).max

EXACT_VECTORS = 16_384
"""The maximum number of vectors for comparing all pairs, unless the caller sets another maximum."""

_CELLS = 1 << 22  # products in memory at once
_BLOCK = 2048  # vectors compared with a question at once
_FEW = 128  # if at most one product in _FEW must be completed, products are completed one by one
_ROUNDS = 6  # iterations of k-means
_PER_LIST = 32  # sampled vectors per list
_ROW = (1 << 32) - 1
_LEAST = np.finfo(np.float32).min


@dataclass(frozen=True)
class ListSettings:
    """All pairs are compared up to `exact` vectors; beyond, the `probes` nearest of 2 sqrt(n) lists are searched."""

    exact: int = field(default_factory=lambda: EXACT_VECTORS)
    probes: int = 16


@dataclass(frozen=True)
class Nearest:
    """The nearest neighbours: rows (n, k) int32, nearest first, -1 if missing; their products (n, k) int32."""

    rows: NDArray[np.int32]
    products: NDArray[np.int32]


class Lists:
    """Vectors (n, d) on the grid in inverted lists. order: all rows, in the order of sampling."""

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
        self.nearest_lists = self.near(vectors, self.probes)  # of each vector
        if len(self.centroids) > 1:
            nearest = self.nearest_lists[:, 0]
            sorted_rows = np.argsort(nearest, kind="stable")
            ends = np.cumsum(np.bincount(nearest, minlength=len(self.centroids)))
            self.members = np.split(sorted_rows, ends[:-1])

    def near(self, questions: Floats, count: int) -> NDArray[np.int32]:
        """Return the `count` nearest lists of each question, nearest first."""
        lists = np.empty((len(questions), count), dtype=np.int32)
        tile = max(1, _CELLS // len(self.centroids))
        for first in range(0, len(questions), tile):
            products = questions[first : first + tile] @ self.centroids.T
            lists[first : first + tile] = _best(products, np.arange(len(self.centroids)), count) & _ROW
        return lists

    def nearest(self, questions: Floats, k: int, alone: bool = False) -> Nearest:
        """Return the k nearest vectors in the lists near each question. alone: exclude vector i for question i."""
        best = np.full((len(questions), k), NOTHING)
        near = self.nearest_lists if alone else self.near(questions, self.probes)
        for some in (near[:, :1], near[:, 1:]):  # the nearest list first: few vectors of other lists are as near
            owners, lists = np.repeat(np.arange(len(near)), some.shape[1]), some.ravel()
            by_list = np.argsort(lists, kind="stable")
            ends = np.cumsum(np.bincount(lists, minlength=len(self.members)))
            for members, question_rows in zip(self.members, np.split(owners[by_list], ends[:-1]), strict=True):
                if len(members) and len(question_rows):
                    self._compare(questions, question_rows, members, best, alone)
        present = best != NOTHING
        return Nearest(
            np.where(present, best & _ROW, -1).astype(np.int32),
            np.where(present, -(best >> 32), 0).astype(np.int32),
        )

    def _compare(
        self, questions: Floats, question_rows: Rows, members: Rows, best: NDArray[np.int64], alone: bool
    ) -> None:
        """Compare questions with the members of a list, a block at a time, and keep each question's best."""
        k = best.shape[1]
        for start in range(0, len(members), _BLOCK):
            block = members[start : start + _BLOCK]
            vectors = self.vectors[block]
            tile = max(1, _CELLS // len(block))
            for first in range(0, len(question_rows), tile):
                rows = question_rows[first : first + tile]
                products = questions[rows] @ vectors.T
                if alone:
                    at = np.minimum(np.searchsorted(block, rows), len(block) - 1)
                    mine = block[at] == rows
                    products[mine, at[mine]] = -np.inf
                last = best[rows, -1]
                if (last == NOTHING).all():
                    keys = _best(products, block, k)
                else:
                    keys = _keys_above(
                        products, np.where(last == NOTHING, -np.inf, -(last >> 32)).astype(np.float32), block
                    )
                best[rows] = _smallest(np.concatenate([best[rows], keys], axis=1), k)


def nearest_of_all(
    questions: Floats, vectors: Floats, guess: NDArray[np.integer[Any]] | None = None
) -> NDArray[np.int32]:
    """Return the row of the vector nearest to each question, the lowest row for ties; needs at least one vector.

    guess: a row for each question, or -1. It does not change the result, but a near guess saves products: the second
    half of the components is skipped if the first half plus a Cauchy-Schwarz bound of the second cannot reach the best
    product so far.
    """
    guess = np.full(len(questions), -1) if guess is None else guess
    best = np.full(len(questions), NOTHING)
    guessed = np.flatnonzero(guess >= 0)
    for low in range(0, len(guessed), _BLOCK):
        some = guessed[low : low + _BLOCK]
        best[some] = _keys(np.einsum("ij,ij->i", questions[some], vectors[guess[some]]), guess[some])
    head = vectors.shape[1] // 2 if len(guessed) else vectors.shape[1]
    question_tails, vector_tails = (
        np.sqrt(np.einsum("ij,ij->i", some[:, head:], some[:, head:])) for some in (questions, vectors)
    )
    tile = max(1, _CELLS // _BLOCK)
    for first in range(0, len(questions), tile):
        chunk = slice(first, first + tile)
        for start in range(0, len(vectors), _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, len(vectors)))
            reach = question_tails[chunk].astype(np.float64) * vector_tails[rows].max()
            _improve(best[chunk], questions[chunk], vectors[start : start + _BLOCK], rows, head, reach)
    return (best & _ROW).astype(np.int32)


def _improve(
    best: NDArray[np.int64], questions: Floats, vectors: Floats, rows: Rows, head: int, reach: NDArray[np.float64]
) -> None:
    """Update the best vector of each question. reach: the maximum that components after `head` can add."""
    products = questions[:, :head] @ vectors[:, :head].T
    if head < vectors.shape[1]:
        floor = np.where(best == NOTHING, -np.inf, -(best >> 32) - reach - 4)  # 4: more than the rounding error
        reached = np.flatnonzero(products >= floor.astype(np.float32)[:, None])
        if len(reached) <= products.size // _FEW:
            owners, columns = np.divmod(reached, len(vectors))
            added = np.einsum("ij,ij->i", questions[owners, head:], vectors[columns, head:])
            np.minimum.at(best, owners, _keys(products.ravel()[reached] + added, rows[columns]))
            return
        products += questions[:, head:] @ vectors[:, head:].T
    columns = np.argmax(products, axis=1)
    np.minimum(best, _keys(products[np.arange(len(questions)), columns], rows[columns]), out=best)


def centroids(vectors: Floats, order: Rows, count: int, *, rounds: int = _ROUNDS, per_list: int = _PER_LIST) -> Floats:
    """Return the centroids of `count` lists on the grid, by k-means over the first `count * per_list` of `order`."""
    sample = vectors[np.sort(order[: count * per_list])]
    means = vectors[order[:count]]
    tile = max(1, _CELLS // count)
    before = None
    for _ in range(rounds):
        nearest = np.concatenate(
            [np.argmax(sample[first : first + tile] @ means.T, axis=1) for first in range(0, len(sample), tile)]
        )
        if before is not None and np.array_equal(before, nearest):
            break
        before = nearest
        by_list = np.argsort(nearest, kind="stable")
        nonempty, first_of = np.unique(nearest[by_list], return_index=True)
        sums = np.add.reduceat(sample[by_list], first_of, axis=0, dtype=np.float64)
        lengths = np.sqrt(np.add.reduce(sums * sums, axis=1))
        means[nonempty] = on_grid((sums / np.maximum(lengths, 1.0)[:, None]).astype(np.float32))
    return means


def _best(products: Floats, rows: Rows, k: int) -> NDArray[np.int64]:
    floor = np.full(len(products), -np.inf, dtype=np.float32)
    if k < products.shape[1]:
        floor = np.partition(products, -k, axis=1)[:, -k]
    return _smallest(_keys_above(products, floor, rows), k)


def _keys_above(products: Floats, floor: Floats, rows: Rows) -> NDArray[np.int64]:
    """Return the keys of the products that reach their row's floor, padded with NOTHING; -inf reaches no floor."""
    reached = np.flatnonzero(products >= np.maximum(floor, _LEAST)[:, None])
    at, column = np.divmod(reached, products.shape[1])
    counts = np.bincount(at, minlength=len(products))
    keys = np.full((len(products), int(counts.max(initial=0))), NOTHING)
    places = np.arange(len(at)) - (np.cumsum(counts) - counts)[at]
    keys[at, places] = _keys(products.ravel()[reached], rows[column])
    return keys


def _keys(products: Floats, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Pack products and rows into sort keys, by descending product and, for ties, ascending row."""
    keys: NDArray[np.int64] = (-products.astype(np.int64) << 32) + rows
    return keys


def _smallest(keys: NDArray[np.int64], k: int) -> NDArray[np.int64]:
    if k < keys.shape[1]:
        keys = np.partition(keys, k - 1, axis=1)[:, :k]
    keys.sort(axis=1)
    if k > keys.shape[1]:
        more = np.full((len(keys), k - keys.shape[1]), NOTHING)
        keys = np.concatenate([keys, more], axis=1)
    return keys
