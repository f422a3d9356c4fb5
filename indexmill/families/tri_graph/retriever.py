"""The retriever of tri_graph: opens a snapshot's ``TriGraph``, ranks passages and explains them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.families.tri_graph.explanations import Explanations
from indexmill.families.tri_graph.graph import matrices_of
from indexmill.families.tri_graph.parameters import TriGraphParameters
from indexmill.families.tri_graph.search import TriGraph
from indexmill.retrieve.centre import centre_of
from indexmill.retrieve.coverage import coverage
from indexmill.retrieve.entity_names import names_of
from indexmill.retrieve.mention_matrices import mention_links_of
from indexmill.retrieve.passage_vectors import passage_vectors_of
from indexmill.retrieve.retrieval_method import Explanations as HitExplanations
from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch, Ranking, parameters_of
from indexmill.text.canonical_names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def open_tri_graph(artifacts: Artifacts) -> TriGraph:
    """Open the snapshot's graph over mapped arrays. Raises CorruptBlob; ConfigurationError for an unknown parameter."""
    links = mention_links_of(artifacts)
    name_vectors, name_rows = names_of(artifacts, links.keys)
    return TriGraph(
        artifacts.row_vectors("passages"),
        artifacts.row_vectors("sentences"),
        matrices_of(artifacts),
        NameIndex(links.keys),
        name_vectors=name_vectors,
        name_rows=name_rows,
        sentence_passage=links.sentence_passage,
        parameters=parameters_of(artifacts, "tri_graph", TriGraphParameters),
        near=passage_vectors_of(artifacts),
        centre=centre_of(artifacts),
    )


class TriGraphReader(PassageRetriever):
    """Retrieves passages by activation of entities and PageRank, or the nearest passages if a question names no entity.

    The explanation of a hit is ``{"dense": bool, "entities": [...]}``: the activated entities in the passage, each with
    ``surface``, ``score``, ``hop`` (0 for an entity that the question names) and, on later hops, the text of the
    ``sentence`` that led to the entity and the surface of the entity it was ``reached_from``.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._graph = open_tri_graph(artifacts)
        self._setting = self._graph.parameters
        sentence_passage = mention_links_of(artifacts).sentence_passage
        self._explanations = Explanations(artifacts, self._graph.matrices.contents, sentence_passage)

    def _use(self, setting: Any) -> None:
        super()._use(setting)
        self._graph = replace(self._graph, parameters=setting)

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank the passages of each question: see ``PassageRetriever``."""
        for tile in self._graph.tiles(batch, k):
            for retrieved in tile:
                yield Ranking(retrieved.passages, retrieved.scores, answer=(retrieved, batch.readable))

    def coverage(self, batch: QueryBatch) -> npt.NDArray[np.float64]:
        """Return the coverage by the entities that the questions name: see ``PassageRetriever``."""
        return coverage(batch.questions, self._graph.links(batch), self._graph.matrices.rarity)

    def explanations(self, rankings: Sequence[Ranking], positions: Sequence[Sequence[int]]) -> list[HitExplanations]:
        """Explain the hits of several questions at once: see ``PassageRetriever``."""
        answers = [
            replace(ranking.answer[0], passages=ranking.rows[np.array(chosen, dtype=np.int64)])
            for ranking, chosen in zip(rankings, positions, strict=True)
        ]
        return list(self._explanations.of(answers, rankings[0].answer[1] if rankings else None))
