"""Rank passages for community_tree by the entities and communities that the search found above them (ours).

ArchRAG returns no passages. Let b be the lowest cosine of the ``reach`` nearest entities:

    score(p) = b + similarity_weight (sim(q, p) - b)
               + sum over the entities e found of        (s(q, e) - b) a(e, p) / n(e)^spread
               + sum over the communities c found of  w  max(cos(q, c) - b, 0) n(c, p) / n(c)

where

- sim is the cosine, combined with that of the title (``passage_vectors``);
- s(q, e) is the greater of the cosine of e, if e is one of the nearest, and b + (1 - b) g(e), if e gains by names
  (`entities`);
- a(e, p) is 1 if p is about e, ``mention_weight`` if e was extracted from p otherwise, and 0 elsewhere;
- n(e) is the number of passages that e was extracted from, n(c) the sum of n(e) over the entities under c, n(c, p) the
  number of these entities that were extracted from p, and w is ``community_weight``.

The only passage of an entity therefore scores about as high as the entity, so that nodes and passages can share one
ranked list. The ``reach`` nearest nodes of each level give evidence, except nodes with n above ``widest``, which say
too little about any one passage. If the question names no entity, the evidence of the graph is only a guess, so the
weights are swapped: 1 for the similarity and ``similarity_weight`` for the evidence.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from indexmill.families.community_tree.entities import Gains, entities_of
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.community_tree.search import CommunityTree, LevelNodes
from indexmill.retrieve.columns import Pairs, changes, distinct, first_of_each, paired, parts, sums
from indexmill.retrieve.matrices import Rows, Scores, Sparse
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.retrieval_method import Allowed, QueryBatch

_TOGETHER = 64  # questions whose passages are ranked at once


class NodeEvidence(NamedTuple):
    """The evidence of nodes for passages, one row per question, passage and node.

    pairs: (question, passage), ascending, repeated if several nodes support a passage. nodes: the rows of the nodes in
    the tree. amounts: how much each node adds to the passage's score.
    """

    pairs: Pairs
    nodes: Rows
    amounts: Scores

    def of(self, chosen: slice | Allowed) -> NodeEvidence:
        """Select some rows of the evidence."""
        return NodeEvidence(self.pairs[chosen], self.nodes[chosen], self.amounts[chosen])


class RankedPassages(NamedTuple):
    """The passages of one question, best first, ties by row, and their evidence, in which the question is number 0."""

    rows: Rows
    scores: Scores
    evidence: NodeEvidence


def rank_passages(
    tree: CommunityTree,
    vectors: PassageVectors,
    batch: QueryBatch,
    levels: Sequence[LevelNodes],
    gained: Gains,
    setting: CommunityTreeParameters,
    k: int,
) -> Iterator[RankedPassages]:
    """Yield up to k passages for each question, best first.

    vectors: the vectors of the passages. levels: the nodes found, entities first, at least ``reach`` of each level, or
    all of a smaller level. gained: the entities found by words.
    """
    near = vectors.nearest_to(batch, k) if k else []
    for first in range(0, len(batch.vectors), _TOGETHER):
        tile = slice(first, first + _TOGETHER)
        questions = batch.vectors[tile]
        nodes = [level.of(tile).first(setting.reach) for level in levels]
        named = gained.of(first, first + len(questions))
        support = evidence(tree, nodes, named, setting)
        near_counts, nodes_count = _weights(named, len(questions), setting)
        support = support._replace(amounts=support.amounts * nodes_count[parts(support.pairs)[0]])
        if batch.allowed is not None:
            support = support.of(batch.allowed[parts(support.pairs)[1]])
        supported = support.pairs[changes(support.pairs)]
        nearest = [paired(np.full(len(rows), number), rows) for number, (rows, _) in enumerate(near[tile])]
        pairs = distinct(np.concatenate([supported, *nearest]))
        base = nodes[0].least[parts(pairs)[0]] if nodes else 0.0
        similar = vectors.similarities(questions, pairs).astype(np.float64)
        scores: Scores = base + near_counts[parts(pairs)[0]] * (similar - base)
        scores[pairs.searchsorted(supported)] += sums(
            supported.searchsorted(support.pairs), support.amounts, len(supported)
        )
        best = first_of_each(parts(pairs)[0], scores, k)
        asking, rows = parts(pairs[best])
        bounds = np.arange(len(questions) + 1)
        cuts = asking.searchsorted(bounds).tolist()
        ends = support.pairs.searchsorted(paired(bounds, np.zeros_like(bounds))).tolist()
        for number in range(len(questions)):
            span = slice(cuts[number], cuts[number + 1])
            question_support = support.of(slice(ends[number], ends[number + 1]))
            yield RankedPassages(
                rows[span], scores[best][span], question_support._replace(pairs=parts(question_support.pairs)[1])
            )


def _weights(named: Gains, questions: int, setting: CommunityTreeParameters) -> tuple[Scores, Scores]:
    """Return the weights of similarity and of nodes for each question; swapped for questions that name no entity."""
    knows = np.full(questions, setting.name_weight == 0)
    knows[parts(named.pairs)[0]] = True
    return np.where(knows, setting.similarity_weight, 1.0), np.where(knows, 1.0, setting.similarity_weight)


def evidence(
    tree: CommunityTree, levels: Sequence[LevelNodes], gained: Gains, setting: CommunityTreeParameters
) -> NodeEvidence:
    """Collect the evidence of the nodes found for the passages under them, by question and passage, then by node."""
    if not levels:
        return NodeEvidence(*(np.empty(0, np.int64),) * 2, np.empty(0))
    pieces = [_of_entities(tree, levels[0], gained, setting)]
    if setting.community_weight:
        pieces.append(_of_communities(tree, levels, setting))
    merged = NodeEvidence(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
    order = np.lexsort((merged.nodes, merged.pairs))
    return NodeEvidence(merged.pairs[order], merged.nodes[order], merged.amounts[order])


def _of_entities(
    tree: CommunityTree, nearest: LevelNodes, gained: Gains, setting: CommunityTreeParameters
) -> NodeEvidence:
    entities = entities_of(nearest, nearest.least, gained)
    asking, rows = parts(entities.pairs)
    informative = (entities.beyond > 0) & (tree.extractions[rows] <= setting.widest)
    asking, rows, beyond = asking[informative], rows[informative], entities.beyond[informative]
    beyond = beyond / np.maximum(tree.extractions[rows], 1) ** setting.spread
    owner, passages, places = tree.passages.links(rows)
    amounts = beyond[owner] * tree.shares(places, setting.mention_weight)
    return NodeEvidence(paired(asking[owner], passages), rows[owner], amounts)


def _of_communities(
    tree: CommunityTree, levels: Sequence[LevelNodes], setting: CommunityTreeParameters
) -> NodeEvidence:
    askers, nodes, amounts = [np.empty(0, np.int64)], [np.empty(0, np.int64)], [np.empty(0)]
    for level in levels[1:]:
        beyond = level.scores.astype(np.float64) - levels[0].least[:, None]
        informative = (level.rows >= 0) & (beyond > 0) & (tree.extractions[level.rows] <= setting.widest)
        asker, place = informative.nonzero()
        rows = level.rows[asker, place]
        askers.append(asker)
        nodes.append(rows)
        amounts.append(setting.community_weight * beyond[asker, place] / np.maximum(tree.extractions[rows], 1))
    asker, node, amount = np.concatenate(askers), np.concatenate(nodes), np.concatenate(amounts)
    each = distinct(node)
    owners, entities = tree.leaves_under(each)
    whose, passages, _ = tree.passages.links(entities)
    # The passages under every node that any question found, with the number of its entities in each passage.
    ties, counts = np.unique(paired(owners[whose], passages), return_counts=True)
    below = Sparse(
        ties.searchsorted(paired(np.arange(len(each) + 1), np.zeros(len(each) + 1, np.int64))),
        parts(ties)[1],
    )
    owner, passage, at = below.links(each.searchsorted(node))
    return NodeEvidence(paired(asker[owner], passage), node[owner], amount[owner] * counts[at])
