"""What a batch saves: time per question and extra memory by the number of questions asked at once.

    python -m benchmarks.concurrency STORE QUESTIONS.jsonl [--method zoom_graph,tri_graph,fused] [--sizes 1,4,16,...]

Retrieval without encoding, with explanations, k = 5. The questions of the file are asked over and over until every size
has had the same number. Extra memory is what a process grows by at most while it answers one batch, above the opened
index: the resident set at its highest, each method and size in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from benchmarks.machine import describe_machine
from indexmill.evaluate import read_questions

SIZES = (1, 4, 16, 64, 256, 1000)


def resident(field: str) -> float:
    """A line of this process's status in MiB: VmRSS now, VmHWM at its highest."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def measure(
    store: str, method: str, questions: list[str], vectors: np.ndarray, size: int, least: int, told: Any
) -> None:
    """In a process of its own: milliseconds per question, and the MiB that a batch took beside the index."""
    with indexmill.open(store) as snapshot:
        asked = list(itertools.islice(itertools.cycle(range(len(questions))), max(least, size)))
        batches = [asked[first : first + size] for first in range(0, len(asked) - size + 1, size)]

        def answer(batch: list[int]) -> None:
            texts = [questions[i] for i in batch]
            snapshot.retrieve_batch(texts, method=method, k=5, vectors=vectors[batch])

        for batch in batches[: max(1, 64 // size)]:  # maps arrays and reads tables
            answer(batch[:64])
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest resident set begins anew
        before = resident("VmRSS")
        started = time.perf_counter()
        for batch in batches:
            answer(batch)
        seconds = time.perf_counter() - started
        told.put((1000 * seconds / (len(batches) * size), max(0.0, resident("VmHWM") - before)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="zoom_graph,tri_graph,fused")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--least", type=int, default=1000, help="questions asked of every size")
    chosen = parser.parse_args()
    questions = [question.question for question in read_questions(chosen.questions)]
    with indexmill.open(chosen.store) as snapshot:
        vectors = snapshot.encode(questions)
        documents, entities = snapshot.manifest.corpus.documents, snapshot.manifest.corpus.counts["entities"]
    context = multiprocessing.get_context("spawn")
    print(describe_machine())
    print(f"{documents:,} documents (n), {entities:,} entities (m)")
    print(f"{'method':12}{'batch':>7}{'ms/question':>13}{'against 1':>11}{'extra MiB':>11}{'c':>8}")
    for method in chosen.method.split(","):
        alone = 0.0
        for size in map(int, chosen.sizes.split(",")):
            told = context.Queue()
            arguments = (chosen.store, method, questions, vectors, size, chosen.least, told)
            process = context.Process(target=measure, args=arguments)
            process.start()
            milliseconds, extra = told.get()
            process.join()
            alone = alone or milliseconds
            constant = extra * 2**20 / (4 * size * (documents + entities))
            print(
                f"{method:12}{size:>7}{milliseconds:>13.2f}{alone / milliseconds:>10.1f}x{extra:>11.1f}{constant:>8.2f}"
            )


if __name__ == "__main__":
    main()
