"""The links between similar rows, and their refresh (ZoomRAG, section 3.1, eq. 2).

A row chooses its `cap` nearest of those whose similarity exceeds its limit (`moments`); a pair stays if either of the
two chose it. Similarities are products on the grid in steps of `similar.STEP`, ties go to the smaller name. So the
links are a function of the set of names and vectors, whatever the order and the number of rows compared at once.

The links themselves are what a refresh starts from. What a row chose is known from them: its pairs are those that it
chose and others, which are beyond its limit only if they are worse than `cap` choices. So is its bound: every row above
is among its choices. A refresh compares new rows with all, and again those rows that choose less than before: a choice
is gone, or the limit fell, and no new row took the place. That is why no candidates beyond the links are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.similar import LARGEST_STEP, STEP
from indexmill.retrieve.columns import runs
from indexmill.retrieve.grid import UNIT
from tasks.families.zoom_graph.moments import Moments, estimated_limits

__all__ = [
    "MOST_ROWS",
    "Choices",
    "Coding",
    "LinkRule",
    "LinkedRows",
    "Links",
    "choose",
    "find_links",
    "is_much",
    "joined_links",
]

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Keys = NDArray[np.int64]

MOST_ROWS = 1 << 23
"""The most rows, so that a row, a similarity and another row fit 63 bits."""

_STRIP = 512  # rows compared at once
_TILE = 1 << 15  # rows with which they are compared at once, where moments are estimated
_PIECE = 1 << 20  # choices of which something is computed at once
_MANY = 8  # rows with more than so many times `cap` products beyond the limit are cut one by one
_STEP_BITS = 16
_STEPS = 1 << _STEP_BITS


@dataclass(frozen=True)
class LinkRule:
    """threshold: standard deviations above a row's mean. cap: most links that a row chooses. exact_rows: most rows
    whose moments are exact."""

    threshold: float = 3.0
    cap: int = 64
    exact_rows: int = 65_536


@dataclass(frozen=True)
class LinkedRows:
    """names: `(n,) uint64`, ascending, no two the same. vectors: `(n, d) int16`, on the grid."""

    names: NDArray[np.uint64]
    vectors: NDArray[np.int16]

    @classmethod
    def of(cls, names: NDArray[np.uint64], vectors: NDArray[np.int16]) -> LinkedRows:
        """Rows in the order of their names. Rows that share a name, 64 bits of a hash, cannot be told apart: they have
        no links."""
        order = names.argsort(kind="stable")
        if len(names) > 1:
            ordered = names[order]
            same = ordered[1:] == ordered[:-1]
            order = order[~(np.append(same, False) | np.append(False, same))]
        return cls(names[order], vectors[order])

    def __len__(self) -> int:
        return len(self.names)


@dataclass
class Links:
    """low, high: `(m,)`, the rows of each pair, ascending by both. steps: `(m,)`, similarities. limits: `(n,)`.
    moments: zeros where limits are estimated. full: rows that chose as many as they may. compared: rows compared
    with all; the rest were reused, which nothing else shows."""

    rows: LinkedRows
    moments: Moments
    limits: Rows
    low: Rows
    high: Rows
    steps: Rows
    full: int
    compared: int


@dataclass
class Choices:
    """What `m` consecutive rows choose. keys: in order (`Coding`). moments, limits: `(m,)`, as in `Links`."""

    keys: Keys
    moments: Moments
    limits: Rows


def find_links(rows: LinkedRows, rule: LinkRule, known: Links | None = None) -> Links:
    """The links of some rows; `known` are those of an earlier set, made with the same rule.

    The result, but for `compared`, does not depend on `known`. Raises ValueError for more than MOST_ROWS rows.
    """
    n = len(rows)
    before = None if known is None else _Before(known, rows, rule)
    if before is None or is_much(n - len(before.kept) + len(before.gone), n):
        return joined_links(rows, rule, [choose(rows, rule, slice(n))])
    return _refreshed(rows, rule, before)


def is_much(changed: int, rows: int) -> bool:
    """True if so many rows are new or gone that all are compared again."""
    return 4 * changed > rows


def choose(rows: LinkedRows, rule: LinkRule, some: slice) -> Choices:
    """What consecutive rows choose of all. Raises ValueError for more than MOST_ROWS rows."""
    table, coding = _Products(rows, rule), Coding(len(rows))
    numbers = np.arange(len(rows))[some]
    moments, limits = Moments.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    if not table.exact:
        limits[some] = estimated_limits(rows.vectors, rule.threshold, some)
    chosen = [np.empty(0, dtype=np.int64)]
    for strip in table.strips(numbers):
        found = []
        for first, products in table.of(strip):
            if table.exact:
                moments.add_rows(products, strip)
                limits[strip] = moments.limits(strip, rule.threshold)
            found.append(_nearest(coding, strip, first, products, limits[strip], rule.cap))
        chosen.append(coding.merged(found, rule.cap))
    own = Moments(moments.sums[some], moments.squares[some])
    return Choices(np.concatenate(chosen), own, limits[some])


def joined_links(rows: LinkedRows, rule: LinkRule, choices: Sequence[Choices]) -> Links:
    """The links of all rows from what they choose, in their order."""
    coding = Coding(len(rows))
    full = sum(coding.full(one.keys, rule.cap) for one in choices)
    low, high, steps = coding.decoded(np.concatenate([coding.pairs(one.keys) for one in choices]))
    moments = Moments(
        np.concatenate([one.moments.sums for one in choices]), np.concatenate([one.moments.squares for one in choices])
    )
    limits = np.concatenate([one.limits for one in choices])
    return Links(rows, moments, limits, low, high, steps, full, compared=len(rows))


def _refreshed(rows: LinkedRows, rule: LinkRule, before: _Before) -> Links:
    """The links of some rows, of which most are kept from an earlier set."""
    n, kept = len(rows), before.kept
    fresh = np.delete(np.arange(n), kept)
    table, coding, moments = _Products(rows, rule), Coding(n), Moments.zeros(n)
    limits = np.zeros(n, dtype=np.int64) if table.exact else estimated_limits(rows.vectors, rule.threshold)
    choices = [before.choices(coding)]
    if table.exact:
        before.carry(moments, table)
    for strip in table.strips(fresh):
        found = []
        for first, products in table.of(strip):
            if table.exact:
                moments.add_rows(products, strip)
                moments.add(products, kept)
                limits[strip] = moments.limits(strip, rule.threshold)
            choices.append(before.joining(products, strip, first, coding))
            found.append(_nearest(coding, strip, first, products, limits[strip], rule.cap))
        choices.append(coding.merged(found, rule.cap))
    if table.exact:
        limits[kept] = moments.limits(kept, rule.threshold)
    chosen = np.concatenate(choices)
    choices.clear()
    chosen.sort(kind="stable")  # most are in order
    chosen = coding.best(coding.beyond(chosen, limits), rule.cap)
    again = before.short(np.bincount(coding.owners(chosen), minlength=n), limits, rule.cap)
    if len(again):
        compared_again = np.zeros(n, dtype=bool)
        compared_again[again] = True
        choices = [chosen[~compared_again[coding.owners(chosen)]]]
        for strip in table.strips(again):
            tiles = table.of(strip)
            found = [_nearest(coding, strip, first, products, limits[strip], rule.cap) for first, products in tiles]
            choices.append(coding.merged(found, rule.cap))
        chosen = np.concatenate(choices)
        chosen.sort(kind="stable")
    full = coding.full(chosen, rule.cap)
    low, high, steps = coding.decoded(coding.pairs(chosen))
    return Links(rows, moments, limits, low, high, steps, full, len(fresh) + len(again))


class _Products:
    """The products of rows with all rows, whole numbers on the grid, a strip of rows and a tile of all at a time.

    exact: True if moments are exact; then a tile has all rows.
    """

    def __init__(self, rows: LinkedRows, rule: LinkRule) -> None:
        if len(rows) > MOST_ROWS:
            raise ValueError(f"{len(rows):,} rows are more than the {MOST_ROWS:,} whose links can be stored")
        self.exact = len(rows) <= rule.exact_rows
        self._vectors = rows.vectors
        self._width = max(len(rows), 1) if self.exact else _TILE
        self._whole = rows.vectors.astype(np.float32) if len(rows) <= self._width else None

    def strips(self, rows: Rows) -> Iterator[Rows]:
        """The numbers of some rows, as many at a time as are multiplied at once."""
        return (rows[first : first + _STRIP] for first in range(0, len(rows), _STRIP))

    def of(self, rows: Rows) -> Iterator[tuple[int, Floats]]:
        """The products of some rows with each tile, and the tile's first row; a row's product with itself is 0."""
        for first, found in self.times(self._vectors[rows]):
            (inside,) = ((rows >= first) & (rows < first + found.shape[1])).nonzero()
            found[inside, rows[inside] - first] = 0.0
            yield first, found

    def times(self, vectors: NDArray[np.int16]) -> Iterator[tuple[int, Floats]]:
        """The products of some vectors with each tile, and the tile's first row."""
        own = vectors.astype(np.float32)
        for first in range(0, len(self._vectors), self._width):
            tile = self._whole
            if tile is None:
                tile = self._vectors[first : first + self._width].astype(np.float32)
            yield first, own @ tile.T


class Coding:
    """Choices as integers: a row, the similarity, better ones first, and the row that is chosen."""

    def __init__(self, rows: int) -> None:
        self._bits = max(rows - 1, 0).bit_length()

    def keys(self, owners: Rows, steps: Rows, partners: Rows) -> Keys:
        """Some choices."""
        keys = owners << _STEP_BITS
        keys |= LARGEST_STEP - steps
        keys <<= self._bits
        keys |= partners
        return keys

    def owners(self, keys: Keys) -> Rows:
        """The row that chooses."""
        return keys >> (self._bits + _STEP_BITS)

    def steps(self, keys: Keys) -> Rows:
        """The similarity."""
        return LARGEST_STEP - ((keys >> self._bits) & (_STEPS - 1))

    def partners(self, keys: Keys) -> Rows:
        """The row that is chosen."""
        return keys & ((1 << self._bits) - 1)

    def best(self, keys: Keys, cap: int) -> Keys:
        """The first `cap` choices of each row, of some that are in order."""
        starts, counts = self._runs(keys)
        (longer,) = (counts > cap).nonzero()
        if not len(longer):
            return keys
        stay = np.ones(len(keys), dtype=bool)
        stay[runs(starts[longer] + cap, counts[longer] - cap)] = False
        return keys[stay]

    def merged(self, found: Sequence[Keys], cap: int) -> Keys:
        """The first `cap` choices of each row, in order, of several lists with at most `cap` of a row each."""
        if len(found) == 1:
            return found[0]
        keys = np.concatenate([np.empty(0, dtype=np.int64), *found])
        keys.sort()
        return self.best(keys, cap)

    def full(self, keys: Keys, cap: int) -> int:
        """The number of rows with `cap` choices, of some that are in order."""
        return int(np.count_nonzero(self._runs(keys)[1] >= cap))

    def _runs(self, keys: Keys) -> tuple[Rows, Rows]:
        """Where the choices of each row that has some begin, of some that are in order, and their numbers."""
        owners = self.owners(keys)
        starts = np.append(0, (owners[1:] != owners[:-1]).nonzero()[0] + 1) if len(keys) else owners
        return starts, np.diff(np.append(starts, len(keys)))

    def pairs(self, keys: Keys) -> Keys:
        """The pairs of some choices as integers, twice where both rows choose each other."""
        found = np.empty_like(keys)
        for some in _pieces(len(keys)):
            owners, partners = self.owners(keys[some]), self.partners(keys[some])
            ends = np.minimum(owners, partners) << self._bits | np.maximum(owners, partners)
            found[some] = ends << _STEP_BITS | (self.steps(keys[some]) + LARGEST_STEP + 1)
        return found

    def beyond(self, keys: Keys, limits: Rows) -> Keys:
        """The choices whose similarity exceeds the limit of the row that chooses."""
        stay = np.empty(len(keys), dtype=bool)
        for some in _pieces(len(keys)):
            np.greater(self.steps(keys[some]), limits[self.owners(keys[some])], out=stay[some])
        return keys[stay]

    def decoded(self, pairs: Keys) -> tuple[Rows, Rows, Rows]:
        """The distinct ones of some pairs, by row: the lower rows, the higher ones, and similarities. Sorts them."""
        pairs.sort()
        distinct = pairs[np.append(True, pairs[1:] != pairs[:-1])] if len(pairs) else pairs
        ends = distinct >> _STEP_BITS
        return ends >> self._bits, ends & ((1 << self._bits) - 1), (distinct & (_STEPS - 1)) - LARGEST_STEP - 1


class _Before:
    """What is known from an earlier set about those of its rows that are kept.

    kept, old: the rows whose name and vector are the same, in the new set and in the earlier one. gone: the other rows
    of the earlier set.
    """

    def __init__(self, known: Links, rows: LinkedRows, rule: LinkRule) -> None:
        self._known, self._names = known, rows.names
        self._cap = rule.cap
        before = known.rows
        place = before.names.searchsorted(rows.names)
        place[place == len(before)] = 0
        same = np.zeros(len(rows), dtype=bool)
        is_exact = [len(one) <= rule.exact_rows for one in (before, rows)]
        if len(before) and before.vectors.shape[1] == rows.vectors.shape[1] and is_exact[0] == is_exact[1]:
            same = before.names[place] == rows.names
            same[same] = (before.vectors[place[same]] == rows.vectors[same]).all(axis=1)
        self.kept, self.old = same.nonzero()[0], place[same]
        self.gone = np.delete(np.arange(len(before)), self.old)

    def carry(self, moments: Moments, table: _Products) -> None:
        """Set the moments of kept rows to what they are without the gone ones. table: of the new set, exact."""
        moments.sums[self.kept] = self._known.moments.sums[self.old]
        moments.squares[self.kept] = self._known.moments.squares[self.old]
        for strip in table.strips(self.gone):
            for _, products in table.times(self._known.rows.vectors[strip]):
                moments.add(products, self.kept, sign=-1)

    def choices(self, coding: Coding) -> Keys:
        """The choices of kept rows for kept rows, in order; sets the bound of each kept row.

        A row that chose as many as it may knows all rows up to its last choice, another one all beyond its limit.
        """
        known, rows = self._known, len(self._known.rows)
        own = Coding(rows)
        keys = np.concatenate(
            [own.keys(known.low, known.steps, known.high), own.keys(known.high, known.steps, known.low)]
        )
        keys.sort()
        keys = own.best(own.beyond(keys, known.limits), self._cap)
        counts = np.bincount(own.owners(keys), minlength=rows)
        ends = counts.cumsum()
        # The first similarity of which some may be unknown, and the name up to which those of it are known.
        self._bound, self._names_of_bounds = known.limits.copy(), np.zeros(rows, dtype=np.uint64)
        full = counts == self._cap
        last = keys[ends[full] - 1]
        self._bound[full], self._names_of_bounds[full] = own.steps(last), known.rows.names[own.partners(last)]
        self._is_full = full
        self._floor = np.full(len(self._names), np.inf, dtype=np.float32)
        self._floor[self.kept] = np.where(full, self._bound, self._bound + 1)[self.old] * STEP
        new = np.full(rows, -1, dtype=np.int64)
        new[self.old] = self.kept
        owners, partners = new[own.owners(keys)], new[own.partners(keys)]
        stay = (owners >= 0) & (partners >= 0)
        return coding.keys(owners[stay], own.steps(keys[stay]), partners[stay])

    def joining(self, products: Floats, rows: Rows, first: int, coding: Coding) -> Keys:
        """The new rows that may be among the choices of kept ones: those above their bounds.

        products: of new rows with a tile of all, which begins with the row `first`.
        """
        found, columns = (products >= self._floor[first : first + products.shape[1]]).nonzero()
        steps = _steps(products[found, columns])
        columns += first
        old = self.old[self.kept.searchsorted(columns)]
        tie = steps == self._bound[old]  # of a full row
        stay = ~tie | (self._names_of_bounds[old] >= self._names[rows[found]])
        return coding.keys(columns[stay], steps[stay], rows[found][stay])

    def short(self, counts: Rows, limits: Rows, cap: int) -> Rows:
        """The kept rows that may lack choices. counts: the choices of each row, of all that is known."""
        known = np.where(self._is_full[self.old], self._bound[self.old], self._known.limits[self.old])
        return self.kept[(counts[self.kept] < cap) & (limits[self.kept] < known)]


def _nearest(coding: Coding, rows: Rows, first: int, products: Floats, limits: Rows, cap: int) -> Keys:
    """The choices of some rows of a tile of all, in order. products: with this tile, which loses its diagonal."""
    (inside,) = ((rows >= first) & (rows < first + products.shape[1])).nonzero()
    products[inside, rows[inside] - first] = -2 * UNIT
    found, partners = (products >= ((limits + 1) * STEP).astype(np.float32)[:, None]).nonzero()
    keys = coding.keys(rows[found], _steps(products[found, partners]), partners + first)
    counts = np.bincount(found, minlength=len(rows))
    if counts.max() > _MANY * cap:
        some = np.split(keys, counts.cumsum()[:-1])
        keys = np.concatenate([one if len(one) <= _MANY * cap else np.partition(one, cap - 1)[:cap] for one in some])
    keys.sort()
    return coding.best(keys, cap)


def _pieces(length: int) -> Iterator[slice]:
    """Parts of an array, one after the other, so that what is computed of it takes little memory."""
    return (slice(first, first + _PIECE) for first in range(0, length, _PIECE))


def _steps(products: Floats) -> Rows:
    """The similarities of some products."""
    return np.minimum(products.astype(np.int64) // STEP, LARGEST_STEP)
