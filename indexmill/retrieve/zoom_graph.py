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
  question, to the power of ``agreement``.
- *Small scores* are not followed further (``follow``), so that a walk's cost follows the question and not the corpus.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.base import Asked, Encode, Vectors
from indexmill.retrieve.dense import at_least_top
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse
from indexmill.retrieve.question_links import Links
from indexmill.retrieve.stacked import taken
from indexmill.retrieve.zoom_fine import Local, sentence_scores
from indexmill.retrieve.zoom_question import QuestionNames
from indexmill.retrieve.zoom_walk import Block, QuestionLinks, Scale, Shared, average, shared, walk

__all__ = ["Sentence", "ZoomBlocks", "ZoomGraph", "ZoomGraphParameters", "Zoomed"]

_TILE = 32
"""Questions whose similarities to all documents are held at once."""

_NEAR = 50
"""Nearest documents through whose sentences a wide entity still leads on."""

_LEAST = 1e-2
"""Below this a relative similarity is noise."""


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
    of its vector for the look-ahead; for the agreement all is. agreement: power of a document's relative similarity.
    widest_entity: an entity in more sentences leads on only through those of the nearest documents.
    nearest_name: least similarity at which a name that no entity has stands for the nearest one.
    follow: a node with no more than this score is not followed.
    fine, entities, question_links, document_links, semantic_links, temporal_links: False leaves that out (table 4).
    """

    steps: int = 5
    restart: float = 0.8
    documents: int = 10
    fine_restart: float = 0.9
    kept: float = 0.7
    temporal_width: float = 1.0
    temporal_share: float = 0.5
    threshold: float = 3.0
    scale: Scale = "cells"
    title_weight: float = 16.0
    question_weight: float = 16.0
    look_ahead: float = 0.7
    look_ahead_power: float = 10.0
    open_share: float = 0.5
    agreement: float = 0.5
    widest_entity: int = 100
    nearest_name: float = 0.7
    follow: float = 1e-5
    fine: bool = True
    entities: bool = True
    question_links: bool = True
    document_links: bool = True
    semantic_links: bool = True
    temporal_links: bool = True


class Sentence(NamedTuple):
    """A kept sentence: its row and its score in the fine walk."""

    row: int
    score: float


@dataclass(frozen=True, slots=True)
class Zoomed:
    """The passages of one question, best first.

    passages: ``(k,) int64`` rows. scores: ``(k,) float64``, of their documents; below zero for documents that the walk
    did not reach: the similarity minus one. sentences: of each passage the sentences that are kept, in their order.
    entities: what the question is linked to, by falling weight. dense: True where the walk reached no document and
    the nearest ones stand in, with their similarity.
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


@dataclass(frozen=True, slots=True)
class ZoomGraph:
    """A ZoomRAG index over plain arrays, which may be memory maps.

    passages, sentences: arrays of unit rows, numbered one after the other. vectors: ``(n_documents, d) float32``, of
    documents, on the grid of ``indexmill.retrieve.grid``. mentions, mentioned_in: sentences by entities and back.
    sentence_passage, passage_document: ascending. matrix: M, made of the blocks; a graph is made once and asked often.
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
    matrix: Shared = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spread", self.blocks.spread())
        object.__setattr__(self, "matrix", self.blocks.matrix(self.parameters, self.spread))

    def with_parameters(self, **changes: object) -> ZoomGraph:
        """The same graph, asked with other parameters."""
        return replace(self, parameters=replace(self.parameters, **changes))  # type: ignore[arg-type]

    def retrieve(
        self,
        vectors: Vectors,
        questions: Sequence[str],
        k: int,
        encode: Encode | None = None,
        allowed: npt.NDArray[np.bool_] | None = None,
        explain: bool = True,
    ) -> list[Zoomed]:
        """The k best passages of each question; a question in a batch gets exactly what it gets alone.

        vectors: ``(n_questions, d) float32``, unit rows, parallel to ``questions``. encode: gives the unit vectors of
        names that no entity has; without it they count for nothing. allowed: ``(n_passages,)``, the passages that may
        be found; a document without any takes no part. explain: False leaves out sentences and entities.
        """
        return list(self.answers(Asked(questions, vectors, encode, allowed), k, explain))

    def answers(self, asked: Asked, k: int, explain: bool = True) -> Iterator[Zoomed]:
        """What ``retrieve`` gives, one by one."""
        if not len(self.vectors):
            nothing = Zoomed(np.empty(0, dtype=np.int64), np.empty(0), dense=True)
            yield from (nothing for _ in asked.questions)
            return
        scope = _Scope.of(self, asked.allowed)
        for first in range(0, len(asked.questions), _TILE):
            tile = slice(first, first + _TILE)
            named = self.names.find(asked, tile)
            vectors = asked.vectors[tile]
            both = on_grid(np.concatenate([vectors, named.open_questions(1.0)]))
            products = _products(self.vectors, both)
            ahead = named.open_questions(self.parameters.open_share)
            for i, (vector, links) in enumerate(zip(vectors, named.links, strict=True)):
                one = _Question(vector, ahead[i], links, products[i], products[len(vectors) + i])
                yield self._retrieve(scope, one, k, explain)

    def _retrieve(self, asked: _Scope, question: _Question, k: int, explain: bool) -> Zoomed:
        setting = self.parameters
        cosines, opened = question.products / np.float64(UNIT), question.opened
        cosines[~asked.documents] = -np.inf
        links = self._question_links(asked, question, cosines)
        nodes, _ = walk(asked.matrix, links, setting.steps, setting.restart, setting.follow)
        coarse = nodes[: len(cosines)]
        if setting.agreement and (links.nodes >= len(cosines)).any():  # without an entity there is no open question
            (reached,) = coarse.nonzero()
            relevance = opened[reached] / np.float64(UNIT)
            scale = max(float(opened[asked.documents].max()) / UNIT, _LEAST)
            coarse[reached] *= np.maximum(relevance / scale, _LEAST) ** setting.agreement
        documents, scores, dense = _ranking(coarse, cosines, k)
        best = documents[: setting.documents] if not dense else documents[:0]
        chosen: dict[int, list[int]] = {}
        kept: dict[int, list[Sentence]] = {}
        if len(best) and setting.fine and (explain or (asked.counts[best] > 1).any()):
            chosen, kept = self._zoom(asked, best, nodes[len(cosines) :])
        passages, owners = self._passages(asked, documents, chosen, question.vector, k)
        entities: tuple[tuple[int, float], ...] = ()
        if explain:
            own = links.nodes >= len(cosines)
            rows, weights = links.nodes[own] - len(cosines), links.weights[own]
            order = np.argsort(-weights, kind="stable")
            shares = weights[order] / weights.max(initial=0.0)
            entities = tuple(zip(rows[order].tolist(), shares.tolist(), strict=True))
        return Zoomed(
            passages,
            scores[owners],
            tuple(tuple(kept.get(row, ())) for row in passages.tolist()) if explain else (),
            entities,
            dense,
        )

    # --- the coarse stage (section 3.1) ---

    def _question_links(self, asked: _Scope, question: _Question, cosines: Scores) -> QuestionLinks:
        """H of eq. 6: the documents beyond the threshold of the question's row, and entities."""
        setting = self.parameters
        (rows,) = asked.documents.nonzero()
        weights = np.exp(cosines[rows])
        if not len(rows):
            return QuestionLinks(rows, weights)
        beyond = weights > weights.mean() + setting.threshold * weights.std()
        documents, weights = rows[beyond], weights[beyond]
        weights = weights / average(float(weights.sum()), len(weights), len(rows), setting.scale)
        if not (setting.entities and setting.question_links and question.links):
            return QuestionLinks(documents, weights)
        entities, scores = self._entities(asked, question, cosines)
        cells = int(np.count_nonzero(self.spread))
        scores = setting.question_weight * scores / average(float(scores.sum()), len(scores), cells, setting.scale)
        return QuestionLinks(np.concatenate([documents, entities + len(cosines)]), np.concatenate([weights, scores]))

    def _entities(self, asked: _Scope, question: _Question, cosines: Scores) -> tuple[Rows, Scores]:
        """The entities a question is linked to, ascending, and their weights: what it names, and one look ahead."""
        setting = self.parameters
        entities = np.array([link.entity for link in question.links], dtype=np.int64)
        scores = np.array([link.score for link in question.links], dtype=np.float64)
        if setting.look_ahead <= 1:
            found, weights = self._look_ahead(asked, entities, question, cosines)
            new = ~np.isin(found, entities)
            entities, scores = np.concatenate([entities, found[new]]), np.concatenate([scores, weights[new]])
        order = entities.argsort(kind="stable")
        entities, scores = entities[order], scores[order]
        present = self.spread[entities] > 0
        return entities[present], scores[present]

    def _look_ahead(self, asked: _Scope, entities: Rows, question: _Question, cosines: Scores) -> tuple[Rows, Scores]:
        """The entities of the sentences that touch the question's entities and resemble the open question most."""
        setting = self.parameters
        wide = self.mentioned_in.degrees(entities) > setting.widest_entity
        _, touched, _ = self.mentioned_in.links(entities[~wide])
        if wide.any():
            near = np.sort(at_least_top(cosines, min(_NEAR, int(asked.documents.sum()))))
            rows = self._sentences_of(near)
            owners, mentioned, _ = self.mentions.links(rows)
            touched = np.concatenate([touched, rows[owners[np.isin(mentioned, entities[wide])]]])
        touched = np.unique(touched)
        touched = touched[asked.passages[self.sentence_passage[touched]]]
        if not len(touched):
            return touched, np.empty(0)
        held = taken(self.sentences, touched)
        held *= question.ahead
        similarity = np.maximum(np.add.reduce(held, axis=1).astype(np.float64), 0.0)
        relative = similarity / max(float(similarity.max()), _LEAST)
        strong = relative >= setting.look_ahead
        owners, mentioned, _ = self.mentions.links(touched[strong])
        weights = relative[strong][owners]
        order = np.lexsort((-weights, mentioned))
        found, first = np.unique(mentioned[order], return_index=True)
        return found, weights[order][first] ** setting.look_ahead_power

    # --- the fine stage (section 3.2) ---

    def _zoom(
        self, asked: _Scope, documents: Rows, entities: Scores
    ) -> tuple[dict[int, list[int]], dict[int, list[Sentence]]]:
        """Of some documents the passages, best first, and of each passage the kept sentences."""
        setting = self.parameters
        sentences = self._sentences_of(np.sort(documents))
        sentences = sentences[asked.passages[self.sentence_passage[sentences]]]
        if not len(sentences):
            return {}, {}
        passage = self.sentence_passage[sentences].astype(np.int64)
        document = self.passage_document[passage].astype(np.int64)
        owners, mentioned, _ = self.mentions.links(sentences)
        rows, columns = np.unique(mentioned, return_inverse=True)
        scores = sentence_scores(
            Local(taken(self.sentences, sentences), document, owners, columns, entities[rows]),
            restart=setting.fine_restart,
            temporal_width=setting.temporal_width,
            temporal_share=setting.temporal_share,
            semantic=setting.semantic_links,
            temporal=setting.temporal_links,
            scale=setting.scale,
        )
        share = setting.kept if scores.any() else 1.0  # what has no score is not told apart
        best = np.lexsort((sentences, -scores))[: math.ceil(share * len(sentences))]
        kept: dict[int, list[Sentence]] = {}
        for i in np.sort(best).tolist():
            kept.setdefault(int(passage[i]), []).append(Sentence(int(sentences[i]), float(scores[i])))
        own, at = np.unique(passage, return_inverse=True)
        strongest = np.zeros(len(own))
        np.maximum.at(strongest, at, scores)
        chosen: dict[int, list[int]] = {}
        if scores.any():
            for i in np.lexsort((own, -strongest)).tolist():
                chosen.setdefault(int(self.passage_document[own[i]]), []).append(int(own[i]))
        return chosen, kept

    def _passages(
        self, asked: _Scope, documents: Rows, chosen: dict[int, list[int]], vector: Vectors, k: int
    ) -> tuple[Rows, Rows]:
        """At most k passages, and the place of the document of each: of every document in turn its best, then its
        second best, and so on; those that the fine stage does not order by similarity."""
        first = self.passage_document.searchsorted(documents, side="left")
        last = self.passage_document.searchsorted(documents, side="right")
        if (last - first == 1).all():
            return first[:k].astype(np.int64), np.arange(min(k, len(documents)))
        ordered: list[list[int]] = []
        for row, low, high in zip(documents.tolist(), first.tolist(), last.tolist(), strict=True):
            inside = chosen.get(row, [])
            rest = np.setdiff1d(np.arange(low, high)[asked.passages[low:high]], np.array(inside, dtype=np.int64))
            if len(rest) > 1:
                similarity = np.add.reduce(taken(self.passages, rest) * vector, axis=1)
                rest = rest[np.lexsort((rest, -similarity))]
            ordered.append([*inside, *rest.tolist()])
        found = [
            (rows[turn], place)
            for turn in range(max(map(len, ordered), default=0))
            for place, rows in enumerate(ordered)
            if turn < len(rows)
        ][:k]
        return np.array([row for row, _ in found], dtype=np.int64), np.array([at for _, at in found], dtype=np.int64)

    def _sentences_of(self, documents: Rows) -> Rows:
        """The sentences of some documents, ascending."""
        first = self.passage_document.searchsorted(documents, side="left")
        last = self.passage_document.searchsorted(documents, side="right")
        low = self.sentence_passage.searchsorted(first, side="left")
        lengths = self.sentence_passage.searchsorted(last, side="left") - low
        rows: Rows = np.arange(int(lengths.sum())) + (low - lengths.cumsum() + lengths).repeat(lengths)
        return rows


@dataclass(frozen=True, slots=True)
class _Question:
    """A question: its vector, that for the look-ahead, what it names, and its products with all documents.

    opened: the products of the open question.
    """

    vector: Vectors
    ahead: Vectors
    links: Links
    products: Vectors
    opened: Vectors


@dataclass(frozen=True, slots=True)
class _Scope:
    """What takes part in a call: passages, documents (with how many passages each), and the matrix without the rest."""

    passages: npt.NDArray[np.bool_]
    documents: npt.NDArray[np.bool_]
    counts: Rows
    matrix: Shared

    @classmethod
    def of(cls, graph: ZoomGraph, allowed: npt.NDArray[np.bool_] | None) -> _Scope:
        passages = np.ones(len(graph.passage_document), dtype=np.bool_) if allowed is None else allowed
        counts = np.bincount(graph.passage_document[passages], minlength=len(graph.vectors))
        documents = counts > 0
        matrix = graph.matrix if allowed is None or documents.all() else graph.matrix.without(~documents)
        return cls(passages, documents, counts, matrix)


def _products(vectors: Vectors, questions: Vectors) -> Vectors:
    """Products ``(n_questions, n)`` on the grid: exact, so that they may be found in whichever way is fast."""
    if len(questions) > 4:
        return np.asarray(questions @ vectors.T)
    return np.array([vectors @ question for question in questions], dtype=np.float32)


def _ranking(coarse: Scores, cosines: Scores, k: int) -> tuple[Rows, Scores, bool]:
    """The k best documents by coarse score, then by similarity; whether it is by similarity alone."""
    (reached,) = (coarse > 0).nonzero()
    best = reached[at_least_top(coarse[reached], k)] if len(reached) else reached
    best = best[np.lexsort((best, -coarse[best]))][:k]
    if len(best) >= k:
        return best, coarse[best], False
    (rest,) = ((coarse <= 0) & np.isfinite(cosines)).nonzero()
    more = rest[at_least_top(cosines[rest], k - len(best))] if len(rest) else rest
    more = more[np.lexsort((more, -cosines[more]))][: k - len(best)]
    if not len(best):
        return more, cosines[more], True
    return np.concatenate([best, more]), np.concatenate([coarse[best], cosines[more] - 1.0]), False


def _empty(rows: int) -> Block:
    return Block(np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0))
