"""tri_graph's first stage: activation spreads over sentences from named entities (LinearRAG, section 3.2.1).

All questions of a tile are processed together, hop by hop, as pairs of a question and a row (``columns``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from indexmill.families.tri_graph.graph import TriGraphArrays
from indexmill.retrieve.columns import (
    Pairs,
    best_of_each,
    changes,
    distinct,
    first_of_each,
    matches,
    paired,
    parts,
    positions,
    products,
    runs,
    sums,
)
from indexmill.retrieve.linking import Links, link_columns
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.residual_query import LEAST
from indexmill.retrieve.retrieval_method import Allowed, Vectors


class Activated(NamedTuple):
    """Activated entities as columns, ascending by question and entity.

    levels: L of eq. 7; 1 for a named entity. sentences, sources: the rows of the sentence over which activation reached
    the entity, and of the entity that it came from; -1 on level 1.
    """

    pairs: Pairs
    scores: Scores
    levels: Rows
    sentences: Rows
    sources: Rows

    def at(self, places: Rows | slice) -> Activated:
        """Select the activated entities at some positions."""
        return Activated._make(column[places] for column in self)


_NONE = np.empty(0, dtype=np.int64)

NOTHING = Activated(_NONE, np.empty(0, dtype=np.float64), _NONE, _NONE, _NONE)
"""The activation of a question that names no entity."""


def joined(columns: Sequence[Activated]) -> Activated:
    """Concatenate the activations of single questions, numbered in order."""
    questions = np.arange(len(columns)).repeat([len(activated.pairs) for activated in columns])
    every = Activated(*map(np.concatenate, zip(*columns, strict=True)))
    return every._replace(pairs=paired(questions, parts(every.pairs)[1]))


class _Reached(NamedTuple):
    """The pairs that one iteration of eq. 5 reached, ascending, with scores, bridging sentences and source entities."""

    pairs: Pairs
    scores: Scores
    sentences: Rows
    sources: Rows


def activate(
    graph: TriGraphArrays,
    vectors: Vectors,
    linked: Sequence[Links],
    near: Pairs,
    most: int | None,
    allowed: Allowed | None,
) -> Activated:
    """Spread activation from the questions' entities over sentences (eq. 5) with pruning.

    vectors: ``(n_questions, d) float32``. linked: the links of each question. near: the nearest passages; wide entities
    pass activation on only through their sentences. most: the maximum number of links in memory; raises TooManyLinks.
    allowed: the passages whose sentences may bridge; None for all.
    """
    setting = graph.parameters
    threshold = setting.activation_threshold if setting.pruning else 0.0  # for this iteration
    active = _linked(linked)
    frontier, carried = active.pairs, active.scores
    unrelated = graph.unrelated(vectors)
    strongest = np.zeros(len(linked))  # similarity of the best sentence of the first iteration
    for hop in range(setting.hops if setting.activation else 0):
        if hop:
            threshold = max(threshold * setting.threshold_factor - setting.threshold_step, 0.0)
        carried = carried * np.sqrt(graph.rarity(parts(frontier)[1]))  # the activation that each passes on
        if hop and setting.reading == "max":
            # Scores only fall along a path: entities at or below the threshold lead to nothing above it.
            able = carried > threshold
            frontier, carried = frontier[able], carried[able]
        if not len(frontier):
            break
        sources, sentences = _mentioning(graph, frontier, near, most)
        if allowed is not None and graph.sentence_passage is not None:
            inside = allowed[graph.sentence_passage[parts(sentences)[1]]]
            sources, sentences = sources[inside], sentences[inside]
        if not len(sentences):
            break
        touched = distinct(sentences)
        asking, _ = parts(touched)
        similarity = products(graph.sentences, vectors, touched).astype(np.float64) - unrelated[asking]
        similarity = np.maximum(similarity, 0.0)
        if not hop:
            (first,) = changes(asking).nonzero()
            strongest[asking[first]] = np.maximum(np.maximum.reduceat(similarity, first), LEAST)
        if setting.relative:
            similarity = np.minimum(similarity / strongest[asking], 1.0)
        reached = _bridge(graph, frontier, carried, sources, sentences, touched, similarity, threshold, most)
        new = _absorb(active, reached, threshold, hop + 2)
        frontier, carried = new.pairs, new.scores
        if len(frontier):
            active = Activated._make(map(np.concatenate, zip(active, new, strict=True)))
            active = active.at(active.pairs.argsort())
    return active


def _linked(linked: Sequence[Links]) -> Activated:
    questions, entities, scores = link_columns(linked)
    nothing = np.full(len(entities), -1, dtype=np.int64)
    return Activated(paired(questions, entities), scores, np.ones(len(entities), dtype=np.int64), nothing, nothing)


def _mentioning(graph: TriGraphArrays, frontier: Pairs, near: Pairs, most: int | None) -> tuple[Rows, Pairs]:
    """Link ``frontier`` to the sentences that mention its entities: positions in it, and (question, sentence) pairs."""
    mentions, mentioned_in = graph.matrices.mentions, graph.matrices.mentioned_in
    questions, entities = parts(frontier)
    is_wide = mentioned_in.degrees(entities) > graph.parameters.widest_entity
    if not graph.parameters.pruning or not is_wide.any():
        sources, sentences, _ = mentioned_in.links(entities, most)
        return sources, paired(questions[sources], sentences)
    (wide,), (narrow,) = is_wide.nonzero(), (~is_wide).nonzero()
    sources, sentences, _ = mentioned_in.links(entities[narrow], most)
    sources = narrow[sources]
    sentences = paired(questions[sources], sentences)
    if graph.sentence_passage is not None:
        asking, passages = parts(np.sort(near))
        needed = np.zeros(int(asking[-1]) + 1, dtype=np.bool_)
        needed[questions[wide]] = True
        asking, passages = asking[needed[asking]], passages[needed[asking]]
        passages = passages.astype(graph.sentence_passage.dtype)  # else numpy would convert all sentences
        first = graph.sentence_passage.searchsorted(passages, side="left")
        lengths = graph.sentence_passage.searchsorted(passages, side="right") - first
        rows = runs(first, lengths)
        asking = asking.repeat(lengths)
        owners, mentioned, _ = mentions.links(rows, most)
        hit, at = matches(paired(asking[owners], mentioned), frontier[wide])
        sources = np.concatenate([sources, wide[at]])
        sentences = np.concatenate([sentences, paired(asking, rows)[owners[hit]]])
        order = np.argsort(sources, kind="stable")
        sources, sentences = sources[order], sentences[order]
    return sources, sentences


def _bridge(
    graph: TriGraphArrays,
    frontier: Pairs,
    carried: Scores,
    sources: Rows,
    sentences: Pairs,
    touched: Pairs,
    similarity: Scores,
    threshold: float,
    most: int | None,
) -> _Reached:
    """Run one iteration of eq. 5: from entities over the sentences that mention them to the entities mentioned there.

    carried: the activation that each entity of the frontier passes on. sources, sentences: the links of the frontier,
    as the entity's position and the sentence. touched, similarity: the distinct sentences, and the similarity of each.
    threshold: the threshold of this iteration.
    """
    setting = graph.parameters
    at = touched.searchsorted(sentences)
    flow = carried[sources] * similarity[at]
    chosen = None
    if setting.sentences_per_entity:
        chosen = first_of_each(sources, similarity[at], setting.sentences_per_entity)
        chosen.sort()
    elif setting.sentences_per_step:
        best = np.zeros(len(touched), dtype=np.bool_)
        best[first_of_each(parts(touched)[0], similarity, setting.sentences_per_step)] = True
        (chosen,) = best[at].nonzero()
    if chosen is not None:
        sources, sentences, flow = sources[chosen], sentences[chosen], flow[chosen]
    if setting.reading == "max" and setting.pruning:  # weaker links end below the threshold
        strong = flow > threshold
        sources, sentences, flow = sources[strong], sentences[strong], flow[strong]
    rows, level, first = best_of_each(sentences, flow)
    if setting.reading == "sum":
        level = sums(rows.searchsorted(sentences), flow, len(rows))
    asking, sentence = parts(rows)
    owners, entities, _ = graph.matrices.mentions.links(sentence, most)
    mentioned = paired(asking[owners], entities)
    pairs, score, best_link = best_of_each(mentioned, level[owners])
    if setting.reading == "sum":
        score = sums(pairs.searchsorted(mentioned), level[owners], len(pairs))
    through = owners[best_link]
    return _Reached(pairs, score, sentence[through], parts(frontier)[1][sources[first[through]]])


def _absorb(active: Activated, reached: _Reached, threshold: float, level: int) -> Activated:
    """Raise the scores of active, unnamed entities (the MAX of eq. 5); return new entities above the threshold."""
    at, is_active = positions(reached.pairs, active.pairs)
    (better,) = (is_active & (active.levels[at] > 1) & (reached.scores > active.scores[at])).nonzero()
    if len(better):
        changed = at[better]
        active.scores[changed] = reached.scores[better]
        active.sentences[changed], active.sources[changed] = reached.sentences[better], reached.sources[better]
    (new,) = (~is_active & (reached.scores > threshold)).nonzero()
    fresh = _Reached._make(column[new] for column in reached)
    return Activated(fresh.pairs, fresh.scores, np.full(len(new), level), fresh.sentences, fresh.sources)
