"""Check that an update equals a rebuild, on real documents with the real encoder.

    python -m benchmarks.equality STATE [--docs 600] [--nights 15] [--folder FOLDER]

STATE is a program that writes the corpus as it stood after a night: `STATE NIGHT OUT --docs N --nights LAST`. The real
command builds night 0 and every later night into one store, and the last night alone into an empty store. Prints both
manifest digests, and exits with 1 if they differ.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import argument_parser, describe_machine, run_command
from indexmill.store.reader import StoreReader


def write_night(state: Path, night: int, folder: Path, documents: int, nights: int, *options: str) -> Path:
    corpus = folder / f"night-{night}.jsonl"
    command = [sys.executable, str(state), str(night), str(corpus), "--docs", str(documents), "--nights", str(nights)]
    subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
    return corpus


def print_outcome(name: str, outcome: dict[str, Any]) -> None:
    print(
        f"{name:<12} version {outcome['version']:>3}  {outcome['documents']} documents  {outcome['vectors_made']:>6} "
        f"vectors made  {outcome['seconds']:>6.1f} s  {outcome['manifest']}",
        flush=True,
    )


def differing(first: Path, second: Path) -> list[str]:
    """Return the names of the artifacts that differ between the newest versions of two stores."""
    stores = [StoreReader(path) for path in (first, second)]
    named = [{a.name: a.digest for a in store.manifest(store.newest().manifest).artifacts} for store in stores]
    return sorted(name for name in named[0].keys() | named[1].keys() if named[0].get(name) != named[1].get(name))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("--docs", type=int, default=600)
    parser.add_argument("--nights", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="a folder that keeps the stores")
    chosen = parser.parse_args()
    began = time.perf_counter()
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="indexmill-equality-") as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for night in range(chosen.nights + 1):
            corpus = write_night(chosen.state, night, folder, chosen.docs, chosen.nights)
            updated = run_command("build", "--store", folder / "updated", "--corpus", corpus)
            print_outcome(f"night {night}", updated)
        fresh = run_command("build", "--store", folder / "fresh", "--corpus", corpus)
        print_outcome("fresh store", fresh)
        differ = differing(folder / "updated", folder / "fresh")
    print(f"{time.perf_counter() - began:.0f} s")
    if updated["manifest"] != fresh["manifest"]:
        raise SystemExit(f"the manifests differ; artifacts that differ: {', '.join(differ) or 'none'}")
    print("the manifests are equal")


if __name__ == "__main__":
    main()
