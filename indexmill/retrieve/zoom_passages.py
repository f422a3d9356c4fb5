"""From zoom_graph's walk to passages: its best documents, their sentences, their passages (ZoomRAG, section 3.2).

What some questions have found goes through together, as pairs of a question and a row (``columns``); only the fine
walk is one question's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.base import Vectors
from indexmill.retrieve.columns import Pairs, changes, distinct, paired, parts, positions, products
from indexmill.retrieve.dense import at_least_top
from indexmill.retrieve.grid import UNIT
from indexmill.retrieve.matrices import Rows, Scores
from indexmill.retrieve.open_question import LEAST
from indexmill.retrieve.stacked import taken
from indexmill.retrieve.zoom_fine import Local, sentence_scores
from indexmill.retrieve.zoom_start import Similarities, runs
from indexmill.retrieve.zoom_walk import Walked

if TYPE_CHECKING:
    from indexmill.retrieve.zoom_graph import Scope, ZoomGraph

__all__ = ["Documents", "Sentence", "Zoom", "ordered_passages", "ranked_documents", "zoom"]


class Sentence(NamedTuple):
    """A kept sentence: its row and its score in the fine walk."""

    row: int
    score: float


@dataclass(frozen=True, slots=True)
class Documents:
    """The documents of some questions, by question, then best first.

    questions, rows, scores: of each document. places: ``(n_documents,)``, counted from 0 for every question. dense:
    ``(n_questions,)``, where the walk reached no document.
    """

    questions: Rows
    rows: Rows
    scores: Scores
    places: Rows
    dense: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Zoom:
    """What the fine walks say.

    passages, strongest: pairs, ascending, with the score of their best sentence, where sentences are told apart. kept:
    the sentences that are kept of each pair of a question and a passage.
    """

    passages: Pairs
    strongest: Scores
    kept: dict[int, list[Sentence]]


def ranked_documents(
    graph: ZoomGraph, walked: Walked, similar: Similarities, agreeing: npt.NDArray[np.bool_], k: int
) -> Documents:
    """The k best documents of each question by coarse score, then by similarity.

    agreeing: ``(n_questions,)``, whose scores count by how far a document agrees with the open question. similar: of
    the same questions.
    """
    setting, (count, n) = graph.parameters, walked.documents.shape
    coarse = walked.documents.ravel()

    def agreed(some: Rows) -> Scores:
        scores = coarse.take(some)
        if not setting.agreement:
            return scores
        asking = some // n
        scale = np.maximum(similar.strongest / np.float64(UNIT), LEAST)[asking]
        relevance = similar.opened.ravel().take(some) / np.float64(UNIT)
        relative = np.maximum(relevance / scale, LEAST) ** setting.agreement
        return np.where(agreeing[asking], scores * relative, scores)

    # Agreement makes no score larger: where k documents stay above a level, none that is below it now comes in.
    (chosen,) = (coarse > setting.follow).nonzero()
    scores = agreed(chosen)
    above = scores > setting.follow
    enough = np.bincount(chosen[above] // n, minlength=count) >= k
    if not enough.all():
        (chosen,) = (walked.documents > np.where(enough, setting.follow, 0.0)[:, None]).ravel().nonzero()
        scores = agreed(chosen)
    asking, rows = np.divmod(chosen, n)
    cuts = asking.searchsorted(np.arange(count + 1)).tolist()
    found, dense = [], np.zeros(count, dtype=np.bool_)
    for i, (first, last) in enumerate(pairwise(cuts)):
        best, strength = rows[first:last], scores[first:last]
        if last > first:
            its = at_least_top(strength, k)
            its = its[(-strength[its]).argsort(kind="stable")[:k]]
            best, strength = best[its], strength[its]
        if len(best) < k:
            more, cosines = _nearest_others(similar.products[i], best, k - len(best))
            dense[i] = not len(best)
            strength = np.concatenate([strength, cosines - 1.0]) if len(best) else cosines
            best = np.concatenate([best, more])
        found.append((best, strength))
    lengths = np.array([len(best) for best, _ in found])
    places = np.arange(int(lengths.sum())) - (lengths.cumsum() - lengths).repeat(lengths)
    return Documents(
        np.arange(count).repeat(lengths),
        np.concatenate([best for best, _ in found]),
        np.concatenate([strength for _, strength in found]),
        places,
        dense,
    )


def _nearest_others(products: Vectors, reached: Rows, most: int) -> tuple[Rows, Scores]:
    """The nearest documents that were not reached, with their similarity."""
    others = np.isfinite(products)
    others[reached] = False
    (rest,) = others.nonzero()
    if len(rest):
        rest = rest[at_least_top(products[rest], most)]
    cosines = products[rest] / np.float64(UNIT)
    order = np.lexsort((rest, -cosines))[:most]
    return rest[order], cosines[order]


def zoom(graph: ZoomGraph, scope: Scope, found: Documents, walked: Walked, explain: bool) -> Zoom:
    """The fine walk over the sentences of each question's best documents, where it can tell anything."""
    setting = graph.parameters
    none = np.empty(0, dtype=np.int64)
    best = (found.places < setting.documents) & ~found.dense[found.questions]
    needed = np.full(len(found.dense), explain)
    needed[found.questions[best & (scope.counts[found.rows] > 1)]] = True
    best &= needed[found.questions]
    if not setting.fine or not best.any():
        return Zoom(none, np.empty(0), {})
    asking, documents = parts(np.sort(paired(found.questions[best], found.rows[best])))
    sentences, lengths = runs(graph.sentence_starts, documents)
    asking, documents = asking.repeat(lengths), documents.repeat(lengths)
    passages = graph.sentence_passage.take(sentences).astype(np.int64)
    if scope.passages is not None:
        allowed = scope.passages[passages]
        asking, documents = asking[allowed], documents[allowed]
        sentences, passages = sentences[allowed], passages[allowed]
    if not len(sentences):
        return Zoom(none, np.empty(0), {})
    owners, mentioned, _ = graph.mentions.links(sentences)
    mentioned = paired(asking[owners], mentioned)
    entities = distinct(mentioned)
    columns = entities.searchsorted(mentioned)
    whose, rows = parts(entities)
    coarse = walked.of_entities(whose, rows)
    count = len(found.dense)
    every = np.arange(count + 1)
    of_sentences, of_entities = asking.searchsorted(every), whose.searchsorted(every)
    of_links = owners.searchsorted(of_sentences)
    scores = np.zeros(len(sentences))
    kept: dict[int, list[Sentence]] = {}
    for i in range(count):
        its = slice(int(of_sentences[i]), int(of_sentences[i + 1]))
        if its.start == its.stop:
            continue
        links, named = slice(*of_links[i : i + 2]), slice(*of_entities[i : i + 2])
        scores[its] = sentence_scores(
            Local(
                taken(graph.sentences, sentences[its]),
                documents[its],
                owners[links] - its.start,
                columns[links] - named.start,
                coarse[named],
            ),
            restart=setting.fine_restart,
            temporal_width=setting.temporal_width,
            temporal_share=setting.temporal_share,
            semantic=setting.semantic_links,
            temporal=setting.temporal_links,
            scale=setting.scale,
        )
        if explain:
            _keep(kept, i, passages[its], sentences[its], scores[its], setting.kept)
    pairs = paired(asking, passages)
    (first,) = changes(pairs).nonzero()
    strongest = np.maximum.reduceat(scores, first)
    told = np.bincount(asking, scores, count)[asking[first]] > 0  # elsewhere nothing is told apart
    return Zoom(pairs[first[told]], strongest[told], kept)


def _keep(
    kept: dict[int, list[Sentence]], question: int, passages: Rows, sentences: Rows, scores: Scores, share: float
) -> None:
    """Add the sentences of a question that are kept: of all of them a share, the best; all where none has a score."""
    share = share if scores.any() else 1.0
    best = np.sort((-scores).argsort(kind="stable")[: math.ceil(share * len(sentences))])
    pairs = paired(np.array(question), passages[best])
    for pair, row, score in zip(pairs.tolist(), sentences[best].tolist(), scores[best].tolist(), strict=True):
        kept.setdefault(pair, []).append(Sentence(row, score))


def ordered_passages(
    graph: ZoomGraph, scope: Scope, found: Documents, zoomed: Zoom, vectors: Vectors, k: int
) -> tuple[Pairs, Scores]:
    """At most k passages of each question, and the scores of their documents: of every document in turn its best, then
    its second best, and so on; those that the fine walk does not order by similarity."""
    passages, lengths = runs(graph.passage_starts, found.rows)
    document = np.arange(len(found.rows)).repeat(lengths)
    if scope.passages is not None:
        allowed = scope.passages[passages]
        passages, document = passages[allowed], document[allowed]
    pairs = paired(found.questions[document], passages)
    if len(pairs) > len(found.rows):
        at, ordered = positions(pairs, zoomed.passages)
        (several,) = (scope.counts[found.rows] > 1)[document].nonzero()
        strength = np.zeros(len(pairs))
        strength[several] = products(graph.passages, vectors, pairs[several])
        if len(zoomed.passages):
            strength = np.where(ordered, zoomed.strongest[at], strength)
        order = np.lexsort((passages, -strength, ~ordered, document))
        turn = np.arange(len(order)) - document.searchsorted(document)  # documents ascend before and after
        order = order[np.lexsort((document, turn, found.questions[document]))]
        pairs, document = pairs[order], document[order]
    asking, _ = parts(pairs)
    first = np.arange(len(pairs)) - asking.searchsorted(asking) < k
    return pairs[first], found.scores[document[first]]
