"""The vectors of a snapshot's passages, and of the titles of their documents, which count beside them.

    similarity(q, p) = q . p + title * q . t(p)

with t(p) the vector of the title of p's document, zero where it has none, and ``title`` the weight in the snapshot's
parameters of dense. All methods that begin at the passages nearest to the question read one list of these.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field

from indexmill.errors import CorruptBlob
from indexmill.retrieve.base import Allowed, PassageRetriever, QueryBatch, Ranking, Vectors, parameters_of
from indexmill.retrieve.columns import Pairs, products
from indexmill.retrieve.dense import Beside, Rows, Scores, nearest, similarities

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["Dense", "DenseParameters", "PassageVectors", "Titles", "passage_vectors_of"]


@dataclass(frozen=True, slots=True)
class DenseParameters:
    """The settings of ranking. title: what the cosine of the document's title counts beside that of the passage."""

    title: Annotated[float, Field(ge=0, le=10)] = 0.2


class Titles:
    """The vectors of a snapshot's titles; nothing is read before it is needed."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    @cached_property
    def shards(self) -> list[Vectors]:
        """``(n_documents, d) float32`` of each shard. Raises CorruptBlob where they do not fit the documents."""
        artifacts = self._artifacts
        vectors = artifacts.vectors("titles", "vectors")
        labels = [one.name.partition("/")[2] for one in artifacts.shards("titles")]
        if labels != [one.name.partition("/")[2] for one in artifacts.shards("passages")]:
            raise CorruptBlob(f"{artifacts.path}: passages and titles are not in the same shards")
        for label, held in zip(labels, vectors, strict=True):
            expected = (artifacts.artifact(f"documents/{label}").rows, artifacts.dimensions)
            if held.shape != expected:
                raise CorruptBlob(f"{artifacts.path}: 'titles/{label}' has vectors {held.shape}; expected {expected}")
        return vectors

    @cached_property
    def of_passages(self) -> Rows:
        """``(n_passages,)``, the row of each passage's title. Raises CorruptBlob where there is none."""
        artifacts = self._artifacts
        first, found = 0, [np.empty(0, dtype=np.int64)]
        documents = artifacts.vectors("titles", "passage_document")
        for artifact, vectors, rows in zip(artifacts.shards("passages"), self.shards, documents, strict=True):
            own = rows.astype(np.int64)
            if len(own) != artifact.rows or (len(own) and not 0 <= own.min() <= own.max() < len(vectors)):
                raise CorruptBlob(f"{artifacts.path}: the titles of {artifact.name!r} do not fit its passages")
            found.append(own + first)
            first += len(vectors)
        return np.concatenate(found)


class PassageVectors:
    """Finds the passages nearest to questions.

    shards: ``(n, d) float32`` arrays of unit rows, one after the other. titles: None where they do not count.
    """

    def __init__(self, shards: Sequence[Vectors], titles: Titles | None = None, weight: float = 0.0) -> None:
        self.shards = shards
        self._titles = titles
        self.weight = weight if titles is not None else 0.0
        """How much a title counts; 0 where the snapshot has no vectors of titles."""

    @property
    def most(self) -> float:
        """The largest similarity that there can be: 1 where titles do not count."""
        return 1.0 + self.weight

    @property
    def untitled(self) -> PassageVectors:
        """The same by the passages' vectors alone, as the papers have it."""
        return self.weighed(0.0)

    def weighed(self, weight: float) -> PassageVectors:
        """The same with another weight of titles."""
        other = copy.copy(self)
        other.weight = weight if self._titles is not None else 0.0
        return other

    def nearest_to(self, asked: QueryBatch, k: int) -> list[tuple[Rows, Scores]]:
        """``nearest`` of what is asked: found once, for all methods that weigh titles alike."""
        return asked.first_of(
            f"nearest, titles {self.weight!r}",
            k,
            lambda length: self.nearest(asked.vectors, length, asked.allowed),
            lambda found: (found[0][:k], found[1][:k]),
        )

    def nearest(self, questions: Vectors, k: int, allowed: Allowed | None = None) -> list[tuple[Rows, Scores]]:
        """The k passages most similar to each of ``(n_questions, d) float32``, and the similarities; ties by row."""
        return nearest(self.shards, questions, k, allowed, self._beside())

    def similarities(self, questions: Vectors, pairs: Pairs) -> Scores:
        """The similarity ``(n_pairs,) float32`` of each pair of a question and a passage."""
        return similarities(self.shards, questions, pairs, self._beside())

    def cosines(self, questions: Vectors, pairs: Pairs) -> Scores:
        """The same by the passages' vectors alone."""
        return products(self.shards, questions, pairs)

    def _beside(self) -> Beside | None:
        if self._titles is None or not self.weight:
            return None
        return Beside(self._titles.shards, self._titles.of_passages, self.weight)


def passage_vectors_of(artifacts: Artifacts) -> PassageVectors:
    """The vectors of a snapshot's passages, and of its titles where it holds them, opened once.

    Raises ConfigurationError for a parameter of dense that is not known here.
    """

    def opened() -> PassageVectors:
        titles = Titles(artifacts) if artifacts.shards("titles") else None
        weight = parameters_of(artifacts, "dense", DenseParameters).title
        return PassageVectors(artifacts.vectors("vectors", "passages"), titles, weight)

    return artifacts.once("passage vectors", opened)


class Dense(PassageRetriever):
    """The passages whose vectors are nearest to the question's, with their titles; there is nothing to explain."""

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._setting = parameters_of(artifacts, "dense", DenseParameters)
        self._near = passage_vectors_of(artifacts)

    def _use(self, setting: Any) -> None:
        """With another weight of titles: see ``PassageRetriever``."""
        super()._use(setting)
        self._near = self._near.weighed(setting.title)

    def rank(self, asked: QueryBatch, k: int) -> Iterator[Ranking]:
        """The passages of each question: see ``PassageRetriever``."""
        return (Ranking(rows, scores) for rows, scores in self._near.nearest_to(asked, k))
