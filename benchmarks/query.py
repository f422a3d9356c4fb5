"""Measure retrieval time without encoding, one question at a time and in batches.

    python -m benchmarks.query STORE QUESTIONS.jsonl [--method NAMES] [--batch 256] [--k 10]

Encodes the questions once, then times `retrieve_batch(vectors=...)`: single questions, and batches with and without
explanations. Prints the median and the 99th percentile in milliseconds per question. The first questions are a warm-up
and are not counted.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.sets import read_rows
from indexmill.retrieve.retrieval_method import Vectors
from indexmill.snapshot import Snapshot

WARM = 20


def milliseconds(
    snapshot: Snapshot,
    questions: Sequence[str],
    vectors: Vectors,
    method: str,
    k: int,
    size: int,
    explain: bool = True,
    rounds: int = 3,
) -> npt.NDArray[np.float64]:
    """Return the milliseconds per question of each batch of `size` questions, over several rounds."""
    times: list[float] = []
    for _ in range(rounds if size > 1 else 1):
        for at in range(0, len(questions), size):
            batch = questions[at : at + size]
            started = time.perf_counter()
            snapshot.retrieve_batch(batch, method=method, k=k, vectors=vectors[at : at + size], explain=explain)
            times.append((time.perf_counter() - started) * 1000 / len(batch))
    return np.array(times[WARM:] if size == 1 else times[1:])


def print_times(
    snapshot: Snapshot,
    questions: Sequence[str],
    vectors: Vectors,
    methods: Sequence[str],
    k: int,
    size: int,
    rounds: int,
) -> None:
    print(f"{'method':12} {'questions at once':>18} {'p50 ms':>9} {'p99 ms':>9} {'mean ms':>9}   per question")
    gc.collect()
    gc.freeze()  # like a server after start-up: later collections skip the loaded objects
    for method in methods:
        for together, explain in ((1, True), (size, True), (size, False)):
            counted = milliseconds(snapshot, questions, vectors, method, k, together, explain, rounds)
            p50, p99 = np.percentile(counted, [50, 99]) if len(counted) else (float("nan"),) * 2
            mean = counted.mean() if len(counted) else float("nan")
            suffix = "" if explain else "   explain=False"
            print(f"{method:12} {together:18} {p50:9.2f} {p99:9.2f} {mean:9.2f}{suffix}", flush=True)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="dense,lsh_tree,bm25,tri_graph,zoom_graph,fused")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    questions = [row["question"] for row in read_rows(chosen.questions)]
    print(describe_machine())
    with indexmill.open(chosen.store) as snapshot:
        corpus = snapshot.manifest.corpus
        print(f"{corpus.documents} documents, {corpus.passages} passages, {len(questions)} questions, k = {chosen.k}")
        vectors = snapshot.encode(questions)
        methods = chosen.method.split(",")
        print_times(snapshot, questions, vectors, methods, chosen.k, chosen.batch, chosen.rounds)


if __name__ == "__main__":
    main()
