"""The links between similar rows, and their refresh (ZoomRAG, section 3.1, eq. 2).

A row chooses the `cap` nearest of the rows whose similarity exceeds its limit (`moments`); a pair stays if either row
chose it. Similarities are products on the grid in steps of `similar.STEP`; ties go to the smaller name. So the links
depend only on the set of names and vectors, not on the order or the number of rows compared at once.

A refresh starts from the links alone. They show what a row chose: the best `cap` of its pairs beyond its limit. They
also show its bound: all rows with a higher similarity are among its choices. Two sets of rows are compared with all
rows: new rows, and rows that now choose fewer because a choice was deleted, or the limit fell, and no new row replaced
it. So no candidates beyond the links are stored.

Millions of rows have a hundred times as many choices. They are in one array of integers (`Coding`), which is filtered,
renumbered and turned into pairs in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.similar import LARGEST_STEP, STEP
from indexmill.retrieve.columns import runs
from indexmill.retrieve.grid import UNIT
from tasks.families.zoom_graph.moments import Moments, Polynomials

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Keys = NDArray[np.int64]

MOST_ROWS = 1 << 23
"""The maximum number of rows, so that two row numbers and a similarity fit into 63 bits."""

SAMPLE = 8192
"""The number of rows from which the remainder of estimated moments is computed."""

_STRIP = 256  # rows compared at once; with 512, 48,000 rows take 100 MB more and no less time
_TILE = 1 << 15  # rows with which they are compared at once, if moments are estimated
_PIECE = 1 << 20  # choices processed at once
_MANY = 8  # rows with more than _MANY * `cap` products beyond the limit are cut one by one
_STEP_BITS = 16
_STEPS = 1 << _STEP_BITS


@dataclass(frozen=True)
class LinkRule:
    """threshold: standard deviations above a row's mean. cap: the maximum number of links that a row chooses.

    exact_rows: the maximum number of rows for exact moments; for more, they are estimated from `sample` rows.
    """

    threshold: float = 3.0
    cap: int = 64
    exact_rows: int = 65_536
    sample: int = field(default_factory=lambda: SAMPLE)

    def is_exact(self, rows: int) -> bool:
        return rows <= self.exact_rows

    def sampled(self, rows: int) -> int:
        """Return how many of the first rows are used to compute the moments of `rows` rows."""
        return rows if self.is_exact(rows) else min(self.sample, rows)


@dataclass(frozen=True)
class LinkedRows:
    """names: `(n,) uint64`, ascending, distinct. vectors: `(n, d) int16`, on the grid.

    some: the rows that have vectors, ascending, as many as `vectors`; None for all. In an earlier set, a row without a
    vector has that of the new row with its name, since both sets have its pack.
    """

    names: NDArray[np.uint64]
    vectors: NDArray[np.int16]
    some: Rows | None = None

    @classmethod
    def of(cls, names: NDArray[np.uint64], vectors: NDArray[np.int16]) -> LinkedRows:
        """Return rows in the order of their names, without rows that share a name."""
        order = order_of(names)
        return cls(names[order], vectors[order])

    def __len__(self) -> int:
        return len(self.names)


def order_of(names: NDArray[np.uint64]) -> Rows:
    """Return the rows ordered by name, without rows that share a name (64 bits of a hash): they have no links."""
    order = names.argsort(kind="stable")
    if len(names) > 1:
        ordered = names[order]
        same = ordered[1:] == ordered[:-1]
        order = order[~(np.append(same, False) | np.append(False, same))]
    return order


@dataclass
class Links:
    """pairs: in order (`Coding`). limits: `(n,)`. full: the number of rows that chose `cap` rows.

    compared: the number of rows compared with all; the rest were reused. origins: `(n,)`, each row's number in the
    earlier set, -1 for a new or changed row; None if all were compared. Nothing else depends on what was reused.
    """

    rows: LinkedRows
    moments: Moments
    limits: Rows
    pairs: Keys
    full: int
    compared: int
    origins: Rows | None = None


@dataclass
class Choices:
    """The choices of `m` consecutive rows. keys: in order (`Coding`). moments, limits: `(m,)`, as in `Links`."""

    keys: Keys
    moments: Moments
    limits: Rows


def find_links(rows: LinkedRows, rule: LinkRule, earlier: Links | None = None) -> Links:
    """Find the links of rows; `earlier` links of the same rule only save time. Raises ValueError above MOST_ROWS."""
    n = len(rows)
    before = None if earlier is None else _Before(earlier, rows, rule)
    if before is None or is_much(n - len(before.unchanged) + len(before.gone), n):
        return joined_links(rows, rule, [choose(rows, rule, slice(n))])
    return _refreshed(rows, rule, before)


def is_much(changed: int, rows: int) -> bool:
    """Return True if so many rows are new or deleted that all rows are compared again."""
    return 4 * changed > rows


def choose(rows: LinkedRows, rule: LinkRule, some: slice) -> Choices:
    """Return the choices of consecutive rows among all rows. Raises ValueError for more than MOST_ROWS rows."""
    n = len(rows)
    table, coding, limits_of = _Products(rows, rule), Coding(n), _limits(rows, rule)
    moments, limits = Moments.zeros(n, sampled=not rule.is_exact(n)), np.zeros(n, dtype=np.int64)
    chosen = [np.empty(0, dtype=np.int64)]
    for strip in table.strips(np.arange(n)[some]):
        nearest = []
        for first, products in table.of(strip):
            if not first:  # all rows, or the sample and more
                moments.add_rows(products[:, : rule.sampled(n)], strip)
                limits[strip] = limits_of(moments, strip)
            nearest.append(_nearest(coding, strip, first, products, limits[strip], rule.cap))
        chosen.append(coding.merged(nearest, rule.cap))
    range_moments = Moments(moments.sums[some], moments.squares[some], moments.sampled)
    return Choices(np.concatenate(chosen), range_moments, limits[some])


def joined_links(rows: LinkedRows, rule: LinkRule, choices: Iterable[Choices]) -> Links:
    """Join choices, in the order of the rows, into the links of all rows; reads no vectors."""
    coding, full = Coding(len(rows)), 0
    sums, squares, limits, pairs = ([np.empty(0, dtype=np.int64)] for _ in range(4))
    for range_choices in choices:
        full += coding.full(range_choices.keys, rule.cap)
        sums.append(range_choices.moments.sums)
        squares.append(range_choices.moments.squares)
        limits.append(range_choices.limits)
        pairs.append(coding.pairs(range_choices.keys))
    moments = Moments(np.concatenate(sums), np.concatenate(squares), sampled=not rule.is_exact(len(rows)))
    distinct_pairs = coding.distinct(np.concatenate(pairs))
    return Links(rows, moments, np.concatenate(limits), distinct_pairs, full, compared=len(rows))


def _limits(rows: LinkedRows, rule: LinkRule) -> Callable[[Moments, Rows], Rows]:
    """Return a function that computes the limits of some rows from the moments of all rows."""
    n = len(rows)
    if rule.is_exact(n):
        return lambda moments, some: moments.limits(some, rule.threshold)
    polynomials = Polynomials(rows.vectors, rule.sampled(n))
    return lambda moments, some: polynomials.limits(moments, some, rule.threshold)


def _refreshed(rows: LinkedRows, rule: LinkRule, before: _Before) -> Links:
    """Return the links of rows most of which are unchanged since an earlier set."""
    n, unchanged = len(rows), before.unchanged
    fresh = np.delete(np.arange(n), unchanged)
    table, coding, limits_of = _Products(rows, rule), Coding(n), _limits(rows, rule)
    moments, limits = before.moments(table), np.zeros(n, dtype=np.int64)
    choices = [before.choices(coding)]
    for strip in table.strips(fresh):
        nearest, sample = [], strip < rule.sampled(n)
        for first, products in table.of(strip):
            if not first:
                moments.add_rows(products[:, : rule.sampled(n)], strip)
                limits[strip] = limits_of(moments, strip)
            if sample.any():
                moments.add(products if sample.all() else products[sample], unchanged, first)
            choices.append(before.joining(products, strip, first, coding))
            nearest.append(_nearest(coding, strip, first, products, limits[strip], rule.cap))
        choices.append(coding.merged(nearest, rule.cap))
    limits[unchanged] = limits_of(moments, unchanged)
    chosen = np.concatenate(choices)
    choices.clear()
    chosen.sort(kind="stable")  # most are in order
    chosen = coding.best(coding.beyond(chosen, limits), rule.cap)
    again = before.short(coding.counts(chosen), limits, rule.cap)
    if len(again):
        is_again = np.zeros(n, dtype=bool)
        is_again[again] = True
        choices = [_compact(chosen, lambda keys: ~is_again[coding.owners(keys)])]
        for strip in table.strips(again):
            tiles = table.of(strip)
            nearest = [_nearest(coding, strip, first, products, limits[strip], rule.cap) for first, products in tiles]
            choices.append(coding.merged(nearest, rule.cap))
        chosen = np.concatenate(choices)
        choices.clear()
        chosen.sort(kind="stable")
    full = coding.full(chosen, rule.cap)
    pairs = coding.distinct(coding.pairs(chosen))
    return Links(rows, moments, limits, pairs, full, len(fresh) + len(again), before.origins(n))


class _Products:
    """Products of rows with tiles of all rows, as integers on the grid; the first tile has the rows for moments."""

    def __init__(self, rows: LinkedRows, rule: LinkRule) -> None:
        n = len(rows)
        if n > MOST_ROWS:
            raise ValueError(f"{n:,} rows are more than the {MOST_ROWS:,} whose links can be stored")
        self._vectors = rows.vectors
        self._width = max(rule.sampled(n), 1 if rule.is_exact(n) else _TILE)
        self._whole = rows.vectors.astype(np.float32) if n <= self._width else None

    def strips(self, rows: Rows) -> Iterator[Rows]:
        return (rows[first : first + _STRIP] for first in range(0, len(rows), _STRIP))

    def of(self, rows: Rows) -> Iterator[tuple[int, Floats]]:
        """Yield each tile's first row and the products of some rows with it; a row's product with itself is 0."""
        for first, products in self.times(self._vectors[rows]):
            (inside,) = ((rows >= first) & (rows < first + products.shape[1])).nonzero()
            products[inside, rows[inside] - first] = 0.0
            yield first, products

    def times(self, vectors: NDArray[np.int16]) -> Iterator[tuple[int, Floats]]:
        """Yield each tile's first row and the products of some vectors with it."""
        strip = vectors.astype(np.float32)
        for first in range(0, len(self._vectors), self._width):
            tile = self._whole
            if tile is None:
                tile = self._vectors[first : first + self._width].astype(np.float32)
            yield first, strip @ tile.T


class Coding:
    """Choices and pairs as integers that sort like them.

    A choice has the choosing row, the similarity (higher first) and the chosen row. A pair has the lower and the higher
    row and the similarity. `best`, `beyond` and `pairs` overwrite their argument and return a view of it.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._bits = max(rows - 1, 0).bit_length()

    def keys(self, owners: Rows, steps: Rows, partners: Rows) -> Keys:
        """Encode choices."""
        keys = owners << _STEP_BITS
        keys |= LARGEST_STEP - steps
        keys <<= self._bits
        keys |= partners
        return keys

    def owners(self, keys: Keys) -> Rows:
        """Return, for each key, the row that made the choice."""
        return keys >> (self._bits + _STEP_BITS)

    def steps(self, keys: Keys) -> Rows:
        """Return the similarities."""
        return LARGEST_STEP - ((keys >> self._bits) & (_STEPS - 1))

    def partners(self, keys: Keys) -> Rows:
        """Return the chosen rows."""
        return keys & ((1 << self._bits) - 1)

    def best(self, keys: Keys, cap: int) -> Keys:
        """Return the first `cap` choices of each row, in place, from keys in order."""
        starts, counts = self._runs(keys)
        (longer,) = (counts > cap).nonzero()
        if not len(longer):
            return keys
        stay = np.ones(len(keys), dtype=bool)
        stay[runs(starts[longer] + cap, counts[longer] - cap)] = False
        return _compact(keys, stay)

    def merged(self, lists: list[Keys], cap: int) -> Keys:
        """Merge lists, each with at most `cap` choices of a row, into the first `cap` choices of each row, in order."""
        if len(lists) == 1:
            return lists[0]
        keys = np.concatenate([np.empty(0, dtype=np.int64), *lists])
        keys.sort()
        return self.best(keys, cap)

    def full(self, keys: Keys, cap: int) -> int:
        """Count the rows with `cap` choices, from keys in order."""
        return int(np.count_nonzero(self._runs(keys)[1] >= cap))

    def _runs(self, keys: Keys) -> tuple[Rows, Rows]:
        """Return the start and number of the choices of each row that has any, from keys in order."""
        starts = [np.zeros(min(len(keys), 1), dtype=np.int64)]
        for some in _pieces(len(keys) - 1):
            owners = self.owners(keys[some.start : some.stop + 1])
            starts.append((owners[1:] != owners[:-1]).nonzero()[0] + some.start + 1)
        joined = np.concatenate(starts)
        return joined, np.diff(np.append(joined, len(keys)))

    def counts(self, keys: Keys) -> Rows:
        """Return the number of choices of each row, `(n,)`, from keys in order."""
        return np.diff(keys.searchsorted(np.arange(self._rows + 1) << (self._bits + _STEP_BITS)))

    def beyond(self, keys: Keys, limits: Rows) -> Keys:
        """Return the choices whose similarity exceeds the limit of the row that chooses; in place."""
        return _compact(keys, lambda some: self.steps(some) > limits[self.owners(some)])

    def pairs(self, keys: Keys) -> Keys:
        """Turn choices into pairs, in place; a pair appears twice if both rows choose each other."""
        for some in _pieces(len(keys)):
            owners, partners, steps = self.owners(keys[some]), self.partners(keys[some]), self.steps(keys[some])
            keys[some] = self.joined(np.minimum(owners, partners), np.maximum(owners, partners), steps)
        return keys

    def distinct(self, pairs: Keys) -> Keys:
        """Return the distinct pairs, in order. Sorts its argument."""
        pairs.sort()
        return pairs[np.append(True, pairs[1:] != pairs[:-1])] if len(pairs) else pairs

    def joined(self, low: Rows, high: Rows, steps: Rows) -> Keys:
        """Encode pairs."""
        keys = low << self._bits
        keys |= high
        keys <<= _STEP_BITS
        keys |= steps + (LARGEST_STEP + 1)
        return keys

    def first_pairs(self, low: Rows) -> Keys:
        """Return the smallest possible key of a pair with each of these lower rows."""
        return low << (self._bits + _STEP_BITS)

    def ends(self, pairs: Keys) -> tuple[Rows, Rows, Rows]:
        """Return the lower rows, the higher rows and the similarities of pairs."""
        ends = pairs >> _STEP_BITS
        return ends >> self._bits, ends & ((1 << self._bits) - 1), (pairs & (_STEPS - 1)) - LARGEST_STEP - 1


def _compact(keys: Keys, stay: NDArray[np.bool_] | Callable[[Keys], NDArray[np.bool_]]) -> Keys:
    """Move the keys that stay to the front and return a view of them. stay: a mask, or a function that returns one."""
    end = 0
    for some in _pieces(len(keys)):
        staying = keys[some][stay(keys[some]) if callable(stay) else stay[some]]
        keys[end : end + len(staying)] = staying
        end += len(staying)
    return keys[:end]


class _Before:
    """The links of an earlier set, for the rows of the new set that are unchanged.

    unchanged, old: the numbers of rows with the same name and vector, in the new set and in the earlier one. gone: the
    other rows of the earlier set.
    """

    def __init__(self, earlier: Links, rows: LinkedRows, rule: LinkRule) -> None:
        self._earlier, self._names, self._rule = earlier, rows.names, rule
        before = earlier.rows
        place = before.names.searchsorted(rows.names)
        place[place == len(before)] = 0
        same = np.zeros(len(rows), dtype=bool)
        if len(before) and rule.is_exact(len(before)) == rule.is_exact(len(rows)):
            same = before.names[place] == rows.names
        self._vector = np.arange(len(before))  # each earlier row's vector; -1: that of the new row with its name
        if before.some is not None:
            self._vector = np.full(len(before), -1)
            self._vector[before.some] = np.arange(len(before.some))
        (candidates,) = same.nonzero()
        candidates = candidates[self._vector[place[candidates]] >= 0]
        if len(candidates) and before.vectors.shape[1] != rows.vectors.shape[1]:
            same[:] = False
        for first in range(0, len(candidates), _TILE):
            some = candidates[first : first + _TILE]
            same[some] &= (before.vectors[self._vector[place[some]]] == rows.vectors[some]).all(axis=1)
        self.unchanged, self.old = same.nonzero()[0], place[same]
        self.gone = np.delete(np.arange(len(before)), self.old)
        if (self._vector[self.gone] < 0).any():  # two new rows share such a name
            self.unchanged, self.old, self.gone = self.unchanged[:0], self.old[:0], np.arange(len(before))

    def origins(self, rows: int) -> Rows:
        origins = np.full(rows, -1)
        origins[self.unchanged] = self.old
        return origins

    def moments(self, table: _Products) -> Moments:
        """Return the moments of unchanged rows, over unchanged rows of the sample. table: the products of all rows."""
        was, moments = self._earlier.moments, Moments.zeros(len(self._names), self._earlier.moments.sampled)
        moments.sums[self.unchanged], moments.squares[self.unchanged] = was.sums[self.old], was.squares[self.old]
        sampled, sampled_before = (self._rule.sampled(len(one)) for one in (self._names, self._earlier.rows))
        for strip in table.strips(self.gone[self.gone < sampled_before]):
            for first, products in table.times(self._earlier.rows.vectors[self._vector[strip]]):
                moments.add(products, self.unchanged, first, sign=-1)
        is_in, was_in = self.unchanged < sampled, self.old < sampled_before
        for moved, sign in ((self.unchanged[was_in & ~is_in], -1), (self.unchanged[is_in & ~was_in], 1)):
            for strip in table.strips(moved):
                for first, products in table.of(strip):
                    moments.add(products, self.unchanged, first, sign)
        return moments

    def choices(self, coding: Coding) -> Keys:
        """Return the choices of unchanged rows among unchanged rows, in order; sets the bound of each unchanged row.

        A full row's choices are complete down to its last choice, another row's down to its limit.
        """
        earlier, rows = self._earlier, len(self._earlier.rows)
        earlier_coding, count, cap = Coding(rows), len(earlier.pairs), self._rule.cap
        keys = np.empty(2 * count, dtype=np.int64)
        for some in _pieces(count):
            low, high, steps = earlier_coding.ends(earlier.pairs[some])
            both = slice(some.start, some.start + len(low)), slice(count + some.start, count + some.start + len(low))
            keys[both[0]], keys[both[1]] = earlier_coding.keys(low, steps, high), earlier_coding.keys(high, steps, low)
        keys.sort()
        keys = earlier_coding.best(earlier_coding.beyond(keys, earlier.limits), cap)
        counts = earlier_coding.counts(keys)
        ends = counts.cumsum()
        # The highest similarity at which choices may be missing, and the name up to which those at it are complete.
        self._bound, self._names_of_bounds = earlier.limits.copy(), np.zeros(rows, dtype=np.uint64)
        full = counts == cap
        last = keys[ends[full] - 1]
        self._bound[full], self._names_of_bounds[full] = (
            earlier_coding.steps(last),
            earlier.rows.names[earlier_coding.partners(last)],
        )
        self._is_full = full
        self._floor = np.full(len(self._names), np.inf, dtype=np.float32)
        self._floor[self.unchanged] = np.where(full, self._bound, self._bound + 1)[self.old] * STEP
        new = np.full(rows, -1, dtype=np.int64)
        new[self.old] = self.unchanged
        keys = _compact(
            keys, lambda some: (new[earlier_coding.owners(some)] >= 0) & (new[earlier_coding.partners(some)] >= 0)
        )
        for some in _pieces(len(keys)):
            owners, partners = new[earlier_coding.owners(keys[some])], new[earlier_coding.partners(keys[some])]
            keys[some] = coding.keys(owners, earlier_coding.steps(keys[some]), partners)
        return keys

    def joining(self, products: Floats, rows: Rows, first: int, coding: Coding) -> Keys:
        """Return the choices of new rows that unchanged rows may make: those with a similarity that reaches the bound.

        products: the products of new rows with a tile of all rows that begins with the row `first`.
        """
        strip_rows, columns = (products >= self._floor[first : first + products.shape[1]]).nonzero()
        steps = _steps(products[strip_rows, columns])
        columns += first
        old = self.old[self.unchanged.searchsorted(columns)]
        tie = steps == self._bound[old]  # with the last choice of a full row
        stay = ~tie | (self._names_of_bounds[old] >= self._names[rows[strip_rows]])
        return coding.keys(columns[stay], steps[stay], rows[strip_rows][stay])

    def short(self, counts: Rows, limits: Rows, cap: int) -> Rows:
        """Return the unchanged rows that may lack choices. counts: the number of each row's known choices."""
        complete_above = np.where(self._is_full[self.old], self._bound[self.old], self._earlier.limits[self.old])
        return self.unchanged[(counts[self.unchanged] < cap) & (limits[self.unchanged] < complete_above)]


def _nearest(coding: Coding, rows: Rows, first: int, products: Floats, limits: Rows, cap: int) -> Keys:
    """Return the choices of some rows within a tile, in order. products: the rows' products with the tile; modified."""
    (inside,) = ((rows >= first) & (rows < first + products.shape[1])).nonzero()
    products[inside, rows[inside] - first] = -2 * UNIT
    owners, partners = (products >= ((limits + 1) * STEP).astype(np.float32)[:, None]).nonzero()
    keys = coding.keys(rows[owners], _steps(products[owners, partners]), partners + first)
    counts = np.bincount(owners, minlength=len(rows))
    if counts.max() > _MANY * cap:
        some = np.split(keys, counts.cumsum()[:-1])
        keys = np.concatenate([one if len(one) <= _MANY * cap else np.partition(one, cap - 1)[:cap] for one in some])
    keys.sort()
    return coding.best(keys, cap)


def _pieces(length: int) -> Iterator[slice]:
    """Return consecutive slices of an array, which bound the memory of computations."""
    return (slice(first, min(first + _PIECE, length)) for first in range(0, length, _PIECE))


def _steps(products: Floats) -> Rows:
    return np.minimum(products.astype(np.int64) // STEP, LARGEST_STEP)
