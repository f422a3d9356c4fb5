"""ZoomRAG: a walk over documents and entities, then a walk over the sentences of the best documents (section 3).

A question is linked to entities, and to the documents whose similarity to it is above its threshold (eq. 2). A walk
that returns to the question in every step scores all documents (eq. 3). In the K best documents a second walk scores
the sentences (eqs. 4, 5, 10). Documents rank by the first walk; the second chooses the passages of long documents and
the sentences that a hit keeps.

Our choices where the paper is silent or ambiguous (figures: ``docs/measurements/zoom_graph.md``):

- *Links to documents* weigh exp(similarity). Encoders that find unrelated texts similar (0.6 on average or more) would
  give all links nearly the same weight: with them, similarity above that of unrelated texts counts, to the power
  ``relative_power``.
- *Incidence.* A document's title says what it is about: the title's entity is linked ``title_weight`` times as much.
- *Look-ahead.* The question is linked to the entities that it names, and to entities in sentences that mention these:
  the sentences most similar to the open question pass their entities on, with the relative similarity to the power
  ``look_ahead_power``. (Table 4 calls the links of named entities indispensable; an answer in two hops begins with an
  entity that the question does not name.)
- *The open question* is the question's vector with its names partly removed: what is asked, not about whom.
- *Agreement.* If entities are linked, a document's score is multiplied by its relative similarity to the open question,
  to a power that is ``agreement`` if names explain half of the question, and more if they explain less.
- *Small scores* are not followed (``follow``), so that a walk's cost depends on the question and not on the corpus.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from indexmill.families.zoom_graph.graph import Scope, ZoomGraphArrays
from indexmill.families.zoom_graph.parameters import PAPER
from indexmill.families.zoom_graph.passages import (
    LocalSentences,
    RankedDocuments,
    Sentence,
    local,
    ordered_passages,
    ranked_documents,
    zoom,
)
from indexmill.families.zoom_graph.start import Similarities, question_links, similarities
from indexmill.families.zoom_graph.walk import QuestionLinks, Walk
from indexmill.retrieve.columns import parts, slices
from indexmill.retrieve.coverage import coverage
from indexmill.retrieve.linking import Links
from indexmill.retrieve.matrices import Rows, Scores, TooManyLinks, rarity
from indexmill.retrieve.retrieval_method import QueryBatch, Vectors, preset

QUESTION_TILE = 64
"""The number of questions whose similarities to all documents are in memory at once."""

LEAST_KNOWN = 0.05
"""The lower bound of the share of a question that its names explain."""

WALK_QUESTIONS = 16
"""The maximum number of questions per walk."""

WALK_LINKS = 1 << 17
"""The maximum number of links of the nodes that a walk starts from, unless one question has more."""


@dataclass(frozen=True, slots=True)
class Zoomed:
    """The passages of one question, best first.

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``, of their documents, descending; below zero for documents
    that the walk did not reach: the similarity minus one. sentences: the kept sentences of each passage, in
    order. entities: the entities that the question is linked to, by descending weight. dense: True if the walk reached
    no document and the nearest documents are returned instead, with their similarity.
    """

    passages: Rows
    scores: Scores
    sentences: tuple[tuple[Sentence, ...], ...] = ()
    entities: tuple[tuple[int, float], ...] = ()
    dense: bool = False


class ZoomGraph(ZoomGraphArrays):
    """Retrieval by two walks: see ``ZoomGraphArrays`` for the arrays."""

    __slots__ = ()

    def with_parameters(self, **changes: object) -> ZoomGraph:
        """Copy the graph with other parameters; the copy shares all arrays, and the matrices computed from them."""
        parameters = replace(self.parameters, **changes)  # type: ignore[arg-type]
        graph = copy.copy(self)  # and not `replace`, which would count the links again
        object.__setattr__(graph, "parameters", preset(parameters, PAPER))
        return graph

    def tiles(self, batch: QueryBatch, k: int) -> Iterator[list[Zoomed]]:
        """Yield the k best passages of each question, in tiles of questions, which bounds the memory of a large batch.

        Batching does not change the results. A document without an allowed passage takes no part.
        """
        if not len(self.vectors):
            nothing = np.empty(0, dtype=np.int64)
            yield [Zoomed(nothing, np.empty(0), dense=True) for _ in batch.questions]
            return
        scope = Scope.of(self, batch.allowed)
        linked = self.links(batch)
        walk = Walk(scope.matrix, min(WALK_QUESTIONS, len(batch.questions)))
        for first in range(0, len(batch.questions), QUESTION_TILE):
            part = slice(first, first + QUESTION_TILE)
            named = self.names.find(linked[part], batch.vectors[part])
            similar = similarities(self, scope, named)
            explained = coverage(batch.questions[part], linked[part], lambda rows: np.sqrt(rarity(self.spread[rows])))
            odds = (1.0 - explained) / np.maximum(explained, LEAST_KNOWN)
            tile = _Tile(named.vectors, similar, question_links(self, scope, named, similar), odds)
            yield self._answers(scope, walk, tile, k, batch.explain)

    def links(self, batch: QueryBatch) -> list[Links]:
        """Return the entities of allowed documents that each question names."""
        documents = None
        if batch.allowed is not None:
            documents = np.bincount(self.passage_document[batch.allowed], minlength=len(self.vectors)) > 0
        return self.names.links(batch, self.parameters.nearest_name, documents)

    def _cuts(self, scope: Scope, links: QuestionLinks, count: int) -> list[int]:
        """Cut a tile into walks that have a bounded number of questions and of initial links; return the bounds."""
        degrees = scope.matrix.indptr.take(links.nodes + 1) - scope.matrix.indptr.take(links.nodes)
        cuts, link_count = [0], 0
        for i, more in enumerate(np.bincount(links.questions, degrees, count).astype(np.int64).tolist()):
            if i > cuts[-1] and (link_count + more > WALK_LINKS or i - cuts[-1] == WALK_QUESTIONS):
                cuts.append(i)
                link_count = 0
            link_count += more
        return [*cuts, count]

    def _answers(self, scope: Scope, walk: Walk, tile: _Tile, k: int, explain: bool) -> list[Zoomed]:
        vectors = tile.vectors
        seen = [
            part
            for begin, upto in pairwise(self._cuts(scope, tile.links, len(vectors)))
            for part in self._seen(scope, walk, tile.slice(begin, upto), k, explain)
        ]
        ranked = RankedDocuments.joined([documents for documents, _ in seen])
        zoomed = zoom(self, LocalSentences.joined([sentences for _, sentences in seen]), explain)
        pairs, scores = ordered_passages(self, scope, ranked, zoomed, vectors, k)
        asking, passages = parts(pairs)
        sentences = zoomed.sentences(pairs) if explain else []
        linked = self._linked(tile.links, len(vectors)) if explain else [()] * len(vectors)
        spans = slices(asking, len(vectors))
        return [
            Zoomed(
                passages[span],
                np.minimum.accumulate(scores[span]),  # later passages stand below their document
                tuple(sentences[span]),
                entities,
                dense,
            )
            for span, entities, dense in zip(spans, linked, ranked.dense.tolist(), strict=True)
        ]

    def _seen(
        self, scope: Scope, walk: Walk, tile: _Tile, k: int, explain: bool
    ) -> Iterator[tuple[RankedDocuments, LocalSentences]]:
        """Yield the documents and the local graphs of questions, one walk at a time."""
        setting, count, links = self.parameters, len(tile.vectors), tile.links
        try:
            walked = walk.walk(links, count, setting.steps, setting.restart, setting.follow)
        except TooManyLinks:
            for some in (tile.slice(0, count // 2), tile.slice(count // 2, count)):
                yield from self._seen(scope, walk, some, k, explain)
            return
        is_entity = links.nodes >= len(self.vectors)
        agreeing = np.bincount(links.questions[is_entity], minlength=count) > 0  # else there is no open question
        # The documents zoomed into do not depend on the number of hits requested.
        ranked = ranked_documents(self, walked, tile.similar, agreeing, tile.odds, max(k, setting.documents))
        yield ranked, local(self, scope, ranked, walked, explain)

    def _linked(self, links: QuestionLinks, count: int) -> list[tuple[tuple[int, float], ...]]:
        """Return the entities that each question is linked to, by descending weight, relative to the largest."""
        (to_entities,) = (links.nodes >= len(self.vectors)).nonzero()
        asking, weights = links.questions[to_entities], links.weights[to_entities]
        order = np.lexsort((-weights, asking))
        asking, weights = asking[order], weights[order]
        cuts = asking.searchsorted(np.arange(count + 1))
        shares = weights / weights[cuts[asking]]
        linked = list(zip((links.nodes[to_entities[order]] - len(self.vectors)).tolist(), shares.tolist(), strict=True))
        return [tuple(linked[first:last]) for first, last in pairwise(cuts.tolist())]


class _Tile(NamedTuple):
    """Questions that are answered together, with their similarities to documents and their links.

    odds: the odds that names do not explain each question.
    """

    vectors: Vectors
    similar: Similarities
    links: QuestionLinks
    odds: Scores

    def slice(self, first: int, last: int) -> _Tile:
        span = slice(first, last)
        return _Tile(self.vectors[span], self.similar.slice(span), self.links.slice(first, last), self.odds[span])
