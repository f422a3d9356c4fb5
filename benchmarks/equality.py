"""Update equals rebuild, on real documents with the real encoder.

    python -m benchmarks.equality STATE [--docs 600] [--nights 15] [--folder FOLDER]

STATE is a program that writes the corpus as it stood after a night: `STATE NIGHT OUT --docs N --nights LAST`. Night 0
and every night after it are applied one by one, with the real command, to one store; an empty store is given the last
night alone. Prints both manifest digests, and exits with 1 where they differ.
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


def tell(name: str, outcome: dict[str, Any]) -> None:
    print(
        f"{name:<12} version {outcome['version']:>3}  {outcome['documents']} documents  {outcome['vectors_made']:>6} "
        f"vectors made  {outcome['seconds']:>6.1f} s  {outcome['manifest']}",
        flush=True,
    )


def differing(one: Path, other: Path) -> list[str]:
    """The artifacts of the newest versions that are not the same."""
    stores = [StoreReader(path) for path in (one, other)]
    named = [{a.name: a.digest for a in store.manifest(store.newest().manifest).artifacts} for store in stores]
    return sorted(name for name in named[0].keys() | named[1].keys() if named[0].get(name) != named[1].get(name))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("--docs", type=int, default=600)
    parser.add_argument("--nights", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="keep the stores here")
    chosen = parser.parse_args()
    began = time.perf_counter()
    print(describe_machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="indexmill-equality-") as temporary:
        folder = chosen.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for night in range(chosen.nights + 1):
            corpus = write_night(chosen.state, night, folder, chosen.docs, chosen.nights)
            updated = run_command("build", "--store", folder / "updated", "--corpus", corpus)
            tell(f"night {night}", updated)
        fresh = run_command("build", "--store", folder / "fresh", "--corpus", corpus)
        tell("fresh store", fresh)
        differ = differing(folder / "updated", folder / "fresh")
    print(f"{time.perf_counter() - began:.0f} s")
    if updated["manifest"] != fresh["manifest"]:
        raise SystemExit(f"the manifests differ; of the artifacts these do: {', '.join(differ) or 'none'}")
    print("the manifests are equal")


if __name__ == "__main__":
    main()
