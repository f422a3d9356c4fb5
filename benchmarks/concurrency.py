"""What a batch saves: time per question and extra memory by the number of questions asked at once.

    python -m benchmarks.concurrency STORE QUESTIONS.jsonl [--method zoom_graph,tri_graph,fused] [--sizes 1,4,16,...]
                                     [--rounds 3] [--processes N]

With explanations, k = 5. The questions of the file are asked over and over until every size has had the same number.
Each size has a process of its own, and the sizes take turns, round by round, so that an hour in which the machine is
slow is slow for all; of the rounds the fastest counts for each batch.

    wall, cpu    milliseconds per question of retrieval without encoding
    encoded      the same (wall) with the encoding of the questions, as many at once, which the paper's latency includes
    ratio        how many times faster than alone a question is: by wall, by cpu, and by wall with the encoding
    extra        MiB that the processes grow by at most while they answer a batch, above the opened index: their
                 resident sets at the highest, encoder left out
    c            the extra memory as c x questions x (n + m) x 4 bytes

The snapshot is opened with as many processes as there are cores, or N (``indexmill.open(processes=)``): helpers answer
batches of eight and more. Then cpu is that of the process that asks and of all helpers, and what a helper holds by
itself, whatever the batch, is printed: its interpreter, and what the method makes of the mapped arrays.

The line of the paper (ZoomRAG, table 13) has the encoding in it, another machine and another encoder: its ratio is to
be held against the last one, its milliseconds against the column ``encoded``.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.evaluate.recall import read_questions

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SIZES = (1, 4, 16, 64, 256, 1000)

PAPER = {1: 129, 4: 45, 16: 25, 64: 19, 256: 18, 1000: 18}
"""Milliseconds per question of ZoomRAG by the size of the batch, with the encoding (table 13)."""

PLATEAU = 19
"""What it says of more than 512 questions (section 4, figure 3)."""

ENCODED = 256
"""Most questions that are encoded for a measurement: their time depends on little else than how many go together."""


class Measured(NamedTuple):
    """Milliseconds per question of retrieval (wall, CPU) and of encoding (wall), MiB beside the index, and those that
    each helper holds by itself."""

    wall: float
    cpu: float
    encoding: float
    extra: float
    helper: float


def memory(file: str, field: str, processes: Sequence[int]) -> float:
    """A line of some processes' ``status`` or ``smaps_rollup`` in MiB: VmRSS now, VmHWM at its highest."""
    lines = (Path(f"/proc/{process}/{file}").read_text(encoding="ascii") for process in processes)
    return sum(int(text.split(f"{field}:")[1].split()[0]) for text in lines) / 1024


def spent_by(processes: Sequence[int]) -> float:
    """Seconds of processors that other processes have taken: their ``stat``, in ticks of 10 ms."""
    fields = (
        Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split() for process in processes
    )
    return sum(int(its[11]) + int(its[12]) for its in fields) / os.sysconf("SC_CLK_TCK")


class Fastest:
    """Milliseconds per question of some batches, each in its fastest round."""

    def __init__(self, act: Callable[[Sequence[int]], object], batches: Sequence[Sequence[int]]) -> None:
        self._act, self._batches = act, batches
        self._wall, self._cpu = np.full((2, len(batches)), np.inf)
        self._questions = sum(map(len, batches))

    def once_more(self) -> None:
        """A further round."""
        for i, batch in enumerate(self._batches):
            begun, spent = time.perf_counter(), time.process_time()
            self._act(batch)
            self._wall[i] = min(self._wall[i], time.perf_counter() - begun)
            self._cpu[i] = min(self._cpu[i], time.process_time() - spent)

    @property
    def wall(self) -> float:
        """On the wall."""
        return 1000 * float(self._wall.sum()) / self._questions

    @property
    def cpu(self) -> float:
        """Of processors, by this process."""
        return 1000 * float(self._cpu.sum()) / self._questions


def measure(
    chosen: argparse.Namespace, method: str, size: int, questions: list[str], vectors: np.ndarray, turns: Connection
) -> None:
    """In a process of its own: what batches of one size take, a round at each of its ``turns``; at last it tells."""
    with indexmill.open(chosen.store, processes=chosen.processes) as snapshot:
        helpers = [] if snapshot.pool is None else snapshot.pool.processes
        asked = list(itertools.islice(itertools.cycle(range(len(questions))), max(chosen.least, size)))
        batches = [asked[first : first + size] for first in range(0, len(asked) - size + 1, size)]

        def answer(batch: Sequence[int]) -> None:
            texts = [questions[i] for i in batch]
            snapshot.retrieve_batch(texts, method=method, k=5, vectors=vectors[batch])

        for batch in batches[: max(1, 64 // size)]:  # maps arrays and reads tables
            answer(batch[:64])
        every = [os.getpid(), *helpers]
        for process in every:
            Path(f"/proc/{process}/clear_refs").write_text("5", encoding="ascii")  # the highest set begins anew
        before, spent = memory("status", "VmRSS", every), spent_by(helpers)
        retrieval = Fastest(answer, batches)
        for _ in range(chosen.rounds):
            turns.recv()
            retrieval.once_more()
            turns.send(None)
        # That of other processes is told in steps of 10 ms: not of the fastest round, but in the mean.
        helped = 1000 * (spent_by(helpers) - spent) / (chosen.rounds * sum(map(len, batches)))
        extra = max(0.0, memory("status", "VmHWM", every) - before)
        own = sum(memory("smaps_rollup", field, helpers) for field in ("Private_Clean", "Private_Dirty"))
        some = batches[: max(1, ENCODED // size)]
        encoding = Fastest(lambda batch: snapshot.encode([questions[i] for i in batch]), some)
        snapshot.encode([questions[0]])  # opens the encoder
        for _ in range(chosen.rounds):
            turns.recv()
            encoding.once_more()
            turns.send(None)
        cpu = retrieval.cpu + helped
        turns.send(Measured(retrieval.wall, cpu, encoding.wall, extra, own / max(len(helpers), 1)))


def measured(
    chosen: argparse.Namespace, method: str, sizes: Sequence[int], questions: list[str], vectors: np.ndarray
) -> list[Measured]:
    """Of one method, what batches of each size take."""
    context = multiprocessing.get_context("spawn")
    turns, processes = [], []
    for size in sizes:
        here, there = context.Pipe()
        its = (chosen, method, size, questions, vectors, there)
        processes.append(context.Process(target=measure, args=its, daemon=True))
        processes[-1].start()
        there.close()  # so that one that dies is noticed
        turns.append(here)
    for _ in range(2 * chosen.rounds):
        for turn in turns:
            turn.send(None)
            turn.recv()
    found = [turn.recv() for turn in turns]
    for process in processes:
        process.join()
    return found


def table(chosen: argparse.Namespace, questions: list[str], vectors: np.ndarray, nodes: int) -> None:
    """Measure and print."""
    print(
        f"{'method':12}{'batch':>6}{'wall':>8}{'cpu':>8}{'encoded':>9}{'ratio':>8}{'cpu':>7}{'encoded':>9}{'extra':>8}{'c':>7}"
    )
    sizes = [int(size) for size in chosen.sizes.split(",")]
    for method in chosen.method.split(","):
        found = measured(chosen, method, sizes, questions, vectors)
        alone = found[0]
        for size, one in zip(sizes, found, strict=True):
            with_encoding = one.wall + one.encoding
            print(
                f"{method:12}{size:>6}{one.wall:>8.2f}{one.cpu:>8.2f}{with_encoding:>9.2f}"
                f"{alone.wall / one.wall:>7.1f}x{alone.cpu / one.cpu:>6.1f}x"
                f"{(alone.wall + alone.encoding) / with_encoding:>8.1f}x"
                f"{one.extra:>8.1f}{one.extra * 2**20 / (4 * size * nodes):>7.2f}",
                flush=True,
            )
        if chosen.processes > 1:
            print(f"{method:12}{chosen.processes} helpers hold {one.helper:.0f} MiB each by themselves")
    for size in sizes:
        if size in PAPER:
            ratio = f"{PAPER[1] / PAPER[size]:.1f}x"
            print(f"{'the paper':12}{size:>6}{'':>16}{PAPER[size]:>9.2f}{'':>15}{ratio:>9}")
    print(f"{'the paper':12}{'> 512':>6}{'':>16}{PLATEAU:>9.2f}{'':>15}{PAPER[1] / PLATEAU:>8.1f}x (its plateau)")


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="zoom_graph,tri_graph,fused")
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="the first is what others are held against")
    parser.add_argument("--least", type=int, default=1000, help="questions asked of every size")
    parser.add_argument("--rounds", type=int, default=3, help="of which the fastest counts")
    cores = os.cpu_count() or 1
    parser.add_argument("--processes", type=int, default=cores, help=f"that answer batches; {cores} by default")
    chosen = parser.parse_args()
    questions = [question.question for question in read_questions(chosen.questions)]
    with indexmill.open(chosen.store) as snapshot:
        vectors = snapshot.encode(questions)
        documents, entities = snapshot.manifest.corpus.documents, snapshot.manifest.corpus.counts["entities"]
    print(describe_machine())
    print(f"{documents:,} documents (n), {entities:,} entities (m); processes={chosen.processes}")
    table(chosen, questions, vectors, documents + entities)


if __name__ == "__main__":
    main()
