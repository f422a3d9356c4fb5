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

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.similar import LARGEST_STEP, STEP
from indexmill.retrieve.grid import UNIT
from tasks.families.zoom_graph.moments import Moments, estimated_limits

__all__ = ["MOST_ROWS", "LinkRule", "LinkedRows", "Links", "find_links"]

Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Keys = NDArray[np.int64]

MOST_ROWS = 1 << 23
"""The most rows, so that a row, a similarity and another row fit 63 bits."""

_STRIP = 512  # rows compared at once
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


def find_links(rows: LinkedRows, rule: LinkRule, known: Links | None = None) -> Links:
    """The links of some rows; `known` are those of an earlier set, made with the same rule.

    The result, but for `compared`, does not depend on `known`. Raises ValueError for more than MOST_ROWS rows.
    """
    n = len(rows)
    if n > MOST_ROWS:
        raise ValueError(f"{n:,} rows are more than the {MOST_ROWS:,} whose links can be stored")
    exact = n <= rule.exact_rows
    vectors = rows.vectors.astype(np.float32)
    before = None if known is None else _Before(known, rows, rule, exact)
    if before is not None and 4 * (n - len(before.kept) + len(before.gone)) > n:
        before = None
    kept = np.empty(0, dtype=np.int64) if before is None else before.kept
    fresh = np.delete(np.arange(n), kept)
    moments = Moments.zeros(n)
    limits = np.zeros(n, dtype=np.int64) if exact else estimated_limits(vectors, rule.threshold)
    coding = _Coding(n)
    choices: list[Keys] = []
    if before is not None:
        choices.append(before.choices(coding))
        if exact:
            before.carry(moments, vectors)
    for some, strip in _strips(vectors, fresh):
        if exact:
            moments.add_rows(strip, some)
            if len(kept):
                moments.add(strip, kept)
            limits[some] = moments.limits(some, rule.threshold)
        if before is not None:
            choices.append(before.joining(strip, some, coding))
        choices.append(_nearest(coding, some, strip, limits[some], rule.cap))
    again = np.empty(0, dtype=np.int64)
    if before is not None:
        if exact:
            limits[kept] = moments.limits(kept, rule.threshold)
        chosen = np.sort(np.concatenate(choices), kind="stable")  # most are in order
        chosen = coding.best(chosen[coding.steps(chosen) > limits[coding.owners(chosen)]], rule.cap)
        again = before.short(np.bincount(coding.owners(chosen), minlength=n), limits, rule.cap)
        if len(again):
            compared_again = np.zeros(n, dtype=bool)
            compared_again[again] = True
            choices = [chosen[~compared_again[coding.owners(chosen)]]]
            for some, strip in _strips(vectors, again):
                choices.append(_nearest(coding, some, strip, limits[some], rule.cap))
        else:
            choices = [chosen]
    chosen = np.concatenate([np.empty(0, dtype=np.int64), *choices])
    low, high, steps = coding.pairs(chosen)
    full = np.count_nonzero(np.bincount(coding.owners(chosen), minlength=n) == rule.cap)
    return Links(rows, moments, limits, low, high, steps, int(full), len(fresh) + len(again))


class _Coding:
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
        return keys[_ranks(self.owners(keys)) < cap]

    def pairs(self, keys: Keys) -> tuple[Rows, Rows, Rows]:
        """The distinct pairs of some choices, by row: the lower rows, the higher ones, and similarities."""
        owners, partners = self.owners(keys), self.partners(keys)
        low, high = np.minimum(owners, partners), np.maximum(owners, partners)
        coded = (((low << self._bits) | high) << _STEP_BITS) | (self.steps(keys) + LARGEST_STEP + 1)
        coded.sort()
        coded = coded[np.append(True, coded[1:] != coded[:-1])] if len(coded) else coded
        pairs = coded >> _STEP_BITS
        return pairs >> self._bits, pairs & ((1 << self._bits) - 1), (coded & (_STEPS - 1)) - LARGEST_STEP - 1


class _Before:
    """What is known from an earlier set about those of its rows that are kept.

    kept, old: the rows whose name and vector are the same, in the new set and in the earlier one. gone: the other rows
    of the earlier set.
    """

    def __init__(self, known: Links, rows: LinkedRows, rule: LinkRule, exact: bool) -> None:
        self._known, self._names = known, rows.names
        self._cap = rule.cap
        before = known.rows
        place = before.names.searchsorted(rows.names)
        place[place == len(before)] = 0
        same = np.zeros(len(rows), dtype=bool)
        was_exact = len(before) <= rule.exact_rows
        if len(before) and before.vectors.shape[1] == rows.vectors.shape[1] and was_exact == exact:
            same = before.names[place] == rows.names
            same[same] = (before.vectors[place[same]] == rows.vectors[same]).all(axis=1)
        self.kept, self.old = same.nonzero()[0], place[same]
        self.gone = np.delete(np.arange(len(before)), self.old)

    def carry(self, moments: Moments, vectors: Floats) -> None:
        """Set the moments of kept rows to what they are without the gone ones. vectors: of the new set."""
        moments.sums[self.kept] = self._known.moments.sums[self.old]
        moments.squares[self.kept] = self._known.moments.squares[self.old]
        gone = self._known.rows.vectors[self.gone].astype(np.float32)
        for first in range(0, len(gone), _STRIP):
            moments.add(gone[first : first + _STRIP] @ vectors.T, self.kept, sign=-1)

    def choices(self, coding: _Coding) -> Keys:
        """The choices of kept rows for kept rows, in order; sets the bound of each kept row.

        A row that chose as many as it may knows all rows up to its last choice, another one all beyond its limit.
        """
        known, rows = self._known, len(self._known.rows)
        own = _Coding(rows)
        keys = np.concatenate(
            [own.keys(known.low, known.steps, known.high), own.keys(known.high, known.steps, known.low)]
        )
        keys.sort()
        keys = keys[own.steps(keys) > known.limits[own.owners(keys)]]
        keys = own.best(keys, self._cap)
        counts = np.bincount(own.owners(keys), minlength=rows)
        ends = counts.cumsum()
        # The first similarity of which some may be unknown, and the name up to which those of it are known.
        self._bound, self._name = known.limits.copy(), np.zeros(rows, dtype=np.uint64)
        full = counts == self._cap
        last = keys[ends[full] - 1]
        self._bound[full], self._name[full] = own.steps(last), known.rows.names[own.partners(last)]
        self._is_full = full
        new = np.full(rows, -1, dtype=np.int64)
        new[self.old] = self.kept
        owners, partners = new[own.owners(keys)], new[own.partners(keys)]
        stay = (owners >= 0) & (partners >= 0)
        return coding.keys(owners[stay], own.steps(keys[stay]), partners[stay])

    def joining(self, strip: Floats, rows: Rows, coding: _Coding) -> Keys:
        """The new rows that may be among the choices of kept ones: those above their bounds. strip: the products."""
        bound = self._bound[self.old]
        floor = np.full(strip.shape[1], np.inf, dtype=np.float32)
        floor[self.kept] = np.where(self._is_full[self.old], bound, bound + 1) * STEP
        found, columns = (strip >= floor).nonzero()
        steps = _steps(strip[found, columns])
        place = self.kept.searchsorted(columns)
        tie = steps == bound[place]  # of a full row
        stay = ~tie | (self._names[rows[found]] <= self._name[self.old[place]])
        return coding.keys(columns[stay], steps[stay], rows[found][stay])

    def short(self, counts: Rows, limits: Rows, cap: int) -> Rows:
        """The kept rows that may lack choices. counts: the choices of each row, of all that is known."""
        known = np.where(self._is_full[self.old], self._bound[self.old], self._known.limits[self.old])
        return self.kept[(counts[self.kept] < cap) & (limits[self.kept] < known)]


def _strips(vectors: Floats, rows: Rows) -> Iterator[tuple[Rows, Floats]]:
    """Yield the given rows in batches, with their products with all rows; a row's product with itself is 0."""
    for first in range(0, len(rows), _STRIP):
        some = rows[first : first + _STRIP]
        strip = vectors[some] @ vectors.T
        strip[np.arange(len(some)), some] = 0.0
        yield some, strip


def _nearest(coding: _Coding, rows: Rows, strip: Floats, limits: Rows, cap: int) -> Keys:
    """The choices of the rows of a strip, in order; the strip loses its diagonal."""
    strip[np.arange(len(rows)), rows] = -2 * UNIT
    found, partners = (strip >= ((limits + 1) * STEP).astype(np.float32)[:, None]).nonzero()
    keys = coding.keys(rows[found], _steps(strip[found, partners]), partners)
    counts = np.bincount(found, minlength=len(rows))
    if counts.max() > _MANY * cap:
        some = np.split(keys, counts.cumsum()[:-1])
        keys = np.concatenate([one if len(one) <= _MANY * cap else np.partition(one, cap - 1)[:cap] for one in some])
    keys.sort()
    return coding.best(keys, cap)


def _steps(products: Floats) -> Rows:
    """The similarities of some products."""
    return np.minimum(products.astype(np.int64) // STEP, LARGEST_STEP)


def _ranks(owners: Rows) -> Rows:
    """The place of each of some rows, which ascend, among those that are the same."""
    (starts,) = np.append(True, owners[1:] != owners[:-1]).nonzero() if len(owners) else (owners,)
    return np.arange(len(owners)) - starts.repeat(np.diff(np.append(starts, len(owners))))
