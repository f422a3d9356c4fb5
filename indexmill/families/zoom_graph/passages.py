"""Passages from zoom_graph's walk: the best documents, their sentences, and their passages (ZoomRAG, section 3.2).

The results of several questions are processed together, as pairs of a question and a row (``columns``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.zoom_graph.fine import FineWalk, LocalGraphs, sentence_scores
from indexmill.families.zoom_graph.graph import Scope, ZoomGraphArrays
from indexmill.families.zoom_graph.start import Similarities, rows_under
from indexmill.families.zoom_graph.walk import WalkResult
from indexmill.retrieve.columns import (
    Pairs,
    before,
    changes,
    distinct,
    paired,
    parts,
    positions,
    products,
    runs,
    slices,
    take_rows,
)
from indexmill.retrieve.dense import at_least_top
from indexmill.retrieve.grid import UNIT
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.residual_query import LEAST
from indexmill.retrieve.retrieval_method import Vectors

MOST_SENTENCES = 4096
"""The number of sentences whose vectors are in memory at once, unless one question has more: 6 MiB at 384 float32."""

PASSAGE_DISTANCE = 3
"""The number of documents between two passages of a document."""


class Sentence(NamedTuple):
    """A kept sentence: its row and its score in the fine walk."""

    row: int
    score: float


@dataclass(frozen=True, slots=True)
class RankedDocuments:
    """The documents of some questions, by question, then best first.

    questions, rows, scores: the question, row and score of each document. places: ``(n_documents,)``, the rank of each
    document, from 0 for every question. dense: ``(n_questions,)``, True if the walk reached no document.
    """

    questions: Rows
    rows: Rows
    scores: Scores
    places: Rows
    dense: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, some: Sequence[RankedDocuments]) -> RankedDocuments:
        """Join the documents of consecutive questions."""
        if len(some) == 1:
            return some[0]
        every = _concatenated(some)
        every["questions"] += before([len(one.dense) for one in some]).repeat([len(one.rows) for one in some])
        return cls(**every)


@dataclass(frozen=True, slots=True)
class LocalSentences:
    """The sentences of the best documents of some questions, by question and row, and the entities that they mention.

    counts, named: ``(n_questions,)``, how many sentences and entities each question has. documents, passages,
    sentences: the rows of each sentence. owners, columns: the positions of the sentence and the entity of each link.
    coarse: the coarse score of each entity.
    """

    counts: Rows
    documents: Rows
    passages: Rows
    sentences: Rows
    owners: Rows
    columns: Rows
    named: Rows
    coarse: Scores

    @classmethod
    def joined(cls, some: Sequence[LocalSentences]) -> LocalSentences:
        """Join the sentences of consecutive questions."""
        if len(some) == 1:
            return some[0]
        every = _concatenated(some)
        links = [len(one.owners) for one in some]
        every["owners"] += before([len(one.sentences) for one in some]).repeat(links)
        every["columns"] += before([len(one.coarse) for one in some]).repeat(links)
        return cls(**every)


def _concatenated(some: Sequence[RankedDocuments] | Sequence[LocalSentences]) -> dict[str, npt.NDArray[Any]]:
    return {field.name: np.concatenate([getattr(one, field.name) for one in some]) for field in fields(some[0])}


@dataclass(frozen=True, slots=True)
class Zoom:
    """The results of the fine walks.

    passages, strongest: the (question, passage) pairs of questions with fine scores, ascending, and the score of each
    pair's best sentence. kept_pairs: the (question, passage) pairs of the kept sentences, ascending, with the
    sentences' ``rows`` and ``scores``.
    """

    passages: Pairs
    strongest: Scores
    kept_pairs: Pairs
    rows: Rows
    scores: Scores

    def sentences(self, pairs: Pairs) -> list[tuple[Sentence, ...]]:
        """Return the kept sentences of some pairs of a question and a passage."""
        begins = self.kept_pairs.searchsorted(pairs).tolist()
        ends = self.kept_pairs.searchsorted(pairs, side="right").tolist()
        rows, scores = self.rows.tolist(), self.scores.tolist()
        return [
            tuple(map(Sentence, rows[begin:end], scores[begin:end])) if end > begin else ()
            for begin, end in zip(begins, ends, strict=True)
        ]


def ranked_documents(
    graph: ZoomGraphArrays,
    walked: WalkResult,
    similar: Similarities,
    agreeing: npt.NDArray[np.bool_],
    odds: Scores,
    k: int,
) -> RankedDocuments:
    """Rank the k best documents of each question by coarse score, then by similarity.

    similar: the similarities of the same questions. agreeing: ``(n_questions,)``, True if scores are weighted by
    agreement with the open question. odds: for each question, the odds that its names do not explain it; the higher,
    the more agreement counts.
    """
    setting, count = graph.parameters, len(agreeing)
    asking, rows, scores = walked.below(len(graph.vectors))
    if setting.agreement:
        scale = np.maximum((similar.strongest - similar.unrelated) / np.float64(UNIT), LEAST)[asking]
        relevance = similar.opened.ravel().take(asking * len(graph.vectors) + rows) - similar.unrelated[asking]
        relative = np.maximum(relevance / np.float64(UNIT) / scale, LEAST) ** (setting.agreement * odds)[asking]
        scores = np.where(agreeing[asking], scores * relative, scores)
    lists, dense = [], np.zeros(count, dtype=np.bool_)
    for i, span in enumerate(slices(asking, count)):
        best, strength = rows[span], scores[span]
        if len(best):
            top = at_least_top(strength, k)
            top = top[(-strength[top]).argsort(kind="stable")[:k]]
            best, strength = best[top], strength[top]
        if len(best) < k:
            more, cosines = _nearest_others(similar.products[i], best, k - len(best))
            dense[i] = not len(best)
            strength = np.concatenate([strength, cosines - 1.0]) if len(best) else cosines
            best = np.concatenate([best, more])
        lists.append((best, strength))
    lengths = np.array([len(best) for best, _ in lists])
    places = runs(np.zeros_like(lengths), lengths)
    return RankedDocuments(
        np.arange(count).repeat(lengths),
        np.concatenate([best for best, _ in lists]),
        np.concatenate([strength for _, strength in lists]),
        places,
        dense,
    )


def _nearest_others(products: Vectors, reached: Rows, most: int) -> tuple[Rows, Scores]:
    others = np.isfinite(products)
    others[reached] = False
    (rest,) = others.nonzero()
    if len(rest):
        rest = rest[at_least_top(products[rest], most)]
    cosines = products[rest] / np.float64(UNIT)
    order = np.lexsort((rest, -cosines))[:most]
    return rest[order], cosines[order]


def local(
    graph: ZoomGraphArrays, scope: Scope, ranked: RankedDocuments, walked: WalkResult, explain: bool
) -> LocalSentences:
    """Return the sentences of each question's best documents; none if a fine walk would make no difference."""
    setting = graph.parameters
    best = (ranked.places < setting.documents) & ~ranked.dense[ranked.questions]
    needed = np.full(len(ranked.dense), explain and setting.fine)
    if setting.fine:
        needed[ranked.questions[best & (scope.counts[ranked.rows] > 1)]] = True
    best &= needed[ranked.questions]
    asking, documents = parts(np.sort(paired(ranked.questions[best], ranked.rows[best])))
    sentences, lengths = rows_under(graph.sentence_starts, documents)
    asking, documents = asking.repeat(lengths), documents.repeat(lengths)
    passages = graph.sentence_passage.take(sentences).astype(np.int64)
    if scope.passages is not None:
        allowed = scope.passages[passages]
        asking, documents = asking[allowed], documents[allowed]
        sentences, passages = sentences[allowed], passages[allowed]
    owners, mentioned, _ = graph.mentions.links(sentences)
    mentioned = paired(asking[owners], mentioned)
    entities = distinct(mentioned)
    whose, rows = parts(entities)
    count = len(ranked.dense)
    return LocalSentences(
        np.bincount(asking, minlength=count),
        documents,
        passages,
        sentences,
        owners,
        entities.searchsorted(mentioned),
        np.bincount(whose, minlength=count),
        walked.of_nodes(whose, rows + len(graph.vectors)),
    )


def zoom(graph: ZoomGraphArrays, seen: LocalSentences, explain: bool) -> Zoom:
    """Run the fine walks over the local graphs of some questions."""
    setting, none = graph.parameters, np.empty(0, dtype=np.int64)
    if not len(seen.sentences):
        return Zoom(none, np.empty(0), none, none, np.empty(0))
    asking = np.arange(len(seen.counts)).repeat(seen.counts)
    fine = FineWalk(
        setting.fine_restart,
        setting.temporal_width,
        setting.temporal_share,
        setting.semantic_links,
        setting.temporal_links,
        setting.scale,
    )
    scores = np.concatenate([sentence_scores(batch, fine) for batch in _graphs(graph, seen)])
    pairs = paired(asking, seen.passages)
    (first,) = changes(pairs).nonzero()
    strongest = np.maximum.reduceat(scores, first)
    has_scores = np.bincount(asking, scores, len(seen.counts)) > 0
    apart = has_scores[asking[first]]  # other questions have no fine scores
    chosen = _best_sentences(asking, scores, seen.counts, np.where(has_scores, setting.kept, 1.0)) if explain else none
    return Zoom(pairs[first[apart]], strongest[apart], pairs[chosen], seen.sentences[chosen], scores[chosen])


def _graphs(graph: ZoomGraphArrays, seen: LocalSentences) -> Iterator[LocalGraphs]:
    ends, named = seen.counts.cumsum(), seen.named.cumsum()
    first = begin = entity = link = 0
    while first < len(seen.counts):
        last = max(int(ends.searchsorted(begin + MOST_SENTENCES, side="right")), first + 1)
        end, upto = int(ends[last - 1]), int(named[last - 1])
        stop = int(seen.owners.searchsorted(end))
        sentences = distinct(seen.sentences[begin:end])
        yield LocalGraphs(
            take_rows(graph.sentences, sentences),
            seen.counts[first:last],
            sentences.searchsorted(seen.sentences[begin:end]),
            seen.documents[begin:end],
            seen.owners[link:stop] - begin,
            seen.columns[link:stop] - entity,
            seen.named[first:last],
            seen.coarse[entity:upto],
        )
        first, begin, entity, link = last, end, upto, stop


def _best_sentences(asking: Rows, scores: Scores, counts: Rows, shares: Scores) -> Rows:
    """Choose each question's best sentences, up to its share of them; return their positions, ascending."""
    order = np.lexsort((-scores, asking))
    most = np.ceil(shares * counts)
    rank = np.arange(len(order)) - before(counts)[asking]  # the questions ascend before and after
    return np.sort(order[rank < most[asking]])


def ordered_passages(
    graph: ZoomGraphArrays, scope: Scope, ranked: RankedDocuments, zoomed: Zoom, vectors: Vectors, k: int
) -> tuple[Pairs, Scores]:
    """Choose at most k passages of each question; return them with the scores of their documents.

    A document's next best passage is placed PASSAGE_DISTANCE documents after the one before it: answers stand in second
    passages, too. Passages without a fine score are ordered by similarity.
    """
    passages, lengths = rows_under(graph.passage_starts, ranked.rows)
    document = np.arange(len(ranked.rows)).repeat(lengths)
    if scope.passages is not None:
        allowed = scope.passages[passages]
        passages, document = passages[allowed], document[allowed]
    pairs = paired(ranked.questions[document], passages)
    if len(pairs) > len(ranked.rows):
        at, ordered = positions(pairs, zoomed.passages)
        (several,) = (scope.counts[ranked.rows] > 1)[document].nonzero()
        strength = np.zeros(len(pairs))
        strength[several] = products(graph.passages, vectors, pairs[several])
        if len(zoomed.passages):
            strength = np.where(ordered, zoomed.strongest[at], strength)
        order = np.lexsort((passages, -strength, ~ordered, document))
        turn = np.arange(len(order)) - document.searchsorted(document)  # documents ascend before and after
        place = ranked.places[document] + PASSAGE_DISTANCE * turn
        order = order[np.lexsort((document, place, ranked.questions[document]))]
        pairs, document = pairs[order], document[order]
    asking, _ = parts(pairs)
    first = np.arange(len(pairs)) - asking.searchsorted(asking) < k
    return pairs[first], ranked.scores[document[first]]
