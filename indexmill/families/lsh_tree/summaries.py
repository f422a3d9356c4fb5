"""The summaries of a snapshot by row: what turns the rows that a method found into hits.

A row is a summary's place in all tables ``summaries/<label>``, one after the other; layers are numbered from 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import FamilyNotFound
from indexmill.hits import Hit
from indexmill.retrieve.rows import Rows

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["Summaries"]


class Summaries:
    """Rows of all summaries, the tree that they stand in, and the hits made of them.

    Raises FamilyNotFound for a snapshot without lsh_tree.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        from indexmill.families.lsh_tree.retriever import open_tree

        if "lsh_tree" not in snapshot.manifest.families:
            raise FamilyNotFound(f"{snapshot.path}: the snapshot does not hold 'lsh_tree', so it has no summaries")
        self._version = snapshot.version
        self._passages = snapshot.passages
        self._rows = Rows(snapshot, "summaries", ["node_id", "text", "tokens", "stand_in"])
        self.tree = open_tree(snapshot)

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
