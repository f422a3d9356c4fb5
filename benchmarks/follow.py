"""What readers notice while a publisher moves the alias that they follow.

    python -m benchmarks.follow STATE QUESTIONS.jsonl [--docs 3000] [--nights 20]
    python -m benchmarks.follow STATE QUESTIONS.jsonl --docs 300 --nights 3       # two minutes, for every day

STATE is a program that writes the corpus as it stood after a night: `STATE NIGHT OUT --docs N --nights LAST`. The
publisher builds night after night with the real command, signs each version, and points `prod` to it. Meanwhile 64
clients ask an index of `indexmill.follow`, which takes only what is signed, one question after the other. Afterwards
each answer is compared with that of the version that its hits name, opened by itself.

Latencies are those of clients that wait for each other and for the build on the same cores; what counts is the share
between the seconds around a switch and the others.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import indexmill
from benchmarks.equality import write_night
from benchmarks.machine import argument_parser, describe_machine, run_command

CLIENTS = 64
AROUND = 5.0
"""Seconds before and after a switch that count as its window: before it the new version is tried."""


@dataclass(frozen=True)
class Asked:
    """A question of a client: when it began, its seconds, and the versions and ids of its hits."""

    number: int
    began: float
    seconds: float
    versions: frozenset[int | None]
    ids: tuple[str, ...]


def ask(
    index: indexmill.Follower, questions: Sequence[str], method: str, client: int, over: threading.Event
) -> list[Asked]:
    """Ask until it is over; an exception ends the benchmark."""
    done = []
    number = client
    while not over.is_set():
        number = (number + CLIENTS + 1) % len(questions)
        began = time.monotonic()
        hits = index.retrieve(questions[number], method, 5, explain=False)
        seconds = time.monotonic() - began
        done.append(
            Asked(number, began, seconds, frozenset(hit.version for hit in hits), tuple(hit.id for hit in hits))
        )
    return done


def wrong(asked: Sequence[Asked], store: Path, questions: Sequence[str], method: str) -> int:
    """The number of answers that are not those of one version."""
    found = sum(len(one.versions) > 1 for one in asked)
    for version in sorted({version for one in asked for version in one.versions if version is not None}):
        with indexmill.open(store, version) as snapshot:
            answers = snapshot.retrieve_batch(questions, method, 5, explain=False)
        expected = [tuple(hit.id for hit in hits) for hits in answers]
        found += sum(one.ids != expected[one.number] for one in asked if one.versions == {version})
    return found


def row(name: str, seconds: Sequence[float]) -> str:
    """A line of the table."""
    if not seconds:
        return f"| {name} | 0 | | | |"
    ranks = np.percentile(np.array(seconds) * 1e3, (50, 99, 99.9))
    return f"| {name} | {len(seconds):,} | {' | '.join(f'{rank:.0f}' for rank in ranks)} |"


def main() -> int:
    """Print the table; 1 if any answer failed or was of no single version."""
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--docs", type=int, default=3_000)
    parser.add_argument("--nights", type=int, default=20)
    parser.add_argument("--method", default="fused")
    arguments = parser.parse_args()
    print(describe_machine())
    lines = arguments.questions.read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["question"] for line in lines][:200]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        store, key = folder / "store", folder / "key"
        made = run_command("sign", "--new-key", key)
        trust = indexmill.Trust({"publisher": made["key"]})

        def publish(night: int) -> None:
            corpus = write_night(arguments.state, night, folder, arguments.docs, arguments.nights)
            run_command("build", "--store", store, "--corpus", corpus, "--allow-shrink")
            run_command("sign", "--key", key, "--store", store)
            run_command("promote", "newest", "prod", "--store", store)

        publish(0)
        switches: list[float] = []
        over = threading.Event()
        options = {"methods": [arguments.method], "smoke": questions[:3], "trust": trust}
        with indexmill.follow(store, "prod", 1.0, **options) as index, ThreadPoolExecutor(CLIENTS) as pool:
            clients = [pool.submit(ask, index, questions, arguments.method, client, over) for client in range(CLIENTS)]
            try:
                for night in range(1, arguments.nights + 1):
                    before = index.version
                    publish(night)
                    newest = indexmill.newest(store).version
                    while index.version != newest:
                        assert index.refusal is None, index.refusal
                        time.sleep(0.01)
                    if newest != before:
                        switches.append(time.monotonic())
                time.sleep(2 * AROUND)
            finally:
                over.set()
            asked = [one for client in clients for one in client.result()]
        mixed = wrong(asked, store, questions, arguments.method)
    near = [one.seconds for one in asked if any(abs(one.began - switch) < AROUND for switch in switches)]
    far = [one.seconds for one in asked if not any(abs(one.began - switch) < AROUND for switch in switches)]
    print(f"\n{arguments.docs:,} documents, {len(switches)} switches, {CLIENTS} clients, {arguments.method}\n")
    print("| questions | number | p50, ms | p99 | p99.9 |")
    print("| --- | --- | --- | --- | --- |")
    print(row(f"within {AROUND:g} s of a switch", near))
    print(row("others", far))
    print(f"\n0 failed, {mixed} of no single version")
    return int(mixed > 0)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
