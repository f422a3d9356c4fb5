"""The summaries of a snapshot by row, and their conversion into hits.

A row is a summary's position in the tables ``summaries/<label>``, concatenated; layers are numbered from 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.hits import Hit
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.layered_tree import LayeredTree
from indexmill.retrieve.method_registry import check_family
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Vectors
from indexmill.retrieve.table_rows import TableRows

_SUMMARIES: CacheKey[Summaries] = CacheKey("summaries")
_TREE: CacheKey[LayeredTree] = CacheKey("lsh_tree")
_VECTORS: CacheKey[list[Vectors]] = CacheKey("summary vectors")

TREE = "lsh_tree/tree"


def summaries_of(artifacts: Artifacts) -> Summaries:
    """Open the summaries of a snapshot, once; raises FamilyNotFound if there are none."""
    return artifacts.once(_SUMMARIES, lambda: Summaries(artifacts))


def open_tree(artifacts: Artifacts) -> LayeredTree:
    """Open the snapshot's tree, once; its leaves are passages. Raises CorruptBlob."""
    return artifacts.once(_TREE, lambda: _open_tree(artifacts))


def _open_tree(artifacts: Artifacts) -> LayeredTree:
    arrays = artifacts.arrays(TREE)
    tree = LayeredTree.of_parents(arrays["layer_offsets"], arrays["above"])
    if tree.leaves != len(passages_of(artifacts)):
        raise CorruptBlob(f"{artifacts.path}: {TREE!r} is not a tree over the passages of the snapshot")
    return tree


def summary_vectors(artifacts: Artifacts) -> list[Vectors]:
    """Join the vectors of all summaries into one array, once; raises CorruptBlob.

    Called on first use: 1,400 small blocks with 52,000 vectors take 0.7 s, and a ranking of passages needs none.
    """
    return artifacts.once(_VECTORS, lambda: [_joined_vectors(artifacts)])


def _joined_vectors(artifacts: Artifacts) -> Vectors:
    blocks = artifacts.vectors("summary_vectors", "vectors")
    count, summaries = sum(map(len, blocks)), len(summaries_of(artifacts))
    if count != summaries:
        raise CorruptBlob(f"{artifacts.path}: {count} summary vectors for {summaries} summaries")
    return np.concatenate(blocks, dtype=np.float32) if blocks else np.empty((0, 0), np.float32)


class Summaries:
    """The summaries of a snapshot, their tree and their hits. Raises FamilyNotFound for a snapshot without lsh_tree."""

    def __init__(self, artifacts: Artifacts) -> None:
        check_family(artifacts.manifest, artifacts.path, "lsh_tree", ", so it has no summaries")
        self._version = artifacts.version
        self._passages = passages_of(artifacts)
        self._rows = TableRows(artifacts, "summaries", ["node_id", "text", "tokens", "stand_in"])
        self.tree = open_tree(artifacts)

    def __len__(self) -> int:
        return len(self._rows)

    def hits(self, rows: npt.NDArray[np.int64], scores: npt.NDArray[np.floating], explain: bool = True) -> list[Hit]:
        """Convert the summaries of these rows into hits, in order."""
        return [self._hit(row, score, explain) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def ids(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the node ids of some summaries."""
        return self._rows.take(rows, "node_id")

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return the texts of some summaries."""
        return self._rows.take(rows, "text")

    def tokens(self, row: int) -> int:
        """Return the number of tokens of one summary."""
        return int(self._rows.value(row, "tokens"))

    def _hit(self, row: int, score: float, explain: bool) -> Hit:
        node = row + self.tree.leaves
        _, passages = self.tree.leaves_under(np.array([node]))
        passages.sort()
        explanation: dict[str, Any] | None = None
        if explain:
            explanation = {"layer": self.tree.layer(node), "passages": self._passages.ids(passages)}
            if self._rows.value(row, "stand_in"):
                explanation["stand_in"] = True
        return Hit(
            kind="summary",
            id=self._rows.value(row, "node_id"),
            score=score,
            text=self._rows.value(row, "text"),
            title="",
            document_ids=tuple(sorted(set(self._passages.documents_of(passages)))),
            tokens=self.tokens(row),
            version=self._version,
            explanation=explanation,
        )
