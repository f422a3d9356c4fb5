"""Segments of a layer's nodes: within bounds, local, and a function of the set (after EraRAG, Algorithm 1, lines 3-11).

The paper hashes nodes into buckets, splits large buckets and merges small ones with near ones, in an unspecified order.
Here the nodes are the leaves of a binary trie over their codes (tasks.families.lsh_tree.hyperplanes), with siblings in
Gray-code order, so that the two subtrees on either side of a split have prefixes that differ in one bit:

- a node of the trie with more than `largest` leaves is split; any other is one piece;
- from the bottom up, a piece below `smallest` joins the adjacent segment of its sibling; if together they exceed
  `largest`, they are cut into two of at least `smallest`, between the neighbours that share the fewest bits (an edge
  of the trie stays where it is when nodes are added or removed; the middle would not).

A node that is split has more than `largest` >= 2 * smallest - 1 leaves, so at most one of its two sides is a piece
below `smallest`, and the other consists of segments within bounds. Two joined pieces that must be cut have from
largest + 1 to largest + smallest - 1 nodes: at least 2 * smallest, so there is a place to cut, and either side has at
most largest - 1. So every segment is within bounds, if there are at least `smallest` nodes.

Nodes with equal codes are separated by the bits of SHA-256 of their keys. More hyperplanes would need vectors, which
nothing else here reads, and nodes that 64 hyperplanes do not separate are similar in any order.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from indexmill.store.canonical import canonical_json
from tasks.core.groups import as_words
from tasks.families.lsh_tree.hyperplanes import BITS

Keys = NDArray[np.uint8]
Rows = NDArray[np.int64]
Words = NDArray[np.uint64]

_HASH_WORDS = 4  # words of a SHA-256


class Segments(NamedTuple):
    """Segment i is the rows order[offsets[i] : offsets[i + 1]]; neighbours in order are near each other."""

    order: Rows
    offsets: Rows

    def rows(self) -> list[Rows]:
        return np.split(self.order, self.offsets[1:-1]) if len(self.order) else []

    def middles(self) -> Rows:
        """Return the row in the middle of each segment, the later of two."""
        rows: Rows = self.order[(self.offsets[:-1] + self.offsets[1:]) // 2]
        return rows


def node_id(layer: int, children: Sequence[tuple[str, str]], fingerprint: str) -> str:
    """Hash a summary's layer, its children (id, digest of text) in any order, and the summariser into its id."""
    made_of = [layer, sorted([child, digest] for child, digest in children), fingerprint]
    return hashlib.sha256(canonical_json(made_of)).hexdigest()[:32]


def segment(keys: Keys, codes: Words, smallest: int, largest: int) -> Segments:
    """Cut rows into segments of `smallest` to `largest` rows; fewer than `smallest` rows are one segment.

    keys: (n, k) uint8, k at least 8, without repeats. codes: (n,) uint64, of `Hyperplanes.codes`. The segments, as sets
    of keys and in order, do not depend on the order of the rows. Raises ValueError for repeated keys and for largest <
    2 * smallest - 1.
    """
    if (
        keys.ndim != 2
        or keys.shape[1] < 8
        or keys.dtype != np.uint8
        or codes.shape != keys.shape[:1]
        or codes.dtype != np.uint64
    ):
        raise ValueError(
            f"expected keys (n, 8 or more) uint8 and codes (n,) uint64; found {keys.shape} {keys.dtype} and "
            f"{codes.shape} {codes.dtype}"
        )
    if smallest < 1 or largest < 2 * smallest - 1:
        raise ValueError(f"expected largest >= 2 * smallest - 1; found {smallest} and {largest}")
    _refuse_repeats(keys)
    order, shared = _sorted(keys, codes)
    cuts = _cuts(shared, smallest, largest)
    ends = np.append(np.flatnonzero(cuts) + 1, len(order)) if len(order) else order
    return Segments(order, np.concatenate([np.zeros(1, dtype=np.int64), ends]))


def gray_ranks(codes: Words) -> Words:
    """Return the rank of each code in Gray order: bit i is the parity of the code's bits down to i."""
    ranks = codes.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        ranks ^= ranks >> np.uint64(shift)
    return ranks


def _sorted(keys: Keys, codes: Words) -> tuple[Rows, NDArray[np.int16]]:
    """Return the rows in Gray order of codes, and the number of leading bits shared with the next, (n - 1,) int16.

    A word of a key's hash is compared only if rows share all words before it.
    """
    order = np.arange(len(keys))
    shared = np.zeros(max(len(order) - 1, 0), dtype=np.int16)
    places = np.arange(len(order))  # positions of the rows that are not separated yet
    group = np.zeros(len(order), dtype=np.int64)
    flipped = np.zeros(len(order), dtype=np.uint64)  # all ones after an odd number of ones
    for word in range(1 + _HASH_WORDS):
        if not len(places):
            break
        rows = order[places]
        ranks = gray_ranks(_hash_word(keys, rows, word - 1) if word else codes[rows]) ^ flipped
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


def _refuse_repeats(keys: Keys) -> None:
    first = np.ascontiguousarray(keys[:, :8]).view(np.uint64).reshape(-1)
    order = np.argsort(first)
    alike = np.flatnonzero(first[order[1:]] == first[order[:-1]])
    if not alike.size:
        return
    words = as_words(keys)
    order = np.argsort(words, kind="stable")
    same = np.flatnonzero(words[order[1:]] == words[order[:-1]])
    if same.size:
        row, repeat = order[same[0]], order[same[0] + 1]
        raise ValueError(f"rows {row} and {repeat} have the same key {keys[row].tobytes().hex()}: give each node once")


def _hash_word(keys: Keys, rows: Rows, word: int) -> Words:
    """Return word number `word` (64 bits) of the hash of each key."""
    hashes = b"".join(hashlib.sha256(keys[row].tobytes()).digest() for row in rows)
    return np.frombuffer(hashes, dtype=">u8").reshape(-1, _HASH_WORDS)[:, word].astype(np.uint64)


def _leading_zeros(words: Words) -> NDArray[np.int16]:
    high = words >> np.uint64(32)
    half = np.where(high > 0, high, words & np.uint64(0xFFFFFFFF)).astype(np.float64)  # exact: 32 bits
    return (BITS - np.frexp(half)[1] - np.where(high > 0, 32, 0)).astype(np.int16)


def _cuts(shared: NDArray[np.int16], smallest: int, largest: int) -> NDArray[np.bool_]:
    """Return a mask of the rows (without the last) after which a segment ends. shared: bits shared with the next row.

    Two neighbours that share t bits are on the two sides of a trie node at depth t. Its rows are the longest run around
    them in which neighbours share t bits or more; no other neighbours in that run share exactly t.
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
    joins_left = depths[small] > depths[small + 1]  # the sibling's side
    joins = bounds[np.where(joins_left, small, small + 1)]
    joined = np.maximum(depths[small], depths[small + 1])
    for depth in np.unique(joined[joined >= 0])[::-1]:
        at = joins[joined == depth]
        cuts[at] = False
        low, high = _around(np.flatnonzero(cuts), at, len(shared))
        full = high - low > largest
        cuts[_parting(shared, low[full], high[full], smallest)] = True
    return cuts


def _parting(shared: NDArray[np.int16], low: Rows, high: Rows, smallest: int) -> Rows:
    """Return where to cut each run (low, high]: between the rows that share the fewest bits, ties nearest the middle.

    At least `smallest` rows are left on either side.
    """
    choices = low[:, None] + smallest + np.arange(int((high - low).max(initial=0)) - 2 * smallest + 1)
    off_middle = np.abs(2 * choices - (low + high)[:, None])
    costs = shared[np.minimum(choices, len(shared) - 1)].astype(np.int64) * (4 * len(shared)) + off_middle
    costs[choices > (high - smallest)[:, None]] = np.iinfo(np.int64).max
    chosen: Rows = choices[np.arange(len(low)), costs.argmin(axis=1)] if len(low) else low
    return chosen


def _around(ends: Rows, at: Rows, last: int) -> tuple[Rows, Rows]:
    """Return the last end before each position and the first after it; -1 and `last` if there is none."""
    bounded = np.concatenate([[-1], ends, [last]])
    right = np.searchsorted(bounded, at, side="right")
    return bounded[right - 1], bounded[right]
