"""What a batch saves: time per question and extra memory by the number of questions asked at once.

    python -m benchmarks.concurrency STORE QUESTIONS.jsonl [--method zoom_graph,tri_graph,fused] [--sizes 1,4,16,...]
                                     [--rounds 3]

With explanations, k = 5, each method and size in a process of its own. The questions of the file are asked over and
over until every size has had the same number; of several rounds the fastest counts, so that what else the machine does
counts little.

    wall, cpu    milliseconds per question of retrieval without encoding
    encoded      the same (wall) with the encoding of the questions, as many at once, which the paper's latency includes
    ratio        how many times faster than alone a question is: by wall, by cpu, and by wall with the encoding
    extra        MiB that a process grows by at most while it answers a batch, above the opened index: the resident set
                 at its highest, encoder left out
    c            the extra memory as c x questions x (n + m) x 4 bytes

The line of the paper (ZoomRAG, table 13) has the encoding in it, another machine and another encoder: its ratio is to
be held against the last one, its milliseconds against the column ``encoded``.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import indexmill
from benchmarks.machine import describe_machine
from indexmill.evaluate import read_questions
from indexmill.snapshot import Snapshot

SIZES = (1, 4, 16, 64, 256, 1000)

PAPER = {1: 129, 4: 45, 16: 25, 64: 19, 256: 18, 1000: 18}
"""Milliseconds per question of ZoomRAG by the size of the batch, with the encoding (table 13)."""

PLATEAU = 19
"""What it says of more than 512 questions (section 4, figure 3)."""

ENCODED = 256
"""Most questions that are encoded for a measurement: their time depends on little else than how many go together."""


class Measured(NamedTuple):
    """Milliseconds per question of retrieval (wall, CPU) and of encoding (wall), and MiB beside the index."""

    wall: float
    cpu: float
    encoding: float
    extra: float


def resident(field: str) -> float:
    """A line of this process's status in MiB: VmRSS now, VmHWM at its highest."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split(f"{field}:")[1].split()[0]) / 1024


def fastest(
    act: Callable[[Sequence[int]], object], batches: Sequence[Sequence[int]], rounds: int
) -> tuple[float, float]:
    """Milliseconds per question, wall and CPU, each batch in its fastest round."""
    wall, cpu = np.full((2, len(batches)), np.inf)
    for _ in range(rounds):
        for i, batch in enumerate(batches):
            begun, spent = time.perf_counter(), time.process_time()
            act(batch)
            wall[i] = min(wall[i], time.perf_counter() - begun)
            cpu[i] = min(cpu[i], time.process_time() - spent)
    questions = sum(map(len, batches))
    return 1000 * float(wall.sum()) / questions, 1000 * float(cpu.sum()) / questions


def measure(
    chosen: argparse.Namespace, method: str, size: int, questions: list[str], vectors: np.ndarray, told: Any
) -> None:
    """In a process of its own: what batches of one size take, to be ``told``."""
    with indexmill.open(chosen.store) as snapshot:
        asked = list(itertools.islice(itertools.cycle(range(len(questions))), max(chosen.least, size)))
        batches = [asked[first : first + size] for first in range(0, len(asked) - size + 1, size)]

        def answer(batch: Sequence[int]) -> None:
            texts = [questions[i] for i in batch]
            snapshot.retrieve_batch(texts, method=method, k=5, vectors=vectors[batch])

        for batch in batches[: max(1, 64 // size)]:  # maps arrays and reads tables
            answer(batch[:64])
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest resident set begins anew
        before = resident("VmRSS")
        wall, cpu = fastest(answer, batches, chosen.rounds)
        extra = max(0.0, resident("VmHWM") - before)
        told.put(Measured(wall, cpu, encoding(snapshot, questions, batches, chosen.rounds), extra))


def encoding(snapshot: Snapshot, questions: list[str], batches: Sequence[Sequence[int]], rounds: int) -> float:
    """Milliseconds per question of encoding batches, wall: of some of the questions."""

    def encode(batch: Sequence[int]) -> None:
        snapshot.encode([questions[i] for i in batch])

    some = batches[: max(1, ENCODED // len(batches[0]))]
    encode(some[0][:1])  # opens the encoder
    return fastest(encode, some, rounds)[0]


def table(chosen: argparse.Namespace, questions: list[str], vectors: np.ndarray, nodes: int) -> None:
    """Measure and print."""
    context = multiprocessing.get_context("spawn")
    print(
        f"{'method':12}{'batch':>6}{'wall':>8}{'cpu':>8}{'encoded':>9}{'ratio':>8}{'cpu':>7}{'encoded':>9}{'extra':>8}{'c':>7}"
    )
    sizes = [int(size) for size in chosen.sizes.split(",")]
    for method in chosen.method.split(","):
        alone: Measured | None = None
        for size in sizes:
            told = context.Queue()
            process = context.Process(target=measure, args=(chosen, method, size, questions, vectors, told))
            process.start()
            one: Measured = told.get()
            process.join()
            alone = alone or one
            with_encoding = one.wall + one.encoding
            print(
                f"{method:12}{size:>6}{one.wall:>8.2f}{one.cpu:>8.2f}{with_encoding:>9.2f}"
                f"{alone.wall / one.wall:>7.1f}x{alone.cpu / one.cpu:>6.1f}x"
                f"{(alone.wall + alone.encoding) / with_encoding:>8.1f}x"
                f"{one.extra:>8.1f}{one.extra * 2**20 / (4 * size * nodes):>7.2f}"
            )
    for size in sizes:
        if size in PAPER:
            ratio = f"{PAPER[1] / PAPER[size]:.1f}x"
            print(f"{'the paper':12}{size:>6}{'':>16}{PAPER[size]:>9.2f}{'':>15}{ratio:>9}")
    print(f"{'the paper':12}{'> 512':>6}{'':>16}{PLATEAU:>9.2f}{'':>15}{PAPER[1] / PLATEAU:>8.1f}x (its plateau)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="zoom_graph,tri_graph,fused")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="the first is what others are held against")
    parser.add_argument("--least", type=int, default=1000, help="questions asked of every size")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts")
    chosen = parser.parse_args()
    questions = [question.question for question in read_questions(chosen.questions)]
    with indexmill.open(chosen.store) as snapshot:
        vectors = snapshot.encode(questions)
        documents, entities = snapshot.manifest.corpus.documents, snapshot.manifest.corpus.counts["entities"]
    print(describe_machine())
    print(f"{documents:,} documents (n), {entities:,} entities (m)")
    table(chosen, questions, vectors, documents + entities)


if __name__ == "__main__":
    main()
