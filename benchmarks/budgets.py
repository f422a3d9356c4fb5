"""Measure evidence recall against context tokens: what each method finds within a budget.

    python -m benchmarks.budgets STORE QUESTIONS.jsonl [--methods NAMES] [--budgets 250,500,...] [--only-first N]

Whole hits are shown in order while they fit into the budget; a hit that does not fit is skipped. The table has the mean
share of a question's gold documents that are documents of its evidence hits and, in brackets, the mean tokens of all
shown hits.

Passages and texts are evidence, with any method. Summaries, entities, communities, attributes and high-level elements
are not: each stands for many documents and may say nothing of most of them. Their tokens count all the same.
heterograph has three lines:

- `texts alone`: texts only, in the order of the walk, as `fused` and `evaluate` use it;
- `mixed, by texts`: all its hits under its own `token_budget`, which is spent in their order; texts are evidence;
- `mixed, by units too`: the same hits; units and relations are evidence of the documents they were extracted from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.evaluate.recall import BATCH, Question, read_questions
from indexmill.hits import Hit
from indexmill.results import HitReference, QuestionResult
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch, Vectors
from indexmill.snapshot import Snapshot

BUDGETS = (250, 500, 1000, 2000, 4000, 8000)
SMALLEST = 20
"""Approximate tokens of the smallest hits. As many hits are requested as would fill the largest budget."""

BY_TEXTS = frozenset({"passage", "text"})
BY_UNITS = BY_TEXTS | {"unit", "relation"}


class ShownHit(NamedTuple):
    """A shown hit: the fields that the measure needs."""

    kind: str
    documents: tuple[str, ...]
    tokens: int


def of_hits(hits: Sequence[Hit | HitReference]) -> list[ShownHit]:
    return [ShownHit(hit.kind, hit.document_ids, hit.tokens or 0) for hit in hits]


def recalled(question: Question | QuestionResult, shown: Sequence[ShownHit], evidence: frozenset[str]) -> float:
    """Return the share of the gold documents that are documents of evidence hits."""
    documents = {document for hit in shown if hit.kind in evidence for document in hit.documents}
    return len({*question.gold_ids} & documents) / len(question.gold_ids)


def batches(questions: Sequence[Question], vectors: Vectors) -> Iterator[tuple[list[str], Vectors]]:
    for first in range(0, len(questions), BATCH):
        texts = [question.question for question in questions[first : first + BATCH]]
        yield texts, vectors[first : first + BATCH]


def ranked_texts(
    snapshot: Snapshot, retriever: PassageRetriever, questions: Sequence[Question], vectors: Vectors, k: int
) -> list[list[ShownHit]]:
    """Return the k best passages of a method for each question."""
    passages, ranked = passages_of(snapshot), []
    for texts, batch_vectors in batches(questions, vectors):
        for ranking in retriever.rank(QueryBatch(texts, batch_vectors, snapshot.encode, explain=False), k):
            documents = passages.documents_of(ranking.rows)
            tokens = map(passages.tokens, ranking.rows.tolist())
            pairs = zip(documents, tokens, strict=True)
            ranked.append([ShownHit("text", (document,), count) for document, count in pairs])
    return ranked


def retrieved(
    snapshot: Snapshot,
    method: str,
    questions: Sequence[Question],
    vectors: Vectors,
    k: int,
    parameters: Mapping[str, object] | None = None,
) -> list[list[ShownHit]]:
    uses = snapshot.retriever(method).uses_vectors
    shown = []
    for texts, batch_vectors in batches(questions, vectors):
        hits = snapshot.retrieve_batch(
            texts, method=method, k=k, vectors=batch_vectors if uses else None, explain=False, parameters=parameters
        )
        shown += [of_hits(question_hits) for question_hits in hits]
    return shown


def cut(shown: Sequence[ShownHit], budget: int) -> list[ShownHit]:
    """Return the hits that fit into a budget, in order; a hit that does not fit is skipped."""
    return [shown[place] for place in fitting([hit.tokens for hit in shown], budget)]


def print_curve(
    snapshot: Snapshot,
    questions: Sequence[Question],
    vectors: Vectors,
    methods: Sequence[str],
    budgets: Sequence[int] = BUDGETS,
) -> None:
    """Print a line for each method."""
    most = max(budgets) // SMALLEST
    print(f"\n{'evidence recall (tokens shown)':34}" + "".join(f"{budget:>16,}" for budget in budgets))

    def line(label: str, by_budget: Sequence[Sequence[Sequence[ShownHit]]], evidence: frozenset[str]) -> None:
        """Print a line. by_budget: for each budget, the shown hits of each question."""
        cells = []
        for of_budget in by_budget:
            pairs = zip(questions, of_budget, strict=True)
            recall = np.mean([recalled(question, shown, evidence) for question, shown in pairs])
            tokens = np.mean([sum(hit.tokens for hit in shown) for shown in of_budget])
            cells.append(f"{recall:9.3f} {f'({tokens:.0f})':>6}")
        print(f"{label:34}" + "".join(cells), flush=True)

    for method in methods:
        if method != "heterograph":
            ranked = retrieved(snapshot, method, questions, vectors, most)
            line(method, [[cut(shown, budget) for shown in ranked] for budget in budgets], BY_TEXTS)
            continue
        retriever = snapshot.retriever(method)
        if not isinstance(retriever, PassageRetriever):
            raise TypeError(f"{method} ranks no passages")
        ranked = ranked_texts(snapshot, retriever, questions, vectors, most)
        line(f"{method}, texts alone", [[cut(shown, budget) for shown in ranked] for budget in budgets], BY_TEXTS)
        mixed = [retrieved(snapshot, method, questions, vectors, most, {"token_budget": budget}) for budget in budgets]
        line(f"{method}, mixed, by texts", mixed, BY_TEXTS)
        line(f"{method}, mixed, by units too", mixed, BY_UNITS)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--methods", help="comma-separated names; by default all methods of the snapshot")
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--only-first", type=int, metavar="N", help="ask only the first N questions")
    chosen = parser.parse_args()
    questions = read_questions(chosen.questions)[: chosen.only_first]
    print(describe_machine())
    with indexmill.open(chosen.store) as snapshot:
        methods = chosen.methods.split(",") if chosen.methods else snapshot.methods
        print(f"{snapshot.manifest.corpus.passages} passages, {len(questions)} questions")
        vectors = snapshot.encode([one.question for one in questions])
        print_curve(snapshot, questions, vectors, methods, [int(one) for one in chosen.budgets.split(",")])


if __name__ == "__main__":
    main()
