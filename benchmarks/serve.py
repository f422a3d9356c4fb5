"""Measure the requests per second of ``indexmill serve``, compared with the bare library in batches.

    python -m benchmarks.serve STORE QUESTIONS.jsonl [--method fused] [--rounds 3] [--seconds 8] [--processes 1]

The library answers all questions in batches of 64, encoding included, in its own process: its rate is the reference.
Then 1, 16 and 64 clients in another process query the real server over real connections, each one question after
another. Library and server take turns, round by round. The medians are printed, also as shares of the library's rate.
Requests have k = 5 and no explanations. All run on the same cores, so the server's figure includes the clients' cost.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.sets import read_rows

CLIENTS = (1, 16, 64)
BATCH = 64
SHARE = 0.7  # the minimum share of the library's rate with the most clients


class Load(NamedTuple):
    """The clients' requests per second, and their latency in milliseconds: median and 99th percentile."""

    rate: float
    p50: float
    p99: float


def library(arguments: argparse.Namespace, questions: Sequence[str], turns: Any) -> None:
    """Measure the library's questions per second and send them, once per message. Runs in its own process."""
    with indexmill.open(arguments.store, processes=arguments.processes) as snapshot:
        batches = [questions[first : first + BATCH] for first in range(0, len(questions) - BATCH + 1, BATCH)]
        for batch in batches:  # warm-up
            snapshot.retrieve_batch(batch, method=arguments.method, k=5, explain=False)
        while turns.recv():
            began, done = time.perf_counter(), 0
            while time.perf_counter() - began < arguments.seconds:
                for batch in batches:
                    snapshot.retrieve_batch(batch, method=arguments.method, k=5, explain=False)
                    done += len(batch)
            turns.send(done / (time.perf_counter() - began))


async def client(place: tuple[str, int], bodies: Sequence[bytes], number: int, ends: float) -> list[float]:
    """Run one client; return the seconds that each request took. Raises RuntimeError for any status but 200."""
    reader, writer = await asyncio.open_connection(*place)
    seconds = []
    while (began := time.perf_counter()) < ends:
        body = bodies[number % len(bodies)]
        number += 61
        writer.write(
            b"POST /retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
            + str(len(body)).encode()
            + b"\r\n\r\n"
            + body
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(answer.decode())
        seconds.append(time.perf_counter() - began)
    writer.close()
    return seconds


def clients(place: tuple[str, int], bodies: Sequence[bytes], turns: Any) -> None:
    """For each message (number of clients, seconds), run the clients and send their Load. Runs in its own process."""

    async def together(count: int, seconds: float) -> Load:
        began = time.perf_counter()
        every = await asyncio.gather(*(client(place, bodies, number * 7, began + seconds) for number in range(count)))
        elapsed = time.perf_counter() - began
        flat = np.array([latency for many in every for latency in many])
        p50, p99 = np.percentile(flat * 1e3, (50, 99))
        return Load(len(flat) / elapsed, float(p50), float(p99))

    while message := turns.recv():
        turns.send(asyncio.run(together(*message)))


@contextlib.contextmanager
def serving(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Run the real command; yield its host and port."""
    words = [sys.executable, "-m", "indexmill", "serve", str(arguments.store), "--port", "0", "--linger", "0"]
    words += ["--processes", str(arguments.processes), "--warm", arguments.method, *arguments.option]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        started = json.loads(process.stderr.readline())
        url = urlsplit(started["url"])
        assert url.hostname is not None
        assert url.port is not None
        log = threading.Thread(target=deque, args=(process.stderr, 0), daemon=True)  # drains the pipe
        log.start()
        try:
            yield url.hostname, url.port
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            log.join(60)
    assert process.returncode == 0


def main() -> int:
    """Print the table; return 1 if the share with the most clients is below SHARE."""
    parser = argument_parser(__doc__)
    parser.add_argument("store", type=Path)
    parser.add_argument("questions", type=Path)
    parser.add_argument("--method", default="fused")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="an additional argument of the server")
    arguments = parser.parse_args()
    print(describe_machine())
    questions = [row["question"] for row in read_rows(arguments.questions)]
    requests = [{"question": question, "method": arguments.method, "k": 5} for question in questions]
    bodies = [json.dumps(request).encode() for request in requests]
    context = multiprocessing.get_context("spawn")
    with serving(arguments) as place, contextlib.ExitStack() as stack:
        ends = []
        for target, parameters in ((library, (arguments, questions)), (clients, (place, bodies))):
            here, there = context.Pipe()
            process = context.Process(target=target, args=(*parameters, there), daemon=not arguments.processes > 1)
            process.start()
            stack.callback(process.join)
            stack.callback(here.send, None)
            ends.append(here)
        bare, load = ends
        load.send((max(CLIENTS), 2.0))  # warm-up
        load.recv()
        rates: list[float] = []
        loads: dict[int, list[Load]] = {count: [] for count in CLIENTS}
        for _ in range(arguments.rounds):
            bare.send(True)
            rates.append(bare.recv())
            for count in CLIENTS:
                load.send((count, arguments.seconds))
                loads[count].append(load.recv())
    rate = statistics.median(rates)
    spread = f"{min(rates):.0f} to {max(rates):.0f}"
    print(f"\n{arguments.method}, {len(questions):,} questions, {arguments.rounds} rounds of {arguments.seconds:g} s\n")
    print("| | requests/s | share | p50, ms | p99 |")
    print("| --- | --- | --- | --- | --- |")
    print(f"| library, batches of {BATCH} | {rate:.0f} ({spread}) | | | |")
    share = 0.0
    for count, seen in loads.items():
        middle = Load(*(statistics.median(column) for column in zip(*seen, strict=True)))
        shares = [one.rate / bare for one, bare in zip(seen, rates, strict=True)]
        share = statistics.median(shares)
        print(
            f"| serve, {count} client{'s' * (count > 1)} | {middle.rate:.0f} | {share:.2f} | "
            f"{middle.p50:.1f} | {middle.p99:.1f} |"
        )
    return int(share < SHARE)


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
