"""Retrieve passages by their first words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from indexmill.families.incipits.parameters import IncipitParameters

from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch, Ranking, parameters_of
from indexmill.text.terms import Analyser, term_keys

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


class IncipitReader(PassageRetriever):
    """Passages that begin with words of the question, rare words before frequent ones."""

    uses_vectors = False

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._setting = parameters_of(artifacts, "incipits", IncipitParameters)
        arrays = artifacts.arrays("incipits/words")
        self._passages = dict(zip(arrays["keys"].tolist(), arrays["passages"].tolist(), strict=True))
        self._terms = [set(Analyser().terms(text)) for text in artifacts.table("incipit_texts")["incipit"].to_pylist()]

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank the passages for each question: see ``PassageRetriever``."""
        for question in batch.questions:
            terms = dict.fromkeys(Analyser().terms(question))
            keys = term_keys(terms).tolist()
            weights = {
                term: self._passages[key] ** -self._setting.rarity
                for term, key in zip(terms, keys, strict=True)
                if key in self._passages
            }
            scores = np.array(
                [sum(weights.get(term, 0.0) for term in sorted(passage_terms)) for passage_terms in self._terms]
            )
            if batch.allowed is not None:
                scores = np.where(batch.allowed, scores, 0.0)
            rows = np.argsort(-scores, kind="stable")[:k]
            rows = rows[scores[rows] > 0]
            yield Ranking(rows, scores[rows])
