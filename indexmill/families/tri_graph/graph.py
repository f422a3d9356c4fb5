"""The Tri-graph: entities, sentences and passages (LinearRAG, section 3.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from indexmill.families.tri_graph.parameters import PAPER, TriGraphParameters
from indexmill.retrieve.centre import Centre, mean_similarity
from indexmill.retrieve.matrices import Integers, Matrices, Rows, Scores
from indexmill.retrieve.mention_matrices import mention_links_of
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.retrieval_method import Vectors, preset
from indexmill.text.canonical_names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


@dataclass(frozen=True, slots=True)
class TriGraphArrays:
    """A Tri-graph over plain arrays, which may be memory maps; only the rows that a question touches are read.

    passages: shards ``(n, d) float32`` with the unit vectors of all passages. sentences: the same for sentences. names:
    finds entities by canonical name. name_rows: the entities that have a name vector, ascending (None for all).
    name_vectors: the vectors of their names; other names are not removed from the question's vector. sentence_passage:
    ``(n_sentences,)``, ascending, the passage of each sentence; without it, entities above `widest_entity` pass nothing
    on. near: finds the nearest passages; None to find them only by their vectors. centre: see ``centre_of``.
    """

    passages: Sequence[Vectors]
    sentences: Sequence[Vectors]
    matrices: Matrices
    names: NameIndex
    name_vectors: Sequence[Vectors] = ()
    name_rows: Integers | None = None
    sentence_passage: Integers | None = None
    parameters: TriGraphParameters = field(default_factory=TriGraphParameters)
    near: PassageVectors | None = None
    centre: Centre | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", preset(self.parameters, PAPER))

    def rarity(self, entities: Rows) -> Scores:
        """Return the weights of some entities; 1 if rarity is off."""
        return self.matrices.rarity(entities) if self.parameters.rarity else np.ones(len(entities))

    def unrelated(self, vectors: Vectors) -> Scores:
        """Return the mean similarity of each vector to unrelated texts; 0 if similarities are not relative."""
        if self.centre is None or not self.parameters.relative:
            return np.zeros(len(vectors))
        return mean_similarity(vectors, self.centre)


def matrices_of(artifacts: Artifacts) -> Matrices:
    """Return the matrices of entities, sentences and passages of a snapshot. Raises CorruptBlob."""
    links = mention_links_of(artifacts)
    documents = np.diff(links.documents()[1].indptr)
    return Matrices(*links.sentences(), *links.passages(), links.strengths(), documents)
