"""The vectors of a snapshot's passages, and of their documents' titles, which add to the similarity.

    similarity(q, p) = q . p + title * q . t(p)

where t(p) is the title vector of p's document, zero if it has none, and ``title`` is the weight in the snapshot's
parameters of dense. All methods that start from the passages nearest to the question share one list of them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from indexmill.errors import CorruptBlob
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.code_scan import PassageCodes, passage_codes_of
from indexmill.retrieve.columns import Pairs, products
from indexmill.retrieve.dense import Beside, Rows, Scores, nearest, similarities
from indexmill.retrieve.mention_matrices import MENTION_LINKS, passage_documents
from indexmill.retrieve.retrieval_method import Allowed, PassageRetriever, QueryBatch, Ranking, Vectors, parameters_of

_VECTORS: CacheKey[PassageVectors] = CacheKey("passage vectors")


@dataclass(frozen=True, slots=True)
class DenseParameters:
    """The settings of ranking. title: the weight of the title's cosine, added to that of the passage."""

    title: Annotated[float, Field(ge=0, le=10)] = 0.2


class Titles:
    """The vectors of a snapshot's titles, read on first use."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    @cached_property
    def shards(self) -> Sequence[Vectors]:
        """The title vectors as quantised directions, in one shard ``(n_documents, d)``. Raises CorruptBlob."""
        artifacts = self._artifacts
        vectors = artifacts.vectors("titles", "vectors")
        artifacts.check_same_shards("passages", "titles")
        for artifact, length in zip(artifacts.shards("titles"), np.diff(vectors.starts).tolist(), strict=True):
            label = artifact.name.partition("/")[2]
            expected = artifacts.artifact(f"documents/{label}").rows
            if length != expected:
                raise CorruptBlob(f"{artifacts.path}: 'titles/{label}' has {length} vectors; expected {expected}")
        joined = artifacts.assembled("titles.1", lambda: {"vectors": np.concatenate(list(vectors))})["vectors"]
        if joined.shape[1] != artifacts.dimensions:
            raise CorruptBlob(
                f"{artifacts.path}: title vectors have {joined.shape[1]} dimensions; "
                f"passage vectors have {artifacts.dimensions}"
            )
        return [joined]

    @cached_property
    def of_passages(self) -> Rows:
        """The row of each passage's title, which is its document's row: ``(n_passages,)``. Raises CorruptBlob."""
        artifacts = self._artifacts
        if artifacts.shards(MENTION_LINKS):
            return passage_documents(artifacts)
        columns = [np.empty(0, dtype=np.int64)]
        starts = artifacts.vectors("titles", "vectors").starts
        documents = artifacts.vectors("titles", "passage_document")
        for artifact, first, count, rows in zip(
            artifacts.shards("passages"), starts[:-1], np.diff(starts), documents, strict=True
        ):
            owners = rows.astype(np.int64)
            if len(owners) != artifact.rows or (len(owners) and not 0 <= owners.min() <= owners.max() < count):
                raise CorruptBlob(f"{artifacts.path}: the titles of {artifact.name!r} do not fit its passages")
            columns.append(owners + first)
        return np.concatenate(columns)


class PassageVectors:
    """Finds the passages nearest to questions.

    shards: ``(n, d) float32`` arrays of unit rows, numbered consecutively. titles: None to ignore titles. codes: opens
    the passage codes, which are scanned instead of the vectors, with the same result; returns None for a snapshot
    without codes.
    """

    def __init__(
        self,
        shards: Sequence[Vectors],
        titles: Titles | None = None,
        weight: float = 0.0,
        codes: Callable[[], PassageCodes | None] = lambda: None,
    ) -> None:
        self.shards = shards
        self._codes = codes
        self._titles = titles
        self.weight = weight if titles is not None else 0.0
        """The weight of a title; 0 if the snapshot has no title vectors."""

    @property
    def most(self) -> float:
        """The upper bound of a similarity: 1 if titles do not count."""
        return 1.0 + self.weight

    @property
    def untitled(self) -> PassageVectors:
        """A copy that ignores titles, as the papers do."""
        return self.weighed(0.0)

    def weighed(self, weight: float) -> PassageVectors:
        """Return a copy with a different title weight."""
        weighted = copy.copy(self)
        weighted.weight = weight if self._titles is not None else 0.0
        return weighted

    def nearest_to(self, batch: QueryBatch, k: int) -> list[tuple[Rows, Scores]]:
        """Return ``nearest`` for a batch, cached for all methods with the same weight of titles."""
        return batch.first_of(
            f"nearest, titles {self.weight!r}",
            k,
            partial(self.nearest, batch.vectors, allowed=batch.allowed),
            lambda ranking: (ranking[0][:k], ranking[1][:k]),
        )

    def nearest(self, questions: Vectors, k: int, allowed: Allowed | None = None) -> list[tuple[Rows, Scores]]:
        """Find the k passages most similar to each question ``(n_questions, d) float32``, best first, ties by row."""
        codes = self._codes()
        if codes is None or codes.weight != self.weight or not k:
            return nearest(self.shards, questions, k, allowed, self._beside())
        return [self._scanned(codes, question[None], k, allowed) for question in questions]

    def _scanned(self, codes: PassageCodes, question: Vectors, k: int, allowed: Allowed | None) -> tuple[Rows, Scores]:
        """Find the k passages most similar to a question ``(1, d)``, by codes, or by vectors if that is faster."""
        scanned = codes.nearest(question[0], k, lambda rows: self.similarities(question, rows), allowed)
        return scanned or nearest(self.shards, question, k, allowed, self._beside())[0]

    def similarities(self, questions: Vectors, pairs: Pairs) -> Scores:
        """Return the similarities ``(n_pairs,) float32`` of (question, passage) pairs, titles included."""
        return similarities(self.shards, questions, pairs, self._beside())

    def cosines(self, questions: Vectors, pairs: Pairs) -> Scores:
        """Return the cosines ``(n_pairs,) float32`` of (question, passage) pairs, without titles."""
        return products(self.shards, questions, pairs)

    def _beside(self) -> Beside | None:
        if self._titles is None or not self.weight:
            return None
        return Beside(self._titles.shards, self._titles.of_passages, self.weight)


def passage_vectors_of(artifacts: Artifacts) -> PassageVectors:
    """Open the vectors of passages, and of titles if any, once. Raises ConfigurationError for unknown parameters."""

    def opened() -> PassageVectors:
        titles = Titles(artifacts) if artifacts.shards("titles") else None
        weight = parameters_of(artifacts, "dense", DenseParameters).title
        codes = partial(passage_codes_of, artifacts)
        return PassageVectors(artifacts.row_vectors("passages"), titles, weight, codes)

    return artifacts.once(_VECTORS, opened)


class Dense(PassageRetriever):
    """The passages whose vectors are nearest to the question's, titles included, without explanations."""

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._setting = parameters_of(artifacts, "dense", DenseParameters)
        self._near = passage_vectors_of(artifacts)

    def _use(self, setting: Any) -> None:
        """Apply settings, including the weight of titles: see ``PassageRetriever``."""
        super()._use(setting)
        self._near = self._near.weighed(setting.title)

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        return (Ranking(rows, scores) for rows, scores in self._near.nearest_to(batch, k))
