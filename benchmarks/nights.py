"""What real nights redo of the communities: from where the night before left them, and from nothing.

    python -m benchmarks.nights STATE FOLDER [--docs 600] [--nights 10]
    python -m benchmarks.nights STATE FOLDER --docs 60 --nights 2        # a minute or two, for every day

STATE is a program that writes the corpus as it stood after a night: `STATE NIGHT OUT --docs N --nights LAST`. FOLDER
gets the stores; what it has of an earlier run is used. Night 0 is built, then night after night: warm, as every refresh
is, and cold, in a copy of the same store that knows of no version before, so that only the communities are found anew.

redone: reports on two or more members that are made of something else than any report of the night before, of warm or
of cold nights, as a share of all; with a language model each is a call. A report is redone if its community has other
members, or one of them another text. modularity: of the first level, and of warm as a share of cold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
import yaml

import indexmill
from benchmarks.equality import write_night
from benchmarks.machine import describe_machine
from benchmarks.refresh import change


class Reports(NamedTuple):
    """What the reports of a version are made of, by level, and its modularity by level."""

    made_of: dict[int, set[str]]
    modularity: dict[int, float]

    def redone(self, before: Reports) -> tuple[int, int]:
        """How many of the reports the night before did not have, and how many there are."""
        known = set[str]().union(*before.made_of.values())
        now = set[str]().union(*self.made_of.values())
        return len(now - known), len(now)


def command(*words: object) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "indexmill", *map(str, words), "--json"],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    return json.loads(done.stdout)


def build(store: Path, corpus: Path, settings: Path) -> Reports:
    """Build a version, and read what its reports are made of."""
    made = command("build", "--config", settings, "--store", store, "--corpus", corpus)
    with indexmill.open(store) as snapshot:
        table = snapshot.table("communities", ["level", "made_of", "members"])
    table = table.filter(pc.greater(table["members"], 1))
    made_of: dict[int, set[str]] = {}
    for level, one in zip(table["level"].to_pylist(), table["made_of"].to_pylist(), strict=True):
        made_of.setdefault(level, set()).add(one)
    counts = command("runs", made["run"], "--store", store)["stages"].get("community_clusters", {})
    named = "modularity_thousandths_l"
    modularity = {int(name[len(named) :]): value / 1000 for name, value in counts.items() if name.startswith(named)}
    return Reports(made_of, modularity)


def without_versions(store: Path, copy: Path) -> Path:
    """A copy of a store with all its parts and none of its versions."""

    def link(one: str, other: str) -> None:
        os.link(one, other) if "/blobs/" in one else shutil.copy2(one, other)

    shutil.copytree(store, copy, copy_function=link)
    shutil.rmtree(copy / "refs")
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("state", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=int, default=600)
    parser.add_argument("--nights", type=int, default=10)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    settings = chosen.folder / "indexmill.yaml"
    settings.write_text(yaml.safe_dump({"families": {"community_tree": {"enabled": True}}}))

    def corpus_of(night: int) -> Path:
        return write_night(chosen.state, night, chosen.folder, chosen.docs, chosen.nights)

    print(describe_machine(), flush=True)
    before = corpus_of(0)
    warm = cold = build(chosen.folder / "warm", before, settings)
    print(f"{chosen.docs} documents: reports by level {[len(warm.made_of[level]) for level in sorted(warm.made_of)]}")
    print(
        "night  documents  text %       warm redone       cold redone  modularity warm   cold  warm / cold", flush=True
    )
    sums = [0, 0, 0, 0]
    least = 1.0
    for night in range(1, chosen.nights + 1):
        corpus = corpus_of(night)
        changed = change(before, corpus)
        alone = without_versions(chosen.folder / "warm", chosen.folder / f"cold-{night}")
        warm, last_warm = build(chosen.folder / "warm", corpus, settings), warm
        cold, last_cold = build(alone, corpus, settings), cold
        shutil.rmtree(alone)
        redone = *warm.redone(last_warm), *cold.redone(last_cold)
        sums = [one + other for one, other in zip(sums, redone, strict=True)]
        share = warm.modularity[1] / cold.modularity[1]
        least = min(least, share)
        print(
            f"{night:>5}  {changed.documents:>9}  {changed.share:>6.2%}  {redone[0]:>4} of {redone[1]:>4} "
            f"{redone[0] / redone[1]:>4.0%}  {redone[2]:>4} of {redone[3]:>4} {redone[2] / redone[3]:>4.0%}  "
            f"{warm.modularity[1]:>15.3f}  {cold.modularity[1]:>5.3f}  {share:>11.1%}",
            flush=True,
        )
        before = corpus
    print(
        f"all nights: {sums[0] / sums[1]:.1%} of the reports redone warm, {sums[2] / sums[3]:.1%} cold; modularity of "
        f"warm at least {least:.1%} of cold"
    )


if __name__ == "__main__":
    main()
