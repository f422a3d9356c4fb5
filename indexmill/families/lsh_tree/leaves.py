"""The passages of lsh_tree, in two rounds (ours; EraRAG ranks them by their cosine alone).

The first round adds up what a passage's places in two lists are worth, that of its cosine and that of its words (BM25,
where the snapshot holds the postings):

    score(p) = sum over the lists that hold p of   1 / (constant + place),   places from 1

(reciprocal ranks, Cormack et al., 2009, with a small constant, since the first few places are what is read). In its
first hits the sentence nearest to the question is sought: what is said there about the question, such as a name that
the question does not have. The second round ranks by the question's words with ``carried`` times those of the
sentence. Passages stand in the order of the score of both rounds' lists, those of the first weighed by ``first_round``.
(A list of the second round by the question's vector with the sentence's was measured to do harm.) Without postings
there is one round.

What only a summary tells stays the paper's: see ``indexmill.families.lsh_tree.search``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.retrieve.base import QueryBatch, Vectors
from indexmill.retrieve.columns import first_of_each, paired, parts, products, reciprocal_ranks, runs
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.term_index import TermIndex, by_words, question_terms
from indexmill.text.terms import COMMON, Analyser

__all__ = ["Leaves", "Ordered"]

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.floating]


class Ordered(NamedTuple):
    """The passages of one question, best first.

    rows: ``(k,) int64``. scores: ``(k,)``, the k largest cosines, so that they compare with those of summaries: a
    passage has the cosine of its place and not its own, unless that is its place. sentence: the row of the one that
    the second round took up, -1 for none.
    """

    rows: Rows
    scores: Scores
    sentence: int = -1


class Leaves:
    """The passages of a snapshot, their sentences, and their words.

    sentences: ``(n, d) float32`` arrays of unit rows, one after the other. starts: ``(n_passages + 1,)``, the
    first sentence of every passage. texts: of some sentences, by row. index: the postings; None where there are none.
    """

    def __init__(
        self,
        passages: PassageVectors,
        sentences: Sequence[Vectors],
        starts: Rows,
        texts: Callable[[Rows], list[str]],
        index: TermIndex | None,
    ) -> None:
        self._passages, self._sentences, self._starts = passages, sentences, starts
        self._texts, self._index = texts, index

    def rank(self, asked: QueryBatch, k: int, setting: LshTreeParameters) -> list[Ordered]:
        """The k best passages of each question; fewer where fewer are allowed. They are the first of more."""
        depth = max(k, setting.pool)
        if setting.preset == "paper":
            near = self._passages.untitled.nearest_to(asked, depth)
            return [Ordered(rows[:k], scores[:k]) for rows, scores in near]
        near = self._passages.nearest_to(asked, depth)
        lists = [[rows[: setting.pool]] for rows, _ in near]
        if self._index is not None:
            words = by_words(self._index, asked, setting.pool)
            lists = [[*of_one, ranked.rows] for of_one, ranked in zip(lists, words, strict=True)]
        ordered = [reciprocal_ranks(of_one, setting.constant) for of_one in lists]
        sentences = np.full(len(near), -1, dtype=np.int64)
        if setting.carried > 0 and self._index is not None:
            sentences = self._sentences_of([rows[: setting.first_hits] for rows in ordered], asked.vectors)
            (led,) = (sentences >= 0).nonzero()
            second = self._index.rank(
                self._second_terms(led, sentences[led], asked, setting), setting.pool, asked.allowed, explain=False
            )
            for question, ranked in zip(led.tolist(), second, strict=True):
                first = lists[question]
                weights = [setting.first_round] * len(first) + [1.0]
                ordered[question] = reciprocal_ranks([*first, ranked.rows], setting.constant, weights)
        return [
            Ordered(_filled(rows, others, k), cosines[:k], sentence)
            for rows, (others, _), cosines, sentence in zip(
                ordered, near, self._cosines(near, asked.vectors, setting.pool), sentences.tolist(), strict=True
            )
        ]

    def _cosines(self, near: Sequence[tuple[Rows, Scores]], vectors: Vectors, pool: int) -> list[Scores]:
        """The cosines of the nearest passages of each question, falling: of the pool, then of each further place.

        Where titles count, the nearest do not stand in the order of their cosines; and the first few must not depend on
        how many are asked for.
        """
        if not self._passages.weight:
            return [scores for _, scores in near]
        found = list[Scores]()
        for rows, vector in zip((rows for rows, _ in near), vectors, strict=True):
            cosines = self._passages.cosines(vector[None], rows)
            cosines[:pool] = -np.sort(-cosines[:pool])
            found.append(np.minimum.accumulate(cosines))
        return found

    def _sentences_of(self, hits: Sequence[Rows], vectors: Vectors) -> Rows:
        """The sentence of each question's hits that is nearest to it, of equals the first; -1 where there is none."""
        owners = np.arange(len(hits)).repeat([len(rows) for rows in hits])
        rows = np.concatenate([np.empty(0, np.int64), *hits])
        counts = self._starts[rows + 1] - self._starts[rows]
        found = np.full(len(hits), -1, dtype=np.int64)
        if not counts.any():
            return found
        pairs = paired(owners.repeat(counts), runs(self._starts[rows], counts))
        pairs.sort()
        scores = products(self._sentences, vectors, pairs)
        questions, sentences = parts(pairs)
        best = first_of_each(questions, scores, 1)
        found[questions[best]] = sentences[best]
        return found

    def _second_terms(
        self, led: Rows, sentences: Rows, asked: QueryBatch, setting: LshTreeParameters
    ) -> list[dict[str, float]]:
        """How much the terms of each question and of its sentence count."""
        analyser = Analyser()
        said = question_terms([asked.questions[at] for at in led.tolist()])
        terms = []
        for own, text in zip(said, self._texts(sentences), strict=True):
            weights: dict[str, float] = dict(Counter(own))
            for term, count in Counter(analyser.terms(text)).items():
                if term not in COMMON:
                    weights[term] = weights.get(term, 0) + setting.carried * count
            terms.append(weights)
        return terms


def _filled(rows: Rows, others: Rows, k: int) -> Rows:
    """The first k rows, filled up in the order of others where there are fewer."""
    if len(rows) >= k:
        return rows[:k]
    more = others[np.isin(others, rows, invert=True)]
    return np.concatenate([rows, more[: k - len(rows)]])
