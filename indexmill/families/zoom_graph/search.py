"""ZoomRAG: a walk over documents and entities, then a walk over the sentences of the best documents (section 3).

A question is linked to the documents that resemble it beyond its row's threshold (eq. 2) and to entities; a walk that
returns to it in every step scores all documents (eq. 3). In the K best ones a second walk scores the sentences
(eqs. 4, 5, 10). Documents rank by the first walk; the second one chooses the passages of long documents and the
sentences that a hit keeps.

Where the paper is silent or leaves a choice, this is what is done (``docs/families.md`` has the measurements):

- *Incidence.* A document's title says what it is about: the title's entity is linked ``title_weight`` times as much.
- *Look-ahead.* The question is linked to what it names, and to what the sentences about it mention: of the sentences
  that touch the question's entities, those most similar to the open question pass their entities on, with the relative
  similarity to the power ``look_ahead_power``. (Table 4 calls the links of named entities indispensable; an answer in
  two hops begins with an entity that the question does not name.)
- *The open question* is the question's vector without the names in it, in part: what is asked, not of whom.
- *Agreement.* Where entities are linked, a document's score is multiplied by its relative similarity to the open
  question, to a power that is ``agreement`` where names explain half of the question, and more where they explain less.
- *Small scores* are not followed further (``follow``), so that a walk's cost follows the question and not the corpus.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field

from indexmill.families.zoom_graph.passages import (
    Documents,
    Local,
    Sentence,
    local,
    ordered_passages,
    ranked_documents,
    zoom,
)
from indexmill.families.zoom_graph.question import QuestionNames
from indexmill.families.zoom_graph.start import Similarities, question_links, similarities
from indexmill.families.zoom_graph.walk import Block, QuestionLinks, Scale, Shared, Walk, shared
from indexmill.forks import Lock
from indexmill.retrieve.base import Allowed, Asked, Count, Encode, Finite, Share, Vectors, Weight, preset
from indexmill.retrieve.columns import parts
from indexmill.retrieve.coverage import coverage
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse, TooManyLinks, rarity

__all__ = ["PAPER", "Scope", "Sentence", "ZoomBlocks", "ZoomGraph", "ZoomGraphParameters", "Zoomed"]

QUESTION_TILE = 64
"""Questions whose similarities to all documents are held at once."""

LEAST_KNOWN = 0.05
"""A smaller part of a question that its names explain counts as this one."""

WALK_QUESTIONS = 16
"""Most questions that walk together."""

WALK_LINKS = 1 << 17
"""Most links of the nodes that they walk from, unless one question has more."""

HELD_MATRICES = 4
"""Matrices under different settings that are held at once."""


@dataclass(frozen=True, slots=True)
class ZoomGraphParameters:
    """The settings of retrieval; the paper's symbol in brackets.

    steps, restart: of the coarse walk [t, alpha]. documents: the best ones, whose sentences are walked [K].
    fine_restart: of the fine walk [beta]. kept: the share of their sentences that hits keep. temporal_width,
    temporal_share: of the links between sentences of a document [sigma, omega].
    threshold: standard deviations above its row's mean that a question's similarity to a document exceeds.
    scale: what the average weight of a block is taken over.
    title_weight: of the title's entity in the incidence, where others have 1.
    question_weight: of the links to entities against those to documents.
    look_ahead: least relative similarity of a sentence that passes its entities on; above 1 none does.
    look_ahead_power: of that similarity, as the weight of the entity. open_share: of what a question names, taken out
    of its vector for the look-ahead; for the agreement all is. agreement: power of a document's relative
    similarity, where names explain half of the question.
    widest_entity: an entity in more sentences leads on only through those of the nearest documents.
    nearest_name: least similarity at which a name that no entity has stands for the nearest one.
    follow: a node with no more than this score is not followed.
    fine, entities, question_links, document_links, semantic_links, temporal_links: False leaves that out (table 4).
    preset: ``paper`` gives every setting that is left at its default here the value that the paper prints (PAPER).
    """

    preset: Literal["ours", "paper"] = "ours"

    steps: Count = 5
    restart: Share = 0.8
    documents: Annotated[int, Field(ge=1, le=10_000)] = 10
    fine_restart: Share = 0.9
    kept: Share = 0.7
    temporal_width: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    temporal_share: Share = 0.5
    threshold: Finite = 3.0
    scale: Scale = "cells"
    title_weight: Weight = 16.0
    question_weight: Weight = 16.0
    look_ahead: Weight = 0.7
    look_ahead_power: Weight = 10.0
    open_share: Share = 0.5
    agreement: Weight = 0.5
    widest_entity: Count = 100
    nearest_name: Finite = 0.7
    follow: Weight = 1e-4
    fine: bool = True
    entities: bool = True
    question_links: bool = True
    document_links: bool = True
    semantic_links: bool = True
    temporal_links: bool = True


PAPER: Mapping[str, object] = {
    "title_weight": 1.0,
    "question_weight": 1.0,
    "look_ahead": 2.0,
    "agreement": 0.0,
    "nearest_name": -1.0,
    "follow": 0.0,
}
"""The settings of the paper's text, where ours differ."""


@dataclass(frozen=True, slots=True)
class Zoomed:
    """The passages of one question, best first.

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``, of their documents, never rising; below zero for documents
    that the walk did not reach: the similarity minus one. sentences: of each passage the sentences that are kept, in
    their order. entities: what the question is linked to, by falling weight. dense: True where the walk reached no
    document and the nearest ones stand in, with their similarity.
    """

    passages: Rows
    scores: Scores
    sentences: tuple[tuple[Sentence, ...], ...] = ()
    entities: tuple[tuple[int, float], ...] = ()
    dense: bool = False


@dataclass(frozen=True, slots=True)
class ZoomBlocks:
    """The parts of the coarse graph (eq. 2), as stored.

    documents, entities: similarity links, exp(cos). contents: documents x entities, binary; titles: of each of its
    links, whether the entity is the document's title.
    """

    documents: Block
    contents: Block
    titles: npt.NDArray[np.integer]
    entities: Block

    def spread(self) -> Rows:
        """``(n_entities,)``: in how many documents an entity is."""
        return np.bincount(self.contents.indices, minlength=len(self.entities.indptr) - 1)

    def matrix(self, setting: ZoomGraphParameters, spread: Rows) -> Shared:
        """M of eq. 6 under some settings."""
        weights = np.where(self.titles > 0, setting.title_weight, 1.0)
        incidence = Block(self.contents.indptr, self.contents.indices, weights)
        n, m = len(self.documents.indptr) - 1, len(spread)
        return shared(
            self.documents if setting.document_links else _empty(n),
            incidence if setting.entities else _empty(n),
            self.entities if setting.entities else _empty(m),
            int(np.count_nonzero(spread)),
            setting.scale,
        )


class _Matrices:
    """M of eq. 6 under the settings that were last asked with: it is as large as the graph, so few are held."""

    def __init__(self, blocks: ZoomBlocks, spread: Rows) -> None:
        self._blocks = blocks
        self._spread = spread
        self._held: dict[tuple[object, ...], Shared] = {}
        self._lock = Lock()

    def of(self, setting: ZoomGraphParameters) -> Shared:
        """The matrix under some settings, made once for all that do not change it."""
        key = (setting.title_weight, setting.document_links, setting.entities, setting.scale)
        with self._lock:
            matrix = self._held.pop(key, None)
            if matrix is None:
                matrix = self._blocks.matrix(setting, self._spread)
            self._held[key] = matrix
            while len(self._held) > HELD_MATRICES:
                del self._held[next(iter(self._held))]  # asked for the longest ago
            return matrix


@dataclass(frozen=True, slots=True)
class ZoomGraph:
    """A ZoomRAG index over plain arrays, which may be memory maps.

    passages, sentences: arrays of unit rows, numbered one after the other. vectors: ``(n_documents, d) float32``, of
    documents, on the grid of ``indexmill.retrieve.grid``. mentions, mentioned_in: sentences by entities and back.
    sentence_passage, passage_document: ascending. A graph is made once and asked often.
    """

    passages: Sequence[Vectors]
    sentences: Sequence[Vectors]
    vectors: Vectors
    blocks: ZoomBlocks
    mentions: Sparse
    mentioned_in: Sparse
    names: QuestionNames
    sentence_passage: Integers
    passage_document: Integers
    parameters: ZoomGraphParameters = field(default_factory=ZoomGraphParameters)
    spread: Rows = field(init=False, repr=False)
    matrices: _Matrices = field(init=False, repr=False)
    passage_starts: Rows = field(init=False, repr=False)
    sentence_starts: Rows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", preset(self.parameters, PAPER))
        every = np.arange(len(self.vectors) + 1, dtype=self.passage_document.dtype)
        passages = self.passage_document.searchsorted(every)
        sentences = self.sentence_passage.searchsorted(passages.astype(self.sentence_passage.dtype))
        object.__setattr__(self, "passage_starts", passages)
        object.__setattr__(self, "sentence_starts", sentences)
        object.__setattr__(self, "spread", self.blocks.spread())
        object.__setattr__(self, "matrices", _Matrices(self.blocks, self.spread))

    @property
    def matrix(self) -> Shared:
        """M, made of the blocks when it is first asked for."""
        return self.matrices.of(self.parameters)

    def with_parameters(self, **changes: object) -> ZoomGraph:
        """The same graph, asked with other parameters; it shares all arrays, and the matrices made from them."""
        return self.having(replace(self.parameters, **changes))  # type: ignore[arg-type]

    def having(self, parameters: ZoomGraphParameters) -> ZoomGraph:
        """The same graph with all these parameters: see ``with_parameters``."""
        other = copy.copy(self)  # and not `replace`, which would count the links again
        object.__setattr__(other, "parameters", preset(parameters, PAPER))
        return other

    def retrieve(
        self,
        vectors: Vectors,
        questions: Sequence[str],
        k: int,
        encode: Encode | None = None,
        allowed: Allowed | None = None,
        explain: bool = True,
    ) -> list[Zoomed]:
        """The k best passages of each question; a question in a batch gets exactly what it gets alone.

        vectors: ``(n_questions, d) float32``, unit rows, parallel to ``questions``. encode: gives the unit vectors of
        names that no entity has; without it they count for nothing. allowed: ``(n_passages,)``, the passages that may
        be found; a document without any takes no part. explain: False leaves out sentences and entities.
        """
        asked = Asked(questions, vectors, encode, allowed)
        return [found for tile in self.tiles(asked, k, explain) for found in tile]

    def tiles(self, asked: Asked, k: int, explain: bool = True) -> Iterator[list[Zoomed]]:
        """What ``retrieve`` gives, some questions at a time: of a large batch not everything is held at once."""
        if not len(self.vectors):
            nothing = np.empty(0, dtype=np.int64)
            yield [Zoomed(nothing, np.empty(0), dense=True) for _ in asked.questions]
            return
        scope = Scope.of(self, asked.allowed)
        linked = self.names.links(asked, self.parameters.nearest_name)
        walk = Walk(scope.matrix, min(WALK_QUESTIONS, len(asked.questions)))
        for first in range(0, len(asked.questions), QUESTION_TILE):
            part = slice(first, first + QUESTION_TILE)
            named = self.names.find(linked[part], asked.vectors[part])
            similar = similarities(self, scope, named)
            known = coverage(asked.questions[part], linked[part], lambda rows: np.sqrt(rarity(self.spread[rows])))
            odds = (1.0 - known) / np.maximum(known, LEAST_KNOWN)
            tile = _Tile(named.vectors, similar, question_links(self, scope, named, similar), odds)
            yield self._answers(scope, walk, tile, k, explain)

    def _cuts(self, scope: Scope, links: QuestionLinks, count: int) -> list[int]:
        """Where a tile is cut, so that not too many questions walk together, nor from too many links."""
        degrees = scope.matrix.indptr.take(links.nodes + 1) - scope.matrix.indptr.take(links.nodes)
        cuts, held = [0], 0
        for i, more in enumerate(np.bincount(links.questions, degrees, count).astype(np.int64).tolist()):
            if i > cuts[-1] and (held + more > WALK_LINKS or i - cuts[-1] == WALK_QUESTIONS):
                cuts.append(i)
                held = 0
            held += more
        return [*cuts, count]

    def _answers(self, scope: Scope, walk: Walk, tile: _Tile, k: int, explain: bool) -> list[Zoomed]:
        """The answers to the questions of a tile."""
        vectors = tile.vectors
        seen = [
            part
            for begin, upto in pairwise(self._cuts(scope, tile.links, len(vectors)))
            for part in self._seen(scope, walk, tile.slice(begin, upto), k, explain)
        ]
        found = Documents.joined([documents for documents, _ in seen])
        zoomed = zoom(self, Local.joined([sentences for _, sentences in seen]), explain)
        pairs, scores = ordered_passages(self, scope, found, zoomed, vectors, k)
        asking, passages = parts(pairs)
        sentences = zoomed.sentences(pairs) if explain else []
        linked = self._linked(tile.links, len(vectors)) if explain else [()] * len(vectors)
        cuts = asking.searchsorted(np.arange(len(vectors) + 1)).tolist()
        return [
            Zoomed(
                passages[first:last],
                np.minimum.accumulate(scores[first:last]),  # second passages of documents stand behind all first
                tuple(sentences[first:last]),
                entities,
                dense,
            )
            for (first, last), entities, dense in zip(pairwise(cuts), linked, found.dense.tolist(), strict=True)
        ]

    def _seen(self, scope: Scope, walk: Walk, tile: _Tile, k: int, explain: bool) -> Iterator[tuple[Documents, Local]]:
        """The documents of questions that walk together, and what is zoomed into."""
        setting, count, links = self.parameters, len(tile.vectors), tile.links
        try:
            walked = walk.walk(links, count, setting.steps, setting.restart, setting.follow)
        except TooManyLinks:
            for some in (tile.slice(0, count // 2), tile.slice(count // 2, count)):
                yield from self._seen(scope, walk, some, k, explain)
            return
        own = links.nodes >= len(self.vectors)
        agreeing = np.bincount(links.questions[own], minlength=count) > 0  # else there is no open question
        # What is zoomed into does not depend on how many hits are wanted.
        found = ranked_documents(self, walked, tile.similar, agreeing, tile.odds, max(k, setting.documents))
        yield found, local(self, scope, found, walked, explain)

    def _linked(self, links: QuestionLinks, count: int) -> list[tuple[tuple[int, float], ...]]:
        """The entities that each question is linked to, by falling weight, relative to the largest."""
        (own,) = (links.nodes >= len(self.vectors)).nonzero()
        asking, weights = links.questions[own], links.weights[own]
        order = np.lexsort((-weights, asking))
        asking, weights = asking[order], weights[order]
        cuts = asking.searchsorted(np.arange(count + 1))
        shares = weights / weights[cuts[asking]]
        told = list(zip((links.nodes[own[order]] - len(self.vectors)).tolist(), shares.tolist(), strict=True))
        return [tuple(told[first:last]) for first, last in pairwise(cuts.tolist())]


@dataclass(frozen=True, slots=True)
class Scope:
    """What takes part in a call: passages and documents (None for all), how many passages of each document, how many
    documents, and the matrix without the others."""

    passages: Allowed | None
    documents: Allowed | None
    counts: Rows
    count: int
    matrix: Shared

    @classmethod
    def of(cls, graph: ZoomGraph, allowed: Allowed | None) -> Scope:
        """What some passages leave."""
        if allowed is None or allowed.all():
            return cls(None, None, np.diff(graph.passage_starts), len(graph.vectors), graph.matrix)
        counts = np.bincount(graph.passage_document[allowed], minlength=len(graph.vectors))
        documents = counts > 0
        if documents.all():
            return cls(allowed, None, counts, len(documents), graph.matrix)
        matrix = graph.matrix.without(~documents)
        return cls(allowed, documents, counts, int(np.count_nonzero(documents)), matrix)


class _Tile(NamedTuple):
    """Questions that are answered together: their vectors, similarities to documents, links, and how much of each is
    not explained by what it names."""

    vectors: Vectors
    similar: Similarities
    links: QuestionLinks
    odds: Scores

    def slice(self, first: int, last: int) -> _Tile:
        """Some of the questions."""
        its = slice(first, last)
        return _Tile(self.vectors[its], self.similar.slice(its), self.links.slice(first, last), self.odds[its])


def _empty(rows: int) -> Block:
    return Block(np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0))
