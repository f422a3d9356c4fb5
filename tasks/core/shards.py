"""Shards are the leaves of a binary trie over the SHA-256 of ids, and depend only on the set of ids.

A node of the trie contains the ids whose hash begins with its bits. A node with more than `limit` tokens and more than
one id is split; any other node is a leaf, and a leaf with ids is a shard. A shard's label is a letter and its bits: "p"
is the root, "p01" the ids whose hash begins with 01. As the set grows, leaves split, and as it shrinks, leaves join;
this depends only on a leaf's own content, so that the other shards do not change.

Documents are weighed by an estimate of their tokens and labelled "p"; entities use the same trie with the letter "e".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint8]
Rows = NDArray[np.int64]


def id_hash(identifier: str) -> bytes:
    """Return the SHA-256 of an id, 32 bytes: its path in the trie."""
    return hashlib.sha256(identifier.encode("utf-8")).digest()


def id_hashes(identifiers: Iterable[str]) -> Hashes:
    """Return the hashes of many ids, (n, 32) uint8."""
    joined = b"".join(id_hash(identifier) for identifier in identifiers)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)


def estimate_tokens(utf8_bytes: int) -> int:
    """Estimate the number of tokens of a title and a text from their bytes, without a tokenizer."""
    return utf8_bytes // 4 + 1


def assign(hashes: Hashes, tokens: NDArray[np.int64], limit: int, letter: str = "p") -> dict[str, Rows]:
    """Return the rows of each shard, by label: labels sorted, the rows of a label in the order of their hashes.

    hashes: (n, 32) uint8 without repeats. tokens: (n,) int64, not negative. Raises ValueError otherwise.
    """
    if hashes.ndim != 2 or hashes.shape[1] != 32 or hashes.dtype != np.uint8 or tokens.shape != hashes.shape[:1]:
        raise ValueError(f"expected hashes (n, 32) uint8 and tokens (n,); found {hashes.shape} and {tokens.shape}")
    order = hash_order(hashes)
    return {label: order[low:high] for label, low, high in leaves(hashes, order, tokens, limit, letter)}


def hash_order(hashes: Hashes) -> Rows:
    """Return the rows in the order of their hashes, compared as bytes; equal hashes keep their order."""
    first = _words(hashes, 0)
    order = np.argsort(first, kind="stable")
    ties = np.flatnonzero(first[order[1:]] == first[order[:-1]])
    if ties.size and (hashes[order[ties]] != hashes[order[ties + 1]]).any():
        order = np.lexsort([_words(hashes, word) for word in (3, 2, 1)] + [first])
    return order.astype(np.int64, copy=False)


def leaves(
    hashes: Hashes, order: Rows, tokens: NDArray[np.int64], limit: int, root: str = "p"
) -> list[tuple[str, int, int]]:
    """Return the shards, sorted by label, as (label, low, high): slices of `order`, which sorts the hashes.

    root: the label of the node that contains all rows: a letter, or the label of a shard to be cut further. Raises
    ValueError for rows with the same hash, which the trie cannot separate.
    """
    if limit < 1 or not root:
        raise ValueError(f"expected a limit of 1 or more and a label; found {limit} and {root!r}")
    letter, bits = root[0], root[1:]
    before = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(tokens[order], dtype=np.int64)])
    columns: dict[int, Hashes] = {}  # bytes of the sorted hashes; a trie seldom needs more than three
    shards: list[tuple[str, int, int]] = []
    pending = [(bits, 0, len(order))]
    while pending:
        bits, low, high = pending.pop()
        if low == high:
            continue
        if high - low == 1 or before[high] - before[low] <= limit:
            shards.append((letter + bits, low, high))
            continue
        depth = len(bits)
        if depth == 256:
            raise ValueError(f"{high - low} rows have the same hash; the first of them is row {order[low]}")
        position, bit = divmod(depth, 8)
        if position not in columns:
            columns[position] = hashes[order, position]
        column = columns[position][low:high]
        prefix = int(column[0]) & (0xFF00 >> bit) & 0xFF
        middle = low + int(np.searchsorted(column, np.uint8(prefix | (0x80 >> bit))))
        pending.append((bits + "1", middle, high))
        pending.append((bits + "0", low, middle))
    return shards


def bit_ranges(count: int, most: int, most_bits: int) -> list[str]:
    """Divide `count` names into the fewest ranges with at most `most` each; return the first bits of each range.

    A single range has no bits. There are at most 2 ** `most_bits` ranges, which may then be larger.
    """
    bits = 0
    while count > most << bits and bits < most_bits:
        bits += 1
    return [f"{number:0{bits}b}" if bits else "" for number in range(1 << bits)]


def shard_groups(labels: Iterable[str], limit: int) -> dict[str, list[str]]:
    """Group disjoint shards by a common node, at most `limit` per group; the order of `labels` does not matter."""
    groups: dict[str, list[str]] = {}
    pending: dict[str, list[str]] = {}
    for label in sorted(labels):
        pending.setdefault(label[0], []).append(label)
    while pending:
        node, within = pending.popitem()
        if len(within) <= limit:
            groups[node] = within
            continue
        for label in within:
            pending.setdefault(label[: len(node) + 1], []).append(label)
    return groups


def _words(hashes: Hashes, word: int) -> NDArray[np.uint64]:
    """Return eight bytes of each hash as a number that sorts like the bytes."""
    part = np.ascontiguousarray(hashes[:, 8 * word : 8 * word + 8])
    return part.view(">u8").reshape(-1).astype(np.uint64)
