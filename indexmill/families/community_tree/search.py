"""Retrieval of attributed communities over entities (ArchRAG, section 3.2).

One search of the C-HNSW index (Algorithm 2) finds the nearest nodes of a question on every level: entities (level 0),
then communities, level by level. A community of one member has that member's text: it is never returned, and the next
nearest node takes its place.
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
from indexmill.retrieve.columns import distinct
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.layered_tree import LayeredTree
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse
from indexmill.retrieve.retrieval_method import Allowed, Vectors

_TILE = 8192  # vectors compared at once in an exhaustive search


class LevelNodes(NamedTuple):
    """The nodes of one level found for each question, nearest first, ties by row of the index.

    rows: ``(n_questions, k) int64``, rows of the tree, -1 past the last hit. scores: ``(n_questions, k) float32``,
    cosines.
    """

    rows: Rows
    scores: npt.NDArray[np.float32]

    @property
    def least(self) -> Scores:
        """The cosine of the last node of each question, 0 if none was found: ``(n_questions,)``."""
        last = np.maximum((self.rows >= 0).sum(axis=1) - 1, 0)
        least: Scores = self.scores[np.arange(len(last)), last].astype(np.float64)
        return least

    def of(self, questions: slice) -> LevelNodes:
        """Return the nodes of some questions."""
        return LevelNodes(self.rows[questions], self.scores[questions])

    def first(self, k: int) -> LevelNodes:
        """Return the k nearest nodes of each question."""
        return LevelNodes(self.rows[:, :k], self.scores[:, :k])


@dataclass(frozen=True)
class CommunityTree(LayeredTree):
    """Entities as leaves, then communities level by level, as stored in the pack ``community_tree/tree``.

    passages: entities x passages, the passages that each entity was extracted from. relations: entities x entities,
    related in either direction. relation_rows: parallel to the indices of ``relations``, the row of the relation.
    quality: ``(n_levels, 2)``, CHI and Sim of each level of communities (eqs. 5, 6). index: the C-HNSW index over all
    nodes. index_rows: ``(n_nodes,)``, the node of each row of the index. about: parallel to the indices of
    ``passages``, 1 if the passage is about the entity: the document's title names the entity, or the first sentence
    names it first.
    """

    passages: Sparse
    relations: Sparse
    relation_rows: Integers
    quality: npt.NDArray[np.float64]
    index: Chnsw
    index_rows: Integers
    about: Integers

    def passages_under(self, row: int) -> Rows:
        """Return the passages that the entities of a node were extracted from, ascending."""
        _, entities = self.leaves_under(np.array([row], dtype=np.int64))
        return distinct(self.passages.links(entities)[1])

    @cached_property
    def extracted(self) -> Sparse:
        """The passages x entities matrix, ``passages`` transposed; no rows after the last passage that has entities."""
        owners = np.arange(self.leaves, dtype=np.int32).repeat(np.diff(self.passages.indptr))
        order = self.passages.indices.argsort(kind="stable")
        return Sparse(np.concatenate([[0], np.bincount(self.passages.indices).cumsum()]), owners[order])

    @cached_property
    def index_places(self) -> Rows:
        """The row in the index of every node, -1 for a node that the index lacks: ``(n_nodes,)``."""
        places = np.full(len(self.parents), -1, dtype=np.int64)
        places[self.index_rows] = np.arange(len(self.index_rows))
        return places

    def shares(self, places: Rows, mention_weight: float) -> Scores:
        """Return the weights of the links at ``places``: 1 if the passage is about the entity, else mention_weight."""
        return np.where(self.about.take(places) > 0, 1.0, mention_weight)

    @cached_property
    def sizes(self) -> Rows:
        """The number of entities under every node, 1 for an entity: ``(n_nodes,)``."""
        return self.summed(np.ones(self.leaves, dtype=np.int64))

    @cached_property
    def extractions(self) -> Rows:
        """n(v) of every node: the number of passages of each entity under it, summed: ``(n_nodes,)``."""
        return self.summed(np.diff(self.passages.indptr))

    @cached_property
    def single(self) -> npt.NDArray[np.bool_]:
        """A mask of the communities with a single member: ``(n_nodes,)``."""
        mask = np.zeros(len(self.parents), dtype=np.bool_)
        mask[self.leaves :] = np.diff(self.children.indptr) == 1
        return mask

    def allowed(self, passages: Allowed) -> Allowed:
        """Return a mask of the nodes that may be shown: nodes with passages, all of them in the mask ``passages``.

        A description or a summary repeats the content of its passages, so one forbidden passage forbids it. A relation
        between two allowed entities is safe: both were extracted from every passage that states it. Forbidden nodes
        take no part in ranking either, since their vectors encode such texts.
        """
        lengths = np.diff(self.passages.indptr)
        return self.allowed_above((self.passages.counts_of(passages) == lengths) & (lengths > 0))


def nodes_of(
    tree: CommunityTree, vectors: Vectors, k: int, setting: CommunityTreeParameters, shown: Allowed
) -> list[LevelNodes]:
    """Find the k nearest nodes of each question on every level searched, entities first (Algorithm 2).

    vectors: ``(n_questions, d) float32`` of unit length. shown: ``(n_nodes,)``, a mask of the nodes that may be found.
    If the index finds fewer than k such nodes on a level, that level is searched exhaustively.
    """
    if not len(tree.parents):
        return []
    wide = max(setting.ef, k)
    levels = tree.height if setting.levels is None else min(setting.levels, tree.height)
    nodes = []
    for number, hits in enumerate(tree.index.search(vectors, wide, Beam(ef=wide))[: levels + 1]):
        rows = np.where(hits.rows >= 0, tree.index_rows[hits.rows], -1).astype(np.int64)
        visible = (rows >= 0) & shown[rows]
        order = (~visible).argsort(axis=1, kind="stable")[:, :k]
        rows = np.take_along_axis(np.where(visible, rows, -1), order, axis=1)
        scores = np.take_along_axis(hits.scores, order, axis=1)
        (short,) = (rows[:, -1] < 0).nonzero()
        if len(short):
            (places,) = shown[tree.index_rows[tree.index.level(number)]].nonzero()
            short = short[(rows[short] >= 0).sum(axis=1) < len(places)]
            rows[short], scores[short] = _exhaustive_search(tree, number, vectors[short], places, k)
        nodes.append(LevelNodes(rows, np.where(rows >= 0, scores, 0).astype(np.float32)))
    return nodes


def _exhaustive_search(
    tree: CommunityTree, level: int, vectors: Vectors, places: Rows, k: int
) -> tuple[Rows, npt.NDArray[np.float32]]:
    """Find the k nearest of the nodes at ascending ``places`` of a level, by the same exact products as the index."""
    queries, first = on_grid(vectors), tree.index.level(level).start
    rows, best = np.full((len(queries), k), -1, np.int64), np.full((len(queries), k), -np.inf, np.float32)
    for low in range(0, len(places), _TILE):
        tile = places[low : low + _TILE] + first
        products = queries @ np.asarray(tree.index.vectors[tile], dtype=np.float32).T
        both = np.concatenate([best, products], axis=1)
        nodes = np.concatenate([rows, np.broadcast_to(tree.index_rows[tile], products.shape)], axis=1)
        order = (-both).argsort(axis=1, kind="stable")[:, :k]
        best, rows = np.take_along_axis(both, order, axis=1), np.take_along_axis(nodes, order, axis=1)
    return rows, (best / np.float32(UNIT)).astype(np.float32)


def in_one_list(levels: Sequence[LevelNodes], question: int, level_weight: float) -> tuple[Rows, Scores]:
    """Sort the nodes of one question by descending score (cosine times the weight of its level), ties by row."""
    rows = np.concatenate([np.empty(0, np.int64), *(level.rows[question] for level in levels)])
    scores = np.concatenate(
        [np.empty(0), *(level.scores[question] * level_weight**number for number, level in enumerate(levels))]
    )
    order = np.lexsort((rows, -scores))
    order = order[rows[order] >= 0]
    return rows[order], scores[order]
