"""tri_graph's second stage: PageRank on passages and activated entities with a hybrid start (LinearRAG, 3.2.2)."""

from __future__ import annotations

import numpy as np

from indexmill.families.tri_graph.activation import Activated
from indexmill.families.tri_graph.graph import TriGraphArrays
from indexmill.retrieve.columns import Pairs, distinct, matches, paired, parts, sums
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.retrieval_method import Allowed


def rank(
    graph: TriGraphArrays,
    active: Activated,
    near: Pairs,
    similarities: Scores,
    most: int | None,
    allowed: Allowed | None,
) -> tuple[Pairs, Scores]:
    """Return each question's candidate passages, as ascending (question, passage) pairs, and their scores (eqs. 6, 7).

    near, similarities: the nearest passages of every question, by question and descending similarity. most: the maximum
    number of links in memory; raises TooManyLinks. allowed: the passages that may be candidates; None for all.
    """
    setting, matrices = graph.parameters, graph.matrices
    naming, named = parts(active.pairs)
    (narrow,) = (matrices.contained_in.degrees(named) <= setting.widest_entity).nonzero()
    owners, containing, _ = matrices.contained_in.links(named[narrow], most)
    passages = distinct(np.concatenate([paired(naming[narrow[owners]], containing), near]))
    asking, rows = parts(passages)
    if allowed is not None:
        inside = allowed[rows]
        passages, asking, rows = passages[inside], asking[inside], rows[inside]
    # The links between these passages and the activated entities.
    owners, entities, places = matrices.contents.links(rows, most)
    counts = matrices.contents.occurrences(places)
    whole = sums(owners, counts, len(passages))
    linked, column = matches(paired(asking[owners], entities), active.pairs)
    owners, counts = owners[linked], counts[linked]

    evidence = active.scores * graph.rarity(named)
    bonus = sums(owners, (evidence / active.levels)[column] * np.log1p(counts), len(passages))
    similarity = np.zeros(len(passages))
    similarity[passages.searchsorted(near)] = (
        _scaled(parts(near)[0], similarities) if setting.relative else np.maximum(similarities, 0.0)
    )
    start = (setting.similarity_weight * similarity + np.log1p(bonus)) * setting.passage_weight
    if not setting.pagerank:
        return passages, start
    questions = int(asking[-1]) + 1
    total = sums(asking, start, questions) + sums(naming, evidence, questions)
    start, entity_start = start / total[asking], evidence / total[naming]

    from_passage = counts / whole[owners]
    from_entity = counts / matrices.strengths[named][column]
    d, score, importance = setting.damping, start, entity_start
    start, entity_start = (1 - d) * start, (1 - d) * entity_start
    for step in range(setting.steps):
        to_passages = sums(owners, importance[column] * from_entity, len(score))
        if step + 1 < setting.steps:  # the last step needs only the passages
            importance = entity_start + d * sums(column, score[owners] * from_passage, len(importance))
        score = start + d * to_passages
    return passages, score


def _scaled(questions: Rows, similarities: Scores) -> Scores:
    """Scale the similarities of each question, in descending order, from its weakest (0) to its strongest (1)."""
    every = np.arange(int(questions[-1]) + 1)
    strongest = similarities[questions.searchsorted(every)]
    weakest = similarities[questions.searchsorted(every, side="right") - 1]
    width = (strongest - weakest)[questions]
    apart = width > 0
    scaled: Scores = np.where(apart, (similarities - weakest[questions]) / np.where(apart, width, 1.0), 1.0)
    return scaled
