"""Measure tri_graph's ablations on a built snapshot: the recall and time that each part of LinearRAG contributes.

    python -m benchmarks.tri_graph STORE QUESTIONS.jsonl [--k 5,10]

The rows are the paper's: without activation and without PageRank (figure 4), without pruning (table 3), greedy and beam
search (table 10), the literal sum of equation 5, and settings that it or another paper states. Time is retrieval in
batches of 256, without encoding.
"""

from __future__ import annotations

import time
from pathlib import Path

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.evaluate.recall import read_questions
from indexmill.families.tri_graph.retriever import open_tri_graph

BATCH = 256
REACH = 60  # passages retrieved, so that ten distinct documents are among them

VARIANTS: dict[str, dict[str, object]] = {
    "as it is": {},
    "without activation (figure 4)": {"activation": False},
    "without PageRank (figure 4)": {"pagerank": False},
    "without pruning (table 3)": {"pruning": False},
    "greedy, one sentence a step (table 10)": {"sentences_per_step": 1},
    "beam, three sentences a step (table 10)": {"sentences_per_step": 3},
    "at most 3 sentences per entity": {"sentences_per_entity": 3},
    "sum reading of equation 5": {"reading": "sum"},
    "damping 0.85 (text)": {"damping": 0.85},
    "one hop": {"hops": 1},
    "two hops": {"hops": 2},
}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--k", default="5,10")
    chosen = parser.parse_args()
    ks = [int(k) for k in chosen.k.split(",")]
    questions = read_questions(chosen.questions)
    print(describe_machine())
    with indexmill.open(chosen.store) as snapshot:
        documents = snapshot.table("passages", ["document_id"]).column("document_id").to_pylist()
        vectors = snapshot.encode([question.question for question in questions])
        graph = open_tri_graph(snapshot)
        counts = snapshot.manifest.families["tri_graph"].counts
        print(", ".join(f"{count:,} {name}" for name, count in counts.items()) + f"; {len(questions)} questions")
        print(f"{'variant':42}" + "".join(f"{f'recall@{k}':>11}" for k in ks) + f"{'ms/question':>13}")
        for name, changes in VARIANTS.items():
            variant = graph.with_parameters(**changes)
            recall = dict.fromkeys(ks, 0.0)
            seconds = 0.0
            for at in range(0, len(questions), BATCH):
                batch = questions[at : at + BATCH]
                started = time.perf_counter()
                results = variant.retrieve(vectors[at : at + BATCH], [question.question for question in batch], REACH)
                seconds += time.perf_counter() - started
                for question, retrieved in zip(batch, results, strict=True):
                    ranked = list(dict.fromkeys(documents[row] for row in retrieved.passages.tolist()))
                    gold = set(question.gold_ids)
                    for k in ks:
                        recall[k] += len(gold & set(ranked[:k])) / len(gold) / len(questions)
            cells = "".join(f"{recall[k]:11.3f}" for k in ks)
            print(f"{name:42}{cells}{seconds * 1000 / len(questions):13.2f}", flush=True)


if __name__ == "__main__":
    main()
