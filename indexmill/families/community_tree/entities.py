"""Entities that community_tree finds by words: those that a question names, and those that share a passage with them.

Search by vectors misses the intermediate entities of a question: "the mother of the director of Marrow Bridge" is near
to mothers and directors, not to the director of that film. We therefore extend ArchRAG's search (*ours*):

- an entity f whose canonical name is in the question gains
  ``g(f) = name_weight * link.score / log(exp(1) - 1 + n(f))``, where n(f) is the number of passages that f was
  extracted from; the logarithm is 1 for a name in one passage;
- an entity e that was extracted from the same passage p as f, if n(f) is at most ``widest_hop``, gains

      g(e) = hop_weight * max over f, p of (g(f) a(f, p)) * max(cos(q', e), 0) / max over e' of cos(q', e')

  where q' is the question's vector without its projection on the vectors of the names in it (``residual_query``), and
  a(f, p) is 1 if p is about f, ``mention_weight`` otherwise. The ``hops`` entities with the largest gains are kept.

Let b be the lowest cosine among the nearest entities. An entity that gains g is scored as if its cosine were
``b + (1 - b) g``, so the entity of a rare name gets a score near 1. Questions without names have no gains.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.community_tree.search import CommunityTree, LevelNodes
from indexmill.retrieve.columns import Pairs, best_of_each, first_of_each, paired, parts, positions
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.linking import Links, link_columns
from indexmill.retrieve.matrices import Scores
from indexmill.retrieve.residual_query import LEAST
from indexmill.retrieve.retrieval_method import Allowed, Vectors

NEAR, NAMED, BESIDE = 0, 1, 2
"""How an entity was found: by its vector, by its name in the question, or in a passage of a named entity."""

_TOGETHER = 64  # questions per batch
_BLOCK = 512  # pairs whose vectors are in memory at once

Ways = npt.NDArray[np.int8]


class Gains(NamedTuple):
    """Entities found by words, sorted by question and row. amounts: gains, 0 to 1. ways: ``NAMED`` or ``BESIDE``."""

    pairs: Pairs
    amounts: Scores
    ways: Ways

    def of(self, first: int, last: int) -> Gains:
        """Return the gains of the questions ``first`` to ``last`` (exclusive), renumbered from 0."""
        bounds = np.array([first, last], dtype=np.int64)
        cut = slice(*self.pairs.searchsorted(paired(bounds, np.zeros_like(bounds))).tolist())
        asking, rows = parts(self.pairs[cut])
        return Gains(paired(asking - first, rows), self.amounts[cut], self.ways[cut])

    def where(self, shown: Allowed) -> Gains:
        """Keep the gains of entities that may be shown."""
        visible = shown[parts(self.pairs)[1]]
        return Gains(self.pairs[visible], self.amounts[visible], self.ways[visible])


class ScopeMasks(NamedTuple):
    """A scope as masks: its passages ``(n_passages,)``, and the nodes whose passages are all in it, ``(n_nodes,)``."""

    passages: Allowed
    nodes: Allowed


def gains(
    tree: CommunityTree,
    linked: Sequence[Links],
    residual: Vectors,
    setting: CommunityTreeParameters,
    limits: ScopeMasks | None = None,
) -> Gains:
    """Compute the gains of the entities that each question names, and of the entities in their passages.

    linked: the links of each question to rows of the tree's entities. residual: ``(n_questions, d) float32``, the
    question vectors without the projection onto their names. limits: the passages through which other entities may be
    reached, and the entities that may be reached; None for all.
    """
    tiles = [_of_tile(tree, linked[:0], residual[:0], setting, limits)]
    for first in range(0, len(linked), _TOGETHER):
        tile = slice(first, first + _TOGETHER)
        tile_gains = _of_tile(tree, linked[tile], residual[tile], setting, limits)
        asking, rows = parts(tile_gains.pairs)
        tiles.append(tile_gains._replace(pairs=paired(asking + first, rows)))
    return Gains(*(np.concatenate(column) for column in zip(*tiles, strict=True)))


class FoundEntities(NamedTuple):
    """All entities that questions found, ascending by question and row.

    beyond: s(q, e) - b, the excess of the score over the lowest cosine of the nearest entities. ways: ``NEAR``,
    ``NAMED`` or ``BESIDE``.
    """

    pairs: Pairs
    beyond: Scores
    ways: Ways


def entities_of(nearest: LevelNodes, least: Scores, gained: Gains) -> FoundEntities:
    """Merge the entities that questions find by vectors and by words. least: b of each question, ``(n_questions,)``."""
    asker, place = (nearest.rows >= 0).nonzero()
    near = nearest.scores[asker, place].astype(np.float64) - least[asker]
    by_words = (1.0 - least)[parts(gained.pairs)[0]] * gained.amounts
    both = np.concatenate([gained.pairs, paired(asker, nearest.rows[asker, place])])
    pairs, beyond, first = best_of_each(both, np.concatenate([by_words, near]))
    ways = np.concatenate([gained.ways, np.full(len(near), NEAR, np.int8)])
    return FoundEntities(pairs, beyond, ways[first])


def with_gains(nearest: LevelNodes, least: Scores, gained: Gains, k: int) -> LevelNodes:
    """Keep the k best-scored entities of each question, found by vectors or by words: see ``entities_of``."""
    entities = entities_of(nearest, least, gained)
    asking, rows = parts(entities.pairs)
    scores = least[asking] + entities.beyond
    best = first_of_each(asking, scores, k)
    asking = asking[best]
    rank = np.arange(len(best)) - asking.searchsorted(asking)
    nodes = LevelNodes(np.full((len(least), k), -1, np.int64), np.zeros((len(least), k), np.float32))
    nodes.rows[asking, rank] = rows[best]
    nodes.scores[asking, rank] = scores[best]
    return nodes


def _of_tile(
    tree: CommunityTree,
    linked: Sequence[Links],
    residual: Vectors,
    setting: CommunityTreeParameters,
    limits: ScopeMasks | None,
) -> Gains:
    asking, rows, scores = link_columns(linked)
    named = paired(asking, rows)  # ascending, since links are sorted by row
    if not setting.name_weight or not len(named):
        named, rows, scores = named[:0], rows[:0], scores[:0]
    named_gains: Scores = setting.name_weight * scores / np.log(math.e - 1 + np.maximum(tree.passages.degrees(rows), 1))
    beside, amounts = _beside(tree, named, named_gains, residual, setting, limits)
    pairs = np.concatenate([named, beside])
    ways = np.repeat(np.array([NAMED, BESIDE], np.int8), [len(named), len(beside)])
    order = pairs.argsort(kind="stable")
    return Gains(pairs[order], np.concatenate([named_gains, amounts])[order], ways[order])


def _beside(
    tree: CommunityTree,
    named: Pairs,
    named_gains: Scores,
    residual: Vectors,
    setting: CommunityTreeParameters,
    limits: ScopeMasks | None,
) -> tuple[Pairs, Scores]:
    """Find the entities that share a passage with a named entity, and their gains."""
    none = np.empty(0, np.int64), np.empty(0)
    asking, rows = parts(named)
    (narrow,) = (tree.passages.degrees(rows) <= setting.widest_hop).nonzero()
    if not setting.hop_weight or not len(narrow):
        return none
    owners, passages, places = tree.passages.links(rows[narrow])
    if limits is not None:
        inside = limits.passages[passages]
        owners, passages, places = owners[inside], passages[inside], places[inside]
    owners = narrow[owners]
    through, weights, _ = best_of_each(
        paired(asking[owners], passages), named_gains[owners] * tree.shares(places, setting.mention_weight)
    )
    asker, passage = parts(through)
    whose, others, _ = tree.extracted.links(passage)
    beside, weights, _ = best_of_each(paired(asker[whose], others), weights[whose])
    is_new = ~positions(beside, named)[1]
    if limits is not None:
        is_new &= limits.nodes[parts(beside)[1]]
    (new,) = is_new.nonzero()
    if not len(new):
        return none
    beside, weights = beside[new], weights[new]
    asker, _ = parts(beside)
    cosines = np.maximum(_cosines(tree, residual, beside), 0.0)
    strongest = np.zeros(len(residual))
    np.maximum.at(strongest, asker, cosines)
    amounts: Scores = setting.hop_weight * weights * (cosines / np.maximum(strongest, LEAST)[asker])
    best = np.sort(first_of_each(asker, amounts, setting.hops))
    best = best[amounts[best] > 0]
    return beside[best], amounts[best]


def _cosines(tree: CommunityTree, vectors: Vectors, pairs: Pairs) -> Scores:
    """Compute the exact cosine of each pair's entity and question vector; the result is the same in any batch."""
    queries = on_grid(vectors)
    asker, rows = parts(pairs)
    places = tree.index_places[rows]
    products = np.empty(len(pairs))
    for first in range(0, len(pairs), _BLOCK):
        block = slice(first, first + _BLOCK)
        products[block] = np.vecdot(tree.index.vectors[places[block]].astype(np.float32), queries[asker[block]])
    return products / UNIT
