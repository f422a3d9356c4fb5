"""Measure a corpus at full size: its backfill, nightly builds and reader, compared with an earlier version.

    python -m benchmarks.scale STATE FOLDER [--nights 2]                    all of techdocs, default model: two hours
    python -m benchmarks.scale STATE FOLDER --docs 3000 --encoder hash      for daily use: a few minutes
    python -m benchmarks.scale STATE OTHER --python OLD/.venv/bin/python --checkout OLD     a different checkout
    python -m benchmarks.scale STATE FOLDER --beside OTHER                  both, and their ratios

STATE is a program that writes the corpus as it was after a night: `STATE NIGHT OUT [--docs N]`; its folder has
`questions.jsonl`. FOLDER gets the store and `measured.json`; commands already measured there are not run again.

The commands and the reader run in their own processes, with the interpreter and checkout of the options, so that the
same code measures two versions of the program. A command's numbers cover all its processes: CPU seconds, and the peak
of the proportional share of memory. Bytes and files of a night are those added to the store. The night of four
documents follows the last night and applies four changes of the next night. Reading is measured with
encoding: the median of 40 single questions, and the fastest of three batches of 48. For `busy` rows, two other
processes keep cores busy. A reader with a cache maps the files that an earlier reader left there; an earlier version of
the program may have no cache.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from benchmarks.backfill import usage_of
from benchmarks.machine import argument_parser, describe_machine
from benchmarks.sets import read_rows, write_rows

METHODS = ("fused", "dense", "bm25", "tri_graph", "zoom_graph")

READER = """
import json, resource, sys, time
began = time.perf_counter()
import indexmill
store, method, questions, batch = sys.argv[1], sys.argv[2], json.load(open(sys.argv[3])), int(sys.argv[4])
snapshot = indexmill.open(store)
opened = time.perf_counter()
snapshot.retrieve(questions[0], method=method, k=10)
first = time.perf_counter()
def milliseconds(act):
    begin = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - begin)
alone = sorted(milliseconds(lambda: snapshot.retrieve(text, method=method, k=10)) for text in questions[1:41])
ask = lambda: snapshot.retrieve_batch(questions[:batch], method=method, k=10)
together = [milliseconds(ask) / batch for _ in range(3)]
sizes = {line.split(":")[0]: int(line.split()[1]) for line in open("/proc/self/smaps_rollup").readlines()[1:]}
times = {"open": opened - began, "first": first - opened, "alone": alone[len(alone) // 2], "together": min(together)}
print(json.dumps(times | {"resident": sizes["Rss"] / 1024, "own": sizes["Anonymous"] / 1024}))
"""
"""Measures one method in a fresh process, with API calls that every release of the library has."""

BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent: sum(range(1000))
"""
"""Keeps a core busy until the measuring process ends."""


class CheckoutProgram:
    """A version of the program: an interpreter, and the checkout that it imports."""

    def __init__(self, python: str, checkout: Path) -> None:
        self.python, self.checkout = python, checkout
        self.environment = {**os.environ, "PYTHONPATH": str(checkout)}

    def run(self, *words: object) -> dict[str, Any]:
        """Run a command of indexmill; return its usage."""
        command = [self.python, "-m", "indexmill", *map(str, words), "--json"]
        began = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, cwd=self.checkout, env=self.environment, text=True
        ) as process:
            used = usage_of(process)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with exit code {process.returncode}; see `indexmill runs`")
        wall = time.perf_counter() - began
        return {"wall": wall, "cpu": used.seconds, "memory": used.mapped}

    def read(
        self, store: Path, method: str, questions: Path, batch: int, cache: Path | None = None
    ) -> dict[str, float]:
        """Measure a method in its own process. cache: the readers' cache folder."""
        words = [self.python, "-c", READER, str(store), method, str(questions), str(batch)]
        environment = self.environment if cache is None else {**self.environment, "INDEXMILL_CACHE": str(cache)}
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, cwd=self.checkout, env=environment, text=True)
        figures: dict[str, float] = json.loads(done.stdout)
        return figures


def files_of(store: Path) -> dict[str, int]:
    """Return the size in bytes of every file in a store's folders ``blobs``, ``work`` and ``refs``, by path."""
    paths = [*(store / "blobs").rglob("*"), *(store / "work").rglob("*"), *(store / "refs").rglob("*")]
    return {str(path): path.stat().st_size for path in paths if path.is_file()}


def write_state(chosen: Namespace, night: int, path: Path) -> None:
    cut = [] if chosen.docs is None else ["--docs", str(chosen.docs)]
    subprocess.run([sys.executable, chosen.state, str(night), path, *cut], check=True, stdout=subprocess.DEVNULL)


def with_four_changes(before: Path, after: Path, out: Path) -> None:
    """Write the earlier corpus with the first four documents, by id, that are new or changed in the later corpus."""
    rows, later = ({row["id"]: row for row in read_rows(path)} for path in (before, after))
    changed = sorted(name for name in later if rows.get(name) != later[name])[:4]
    rows |= {name: later[name] for name in changed}
    write_rows(out, list(rows.values()))


def measure(chosen: Namespace, program: CheckoutProgram) -> dict[str, Any]:
    """Return all numbers of a folder; commands measured before are not run again."""
    folder: Path = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    store, corpus, record = folder / "store", folder / "corpus.jsonl", folder / "measured.json"
    figures: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {}
    settings: dict[str, Any] = {"store": str(store), "corpus": {"paths": [str(corpus)]}}
    if chosen.encoder is not None:
        settings["embed"] = {"model": chosen.encoder}
    configuration = folder / "indexmill.yaml"
    configuration.write_text(yaml.safe_dump(settings), encoding="utf-8")
    states = [folder / f"night-{night}.jsonl" for night in range(chosen.nights + 2)]
    for night, path in enumerate(states):
        if not path.exists():
            write_state(chosen, night, path)
    four = folder / "four.jsonl"
    with_four_changes(states[chosen.nights], states[chosen.nights + 1], four)
    work = [("backfill", states[0]), *((f"night {n}", states[n]) for n in range(1, chosen.nights + 1)), ("four", four)]
    for name, state in work:
        if name in figures:
            continue
        if name == "backfill" and store.exists():
            raise SystemExit(
                f"{store} has a backfill whose measurement did not finish: remove the store and begin again"
            )
        shutil.copyfile(state, corpus)
        before = files_of(store)
        command = "backfill" if name == "backfill" else "build"
        run = program.run(command, "-c", configuration, "--workers", chosen.workers)
        now = files_of(store)
        new = [now[path] for path in now.keys() - before.keys()]
        figures[name] = {**run, "bytes": sum(new), "files": len(new)}
        record.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    figures["store"] = {"bytes": sum(files_of(store).values()), "files": len(files_of(store))}
    question_rows, questions = read_rows(chosen.state.parent / "questions.jsonl")[:96], folder / "questions.json"
    questions.write_text(json.dumps([row["question"] for row in question_rows]), encoding="utf-8")
    for method in METHODS:
        figures[f"read {method}"] = program.read(store, method, questions, 48)
        busy_processes = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
        try:
            figures[f"busy {method}"] = program.read(store, method, questions, 48)
        finally:
            for process in busy_processes:
                process.kill()
                process.wait()
    program.read(store, "fused", questions, 48, folder / "cache")  # the first reader fills the cache
    for method in METHODS:
        figures[f"cached {method}"] = program.read(store, method, questions, 48, folder / "cache")
    record.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return figures


def table(figures: dict[str, Any]) -> Iterator[tuple[str, float, str]]:
    """Yield the lines of the table: label, number, unit."""
    yield "backfill, processor", figures["backfill"]["cpu"], "s"
    yield "backfill, wall", figures["backfill"]["wall"], "s"
    yield "backfill, memory of all processes", figures["backfill"]["memory"] / 2**30, "GiB"
    yield "store after all nights", figures["store"]["bytes"] / 1e9, "GB"
    yield "store after all nights, files", figures["store"]["files"], ""
    nights = [run for name, run in figures.items() if name.startswith("night ")]
    for what, key, scale, unit in (
        ("wall", "wall", 1, "s"),
        ("processor", "cpu", 1, "s"),
        ("bytes", "bytes", 1e6, "MB"),
        ("files", "files", 1, ""),
    ):
        if nights:
            yield f"the median night, {what}", statistics.median(run[key] for run in nights) / scale, unit
        yield f"a night of 4 documents, {what}", figures["four"][key] / scale, unit
    for reader, where in (("read", ""), ("cached", ", with a cache")):
        if f"{reader} fused" in figures:
            fused = figures[f"{reader} fused"]
            yield f"open{where}", fused["open"], "s"
            yield f"first question of fused{where}", fused["first"], "s"
            yield f"resident memory of a reader after fused{where}", fused["resident"] / 1024, "GiB"
            yield f"of that its own{where}", fused["own"] / 1024, "GiB"
        for method in METHODS:
            if f"{reader} {method}" in figures:
                yield f"one question, {method}{where}", figures[f"{reader} {method}"]["alone"], "ms"
                yield f"48 at once, each, {method}{where}", figures[f"{reader} {method}"]["together"], "ms"
    for method in METHODS:
        yield f"48 at once beside two busy processes, each, {method}", figures[f"busy {method}"]["together"], "ms"


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nights", type=int, default=2)
    parser.add_argument("--docs", type=int, help="the number of documents; default: all")
    parser.add_argument("--encoder", help="instead of the default model: hash is quick, but ignores meaning")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the measured program")
    parser.add_argument("--checkout", type=Path, default=Path.cwd(), help="the checkout of the measured program")
    parser.add_argument("--beside", type=Path, help="an earlier FOLDER, for ratios")
    chosen = parser.parse_args()
    print(describe_machine())
    figures = measure(chosen, CheckoutProgram(chosen.python, chosen.checkout.resolve()))
    earlier = {} if chosen.beside is None else json.loads((chosen.beside / "measured.json").read_text())
    former = {what: number for what, number, _ in table(earlier)} if earlier else {}
    print(f"{'':74} {'before':>10} {'now':>10}      ratio" if former else "")
    for what, number, unit in table(figures):
        if former.get(what):
            print(f"{what:74} {former[what]:10,.2f} {number:10,.2f} {unit:4} {number / former[what]:6.2f}")
        else:
            print(f"{what:74} {number:10,.2f} {unit}")


if __name__ == "__main__":
    main()
