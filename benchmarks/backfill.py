"""Measure how a backfill scales: documents/s, tokens/s, CPU time per token and peak memory for growing corpora.

    python -m benchmarks.backfill STATE            2,500, 5,000 and 10,000 documents, deterministic encoder: ten minutes
    python -m benchmarks.backfill STATE --quick    400 and 800 documents: a minute
    python -m benchmarks.backfill STATE --real     2,500 documents with the default model

STATE is a program that writes a corpus: `STATE 0 OUT --docs N`. `indexmill backfill` runs as its own process, which is
sampled together with its child processes. Memory is the peak of their summed proportional share (PSS), without and with
mapped files, which the system reclaims when memory is short. Prints a table with ratios to the previous row; then, from
the existing parts, the memory and CPU time of each whole-corpus stage in a fresh process. Fails if memory grows as fast
as the corpus or exceeds its bound, or if the CPU time per token grows.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

import indexmill
from benchmarks.machine import PrivateMemory, Stopwatch, argument_parser, describe_machine

BOUND = 6 << 30  # maximum bytes of all processes together
SLACK = 1.1  # growth of the time per token that may be noise of a busy machine
STAGES = ("resolve", "zoom_links", "zoom_graph", "check")


@dataclass
class Usage:
    """The resource usage of a process tree: peak memory in bytes, and total CPU seconds."""

    private: int = 0
    mapped: int = 0
    seconds: float = 0.0


def usage_of(process: subprocess.Popen[str], interval: float = 0.2) -> Usage:
    """Sample a process and its children until it ends."""
    used = Usage()
    seconds: dict[tuple[int, float], float] = {}
    while process.poll() is None:
        private = mapped = 0
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(process.pid)
            for member in (root, *root.children(recursive=True)):
                with contextlib.suppress(psutil.Error, OSError):
                    sizes = _sizes(Path(f"/proc/{member.pid}/smaps_rollup").read_text())
                    private += sizes["Pss_Anon"] + sizes["Pss_Shmem"]
                    mapped += sizes["Pss"]
                    times = member.cpu_times()
                    seconds[member.pid, member.create_time()] = times.user + times.system
        used.private, used.mapped = max(used.private, private), max(used.mapped, mapped)
        time.sleep(interval)
    used.seconds = sum(seconds.values())
    return used


def _sizes(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines()[1:])
    return {row[0].rstrip(":"): int(row[1]) << 10 for row in rows if len(row) > 1 and row[1].isdecimal()}


def corpus_of(state: Path, documents: int, folder: Path) -> Path:
    """Write the first documents as JSON Lines; return the file's path."""
    path = folder / f"{documents}.jsonl"
    subprocess.run([sys.executable, state, "0", path, "--docs", str(documents)], check=True, stdout=subprocess.DEVNULL)
    return path


def backfill(corpus: Path, store: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """Run `indexmill backfill` on a corpus; return its report, with tokens and usage added."""
    configuration = store.with_suffix(".yaml")
    settings: dict[str, Any] = {"store": str(store), "corpus": {"paths": [str(corpus)]}}
    if not chosen.real:
        settings["embed"] = {"model": "hash"}
    configuration.write_text(yaml.safe_dump(settings), encoding="utf-8")
    command = [sys.executable, "-m", "indexmill", "backfill", "--json", "--workers", str(chosen.workers)]
    command += ["-c", str(configuration)]
    if chosen.wave_shards is not None:
        command += ["--wave-shards", str(chosen.wave_shards)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    used = usage_of(process)
    assert process.stdout is not None
    report = json.loads(process.stdout.read())
    with indexmill.open(store) as snapshot:
        tokens = sum(snapshot.table("passages", ["tokens"]).column(0).to_pylist())
    return {**report, "tokens": tokens, "used": used}


HEADER = (
    f"{'documents':>9} {'tokens':>11} {'wall s':>7} {'documents/s':>11} {'tokens/s':>9} {'CPU s':>7} "
    f"{'CPU us/token':>12} {'private MiB':>11} {'with mapped':>11}"
)


def table_row(row: dict[str, Any]) -> str:
    used = row["used"]
    return (
        f"{row['documents']:>9,} {row['tokens']:>11,} {row['seconds']:>7.1f} "
        f"{row['documents'] / row['seconds']:>11.1f} {row['tokens'] / row['seconds']:>9,.0f} "
        f"{used.seconds:>7.1f} {1e6 * used.seconds / row['tokens']:>12.1f} "
        f"{used.private >> 20:>11,} {used.mapped >> 20:>11,}"
    )


def check_bounds(rows: list[dict[str, Any]]) -> bool:
    """Print the ratios between runs; return whether all bounds hold."""
    within_bounds = all(row["used"].mapped < BOUND for row in rows)
    for smaller, larger in itertools.pairwise(rows):
        tokens = larger["tokens"] / smaller["tokens"]
        memory = larger["used"].mapped / smaller["used"].mapped
        private = larger["used"].private / smaller["used"].private
        per_token = larger["used"].seconds / smaller["used"].seconds / tokens
        print(
            f"{smaller['documents']:,} to {larger['documents']:,} documents: tokens x {tokens:.2f}, "
            f"memory x {memory:.2f}, private x {private:.2f}, CPU per token x {per_token:.2f}"
        )
        within_bounds = within_bounds and memory < tokens and per_token < SLACK
    return within_bounds


def stages_of(store: Path) -> None:
    """Recompute the whole-corpus stages from a store's parts in this process; print their memory and CPU seconds."""
    from flows.build_run import run_build
    from schemas.config import load_configuration
    from tasks.core.executor import InlineExecutor
    from tasks.core.report import Silent
    from tasks.pipeline.build import Build

    peaks: dict[str, dict[str, float]] = {}

    def stages(build: Build) -> Any:
        for step in build.steps:
            build.cold = step.name in STAGES  # so that no row of the existing part is copied
            clock = Stopwatch()
            with PrivateMemory() as memory:
                step.drive(build)
            if step.name in STAGES:
                peaks[step.name] = {"mebibytes": memory.peak - memory.before, "seconds": clock.cpu}
        return build.manifest()

    run_build(load_configuration(store.with_suffix(".yaml")), InlineExecutor(), stages, progress=Silent())
    print(json.dumps(peaks))


def show_stages(rows: list[dict[str, Any]]) -> None:
    print("\nprivate MiB (and CPU s) of the stages of the whole corpus")
    print(f"{'documents':>9} " + " ".join(f"{stage:>16}" for stage in STAGES))
    for row in rows:
        cells = (f"{row['stages'][s]['mebibytes']:.0f} ({row['stages'][s]['seconds']:.1f})" for s in STAGES)
        print(f"{row['documents']:>9,} " + " ".join(f"{cell:>16}" for cell in cells))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("--documents", help="sizes of the corpora, ascending; default: 2500,5000,10000")
    parser.add_argument("--quick", action="store_true", help="use 400 and 800 documents")
    parser.add_argument("--real", action="store_true", help="use the default model, and 2,500 documents by default")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--wave-shards", type=int)
    chosen = parser.parse_args()
    usual = "400,800" if chosen.quick else "2500" if chosen.real else "2500,5000,10000"
    sizes = [int(documents) for documents in (chosen.documents or usual).split(",")]
    os.environ.setdefault("PYTHONHASHSEED", "0")
    print(describe_machine())
    print(f"{chosen.workers} workers; {'the default model' if chosen.real else 'the deterministic encoder'}")
    print(HEADER, flush=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="indexmill-backfill-") as folder:
        for documents in sizes:
            store = Path(folder) / str(documents)
            row = backfill(corpus_of(chosen.state, documents, Path(folder)), store, chosen)
            again = [
                sys.executable,
                "-c",
                f"from benchmarks.backfill import Path, stages_of; stages_of(Path({str(store)!r}))",
            ]
            row["stages"] = json.loads(subprocess.run(again, check=True, stdout=subprocess.PIPE).stdout)
            rows.append(row)
            print(table_row(row), flush=True)
    within_bounds = check_bounds(rows)
    show_stages(rows)
    if not within_bounds:
        raise SystemExit("a bound was exceeded: memory, its growth, or the growth of the time per token")


if __name__ == "__main__":
    main()
