"""What the tree of summaries brings to retrieval: ranks of passages, patterns, budgets, and its share in fused.

    python -m benchmarks.lsh_retrieval STORE QUESTIONS.jsonl

Prints recall at 5 and 10 distinct documents of passages in `lsh_tree`'s two rounds and without either; ranked by
their cosine alone, which is `dense` and `lsh_tree` as printed (`preset: paper`), and with what the summaries above
them add; of `fused` with `lsh_tree` at several weights; and for the hits of every pattern and budget the evidence
recall of their passages, the part of the answers that stand in their texts (of the questions that have one), and
their tokens. `dense` under a budget passes over what does not fit, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.evaluate.recall import Question, read_questions
from indexmill.families.lsh_tree.summaries import summaries_of
from indexmill.hits import Hit
from indexmill.retrieve.base import PassageRetriever, QueryBatch, Ranking, Vectors
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.fused import FusedParameters, combine
from indexmill.retrieve.layered_tree import LayeredTree
from indexmill.retrieve.passages import passages_of
from indexmill.snapshot import Snapshot

Floats = npt.NDArray[np.floating]

KS = (5, 10)
POOL = 50
WEIGHTS = (0.02, 0.05, 0.1, 0.15, 0.3)

ROUNDS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "one round": {"carried": 0.0},
    "the second round alone": {"first_round": 0.0},
    "the sentence of the first hit": {"first_hits": 1},
    "half of the sentence": {"carried": 0.25},
    "all of the sentence": {"carried": 1.0},
    "constant 20": {"constant": 20.0},
    "constant 60": {"constant": 60.0},
    "as printed": {"preset": "paper"},
}

SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("dense", {}),
    ("lsh_tree", {}),
    ("lsh_tree", {"preset": "paper"}),
    ("lsh_tree", {"pattern": "detailed", "ratio": 0.8}),
    ("lsh_tree", {"pattern": "detailed", "ratio": 0.6}),
    ("lsh_tree", {"pattern": "summarised", "ratio": 0.6}),
    ("lsh_tree", {"pattern": "summarised", "ratio": 0.8}),
    *(
        (method, {"token_budget": budget, **more})
        for budget in (500, 1000)
        for method, more in (("dense", {}), ("lsh_tree", {}), ("lsh_tree", {"pattern": "detailed"}))
    ),
)


def ranked(scores: Floats) -> list[Ranking]:
    """The POOL best columns of every row, ties by column."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :POOL]
    return [Ranking(rows, values[rows]) for rows, values in zip(order, scores, strict=True)]


def recalls(questions: Sequence[Question], rows: Sequence[npt.NDArray[np.int64]], documents: Sequence[str]) -> str:
    """Mean evidence recall at the ks, as it is printed."""
    found = [list(dict.fromkeys(documents[row] for row in of_one.tolist())) for of_one in rows]
    means = [
        np.mean(
            [
                len(set(one.gold_ids) & set(its[:k])) / len(one.gold_ids)
                for one, its in zip(questions, found, strict=True)
            ]
        )
        for k in KS
    ]
    return " / ".join(f"{mean:.4f}" for mean in means)


def from_above(tree: LayeredTree, passages: Floats, summaries: Floats) -> dict[str, Floats]:
    """The cosine of every passage, and what could stand beside it, ``(n_questions, n_passages)`` each."""
    first = tree.leaves
    parents = np.asarray(tree.parents)
    parent = parents[:first]
    upper = np.where(parents[parent] < 0, parent, parents[parent])
    nearest, next_one = summaries[:, parent - first], summaries[:, upper - first]
    siblings = np.full((len(parents), len(passages)), -1.0, dtype=passages.dtype)
    np.maximum.at(siblings, parent, passages.T)
    return {
        "the summary above": nearest,
        "mean of two above": (nearest + next_one) / 2,
        "most of two above": np.maximum(nearest, next_one),
        "the best of its segment": siblings[parent].T,
    }


def print_ranks(snapshot: Snapshot, questions: Sequence[Question], vectors: Vectors, documents: Sequence[str]) -> None:
    passages = vectors @ np.concatenate(snapshot.vectors("vectors", "passages")).T
    summaries = vectors @ np.concatenate(snapshot.vectors("summary_vectors", "vectors")).T
    print(f"\n{'passages by cosine':40} {recalls(questions, [one.rows for one in ranked(passages)], documents)}")
    for name, added in from_above(summaries_of(snapshot).tree, passages, summaries).items():
        for weight in (-0.05, 0.05, 0.1, 0.2, 0.5):
            rows = [one.rows for one in ranked(passages + weight * added)]
            print(f"{f'{weight:+} x {name}':40} {recalls(questions, rows, documents)}")


def print_rounds(snapshot: Snapshot, questions: Sequence[Question], vectors: Vectors, documents: Sequence[str]) -> None:
    asked = QueryBatch([one.question for one in questions], vectors, explain=False)
    print()
    for name, given in ROUNDS.items():
        retriever = snapshot.retriever("lsh_tree").with_parameters(given)
        assert isinstance(retriever, PassageRetriever)
        rows = [one.rows for one in retriever.rank(asked, POOL)]
        halves = [recalls(questions[half::2], rows[half::2], documents) for half in (0, 1)]
        print(f"{name:40} {recalls(questions, rows, documents)}   even {halves[0]}   odd {halves[1]}", flush=True)


def print_fused(snapshot: Snapshot, questions: Sequence[Question], vectors: Vectors, documents: Sequence[str]) -> None:
    weights = {name: weight for name, weight in FusedParameters().weights(snapshot.methods).items() if weight}
    asked = QueryBatch([one.question for one in questions], vectors, explain=False)
    lists: dict[str, list[Ranking]] = {}
    for name in (*weights, "lsh_tree"):
        retriever = snapshot.retriever(name)
        if isinstance(retriever, PassageRetriever):
            lists[name] = list(retriever.rank(asked, POOL))
    for weight in (0.0, *WEIGHTS):
        used = {**weights, "lsh_tree": weight} if weight else weights
        rows = [combine({name: lists[name][i] for name in used}, used, POOL, POOL).rows for i in range(len(questions))]
        halves = [recalls(questions[half::2], rows[half::2], documents) for half in (0, 1)]
        found = recalls(questions, rows, documents)
        print(f"{f'fused, lsh_tree {weight:g}':40} {found}   even {halves[0]}   odd {halves[1]}")


def hits_of(
    snapshot: Snapshot, texts: Sequence[str], vectors: Vectors, method: str, k: int, given: dict[str, Any]
) -> list[list[Hit]]:
    own = given if method == "lsh_tree" else {}
    found = snapshot.retrieve_batch(texts, method=method, k=k, vectors=vectors, explain=False, parameters=own)
    if method == "dense" and "token_budget" in given:
        return [[hits[i] for i in fitting([hit.tokens or 0 for hit in hits], given["token_budget"])] for hits in found]
    return found


def print_hits(snapshot: Snapshot, questions: Sequence[Question], vectors: Vectors, answers: Sequence[str]) -> None:
    print(f"\n{'hits':>4} {'':60} {'recall':>7} {'answers':>8} {'summaries':>10} {'tokens':>7}")
    texts = [one.question for one in questions]
    for k in KS:
        for method, given in SETTINGS:
            found = hits_of(snapshot, texts, vectors, method, k, given)
            recall, told, counted = [], [], []
            for question, answer, hits in zip(questions, answers, found, strict=True):
                documents = {one for hit in hits if hit.kind == "passage" for one in hit.document_ids}
                recall.append(len(documents & set(question.gold_ids)) / len(question.gold_ids))
                if len(answer) > 3:  # not "yes" and "no"
                    told.append(any(answer.casefold() in f"{hit.title}\n{hit.text}".casefold() for hit in hits))
                counted.append((sum(hit.kind == "summary" for hit in hits), sum(hit.tokens or 0 for hit in hits)))
            summaries, tokens = np.mean(counted, axis=0)
            name = ", ".join([method, *(f"{key} {value}" for key, value in given.items())])
            share = f"{np.mean(told):8.3f}" if told else f"{'-':>8}"
            print(f"{k:>4} {name:60} {np.mean(recall):7.4f} {share} {summaries:10.2f} {tokens:7.0f}")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    chosen = parser.parse_args()
    questions = read_questions(chosen.questions)
    records = [json.loads(line) for line in chosen.questions.read_text(encoding="utf-8").splitlines() if line.strip()]
    print(describe_machine())
    with indexmill.open(chosen.store) as snapshot:
        counts = snapshot.manifest.families["lsh_tree"].counts
        print(f"{snapshot.manifest.corpus.passages} passages, {counts}, {len(questions)} questions")
        vectors = snapshot.encode([one.question for one in questions])
        documents = passages_of(snapshot).document_ids()
        print_rounds(snapshot, questions, vectors, documents)
        print_ranks(snapshot, questions, vectors, documents)
        print_fused(snapshot, questions, vectors, documents)
        print_hits(snapshot, questions, vectors, [str(one.get("answer", "")) for one in records])


if __name__ == "__main__":
    main()
