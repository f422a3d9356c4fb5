"""Groups: the nodes of one layer of a tree in parts of a bounded size, leaves of a binary trie over their ids.

A node id is the first half of a SHA-256, in hexadecimal; its bits are its path in the trie. A group's label is the
letter of its layer and its bits, as a shard's is: `e` and `p` are shards of entities and of documents.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.core.estimate import Range, Rows
from tasks.core.shards import assign

__all__ = ["COMMUNITY_LETTERS", "Ids", "assigned", "bits_of", "expected_labels", "hex_ids", "id_bytes", "shares"]

Ids = NDArray[np.uint8]
"""Node ids as bytes (n, 16): their order is that of the ids as text."""

COMMUNITY_LETTERS = "stuvwxyz"
"""The letter of each level's communities; those of lsh_tree's layers are others
(`tasks.families.lsh_tree.segments`)."""

_BYTES = 16


def id_bytes(ids: Sequence[str] | pa.Array | pa.ChunkedArray) -> Ids:
    """The ids (32 hexadecimal digits) as bytes."""
    texts = ids.to_pylist() if isinstance(ids, (pa.Array, pa.ChunkedArray)) else ids
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(-1, _BYTES)


def hex_ids(ids: Ids) -> list[str]:
    """The ids as text."""
    text = np.ascontiguousarray(ids).tobytes().hex()
    return [text[low : low + 2 * _BYTES] for low in range(0, len(text), 2 * _BYTES)]


def assigned(ids: Sequence[str], limit: int, letter: str) -> dict[str, NDArray[np.int64]]:
    """The rows of each group of at most `limit` nodes, by label: labels sorted, rows in the order of their ids."""
    hashes = np.zeros((len(ids), 32), dtype=np.uint8)
    hashes[:, :_BYTES] = id_bytes(ids)
    return assign(hashes, np.ones(len(ids), dtype=np.int64), limit, letter=letter)


def bits_of(node: str) -> str:
    """The path of a node in the trie."""
    return f"{int(node, 16):0128b}"


def expected_labels(known: Collection[str], made: Range, limit: int, letter: str) -> list[str]:
    """The labels of the groups as they are for known nodes, or for so many of which none is known."""
    if known:
        return list(assigned(sorted(known), limit, letter))
    bits = max(0, math.ceil(math.log2(max(made.low + made.high, 1) / 2 / limit)))
    return [letter + f"{group:0{bits}b}" for group in range(2**bits)] if bits else [letter]


def shares(rows: Rows, groups: int) -> list[Rows]:
    """Rows spread evenly over some groups: bounds that add up to the whole's."""

    def share(number: int, group: int) -> int:
        return number // groups + (group < number % groups)

    return [
        Rows(
            share(rows.low, group),
            max(share(rows.low, group), share(rows.high, group)),
            Range(share(rows.fresh.low, group), max(share(rows.fresh.low, group), share(rows.fresh.high, group))),
        )
        for group in range(groups)
    ]
