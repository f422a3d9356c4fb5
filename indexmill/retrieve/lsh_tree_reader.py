"""lsh_tree over a snapshot: its tree and vectors searched, its nodes made into hits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob
from indexmill.hits import Hit
from indexmill.retrieve.base import Allowed, Asked, Found, PassageRetriever, parameters_of
from indexmill.retrieve.dense import nearest, nearest_passages
from indexmill.retrieve.lsh_tree import LshTreeParameters, Nodes, Tree, best_first, candidates, fitting
from indexmill.retrieve.matrices import Sparse

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["TREE", "LshTreeReader", "open_tree"]

TREE = "lsh_tree/tree"
"""The artifact that holds the tree."""


def open_tree(snapshot: Snapshot) -> Tree:
    """The snapshot's tree over mapped arrays; raises CorruptBlob where arrays are missing or do not fit each other."""
    arrays = snapshot.arrays(TREE)
    missing = {"layer_offsets", "children.indptr", "children.indices", "parents"} - set(arrays)
    if missing:
        raise CorruptBlob(f"{snapshot.path}: {TREE!r} has no arrays {sorted(missing)}; it has {', '.join(arrays)}")
    tree = Tree(
        arrays["layer_offsets"], Sparse(arrays["children.indptr"], arrays["children.indices"]), arrays["parents"]
    )
    nodes = len(tree.parents)
    if len(tree.offsets) < 2 or tree.offsets[-1] != nodes or len(tree.links) != nodes - tree.passages:
        raise CorruptBlob(f"{snapshot.path}: {TREE!r} holds arrays that do not fit each other")
    for what, held, expected in (
        ("passages", tree.passages, len(snapshot.passages)),
        ("summaries", nodes - tree.passages, sum(one.rows or 0 for one in snapshot.shards("summaries"))),
    ):
        if held != expected:
            raise CorruptBlob(f"{snapshot.path}: {TREE!r} has {held} {what}; the snapshot has {expected}")
    return tree


class LshTreeReader(PassageRetriever):
    """The nearest passages and summaries, as one flat set or by a pattern, within a token budget.

    The explanation of a summary is ``{"layer", "passages"}``, the ids of the passages under it, and ``"stand_in"``,
    true, where the language model would not make it; that of a passage is ``{"layer": 0, "above"}``, the ids of the
    summaries above it, from the nearest to the root, those that may be shown.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._setting = parameters_of(snapshot, "lsh_tree", LshTreeParameters)
        self._summaries = snapshot.summaries
        self._tree = self._summaries.tree
        self._vectors = snapshot.vectors("vectors", "passages")
        self._summary_vectors = snapshot.vectors("summary_vectors", "vectors")
        held = sum(map(len, self._summary_vectors))
        if held != len(self._summaries):
            raise CorruptBlob(f"{snapshot.path}: {held} summary vectors for {len(self._summaries)} summaries")

    def rank(self, asked: Asked, k: int) -> Iterator[Found]:
        """The nearest passages, as dense finds them: see ``PassageRetriever``.

        What the tree adds to the rank of a passage (the nearness of the summaries above it) was measured to do harm.
        """
        return (Found(rows, scores) for rows, scores in nearest_passages(self._vectors, asked, k))

    def search(self, asked: Asked, k: int) -> list[list[Hit]]:
        """Passages and summaries of each question: see ``Retriever``. A token budget may leave fewer than k."""
        allowed = None if asked.allowed is None else self._tree.allowed(asked.allowed)
        first = self._tree.passages
        summaries = None if allowed is None else allowed[first:]
        above = nearest(self._summary_vectors, asked.vectors, k, summaries)
        found = []
        for passages, (rows, scores) in zip(nearest_passages(self._vectors, asked, k), above, strict=True):
            nodes = candidates(Nodes(*passages), Nodes(rows + first, scores), k, self._setting)
            if self._setting.token_budget is not None:
                places = fitting(self._tokens(nodes.rows), self._setting.token_budget)
                nodes = Nodes(nodes.rows[places], nodes.scores[places])
            found.append(self._hits(best_first(nodes), allowed, asked.explain))
        return found

    def _tokens(self, rows: npt.NDArray[np.int64]) -> list[int]:
        first = self._tree.passages
        return [
            self.passages.tokens(row) if row < first else self._summaries.tokens(row - first) for row in rows.tolist()
        ]

    def _hits(self, nodes: Nodes, allowed: Allowed | None, explain: bool) -> list[Hit]:
        first = self._tree.passages
        is_passage = nodes.rows < first
        reasons = [self._above(row, allowed) for row in nodes.rows[is_passage].tolist()] if explain else None
        passages = iter(self.passages.hits(nodes.rows[is_passage], nodes.scores[is_passage], reasons))
        summaries = iter(self._summaries.hits(nodes.rows[~is_passage] - first, nodes.scores[~is_passage], explain))
        return [next(passages if own else summaries) for own in is_passage.tolist()]

    def _above(self, row: int, allowed: Allowed | None) -> dict[str, Any]:
        first = self._tree.passages
        rows = [one - first for one in self._tree.above(row) if allowed is None or allowed[one]]
        return {"layer": 0, "above": self._summaries.ids(np.array(rows, dtype=np.int64))}
