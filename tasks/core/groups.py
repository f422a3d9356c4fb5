"""Groups divide the nodes of a tree's layer into bounded sets: the leaves of a binary trie over node ids.

A node id is the first half of a SHA-256, in hexadecimal; its bits are its path in the trie. A group's label is the
letter of its layer and its bits, like a shard's label, whose letter is `e` (entities) or `p` (documents). Each family
has its own letters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.core.estimate import ZERO, Expected, Range, RowRange
from tasks.core.shards import assign
from tasks.core.stage import Part

Ids = NDArray[np.uint8]
"""Node ids as bytes (n, 16), which sort like the ids as strings."""

_BYTES = 16


def id_bytes(ids: Sequence[str] | pa.Array | pa.ChunkedArray) -> Ids:
    """Return ids (32 hexadecimal digits) as bytes."""
    texts = ids.to_pylist() if isinstance(ids, (pa.Array, pa.ChunkedArray)) else ids
    return np.frombuffer(bytes.fromhex("".join(texts)), np.uint8).reshape(-1, _BYTES)


def hex_ids(ids: Ids) -> list[str]:
    return np.ascontiguousarray(ids).tobytes().hex(",", _BYTES).split(",") if len(ids) else []


def as_words(rows: NDArray[np.uint8]) -> NDArray[np.bytes_]:
    """Return rows of bytes as byte strings that sort alike: all have equal length, so stripped zeros do no harm."""
    words: NDArray[np.bytes_] = np.ascontiguousarray(rows).reshape(-1).view(f"S{rows.shape[1]}")
    return words


def id_order(ids: Ids) -> NDArray[np.int64]:
    words = np.ascontiguousarray(ids).view(">u8").astype(np.uint64)
    return np.lexsort((words[:, 1], words[:, 0]))


def assigned(ids: Sequence[str], limit: int, letter: str) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each group of at most `limit` nodes, by label: labels sorted, rows in the order of ids."""
    hashes = np.zeros((len(ids), 32), dtype=np.uint8)
    hashes[:, :_BYTES] = id_bytes(ids)
    return assign(hashes, np.ones(len(ids), dtype=np.int64), limit, letter=letter)


def bits_of(node: str) -> str:
    return f"{int(node, 16):0128b}"


def expected_rows(part: Part[Any], expected: Expected, *names: str) -> RowRange:
    """Return bounds of the number of rows of a planned part's inputs `<name>/<label>`, and of new rows if known."""
    ranges: list[Range] = []
    for table in (f"{name}/{label}" for name in names for label in part.labels(name)):
        ranges.append(expected.get(table) or Range.exactly(part.rows_of(table)))
    return total(ranges)


def total(ranges: Iterable[Range]) -> RowRange:
    """Sum ranges of rows; a range without a number of new rows counts none as new."""
    low = high = fresh_low = fresh_high = 0
    for rows in ranges:
        fresh = rows.fresh if isinstance(rows, RowRange) else ZERO
        low, high = low + rows.low, high + rows.high
        fresh_low, fresh_high = fresh_low + fresh.low, fresh_high + fresh.high
    return RowRange(low, high, Range(fresh_low, fresh_high))


def expected_groups(
    outputs: Iterable[str], rows: RowRange, earlier_ids: Iterable[pa.Table], limit: int, letter: str
) -> dict[str, RowRange]:
    """Spread the rows of nodes evenly over groups, by `<output>/<label>`; the groups' bounds add up to `rows`.

    earlier_ids: tables whose only column has the ids of the previous version's nodes. These determine the groups; if
    there are none, the groups are guessed.
    """
    ids = sorted({node for table in earlier_ids for node in table.column(0).to_pylist()})
    return spread(outputs, rows, list(assigned(ids, limit, letter)) if ids else [], limit, letter)


def spread(
    outputs: Iterable[str], rows: RowRange, group_labels: Sequence[str], limit: int, letter: str
) -> dict[str, RowRange]:
    """Spread rows of nodes evenly over groups, as `expected_groups` does. group_labels: if empty, they are guessed."""
    labels = list(group_labels)
    if not labels:
        bits = max(0, math.ceil(math.log2(max(rows.low + rows.high, 1) / 2 / limit)))
        labels = [letter + f"{group:0{bits}b}" for group in range(2**bits)] if bits else [letter]

    def share(number: int, group: int) -> int:
        return number // len(labels) + (group < number % len(labels))

    shares = {
        label: RowRange(
            share(rows.low, group),
            share(rows.high, group),
            Range(share(rows.fresh.low, group), share(rows.fresh.high, group)),
        )
        for group, label in enumerate(labels)
    }
    return {f"{output}/{label}": share for output in outputs for label, share in shares.items()}
