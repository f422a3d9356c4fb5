"""Count requests, bytes and seconds of a store in object storage, compared with the same store in a folder.

    python -m benchmarks.object_store CORPUS.jsonl [--change 30] [--docs N]
    python -m benchmarks.object_store CORPUS.jsonl --docs 300      # a minute, for daily use

Uses `--bucket` if given, at AWS_ENDPOINT_URL if that is set; otherwise a bucket of moto's server on this machine. Each
store gets a first build, a nightly build with `--change` edited documents, and a build without a change, all with the
real command. After each build, the folder's version is copied to another store in the bucket. Then new processes open
the store and ask a first question, with an empty cache and with a full one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.machine import argument_parser, describe_machine, run_command
from benchmarks.sets import read_rows, write_rows
from tests.storage.services import bucket_of, s3_service

REQUESTS = 1_000  # maximum requests of a nightly build with 30 of 6,119 documents edited

_OPEN = """
import json, sys, time
import indexmill
began = time.perf_counter()
with indexmill.open(sys.argv[1]) as snapshot:
    opened = time.perf_counter() - began
    began = time.perf_counter()
    hits = snapshot.retrieve(sys.argv[3], method=sys.argv[2], k=5)
    print(json.dumps({"open": opened, "first": time.perf_counter() - began, "hits": len(hits)}))
"""


def edited(source: Path, target: Path, count: int) -> None:
    """Write the corpus with one more sentence at the end of ``count`` evenly spaced documents."""
    rows = read_rows(source)
    step = max(len(rows) // count, 1)
    for number in range(0, min(count * step, len(rows)), step):
        rows[number]["text"] += " It was later bought by Orla Fenwick."
    write_rows(target, rows)


def build(store: str, corpus: Path) -> dict[str, Any]:
    """Build with the real command; return its outcome with the requests of the run."""
    began = time.perf_counter()
    outcome = run_command("build", "--store", store, "--corpus", corpus)
    seconds = time.perf_counter() - began
    run = run_command("runs", outcome["run"], "--store", store)
    return {**outcome, "wall": seconds, "requests": run.get("requests", {})}


def counted(sent: dict[str, int]) -> tuple[list[int], list[str]]:
    """Return the requests by kind, and the megabytes read and written."""
    cells = [sent.get(kind, 0) for kind in ("reads", "writes", "lists", "deletes")]
    return cells, [f"{sent.get(kind, 0) / 1e6:.1f}" for kind in ("bytes_read", "bytes_written")]


def copied(store: str, target: str) -> tuple[list[Any], str]:
    """Copy the newest version with the real command; return the cells of its row, and the manifest."""
    began = time.perf_counter()
    done = run_command("copy", store, target)
    seconds = time.perf_counter() - began
    run = run_command("runs", done["run"], "--store", target)
    cells, moved = counted(run.get("requests", {}))
    return [f"{seconds:.1f}", f"{done['blobs']} blobs", *cells, *moved], done["manifest"]


def opened(store: str, method: str, question: str, cache: Path) -> dict[str, Any]:
    """Open a store and ask a question in a new process; return the seconds and the bytes added to the cache."""
    before = _size(cache)
    command = [sys.executable, "-c", _OPEN, store, method, question]
    environment = {**os.environ, "INDEXMILL_CACHE": str(cache)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return {**json.loads(done.stdout), "fetched": _size(cache) - before}


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextlib.contextmanager
def bucket(name: str | None) -> Iterator[str]:
    if name is not None:
        yield name
        return
    with s3_service() as endpoint:
        yield bucket_of(endpoint)


def main() -> int:
    """Print the tables; return 1 if a nightly build sends too many requests or a manifest differs from the folder's."""
    parser = argument_parser(__doc__)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--change", type=int, default=30, help="documents edited in the night")
    parser.add_argument("--docs", type=int, help="use only the first N documents")
    parser.add_argument("--bucket", help="the URL to use; a bucket of moto's server by default")
    parser.add_argument("--question", default="Who is the mother of the director of the film Polish-Russian War?")
    arguments = parser.parse_args()
    print(describe_machine())
    failed = False
    with tempfile.TemporaryDirectory() as temporary, bucket(arguments.bucket) as url:
        folder = Path(temporary)
        os.environ["INDEXMILL_CACHE"] = str(folder / "cache")
        lines = arguments.corpus.read_text(encoding="utf-8").splitlines(keepends=True)[: arguments.docs]
        (folder / "0.jsonl").write_text("".join(lines), encoding="utf-8")
        edited(folder / "0.jsonl", folder / "1.jsonl", arguments.change)
        states = [("first build", "0.jsonl"), (f"night of {arguments.change}", "1.jsonl"), ("no change", "1.jsonl")]
        print(f"\n{len(lines):,} documents\n")
        print("| run | store | s | parts made, reused | reads | writes | lists | deletes | MB read | MB written |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
        for name, corpus in states:
            manifests = set()
            for kind, store in (("folder", str(folder / "store")), ("bucket", f"{url}/index")):
                done = build(store, folder / corpus)
                manifests.add(done["manifest"])
                cells, moved = counted(done["requests"])
                parts = f"{done['parts_made']}, {done['parts_reused']}"
                row = [f"{done['wall']:.1f}", parts, *cells, *moved]
                print("|", " | ".join(map(str, [name, kind, *row])), "|", flush=True)
                failed |= name.startswith("night") and sum(cells) > REQUESTS
            row, manifest = copied(str(folder / "store"), f"{url}/copy")
            print("|", " | ".join(map(str, ["copied to", "bucket", *row])), "|", flush=True)
            failed |= len(manifests | {manifest}) > 1
        print("\n| method | store | cache | open, ms | first answer, s | MB fetched |")
        print("| --- | --- | --- | --- | --- | --- |")
        for method in ("bm25", "dense", "tri_graph", "zoom_graph", "lsh_tree", "fused"):
            for kind, store, state in (
                ("folder", str(folder / "store"), ""),
                ("bucket", f"{url}/index", "cold"),
                ("bucket", f"{url}/index", "warm"),
            ):
                cache = folder / "reader"
                if state == "cold":
                    shutil.rmtree(cache, ignore_errors=True)
                cache.mkdir(exist_ok=True)
                timing = opened(store, method, arguments.question, cache)
                cells = [f"{timing['open'] * 1e3:.0f}", f"{timing['first']:.2f}", f"{timing['fetched'] / 1e6:.1f}"]
                print("|", " | ".join([method, kind, state, *cells]), "|", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
