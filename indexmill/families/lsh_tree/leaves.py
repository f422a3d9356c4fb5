"""Rank passages for lsh_tree in two rounds (ours; EraRAG ranks them only by their cosines).

The first round fuses two ranked lists, one by cosine and one by words (BM25, if the snapshot has the postings):

    score(p) = sum over the lists that contain p of   1 / (constant + rank),   ranks from 1

(reciprocal rank fusion, Cormack et al., 2009, with a small constant, since only the first few ranks matter). Its
first hits are searched for the sentence nearest to the question, which may have words that the question lacks, such as
a name. The second round ranks by the question's words plus the sentence's words weighted by ``carried``. The final
order fuses the lists of both rounds, with weight ``first_round`` for the lists of the first. (A second-round list by
the vectors of question and sentence did harm when measured.) Without postings there is one round. Lists that depend on
vectors count as much as the encoder reads the question's language (``indexmill.retrieve.legibility``).

Summaries are retrieved as in the paper: see ``indexmill.families.lsh_tree.search``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.retrieve.columns import first_of_each, paired, parts, products, reciprocal_ranks, runs
from indexmill.retrieve.legibility import Legibility
from indexmill.retrieve.passage_vectors import PassageVectors
from indexmill.retrieve.retrieval_method import QueryBatch, Vectors
from indexmill.retrieve.term_index import TermIndex, by_words, question_terms
from indexmill.text.terms import COMMON, Analyser

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.floating]


class Ordered(NamedTuple):
    """The passages of one question, best first.

    rows: ``(k,) int64``. scores: ``(k,)``, the k largest cosines, descending, to be comparable with the cosines of
    summaries; the i-th passage gets the i-th largest cosine, which may be that of a different passage. sentence: the
    row of the sentence used in the second round, -1 for none.
    """

    rows: Rows
    scores: Scores
    sentence: int = -1


class Leaves:
    """The passages of a snapshot, their sentences, and their words.

    sentences: shards ``(n, d) float32`` of unit rows. starts: ``(n_passages + 1,)``, the first sentence of each
    passage. texts: a function that returns the texts of sentences, given their rows. index: the postings; None if there
    are none.
    """

    def __init__(
        self,
        passages: PassageVectors,
        sentences: Sequence[Vectors],
        starts: Rows,
        texts: Callable[[Rows], list[str]],
        index: TermIndex | None,
        legibility: Legibility,
    ) -> None:
        self._passages, self._sentences, self._starts = passages, sentences, starts
        self._texts, self._index, self._legibility = texts, index, legibility

    def rank(self, batch: QueryBatch, k: int, setting: LshTreeParameters) -> list[Ordered]:
        """Return the k best passages of each question, or fewer if fewer are allowed; a larger k only appends."""
        depth = max(k, setting.pool)
        if setting.preset == "paper":
            near = self._passages.untitled.nearest_to(batch, depth)
            return [Ordered(rows[:k], scores[:k]) for rows, scores in near]
        near = self._passages.nearest_to(batch, depth)
        lists = [[rows[: setting.pool]] for rows, _ in near]
        if self._index is not None:
            words = by_words(self._index, batch, setting.pool)
            lists = [[*of_one, ranked.rows] for of_one, ranked in zip(lists, words, strict=True)]
        legibilities = self._legibility.of_questions(batch)
        weights = [[legibility, 1.0][: len(of_one)] for legibility, of_one in zip(legibilities, lists, strict=True)]
        ordered = [
            reciprocal_ranks(of_one, setting.constant, of_lists)
            for of_one, of_lists in zip(lists, weights, strict=True)
        ]
        sentences = np.full(len(near), -1, dtype=np.int64)
        if setting.carried > 0 and self._index is not None:
            sentences = self._sentences_of([rows[: setting.first_hits] for rows in ordered], batch.vectors)
            (led,) = (sentences >= 0).nonzero()
            second = self._index.rank(
                self._second_terms(led, sentences[led], batch, setting, self._index.stemmers),
                setting.pool,
                batch.allowed,
                explain=False,
            )
            for question, ranked in zip(led.tolist(), second, strict=True):
                first = lists[question]
                of_lists = [setting.first_round * weight for weight in weights[question]]
                of_lists.append(legibilities[question])
                ordered[question] = reciprocal_ranks([*first, ranked.rows], setting.constant, of_lists)
        return [
            Ordered(_filled(rows, others, k), cosines[:k], sentence)
            for rows, (others, _), cosines, sentence in zip(
                ordered, near, self._cosines(near, batch.vectors, setting.pool), sentences.tolist(), strict=True
            )
        ]

    def _cosines(self, near: Sequence[tuple[Rows, Scores]], vectors: Vectors, pool: int) -> list[Scores]:
        """Return descending cosines of each question's nearest passages.

        If titles count, the nearest passages are not in the order of their cosines. The first ``pool`` cosines are
        sorted and the others capped, so that the first cosines do not depend on k.
        """
        if not self._passages.weight:
            return [scores for _, scores in near]
        lists = list[Scores]()
        for rows, vector in zip((rows for rows, _ in near), vectors, strict=True):
            cosines = self._passages.cosines(vector[None], rows)
            cosines[:pool] = -np.sort(-cosines[:pool])
            lists.append(np.minimum.accumulate(cosines))
        return lists

    def _sentences_of(self, hits: Sequence[Rows], vectors: Vectors) -> Rows:
        """Find the sentence of each question's hits that is nearest to the question, ties by row; -1 if none."""
        owners = np.arange(len(hits)).repeat([len(rows) for rows in hits])
        rows = np.concatenate([np.empty(0, np.int64), *hits])
        counts = self._starts[rows + 1] - self._starts[rows]
        best_sentences = np.full(len(hits), -1, dtype=np.int64)
        if not counts.any():
            return best_sentences
        pairs = paired(owners.repeat(counts), runs(self._starts[rows], counts))
        pairs.sort()
        scores = products(self._sentences, vectors, pairs)
        questions, sentences = parts(pairs)
        best = first_of_each(questions, scores, 1)
        best_sentences[questions[best]] = sentences[best]
        return best_sentences

    def _second_terms(
        self, led: Rows, sentences: Rows, batch: QueryBatch, setting: LshTreeParameters, stemmers: Sequence[str]
    ) -> list[dict[str, float]]:
        analyser = Analyser(stemmers)
        by_question = question_terms([batch.questions[at] for at in led.tolist()], stemmers=stemmers)
        terms = []
        for question_words, text in zip(by_question, self._texts(sentences), strict=True):
            weights: dict[str, float] = dict(Counter(question_words))
            for term, count in Counter(analyser.terms(text)).items():
                if term not in COMMON:
                    weights[term] = weights.get(term, 0) + setting.carried * count
            terms.append(weights)
        return terms


def _filled(rows: Rows, others: Rows, k: int) -> Rows:
    if len(rows) >= k:
        return rows[:k]
    more = others[np.isin(others, rows, invert=True)]
    return np.concatenate([rows, more[: k - len(rows)]])
