"""Segments of a layer's nodes: within bounds, local, and a function of the set (EraRAG, Algorithm 1, lines 3-11; ours).

The paper hashes nodes into buckets, splits large ones and merges small ones with near ones, in an order it leaves open.
Here the nodes are the leaves of a binary trie over their codes (tasks.families.lsh_tree.hyperplanes), siblings in
Gray-code order, so that the subtrees that touch at a split have prefixes which differ in one bit:

- a node of the trie with more than `largest` leaves is split, any other is one piece;
- from the bottom up, a piece below `smallest` joins the segment of its sibling that it touches; if together they
  exceed `largest` they are cut in two of at least `smallest`, in order, between the neighbours that share fewest bits
  (an edge of the trie stays where it is when nodes come and go; the middle would not).

A node that is split has more than `largest` >= 2 * smallest - 1 leaves, so at most one of its two sides is a piece
below `smallest`, and the other is made of segments within bounds. What joins has from largest + 1 to
largest + smallest - 1 nodes where it is cut: at least 2 * smallest, so that there is a place to cut, and either side
has at most largest - 1. So every segment is within bounds, if there are `smallest` nodes at all.

Nodes with equal codes are told apart by further blocks of hyperplanes, BLOCKS in all, then by the bits of SHA-256 of
their keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.retrieve.grid import on_grid
from indexmill.store.canonical import canonical_json
from tasks.core.shards import hash_order
from tasks.families.lsh_tree.hyperplanes import BITS, Hyperplanes

__all__ = ["BLOCKS", "Segments", "Vectors", "centres", "node_id", "segment"]

Keys = NDArray[np.uint8]
Rows = NDArray[np.int64]
Floats = NDArray[np.float32]
Words = NDArray[np.uint64]
Vectors = Floats | Callable[[Rows], Floats]
"""Vectors (n, d) float32, memory-mapped or not, or a function that returns the vectors of given rows."""

BLOCKS = 4
"""The number of blocks of hyperplanes that are compared before the keys."""

_TILE = 16_384  # rows whose vectors are asked for at once


class Segments(NamedTuple):
    """Segment i is the rows order[offsets[i] : offsets[i + 1]]; neighbours in order are near each other."""

    order: Rows
    offsets: Rows

    def rows(self) -> list[Rows]:
        """The rows of each segment."""
        return np.split(self.order, self.offsets[1:-1]) if len(self.order) else []


def node_id(layer: int, children: Sequence[tuple[str, str]], fingerprint: str) -> str:
    """The id of a summary: a hash of its layer, its children (id, digest of text) in any order, and the summariser."""
    made_of = [layer, sorted([child, digest] for child, digest in children), fingerprint]
    return hashlib.sha256(canonical_json(made_of)).hexdigest()[:32]


def centres(segments: Segments, vectors: Vectors, dimension: int) -> Floats:
    """The mean direction of the unit vectors of each segment, (segments, dimension) float32, of length one.

    Sums are of vectors on a grid, hence of whole numbers: neither the order of the rows nor what else is summed can
    change a bit. Vectors that cancel each other out have zeros for a mean.
    """
    count = len(segments.offsets) - 1
    owner = np.empty(len(segments.order), dtype=np.int64)
    owner[segments.order] = np.repeat(np.arange(count), np.diff(segments.offsets))
    sums = np.zeros((count, dimension), dtype=np.int32)
    for low in range(0, len(owner), _TILE):  # files are read from front to back
        rows = np.arange(low, min(low + _TILE, len(owner)))
        steps = on_grid(vectors(rows) if callable(vectors) else vectors[rows]).astype(np.int32)
        order = np.argsort(owner[rows], kind="stable")
        mine, starts, counts = np.unique(owner[rows][order], return_index=True, return_counts=True)
        for place in range(int(counts.max())):  # few and long sums: ten times as quick as np.add.reduceat
            has = counts > place
            sums[mine[has]] += steps[order[starts[has] + place]]
    found = np.empty((count, dimension), dtype=np.float32)
    for low in range(0, count, _TILE):
        tile = sums[low : low + _TILE].astype(np.float64)
        lengths = np.sqrt(np.einsum("ij,ij->i", tile, tile))  # of whole numbers: exact up to the root
        found[low : low + _TILE] = tile / np.maximum(lengths, 1.0)[:, None]
    return found


def segment(
    keys: Keys,
    vectors: Vectors,
    planes: Hyperplanes,
    smallest: int,
    largest: int,
    codes: Words | None = None,
) -> Segments:
    """Segments of `smallest` to `largest` rows each; fewer than `smallest` rows are one segment.

    `codes` are those of the first block, where they are known. `keys` is (n, 32) uint8 without repeats. Any order of
    the rows gives the same segments, as sets of keys and in order. Raises ValueError for repeated keys, vectors that
    cannot be hashed, and largest < 2 * smallest - 1.
    """
    if keys.ndim != 2 or keys.shape[1] != 32 or keys.dtype != np.uint8:
        raise ValueError(f"expected keys (n, 32) uint8; found {keys.shape} {keys.dtype}")
    if not callable(vectors) and len(vectors) != len(keys):
        raise ValueError(f"expected a vector per key; found {len(vectors)} vectors and {len(keys)} keys")
    if smallest < 1 or largest < 2 * smallest - 1:
        raise ValueError(f"expected largest >= 2 * smallest - 1; found {smallest} and {largest}")
    order, shared = _sorted(keys, vectors, planes, codes)
    cuts = _cuts(shared, smallest, largest)
    ends = np.append(np.flatnonzero(cuts) + 1, len(order)) if len(order) else order
    return Segments(order, np.concatenate([np.zeros(1, dtype=np.int64), ends]))


def _sorted(keys: Keys, vectors: Vectors, planes: Hyperplanes, codes: Words | None) -> tuple[Rows, NDArray[np.int16]]:
    """The rows in Gray order of their codes, and the number of leading bits shared with the next, (n - 1,) int16.

    A word of a code is looked at only where rows share all words before it.
    """
    order = hash_order(keys)
    _refuse_repeats(keys, order)
    shared = np.zeros(max(len(order) - 1, 0), dtype=np.int16)
    places = np.arange(len(order))  # of the rows that are not told apart yet
    group = np.zeros(len(order), dtype=np.int64)
    flipped = np.zeros(len(order), dtype=np.uint64)  # all ones after an odd number of ones
    for word in range(BLOCKS + 4):
        if not len(places):
            break
        rows = order[places]
        known = codes if word == 0 else None
        ranks = _gray_ranks(_word(keys, vectors, planes, rows, word) if known is None else known[rows]) ^ flipped
        sorting = np.lexsort((ranks, group))
        order[places] = rows[sorting]
        ranks, group = ranks[sorting], group[sorting]
        together = np.flatnonzero(group[1:] == group[:-1])
        shared[places[together]] = BITS * word + _leading_zeros(ranks[together] ^ ranks[together + 1])
        starts = np.concatenate([[True], (group[1:] != group[:-1]) | (ranks[1:] != ranks[:-1])])
        group = np.cumsum(starts) - 1
        keep = np.bincount(group)[group] > 1
        places, group = places[keep], group[keep]
        flipped = np.where(ranks[keep] & np.uint64(1), ~np.uint64(0), np.uint64(0))
    return order, shared


def _refuse_repeats(keys: Keys, order: Rows) -> None:
    first = keys[:, :8].copy().view(np.uint64).reshape(-1)
    near = np.flatnonzero(first[order[1:]] == first[order[:-1]])
    same = near[(keys[order[near]] == keys[order[near + 1]]).all(axis=1)]
    if same.size:
        one, other = sorted((int(order[same[0]]), int(order[same[0] + 1])))
        raise ValueError(f"rows {one} and {other} have the same key {keys[one].tobytes().hex()}: give each node once")


def _word(keys: Keys, vectors: Vectors, planes: Hyperplanes, rows: Rows, word: int) -> Words:
    """The 64 bits of a code that follow `word` others: of a block of hyperplanes, or of the key's hash."""
    if word >= BLOCKS:
        hashes = b"".join(hashlib.sha256(keys[row].tobytes()).digest() for row in rows)
        return np.frombuffer(hashes, dtype=">u8").reshape(-1, 4)[:, word - BLOCKS].astype(np.uint64)
    codes = np.empty(len(rows), dtype=np.uint64)
    at = np.argsort(rows)  # files are read from front to back
    for low in range(0, len(rows), _TILE):
        tile = at[low : low + _TILE]
        wanted = rows[tile]
        codes[tile] = planes.codes(vectors(wanted) if callable(vectors) else vectors[wanted], word)
    return codes


def _gray_ranks(codes: Words) -> Words:
    """The rank of each code in Gray order: bit i is the parity of the code's bits down to i."""
    ranks = codes.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        ranks ^= ranks >> np.uint64(shift)
    return ranks


def _leading_zeros(words: Words) -> NDArray[np.int16]:
    high = words >> np.uint64(32)
    half = np.where(high > 0, high, words & np.uint64(0xFFFFFFFF)).astype(np.float64)  # exact: 32 bits
    return (BITS - np.frexp(half)[1] - np.where(high > 0, 32, 0)).astype(np.int16)


def _cuts(shared: NDArray[np.int16], smallest: int, largest: int) -> NDArray[np.bool_]:
    """True for each row but the last after which a segment ends, from the bits that it shares with the next.

    Two neighbours that share t bits stand on both sides of a node of the trie at depth t: the longest run around them
    whose neighbours share t bits or more. No other neighbours in that run share exactly t.
    """
    cuts = np.zeros(len(shared), dtype=np.bool_)
    for depth in np.unique(shared):
        at = np.flatnonzero(shared == depth)
        low, high = _around(np.flatnonzero(shared < depth), at, len(shared))
        cuts[at] = high - low > largest
    ends = np.flatnonzero(cuts)
    bounds = np.concatenate([[-1], ends, [len(shared)]])
    depths = np.concatenate([[-1], shared[ends], [-1]])
    small = np.flatnonzero(np.diff(bounds) < smallest)
    left = depths[small] > depths[small + 1]  # the sibling's side
    joins = bounds[np.where(left, small, small + 1)]
    joined = np.maximum(depths[small], depths[small + 1])
    for depth in np.unique(joined[joined >= 0])[::-1]:
        at = joins[joined == depth]
        cuts[at] = False
        low, high = _around(np.flatnonzero(cuts), at, len(shared))
        full = high - low > largest
        cuts[_parting(shared, low[full], high[full], smallest)] = True
    return cuts


def _parting(shared: NDArray[np.int16], low: Rows, high: Rows, smallest: int) -> Rows:
    """The cuts of runs (low, high]: not within `smallest` of an end, at the fewest shared bits, nearest the middle."""
    choices = low[:, None] + smallest + np.arange(int((high - low).max(initial=0)) - 2 * smallest + 1)
    off_middle = np.abs(2 * choices - (low + high)[:, None])
    costs = shared[np.minimum(choices, len(shared) - 1)].astype(np.int64) * (4 * len(shared)) + off_middle
    costs[choices > (high - smallest)[:, None]] = np.iinfo(np.int64).max
    chosen: Rows = choices[np.arange(len(low)), costs.argmin(axis=1)] if len(low) else low
    return chosen


def _around(ends: Rows, at: Rows, last: int) -> tuple[Rows, Rows]:
    """The last end before, and the first after, each place; -1 and `last` where there is none."""
    bounded = np.concatenate([[-1], ends, [last]])
    right = np.searchsorted(bounded, at, side="right")
    return bounded[right - 1], bounded[right]
