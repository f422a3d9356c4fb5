"""Evidence recall against the tokens of the context: what each method finds within a budget.

    python -m benchmarks.budgets STORE QUESTIONS.jsonl [--methods NAMES] [--budgets 250,500,...] [--only-first N]

A method's hits are shown in their order, whole, as many as fit into the budget; one that does not fit is passed over,
and the next is tried. Printed is the mean over all questions of the gold documents among those of the hits that count
as evidence, and in brackets the mean tokens of all that is shown, evidence or not.

Passages and texts are evidence, with any method. A summary, an entity, a community, an attribute and a high-level
element are none: they tell of many documents, and may tell nothing of most; their tokens count all the same.
heterograph has three lines:

- `texts alone`: as `fused` and `evaluate` take it, texts in the order of the walk, and nothing else;
- `mixed, by texts`: all its hits under its own `token_budget`, which is spent on the entries first; texts are evidence;
- `mixed, by units too`: the same hits; units and relations are evidence, too, of the documents that say them.
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
from indexmill.results import FoundHit, QuestionResult
from indexmill.retrieve.base import PassageRetriever, QueryBatch, Vectors
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.passages import passages_of
from indexmill.snapshot import Snapshot

BUDGETS = (250, 500, 1000, 2000, 4000, 8000)
SMALLEST = 20
"""Tokens of the smallest hits, about: so many hits are asked for as would fill the largest budget."""

BY_TEXTS = frozenset({"passage", "text"})
BY_UNITS = BY_TEXTS | {"unit", "relation"}


class Shown(NamedTuple):
    """A hit, as far as it counts."""

    kind: str
    documents: tuple[str, ...]
    tokens: int


def of_hits(hits: Sequence[Hit | FoundHit]) -> list[Shown]:
    return [Shown(hit.kind, hit.document_ids, hit.tokens or 0) for hit in hits]


def recalled(
    question: Question | QuestionResult, shown: Sequence[Shown], evidence: frozenset[str], k: int | None = None
) -> float:
    """The part of the gold documents among the first k distinct documents of what is evidence; None for all."""
    found = list(dict.fromkeys(one for hit in shown if hit.kind in evidence for one in hit.documents))
    return len(set(question.gold_ids) & set(found[:k])) / len(question.gold_ids)


def batches(questions: Sequence[Question], vectors: Vectors) -> Iterator[tuple[list[str], Vectors]]:
    for first in range(0, len(questions), BATCH):
        some = [one.question for one in questions[first : first + BATCH]]
        yield some, vectors[first : first + BATCH]


def ranked_texts(
    snapshot: Snapshot, retriever: PassageRetriever, questions: Sequence[Question], vectors: Vectors, k: int
) -> list[list[Shown]]:
    """The k passages that a method ranks first."""
    passages, found = passages_of(snapshot), []
    for texts, some in batches(questions, vectors):
        for one in retriever.rank(QueryBatch(texts, some, snapshot.encode, explain=False), k):
            documents = passages.documents_of(one.rows)
            tokens = map(passages.tokens, one.rows.tolist())
            pairs = zip(documents, tokens, strict=True)
            found.append([Shown("text", (document,), count) for document, count in pairs])
    return found


def retrieved(
    snapshot: Snapshot,
    method: str,
    questions: Sequence[Question],
    vectors: Vectors,
    k: int,
    parameters: Mapping[str, object] | None = None,
) -> list[list[Shown]]:
    uses = snapshot.retriever(method).uses_vectors
    found = []
    for texts, some in batches(questions, vectors):
        hits = snapshot.retrieve_batch(
            texts, method=method, k=k, vectors=some if uses else None, explain=False, parameters=parameters
        )
        found += [of_hits(one) for one in hits]
    return found


def cut(shown: Sequence[Shown], budget: int) -> list[Shown]:
    """What fits into a budget, read in order; what does not fit is passed over."""
    return [shown[place] for place in fitting([one.tokens for one in shown], budget)]


def print_curve(
    snapshot: Snapshot,
    questions: Sequence[Question],
    vectors: Vectors,
    methods: Sequence[str],
    budgets: Sequence[int] = BUDGETS,
    given: Mapping[str, object] | None = None,
) -> None:
    """given: settings of the heterograph in place of the snapshot's."""
    most = max(budgets) // SMALLEST
    print(f"\n{'evidence recall (tokens shown)':34}" + "".join(f"{budget:>16,}" for budget in budgets))

    def line(label: str, held: Sequence[Sequence[Sequence[Shown]]], evidence: frozenset[str]) -> None:
        """held: of each budget, of each question, what is shown."""
        cells = []
        for of_budget in held:
            pairs = zip(questions, of_budget, strict=True)
            recall = np.mean([recalled(question, shown, evidence) for question, shown in pairs])
            tokens = np.mean([sum(one.tokens for one in shown) for shown in of_budget])
            cells.append(f"{recall:9.3f} {f'({tokens:.0f})':>6}")
        print(f"{label:34}" + "".join(cells), flush=True)

    for method in methods:
        if method != "heterograph":
            found = retrieved(snapshot, method, questions, vectors, most)
            line(method, [[cut(shown, budget) for shown in found] for budget in budgets], BY_TEXTS)
            continue
        settings = dict(given or {})
        retriever = snapshot.retriever(method).with_parameters(settings)
        if not isinstance(retriever, PassageRetriever):
            raise TypeError(f"{method} ranks no passages")
        found = ranked_texts(snapshot, retriever, questions, vectors, most)
        line(f"{method}, texts alone", [[cut(shown, budget) for shown in found] for budget in budgets], BY_TEXTS)
        mixed = [
            retrieved(snapshot, method, questions, vectors, most, {**settings, "token_budget": budget})
            for budget in budgets
        ]
        line(f"{method}, mixed, by texts", mixed, BY_TEXTS)
        line(f"{method}, mixed, by units too", mixed, BY_UNITS)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--methods", help="names with commas between; all that the snapshot holds by default")
    parser.add_argument("--budgets", default=",".join(map(str, BUDGETS)))
    parser.add_argument("--only-first", type=int, metavar="N", help="take the first N questions alone")
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
