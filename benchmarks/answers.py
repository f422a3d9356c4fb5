"""Measure the answers that each method makes possible, at equal numbers of tokens, and those that a model gives.

    python -m benchmarks.answers DATA WORK [--sets 2wiki,hotpot] [--budgets 500,1000]
    python -m benchmarks.answers DATA WORK --model NAME --base-url http://localhost:8000/v1 [--max-questions 100]

The first command asks no model: it prints the share of questions whose right answer stands in a hit, about the best
that a reader of the hits can do (`indexmill evaluate --oracle`). The second also prints the model's accuracy, exact
match and F1, both on the first questions, and caches its answers in WORK/answers, so that an interrupted run continues.
Margins are half the 95 % interval. Stores are those of `benchmarks.protocol`, and are built the same way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.protocol import add_store_options, names, print_table, store_of
from benchmarks.sets import SETS
from indexmill.answer.answer_cache import AnswerCache, CachedLlm
from indexmill.answer.answer_types import AnswerOptions
from indexmill.answer.scores import margin, with_margin
from indexmill.evaluate.answer_evaluation import evaluate_answers
from indexmill.evaluate.oracle import ask_oracle
from indexmill.evaluate.recall import Question, read_questions
from indexmill.models.llm import LLM
from indexmill.retrieve.rights import UNRESTRICTED
from indexmill.snapshot import Snapshot

HITS = 100  # more than fit into a budget


def cells(snapshot: Snapshot, questions: Sequence[Question], options: Mapping[str, AnswerOptions]) -> dict[str, str]:
    """Return the share of answers in the hits of each method, with its margin."""
    results = ask_oracle(snapshot, questions, options)
    return {name: with_margin(result.accuracy, margin(result.scored)) for name, result in results.items()}


def model_cells(
    snapshot: Snapshot, questions: Sequence[Question], options: Mapping[str, AnswerOptions]
) -> dict[str, list[str]]:
    """Return a model's accuracy, exact match and F1 by method, with their margins."""
    rows = {}
    for name, result in evaluate_answers(snapshot, questions, options).methods.items():
        if result.scores is None or result.margins is None:
            raise SystemExit("no question has a right answer")
        scores, margins = result.scores._asdict(), result.margins._asdict()
        rows[name] = [with_margin(scores[score], margins[score]) for score in ("accuracy", "exact_match", "f1")]
    return rows


def measure(
    name: str, snapshot: Snapshot, questions: Sequence[Question], llm: LLM | None, chosen: argparse.Namespace
) -> list[list[str]]:
    """Return the rows of a set: its name, the method, and for every budget the oracle's and the model's figures."""
    rows = {method: [name, method] for method in snapshot.methods}
    for budget in chosen.budgets:
        shared = AnswerOptions(
            llm=llm, k=HITS, token_budget=budget, concurrency=chosen.concurrency, principals=UNRESTRICTED
        )
        options = {method: replace(shared, method=method) for method in rows}
        by_model = {} if llm is None else model_cells(snapshot, questions, options)
        for method, cell in cells(snapshot, questions, options).items():
            rows[method] += [cell, *by_model.get(method, [])]
        print(f"{name}: {budget} tokens", file=sys.stderr, flush=True)
    return list(rows.values())


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argument_parser(__doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("--sets", type=names, default=["2wiki", "hotpot"], help=f"of {', '.join(SETS)}")
    parser.add_argument("--budgets", type=lambda text: [*map(int, names(text))], default=[500, 1000], help="in tokens")
    parser.add_argument("--model", help="the model that answers; without it only the oracle does")
    parser.add_argument("--base-url", help="its endpoint; by default OpenAI's")
    parser.add_argument("--max-questions", type=int, default=100, help="that the model answers; 100 by default")
    parser.add_argument("--concurrency", type=int, default=2, help="calls in flight; 2 by default")
    add_store_options(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    chosen = _arguments(argv)
    (chosen.work / "answers").mkdir(parents=True, exist_ok=True)
    rows, counts = [], []
    for name in chosen.sets:
        files = SETS[name].make(chosen.data, chosen.work / "data" / name)
        questions = read_questions(files.questions, evidence=False)[: chosen.max_questions if chosen.model else None]
        llm: LLM | None = None
        if chosen.model:
            cache = AnswerCache(chosen.work / "answers" / f"{name}.jsonl")
            llm = CachedLlm(indexmill.open_llm(chosen.model, base_url=chosen.base_url), cache)
        with indexmill.open(store_of(name, files, chosen)) as snapshot:
            rows += measure(name, snapshot, questions, llm, chosen)
        counts.append(f"{name} {len(questions):,}")
    of_model = ["accuracy", "exact match", "F1"] if chosen.model else []
    header = ["set", "method"]
    for budget in chosen.budgets:
        header += [f"in {budget:,} tokens", *of_model]
    model = f", {chosen.model} on the first {chosen.max_questions}" if chosen.model else ""
    print(f"{describe_machine()}\nQuestions: {', '.join(counts)}{model}\n")
    print_table(header, rows)


if __name__ == "__main__":
    main()
