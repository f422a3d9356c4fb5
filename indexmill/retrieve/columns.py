"""Operations on columns of (question, row) pairs: many questions at once, bit-identical to one question at a time.

A pair is one int64 with the question in the high bits, so that pairs sort by question and then by row. A sum adds the
values of one question in their order, so it does not depend on other questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.consecutive import starts_of
from indexmill.retrieve.directions import is_directions, unit_vectors

Pairs = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]

_ROW_BITS = 40

_ROW = (1 << _ROW_BITS) - 1

_LAST_BITS = (1 << 16) - 1

_PAIR_TILE = 512
"""The number of pairs whose vectors are in memory at once: 768 KiB at 384 float32 each."""


def paired(questions: Rows, rows: Rows) -> Pairs:
    """Encode questions and rows as pairs."""
    return (questions << _ROW_BITS) | rows


def parts(pairs: Pairs) -> tuple[Rows, Rows]:
    """Decode pairs into questions and rows."""
    return pairs >> _ROW_BITS, pairs & _ROW


def before(lengths: Sequence[int] | Rows) -> Rows:
    """Return the offsets of consecutive columns of these lengths."""
    return np.asarray(np.cumsum(lengths) - lengths, dtype=np.int64)


def runs(begins: npt.NDArray[np.integer], lengths: Rows) -> Rows:
    """Concatenate ranges of rows, given the first row and the length of each."""
    return np.asarray(np.arange(int(lengths.sum())) + (begins - before(lengths)).repeat(lengths), dtype=np.int64)


def changes(ordered: npt.NDArray[np.integer]) -> npt.NDArray[np.bool_]:
    """Return a mask of the first sorted value and of each value that differs from its predecessor."""
    differ = np.empty(len(ordered), dtype=np.bool_)
    differ[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=differ[1:])
    return differ


def distinct(values: Rows) -> Rows:
    """Return the distinct values, ascending; much faster than the hashing of `np.unique` for millions of values."""
    ordered = values.copy()
    ordered.sort()
    return ordered[changes(ordered)]


def positions(values: npt.NDArray[np.integer], within: npt.NDArray[np.integer]) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Find each value's position in distinct ascending values, and return a mask of the values that occur there."""
    if not len(within):
        return np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    at: Rows = np.minimum(within.searchsorted(values), len(within) - 1)
    return at, within[at] == values


def slices(owners: Rows, count: int) -> list[slice]:
    """Return the slice of each of ``count`` owners in an ascending column of owners."""
    return [slice(*cut) for cut in pairwise(owners.searchsorted(np.arange(count + 1)).tolist())]


def matches(values: Rows, within: Rows) -> tuple[Rows, Rows]:
    """Find the values that occur in a column of distinct ascending values; return their positions in both columns.

    A lookup table of the values' low bits rules out most other values before the binary search.
    """
    present = np.zeros(_LAST_BITS + 1, dtype=np.bool_)
    present[within & _LAST_BITS] = True
    (likely,) = present.take(values & _LAST_BITS).nonzero()
    at, occurs = positions(values[likely], within)
    return likely[occurs], at[occurs]


def best_of_each(keys: Rows, values: Scores) -> tuple[Rows, Scores, Rows]:
    """Return the distinct keys, ascending, each with its largest value and the first position of that value."""
    order = np.lexsort((-values, keys))
    first = order[changes(keys[order])]
    return keys[first], values[first], first


def first_of_each(owners: Rows, values: npt.NDArray[np.floating], count: int) -> Rows:
    """Return the positions of each owner's ``count`` largest values, by owner and descending value, ties by position.

    owners: ascending.
    """
    short = owners.astype(np.min_scalar_type(int(owners[-1])) if len(owners) else np.uint8)  # sorted in linear time
    order = np.lexsort((-values, short))
    rank = np.arange(len(order)) - owners.searchsorted(owners)  # sorted: an owner's positions are contiguous
    return order[rank < count]


def sums(keys: Rows, values: Scores, length: int) -> Scores:
    """Sum the values of each key below ``length``, in input order."""
    return np.bincount(keys, values, length).astype(np.float64, copy=False)


def take_rows(shards: Sequence[npt.NDArray[Any]], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """Return the vectors ``(n_rows, d) float32`` of ascending rows, numbered consecutively across shards.

    shards: one or more ``(n, d)`` arrays of vectors, or of directions, which become unit vectors. From memory maps,
    only these rows are read.
    """
    starts = starts_of(shards)
    numbers = starts.searchsorted(rows, side="right") - 1
    places = rows - starts[numbers]
    cuts = [0, *((numbers[1:] != numbers[:-1]).nonzero()[0] + 1).tolist(), len(rows)]
    vectors: npt.NDArray[Any] | None = None
    for done, upto in pairwise(cuts):
        shard = shards[int(numbers[done]) if upto > done else 0]
        if vectors is None:
            vectors = np.empty((len(rows), shard.shape[1]), dtype=shard.dtype)
        # The default mode would fill a copy of the output first, to keep the output intact on an error.
        shard.take(places[done:upto], 0, vectors[done:upto], "clip")
    assert vectors is not None  # noqa: S101 - there are at least two cuts
    return unit_vectors(vectors) if is_directions(vectors) else vectors


def products(
    shards: Sequence[npt.NDArray[Any]], vectors: npt.NDArray[np.float32], pairs: Pairs
) -> npt.NDArray[np.float32]:
    """Return the inner products ``(n_pairs,) float32`` of each pair's row in the shards with its question's vector.

    vectors: ``(n_questions, d) float32``. Each product is a separate call of the linear algebra library,
    so its rounding does not depend on the other pairs.
    """
    scores = np.empty(len(pairs), dtype=np.float32)
    questions, rows = parts(pairs)
    order = rows.argsort()
    for first in range(0, len(pairs), _PAIR_TILE):
        tile = order[first : first + _PAIR_TILE]
        scores[tile] = np.vecdot(take_rows(shards, rows[tile]), vectors.take(questions[tile], 0))
    return scores


def reciprocal_ranks(lists: Sequence[Rows], constant: float, weights: Sequence[float] | None = None) -> Rows:
    """Sort the rows of all lists by the sum of their weighted reciprocal ranks (default weight 1), ties by row."""
    weights = [1.0] * len(lists) if weights is None else weights
    worth = [weight / (constant + 1 + np.arange(len(rows))) for rows, weight in zip(lists, weights, strict=True)]
    rows, position = np.unique(np.concatenate(lists), return_inverse=True)
    scores = np.bincount(position, np.concatenate(worth), len(rows))
    return rows[np.lexsort((rows, -scores))]
