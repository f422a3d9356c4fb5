"""The summaries of a snapshot by row: what turns the rows that a method found into hits.

A row is a summary's place in all tables ``summaries/<label>``, one after the other; layers are numbered from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.families.lsh_tree.search import Tree
from indexmill.hits import Hit
from indexmill.retrieve.opened import arrays_of, check_sizes, sparse
from indexmill.retrieve.passages import passages_of
from indexmill.retrieve.rows import Rows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["TREE", "Summaries", "open_tree", "summaries_of"]

TREE = "lsh_tree/tree"
"""The artifact that holds the tree."""


def summaries_of(artifacts: Artifacts) -> Summaries:
    """The summaries of a snapshot, opened once; raises FamilyNotFound where there are none."""
    return artifacts.once("summaries", lambda: Summaries(artifacts))


def open_tree(artifacts: Artifacts) -> Tree:
    """The snapshot's tree over mapped arrays; raises CorruptBlob where arrays are missing or do not fit each other."""
    arrays = arrays_of(artifacts, TREE, ["layer_offsets", "children.indptr", "children.indices", "parents"])
    tree = Tree(arrays["layer_offsets"], sparse(artifacts, TREE, "children"), arrays["parents"])
    nodes = len(tree.parents)
    if len(tree.offsets) < 2 or tree.offsets[-1] != nodes or len(tree.links) != nodes - tree.passages:
        raise CorruptBlob(f"{artifacts.path}: {TREE!r} holds arrays that do not fit each other")
    check_sizes(
        artifacts,
        TREE,
        ("passages", tree.passages, len(passages_of(artifacts))),
        ("summaries", nodes - tree.passages, sum(one.rows or 0 for one in artifacts.shards("summaries"))),
    )
    return tree


class Summaries:
    """Rows of all summaries, the tree that they stand in, and the hits made of them.

    Raises FamilyNotFound for a snapshot without lsh_tree.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        if "lsh_tree" not in artifacts.manifest.families:
            raise FamilyNotFound(f"{artifacts.path}: the snapshot does not hold 'lsh_tree', so it has no summaries")
        self._version = artifacts.version
        self._passages = passages_of(artifacts)
        self._rows = Rows(artifacts, "summaries", ["node_id", "text", "tokens", "stand_in"])
        self.tree = open_tree(artifacts)

    def __len__(self) -> int:
        return len(self._rows)

    def hits(self, rows: npt.NDArray[np.int64], scores: npt.NDArray[np.floating], explain: bool = True) -> list[Hit]:
        """The summaries of these rows as hits, in the order given."""
        return [self._hit(row, score, explain) for row, score in zip(rows.tolist(), scores.tolist(), strict=True)]

    def ids(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """The node ids of some summaries."""
        return self._rows.take(rows, "node_id")

    def texts(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """The texts of some summaries."""
        return self._rows.take(rows, "text")

    def tokens(self, row: int) -> int:
        """The tokens of one summary."""
        return int(self._rows.value(row, "tokens"))

    def _hit(self, row: int, score: float, explain: bool) -> Hit:
        node = row + self.tree.passages
        passages = self.tree.passages_under(node)
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
