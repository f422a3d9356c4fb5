"""Blocks: the summaries of a layer, in tables so small that a changed passage rewrites little.

The path of a summary is the rank of its code in Gray order, then its id: 192 bits, a function of the summary alone. A
block is a leaf of the trie over these paths (`tasks.core.shards`) with at most `most_of` summaries, and its label is
the letter of its layer followed by the leaf's bits. So the summaries of similar passages are in the same block, layer
by layer, and new summaries leave the other blocks unchanged. A part makes the texts of the blocks of one subtree, a
group.

Blocks by id hash would spread the few hundred summaries that a nightly build changes over all blocks. Blocks of equal
sizes along the order of the codes (segments of segments) would be fewer, but their bounds would depend on their
neighbours, so they would have no stable label by which to find an earlier part.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tasks.core.groups import Ids, as_words, id_order
from tasks.core.shards import assign, id_hash
from tasks.families.lsh_tree.segmentation import gray_ranks

LETTERS = "abcdfghijklmnoqr"
"""The letter of each layer's blocks, from layer 1: `e` and `p` denote shards of entities and of documents."""

_MOST = (128, 64, 32)
"""The maximum number of summaries in a block, for the first layer, the second, and all above."""

_PATH_BYTES = 24


def most_of(layer: int, group: int) -> int:
    """Return the maximum size of a block: smaller in upper layers, where more summaries change; at most `group`."""
    return min(_MOST[min(layer, len(_MOST)) - 1], group)


def _paths(ranks: NDArray[np.uint64], ids: Ids) -> NDArray[np.uint8]:
    return np.concatenate([ranks.astype(">u8").view(np.uint8).reshape(-1, 8), ids], axis=1)


def blocks_of(ids: Ids, codes: NDArray[np.uint64], most: int, letter: str) -> dict[str, NDArray[np.int64]]:
    """Return the rows of each block, by label: labels sorted, rows in the order of their ids."""
    hashes = np.zeros((len(ids), 32), dtype=np.uint8)
    hashes[:, :_PATH_BYTES] = _paths(gray_ranks(codes), ids)
    rows_by_label = assign(hashes, np.ones(len(ids), dtype=np.int64), most, letter=letter)
    return {label: rows[id_order(ids[rows])] for label, rows in rows_by_label.items()}


def bits_of_paths(ids: Ids, codes: NDArray[np.uint64]) -> list[str]:
    return [f"{int.from_bytes(path, 'big'):0192b}" for path in map(bytes, _paths(gray_ranks(codes), ids))]


def document_paths(documents: pa.Array) -> NDArray[np.uint64]:
    """Return the first 64 bits of each document's path in the trie of shards."""
    encoded = documents.dictionary_encode()
    hashes = b"".join(id_hash(document)[:8] for document in encoded.dictionary.to_pylist())
    distinct = np.frombuffer(hashes, dtype=">u8").astype(np.uint64)
    prefixes: NDArray[np.uint64] = distinct[encoded.indices.to_numpy()]
    return prefixes


def groups_of(labels: Sequence[str], most: int) -> dict[str, list[str]]:
    """Group the blocks into parts, by the label of the part: the largest subtrees of at most `most` blocks.

    labels: the labels of a layer's blocks, the leaves of one trie. The result depends on the labels alone.
    """
    groups: dict[str, list[str]] = {}
    pending = [(labels[0][0], sorted(labels))] if labels else []
    while pending:
        prefix, blocks = pending.pop()
        if len(blocks) <= max(most, 1):
            groups[prefix] = blocks
            continue
        sides = ([label for label in blocks if label.startswith(prefix + bit)] for bit in "01")
        pending += [(prefix + bit, side) for bit, side in zip("01", sides, strict=True) if side]
    return dict(sorted(groups.items()))


class NodePlaces:
    """Finds the shard or block that contains a text, by the text's path. labels: the leaves of one trie."""

    def __init__(self, labels: Iterable[str]) -> None:
        self._labels = sorted(labels)
        firsts = [int(label[1:].ljust(8 * _PATH_BYTES, "0") or "0", 2) for label in self._labels]
        self._firsts = as_words(
            np.frombuffer(b"".join(first.to_bytes(_PATH_BYTES, "big") for first in firsts), np.uint8).reshape(
                -1, _PATH_BYTES
            )
        )

    def of(self, paths: NDArray[np.uint64], ids: Ids) -> list[str]:
        """Return the label of each text; raises LookupError for a text before the first label.

        paths: the first 64 bits of each path. ids: the texts' ids, which are the remaining bits of a summary's path.
        """
        at = np.searchsorted(self._firsts, as_words(_paths(paths, ids)), side="right") - 1
        if (at < 0).any():
            raise LookupError(f"a text belongs to none of the labels {self._labels[:3]} ...")
        return [self._labels[one] for one in at.tolist()]
