"""Fitting the weights of fused retrieval to questions whose evidence is known.

A coordinate search maximises recall itself, which is not a smooth function of the weights: each weight in turn takes
the value of a fixed grid with the highest recall, the smallest change winning ties, until no weight changes. Weights
are chosen on the even-numbered questions and validated on the odd-numbered ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.errors import BadInput
from indexmill.evaluate.recall import Question
from indexmill.retrieve.fused import FusedParameters, covered, strength, with_second
from indexmill.retrieve.legibility import legibility_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch, Vectors, check_count, parameters_of
from indexmill.text.counted import counted

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

GRID = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)
"""The grid of weights, relative to the largest."""

_LEAST_QUESTIONS = 20

Weights = Mapping[str, float]
Scores = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of a search: the mean recall over all k, with the previous and the new weights.

    weights: the new weights, or the previous ones if the new ones are worse on the odd-numbered questions.
    """

    weights: dict[str, float]
    before: dict[str, float]
    chosen_on: tuple[float, float]  # even-numbered questions: before, after
    proven_on: tuple[float, float]  # odd-numbered ones
    questions: int

    @property
    def better(self) -> bool:
        """True if the weights changed."""
        return self.weights != self.before

    def to_dict(self) -> dict[str, Any]:
        """Return the result as ``evaluate --fit --json`` prints it."""
        return {
            "weights": self.weights,
            "before": self.before,
            "recall": {
                "even": {"before": self.chosen_on[0], "after": self.chosen_on[1]},
                "odd": {"before": self.proven_on[0], "after": self.proven_on[1]},
            },
            "questions": self.questions,
            "better": self.better,
        }


def fit(snapshot: Snapshot, questions: Sequence[Question], ks: Sequence[int]) -> Fit:
    """Fit weights for a snapshot's methods. Raises BadInput if there are too few questions."""
    if len(questions) < _LEAST_QUESTIONS:
        few = counted(len(questions), "question is", "questions are")
        raise BadInput(f"{few} too few to fit weights; at least {_LEAST_QUESTIONS} are needed")
    setting = parameters_of(snapshot, "fused", FusedParameters)
    before = setting.weights(snapshot.methods)
    vectors = snapshot.encode([question.question for question in questions])
    pools = _pools(snapshot, questions, list(before), vectors, setting)
    depths = sorted({check_count("k", k) for k in ks})
    even, odd = pools.half(0), pools.half(1)

    best = _scaled(before)
    most = even.recall(best, depths)
    moved = True
    while moved:
        moved = False
        for name in sorted(best):
            for value in sorted(GRID, key=lambda value: (abs(value - best[name]), value)):
                tried = _scaled({**best, name: value})
                recall = even.recall(tried, depths)
                if recall > most + 1e-12:
                    best, most, moved = tried, recall, True
    chosen_on = (even.recall(before, depths), most)
    proven_on = (odd.recall(before, depths), odd.recall(best, depths))
    weights = best if proven_on[1] >= proven_on[0] and most > chosen_on[0] + 1e-12 else before
    return Fit(dict(weights), before, chosen_on, proven_on, len(questions))


def _scaled(weights: Weights) -> dict[str, float]:
    largest = max(weights.values(), default=0.0)
    return {name: round(weight / largest, 4) if largest else 1.0 for name, weight in weights.items()}


@dataclass(frozen=True, slots=True)
class _Pools:
    """The documents that any method returns for each question.

    strengths: ``(n_methods, n_candidates)``, the strengths of passages, ordered by question and document; 0 if the
    method does not count for the question. starts: the first candidate of each document. owners: the question of each
    document. gold: True for documents that are evidence. golds: the number of evidence documents of each question.
    second: the weight of a document's next best passage.
    """

    names: tuple[str, ...]
    strengths: Scores
    starts: npt.NDArray[np.int64]
    owners: npt.NDArray[np.int64]
    gold: npt.NDArray[np.bool_]
    golds: npt.NDArray[np.int64]
    questions: npt.NDArray[np.int64]  # the questions that count
    second: float

    def half(self, parity: int) -> _Pools:
        """Return the same candidates, with only the even (parity 0) or odd (parity 1) questions counted."""
        chosen = self.questions[self.questions % 2 == parity]
        return replace(self, questions=chosen)

    def recall(self, weights: Weights, ks: Sequence[int]) -> float:
        """Return the mean evidence recall, averaged over all k."""
        scores = np.array([weights[name] for name in self.names]) @ self.strengths
        sizes = np.diff(self.starts, append=len(scores))
        scores = with_second(scores, np.arange(len(sizes)).repeat(sizes), self.second)
        scores = np.maximum.reduceat(scores, self.starts)
        order = np.lexsort((-scores, self.owners))
        first = np.searchsorted(self.owners, np.arange(len(self.golds)))
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order)) - first[self.owners]
        means = [
            (np.bincount(self.owners, self.gold & (ranks < k), len(self.golds)) / self.golds)[self.questions].mean()
            for k in ks
        ]
        return float(sum(means) / len(means))


def _pools(
    snapshot: Snapshot, questions: Sequence[Question], methods: list[str], vectors: Vectors, setting: FusedParameters
) -> _Pools:
    document_of = passages_of(snapshot).document_ids()
    strengths: list[Scores] = []
    starts: list[int] = []
    owners: list[int] = []
    gold: list[bool] = []
    candidates = 0
    retrievers = [snapshot.retriever(name) for name in methods]
    batch = QueryBatch([question.question for question in questions], vectors, snapshot.encode_texts, explain=False)
    rankers = [retriever for retriever in retrievers if isinstance(retriever, PassageRetriever)]
    ranked = [ranker.rank(batch, setting.pool) for ranker in rankers]
    coverages = covered(rankers, batch)
    legibilities = legibility_of(snapshot).of_questions(batch)
    each = zip(questions, coverages, legibilities, *ranked, strict=True)
    for number, (question, coverage, legibility, *of_question) in enumerate(each):
        lists = dict(zip(methods, of_question, strict=True))
        rows = np.unique(np.concatenate([ranking.rows for ranking in of_question]))
        if not len(rows):
            continue
        counted = setting.counted(lists, coverage, legibility)
        values = np.zeros((len(methods), len(rows)))
        for of_method, (method, ranking) in zip(values, lists.items(), strict=True):
            of_method[rows.searchsorted(ranking.rows)] = counted[method] * strength(method, ranking.scores)
        documents = [document_of[row] for row in rows.tolist()]
        order = sorted(range(len(rows)), key=documents.__getitem__)
        strengths.append(values[:, order])
        evidence = set(question.gold_ids)
        for place, row in enumerate(order):
            if place == 0 or documents[row] != documents[order[place - 1]]:
                starts.append(candidates + place)
                owners.append(number)
                gold.append(documents[row] in evidence)
        candidates += len(rows)
    return _Pools(
        tuple(methods),
        np.concatenate(strengths, axis=1) if strengths else np.empty((len(methods), 0)),
        np.array(starts, np.int64),
        np.array(owners, np.int64),
        np.array(gold, bool),
        np.array([len(question.gold_ids) for question in questions], np.int64),
        np.arange(len(questions)),
        setting.second,
    )
