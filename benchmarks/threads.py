"""Whether threads that share one index scale with the cores: questions per second by the number of threads.

    python -m benchmarks.threads STORE QUESTIONS.jsonl [--method fused] [--threads 1,4,16,64] [--seconds 5] [--rounds 3]

Each thread asks one question after the other (``Snapshot.retrieve``, k = 5, encoding included, without explanations),
in one process and with a helper process for each core (``indexmill.open(processes=)``). Every pair of threads and
helpers takes its turn in each round; the medians are printed, and how many times what one thread gets.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import indexmill
from benchmarks.machine import argument_parser, describe_machine


def rate(snapshot: indexmill.Snapshot, questions: Sequence[str], method: str, threads: int, seconds: float) -> float:
    """Questions per second of some threads."""
    over = threading.Event()

    def ask(thread: int) -> int:
        for done, number in enumerate(itertools.count(thread * len(questions) // threads)):
            if over.is_set():
                return done
            snapshot.retrieve(questions[number % len(questions)], method, 5, explain=False)
        raise AssertionError

    with ThreadPoolExecutor(threads) as pool:
        began = time.perf_counter()
        asked = [pool.submit(ask, thread) for thread in range(threads)]
        time.sleep(seconds)
        over.set()
        done = sum(one.result() for one in asked)
        return done / (time.perf_counter() - began)


def main() -> None:
    """Print the table."""
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="fused")
    parser.add_argument("--threads", default="1,4,16,64")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    counts = [int(count) for count in arguments.threads.split(",")]
    lines = arguments.questions.read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines]
    cores = len(os.sched_getaffinity(0))
    print(describe_machine())
    with indexmill.open(arguments.store) as alone, indexmill.open(arguments.store, processes=cores) as helped:
        opened = {"one process": alone, f"{cores} helpers": helped}
        rates: dict[tuple[str, int], list[float]] = {(name, count): [] for name in opened for count in counts}
        for snapshot in opened.values():
            snapshot.retrieve_batch(questions[:256], arguments.method, 5)  # warm
        for _ in range(arguments.rounds):
            for name, count in rates:
                found = rate(opened[name], questions, arguments.method, count, arguments.seconds)
                rates[name, count].append(found)
    print(f"\n{arguments.method}, questions per second (times those of the first column)\n")
    print(f"| threads | {' | '.join(map(str, counts))} |")
    print("| --- |" + " --- |" * len(counts))
    for name in opened:
        medians = [statistics.median(rates[name, count]) for count in counts]
        cells = [f"{median:.0f} ({median / medians[0]:.1f})" for median in medians]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
