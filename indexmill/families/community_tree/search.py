"""Attributed communities over entities, and what a question is given of them (ArchRAG, section 3.2).

A question finds the nodes nearest to it on every level: entities (level 0), then communities, level by level, by one
search of the C-HNSW index (Algorithm 2). A community of one member has that member's text: it is never given, and the
next nearest takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.community_tree.chnsw import Beam, Chnsw
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.retrieve.base import Allowed, Vectors
from indexmill.retrieve.columns import distinct
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.layered_tree import LayeredTree
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse

__all__ = ["CommunityTree", "LevelNodes", "in_one_list", "nodes_of"]

_TILE = 8192  # vectors compared at once where a level is looked through


class LevelNodes(NamedTuple):
    """The nodes of one level that each question found, nearest first, ties by row of the index.

    rows: ``(n_questions, k) int64`` of the tree, -1 where the level has fewer. scores: ``(n_questions, k) float32``,
    cosines.
    """

    rows: Rows
    scores: npt.NDArray[np.float32]

    @property
    def least(self) -> Scores:
        """The cosine of the least near one of each question, 0 where none was found: ``(n_questions,)``."""
        last = np.maximum((self.rows >= 0).sum(axis=1) - 1, 0)
        least: Scores = self.scores[np.arange(len(last)), last].astype(np.float64)
        return least

    def of(self, questions: slice) -> LevelNodes:
        """Those of some questions."""
        return LevelNodes(self.rows[questions], self.scores[questions])

    def first(self, k: int) -> LevelNodes:
        """The k nearest of each question."""
        return LevelNodes(self.rows[:, :k], self.scores[:, :k])


@dataclass(frozen=True)
class CommunityTree(LayeredTree):
    """Entities, the leaves, then communities level by level, as the pack ``community_tree/tree`` holds them.

    passages: entities x passages, those that an entity was extracted from. relations: entities x entities, those that a
    relation leads to or from; relation_rows: parallel to its indices, the row of the relation. quality:
    ``(n_levels, 2)``, CHI and Sim of each level of communities (eqs. 5, 6). index: over all nodes. index_rows:
    ``(n_nodes,)``, which node each of its rows is. about: parallel to the indices of ``passages``, whether the passage
    is about the entity: its document's title names it, or its first sentence names it first. None where that is not
    known of any.
    """

    passages: Sparse
    relations: Sparse
    relation_rows: Integers
    quality: npt.NDArray[np.float64]
    index: Chnsw
    index_rows: Integers
    about: Integers | None = None

    def passages_under(self, row: int) -> Rows:
        """The passages that the entities of a node were extracted from, ascending."""
        _, entities = self.leaves_under(np.array([row], dtype=np.int64))
        return distinct(self.passages.links(entities)[1])

    @cached_property
    def extracted(self) -> Sparse:
        """Passages x entities: the transpose of ``passages``; no row for passages after the last that has an entity."""
        owners = np.arange(self.leaves, dtype=np.int32).repeat(np.diff(self.passages.indptr))
        order = self.passages.indices.argsort(kind="stable")
        return Sparse(np.concatenate([[0], np.bincount(self.passages.indices).cumsum()]), owners[order])

    @cached_property
    def index_places(self) -> Rows:
        """The row of the index of every node: ``(n_nodes,)``."""
        places = np.empty(len(self.index_rows), dtype=np.int64)
        places[self.index_rows] = np.arange(len(places))
        return places

    def shares(self, places: Rows, mention_weight: float) -> Scores:
        """What passages at some places of ``passages`` count for their entity: 1 where they are about it."""
        if self.about is None:
            return np.ones(len(places))
        return np.where(self.about.take(places) > 0, 1.0, mention_weight)

    @cached_property
    def sizes(self) -> Rows:
        """How many entities are under every node, 1 for an entity: ``(n_nodes,)``."""
        return self.summed(np.ones(self.leaves, dtype=np.int64))

    @cached_property
    def extractions(self) -> Rows:
        """Of every node, n(v): in how many passages each entity under it is, summed: ``(n_nodes,)``."""
        return self.summed(np.diff(self.passages.indptr))

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """Which nodes are communities of one member: ``(n_nodes,)``."""
        found = np.zeros(len(self.parents), dtype=np.bool_)
        found[self.leaves :] = np.diff(self.children.indptr) == 1
        return found

    def allowed(self, passages: Allowed) -> Allowed:
        """Which nodes may be shown where some passages may not: those of allowed passages alone, of one at least.

        A description or a summary tells what its passages say, so one forbidden passage forbids it. Nor does a relation
        between two entities that may be shown tell of another: each passage that states it, both are extracted from.
        """
        lengths = np.diff(self.passages.indptr)
        held = np.concatenate([[0], np.cumsum(np.asarray(passages, np.int64)[self.passages.indices])])
        return self.allowed_above((np.diff(held[self.passages.indptr]) == lengths) & (lengths > 0))


def nodes_of(
    tree: CommunityTree, vectors: Vectors, k: int, setting: CommunityTreeParameters, shown: Allowed
) -> list[LevelNodes]:
    """The k nodes of every level searched that are nearest to each question, entities first (Algorithm 2).

    vectors: ``(n_questions, d) float32``, unit. shown: ``(n_nodes,)``, which nodes may be found. Where a search finds
    too few of them, the question is compared with every one of the level.
    """
    if not len(tree.parents):
        return []
    wide = max(setting.ef, k)
    levels = tree.height if setting.levels is None else min(setting.levels, tree.height)
    found = []
    for number, hits in enumerate(tree.index.search(vectors, wide, Beam(ef=wide))[: levels + 1]):
        rows = np.where(hits.rows >= 0, tree.index_rows[hits.rows], -1).astype(np.int64)
        kept = (rows >= 0) & shown[rows]
        order = (~kept).argsort(axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(np.where(kept, rows, -1), order, axis=1)
        scores = np.take_along_axis(hits.scores, order, axis=1)
        (short,) = (rows[:, -1] < 0).nonzero()
        if len(short):
            (places,) = shown[tree.index_rows[tree.index.level(number)]].nonzero()
            short = short[(rows[short] >= 0).sum(axis=1) < len(places)]
            rows[short], scores[short] = _exhaustive_search(tree, number, vectors[short], places, k)
        found.append(LevelNodes(rows, np.where(rows >= 0, scores, 0).astype(np.float32)))
    return found


def _exhaustive_search(
    tree: CommunityTree, level: int, vectors: Vectors, places: Rows, k: int
) -> tuple[Rows, npt.NDArray[np.float32]]:
    """The k nearest of some nodes of a level, ascending places in it; products are exact, as the index has them."""
    asked, first = on_grid(vectors), tree.index.level(level).start
    rows, best = np.full((len(asked), k), -1, np.int64), np.full((len(asked), k), -np.inf, np.float32)
    for low in range(0, len(places), _TILE):
        tile = places[low : low + _TILE] + first
        products = asked @ np.asarray(tree.index.vectors[tile], dtype=np.float32).T
        both = np.concatenate([best, products], axis=1)
        those = np.concatenate([rows, np.broadcast_to(tree.index_rows[tile], products.shape)], axis=1)
        order = (-both).argsort(axis=1, kind="stable")[:, :k]
        best, rows = np.take_along_axis(both, order, axis=1), np.take_along_axis(those, order, axis=1)
    return rows, (best / np.float32(UNIT)).astype(np.float32)


def in_one_list(levels: Sequence[LevelNodes], question: int, level_weight: float) -> tuple[Rows, Scores]:
    """The nodes of one question as one list by falling score, ties by row: each level's cosines times its weight."""
    rows = np.concatenate([np.empty(0, np.int64), *(level.rows[question] for level in levels)])
    scores = np.concatenate(
        [np.empty(0), *(level.scores[question] * level_weight**number for number, level in enumerate(levels))]
    )
    order = np.lexsort((rows, -scores))
    order = order[rows[order] >= 0]
    return rows[order], scores[order]
