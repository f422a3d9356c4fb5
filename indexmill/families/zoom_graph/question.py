"""The entities that a question names, for zoom_graph, and the question's vector without them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import Pairs, paired
from indexmill.retrieve.linking import Links, link_columns, links_of
from indexmill.retrieve.matrices import Rows, Scores, Sparse
from indexmill.retrieve.residual_query import linked_parts, without
from indexmill.retrieve.retrieval_method import Allowed, QueryBatch, Vectors
from indexmill.text.canonical_names import NameIndex


@dataclass(frozen=True, slots=True)
class Named:
    """The entities that the questions of a tile name, and the part of each vector that their names explain.

    pairs: (question, entity) pairs, ascending (``columns``). scores: the scores of eq. 3.
    """

    pairs: Pairs
    scores: Scores
    vectors: Vectors
    parts: npt.NDArray[np.float64]

    def residual_queries(self, share: float) -> Vectors:
        """Return the questions' unit vectors ``(n_questions, d)``, without a share of the part that names explain."""
        return without(self.vectors, self.parts, share)


@dataclass(frozen=True, slots=True)
class QuestionNames:
    """Finds the entities that questions name.

    contained_in: entities x documents. name_vectors: unit rows of the entities ``name_rows``, ascending; None for all.
    """

    names: NameIndex
    contained_in: Sparse
    name_vectors: Sequence[Vectors] = ()
    name_rows: Rows | None = None

    def links(self, batch: QueryBatch, least: float, documents: Allowed | None = None) -> list[Links]:
        """Find the entities that each question names. least: the minimum similarity for linking an unknown name.

        documents: a mask of the documents in scope; only their names count. None for all.
        """
        return links_of(batch, self.names, self.contained_in, documents, self.name_vectors, self.name_rows, least)

    def find(self, linked: Sequence[Links], vectors: Vectors) -> Named:
        """Find the named entities and explained parts of some questions, given their links and vectors."""
        owners, rows, scores = link_columns(linked)
        explained = linked_parts(vectors, linked, self.name_vectors, self.name_rows)
        return Named(paired(owners, rows), scores, vectors, explained)
