"""The retriever of zoom_graph: opens ``ZoomGraph`` on a snapshot's arrays and converts the results into hits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.families.zoom_graph.graph import ZoomBlocks
from indexmill.families.zoom_graph.parameters import ZoomGraphParameters
from indexmill.families.zoom_graph.passages import Sentence
from indexmill.families.zoom_graph.question import QuestionNames
from indexmill.families.zoom_graph.search import Zoomed, ZoomGraph
from indexmill.families.zoom_graph.similar import document_links, documents_of, entity_links
from indexmill.families.zoom_graph.walk import CsrBlock
from indexmill.retrieve.centre import centre_of
from indexmill.retrieve.columns import distinct, first_of_each, matches, paired
from indexmill.retrieve.coverage import coverage
from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.entity_names import names_of
from indexmill.retrieve.matrices import Sparse, rarity
from indexmill.retrieve.mention_matrices import mention_links_of
from indexmill.retrieve.retrieval_method import (
    EXPLAINED,
    Allowed,
    Explanations,
    PassageRetriever,
    QueryBatch,
    Ranking,
    parameters_of,
)
from indexmill.retrieve.table_rows import TableRows
from indexmill.text.canonical_names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def open_zoom_graph(artifacts: Artifacts) -> ZoomGraph:
    """Open the snapshot's graph, memory-mapped. Raises CorruptBlob; ConfigurationError for an unknown parameter."""
    links = mention_links_of(artifacts)
    documents, contained_in = links.documents()
    titles: npt.NDArray[Any] = np.empty(0, np.uint8) if documents.counts is None else documents.counts
    contents = CsrBlock(documents.indptr, documents.indices, titles)
    names = QuestionNames(NameIndex(links.keys), contained_in, *names_of(artifacts, links.keys))
    return ZoomGraph(
        artifacts.row_vectors("passages"),
        artifacts.row_vectors("sentences"),
        documents_of(artifacts).vectors,
        ZoomBlocks(
            partial(document_links, artifacts),
            contents,
            partial(entity_links, artifacts, links.keys),
            np.bincount(contents.indices, minlength=len(links.keys)),
            artifacts.assembled,
        ),
        *links.sentences(),
        names,
        links.sentence_passage,
        links.passage_document,
        parameters_of(artifacts, "zoom_graph", ZoomGraphParameters),
        centre_of(artifacts),
    )


class ZoomGraphReader(PassageRetriever):
    """Retrieves passages by a coarse walk over documents and a fine walk over sentences.

    The explanation of a hit is ``{"dense": bool, "sentences": [...], "entities": [...]}``: the kept sentences of the
    passage, each with ``text`` and ``score`` (none beyond the K documents that were zoomed into), and the entities that
    link its document to the question, each with ``entity_id``, ``surface`` and ``score``.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._graph = open_zoom_graph(artifacts)
        self._setting = self._graph.parameters
        contents = self._graph.blocks.contents
        self._contents = Sparse(contents.indptr, contents.indices)
        self._sentences = TableRows(artifacts, "sentences", ["start", "end"])
        self._entities = entity_labels_of(artifacts)

    def _use(self, setting: Any) -> None:
        super()._use(setting)
        self._graph = self._graph.with_parameters(**asdict(setting))

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank the passages of each question: see ``PassageRetriever``."""
        for tile in self._graph.tiles(batch, k):
            for retrieved in tile:
                yield Ranking(retrieved.passages, retrieved.scores, answer=(retrieved, batch.readable))

    def coverage(self, batch: QueryBatch) -> npt.NDArray[np.float64]:
        """Return the coverage by the entities that the questions name: see ``PassageRetriever``."""
        graph = self._graph
        return coverage(batch.questions, graph.links(batch), lambda rows: rarity(graph.spread[rows]))

    def explanations(self, rankings: Sequence[Ranking], positions: Sequence[Sequence[int]]) -> list[Explanations]:
        """Explain the hits of several questions at once: see ``PassageRetriever``."""
        answers = [
            ranking.answer[0]
            if chosen == range(len(ranking.rows))
            else _at_places(ranking.answer[0], ranking.rows, chosen)
            for ranking, chosen in zip(rankings, positions, strict=True)
        ]
        passages = np.concatenate([answer.passages for answer in answers])
        sentences = [kept for answer in answers for kept in answer.sentences]
        entities = self._linking_entities(answers, passages, rankings[0].answer[1])
        explanations = iter(
            [
                {"dense": dense, "sentences": kept, "entities": named}
                for dense, kept, named in zip(
                    [answer.dense for answer in answers for _ in answer.passages],
                    self._kept_sentences(passages, sentences),
                    entities,
                    strict=True,
                )
            ]
        )
        return [list(islice(explanations, len(answer.passages))) for answer in answers]

    def _kept_sentences(
        self, passages: npt.NDArray[np.int64], sentences: Sequence[Sequence[Sentence]]
    ) -> list[list[dict[str, Any]]]:
        rows = np.array([sentence.row for of_passage in sentences for sentence in of_passage], dtype=np.int64)
        bounds = zip(self._sentences.take(rows, "start"), self._sentences.take(rows, "end"), strict=True)
        return [
            [
                {"text": text[start:end], "score": sentence.score}
                for sentence, (start, end) in zip(of_passage, bounds, strict=False)  # takes the next of all bounds
            ]
            for text, of_passage in zip(self.passages.texts(passages), sentences, strict=True)
        ]

    def _linking_entities(
        self, answers: Sequence[Zoomed], passages: npt.NDArray[np.int64], readable: Allowed | None
    ) -> list[list[dict[str, Any]]]:
        """Return the entities that link each passage's document to the question, for its explanation."""
        asking = np.arange(len(answers)).repeat([len(answer.passages) for answer in answers])
        linked = [entity for answer in answers for entity in answer.entities]
        whose = np.arange(len(answers)).repeat([len(answer.entities) for answer in answers])
        pairs = paired(whose, np.array([row for row, _ in linked], dtype=np.int64))
        order = pairs.argsort()
        weights = np.array([weight for _, weight in linked])[order]
        hits, entities, _ = self._contents.links(self._graph.passage_document[passages].astype(np.int64))
        inside, column = matches(paired(asking[hits], entities), pairs[order])
        hits, entities = hits[inside], entities[inside]
        best = first_of_each(hits, weights[column], EXPLAINED)
        rows = distinct(entities[best])
        names = list(zip(self._entities.ids(rows), self._entities.shown(rows, readable), strict=True))
        descriptions: list[list[dict[str, Any]]] = [[] for _ in passages]
        for hit, at, weight in zip(
            hits[best].tolist(), rows.searchsorted(entities[best]).tolist(), weights[column[best]].tolist(), strict=True
        ):
            identity, surface = names[at]
            descriptions[hit].append({"entity_id": identity, "surface": surface, "score": weight})
        return descriptions


def _at_places(answer: Zoomed, rows: npt.NDArray[np.int64], places: Sequence[int]) -> Zoomed:
    passages = rows[np.array(places, dtype=np.int64)]
    return replace(answer, passages=passages, sentences=tuple(answer.sentences[i] for i in places))
