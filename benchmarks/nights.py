"""What real nights redo of the communities: from where the night before left them, and from nothing.

    python -m benchmarks.nights STATE FOLDER [--family heterograph] [--docs 600] [--nights 10]
    python -m benchmarks.nights STATE FOLDER --docs 60 --nights 2        # a minute or two, for every day

STATE is a program that writes the corpus as it stood after a night: `STATE NIGHT OUT --docs N --nights LAST`. FOLDER
gets the stores; what it has of an earlier run is used. Night 0 is built, then night after night: warm, as every refresh
is, and cold, in a copy of the same store that knows of no version before, so that only the communities are found anew.

redone: what is made of something else than anything of the night before, of warm or of cold nights, as a share of all,
which is what a rebuild makes; with a language model each is a call. Of community_tree these are the reports on two or
more members: one is redone if its community has other members, or one of them another text. Of the heterograph they
are the attributes of entities, and the communities that high-level elements are made of. modularity: of the first
level, and of warm as a share of cold; `-` where there is none, or the run does not tell it.

What the texts of a heterograph are made of depends on no vector (near edges come after), so `--encoder hash` gives its
shares in a fraction of the time, but for where passages end, which the encoder's tokens say. The communities of
community_tree do depend on vectors.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import yaml

import indexmill
from benchmarks.equality import write_night
from benchmarks.machine import argument_parser, describe_machine, run_command
from benchmarks.refresh import change
from indexmill.snapshot import Snapshot


class Made(NamedTuple):
    """What is written of a version, by what it is made of, and how good its first communities are."""

    made_of: dict[str, set[str]]
    modularity: float | None

    def redone(self, before: Made) -> dict[str, Share]:
        """How much the night before did not have, of all there is: by what is written, and of all together."""
        known = set[str]().union(*before.made_of.values())
        told = {what: Share(len(made_of - known), len(made_of)) for what, made_of in self.made_of.items()}
        now = set[str]().union(*self.made_of.values())
        return told | {"all": Share(len(now - known), len(now))}


class Share(NamedTuple):
    """So many of all."""

    some: int
    all: int

    def __str__(self) -> str:
        part = f"{self.some / self.all:.0%}" if self.all else "-"
        return f"{self.some} of {self.all} {part:>4}"

    def and_(self, other: Share) -> Share:
        """Both together."""
        return Share(self.some + other.some, self.all + other.all)


def build(store: Path, corpus: Path, settings: Path, family: str) -> Made:
    """Build a version, and read what its texts are made of."""
    made = run_command("build", "--config", settings, "--store", store, "--corpus", corpus)
    with indexmill.open(store) as snapshot:
        made_of, stage = FAMILIES[family](snapshot)
    counts = run_command("runs", made["run"], "--store", store)["stages"].get(stage, {})
    thousandths = next((counts[name] for name in MODULARITY if name in counts), None)
    return Made(made_of, None if thousandths is None else thousandths / 1000)


def of_reports(snapshot: Snapshot) -> tuple[dict[str, set[str]], str]:
    """What the reports of each level are made of, and the stage that says how good the first level is."""
    table = snapshot.table("communities", ["level", "made_of", "members"]) if snapshot.shards("communities") else None
    made_of: dict[str, set[str]] = {}
    if table is not None:
        table = table.filter(pc.greater(table["members"], 1))
        for level, one in zip(table["level"].to_pylist(), table["made_of"].to_pylist(), strict=True):
            made_of.setdefault(f"level {level}", set()).add(one)
    return made_of, "community_clusters"


def of_heterograph(snapshot: Snapshot) -> tuple[dict[str, set[str]], str]:
    """What attributes are made of, and the elements of each community; the stage that finds communities."""
    held = [name for name in ("attributes", "elements") if snapshot.shards(name)]
    return {name: set(snapshot.table(name, ["made_of"])["made_of"].to_pylist()) for name in held}, "hetero_groups"


FAMILIES: dict[str, Callable[[Snapshot], tuple[dict[str, set[str]], str]]] = {
    "community_tree": of_reports,
    "heterograph": of_heterograph,
}

MODULARITY = ("modularity_thousandths_l1", "modularity_thousandths")
"""The counts of a stage that tell modularity: of the first level, or of the only one."""


def without_versions(store: Path, copy: Path) -> Path:
    """A copy of a store with all its parts and none of its versions."""

    def link(one: str, other: str) -> None:
        os.link(one, other) if "/blobs/" in one else shutil.copy2(one, other)

    shutil.copytree(store, copy, copy_function=link)
    shutil.rmtree(copy / "refs")
    return copy


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("state", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--family", choices=sorted(FAMILIES), default="community_tree")
    parser.add_argument("--docs", type=int, default=600)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--encoder", metavar="MODEL", help="embed.model; hash is quick, and enough for a heterograph")
    chosen = parser.parse_args()
    folder = chosen.folder / chosen.family
    folder.mkdir(parents=True, exist_ok=True)
    settings = folder / "indexmill.yaml"
    encoder = {"embed": {"model": chosen.encoder}} if chosen.encoder else {}
    settings.write_text(yaml.safe_dump({"families": {chosen.family: {"enabled": True}}, **encoder}))

    def corpus_of(night: int) -> Path:
        return write_night(chosen.state, night, folder, chosen.docs, chosen.nights)

    print(describe_machine(), flush=True)
    before = corpus_of(0)
    warm = cold = build(folder / "warm", before, settings, chosen.family)
    there = ", ".join(f"{len(made_of)} {what}" for what, made_of in sorted(warm.made_of.items()))
    print(f"{chosen.docs} documents, {chosen.family}: {there or 'nothing is written'}")
    print(
        "night  documents  text %       warm redone       cold redone  modularity warm   cold  warm / cold", flush=True
    )
    sums: dict[str, tuple[Share, Share]] = {}
    shares = []
    for night in range(1, chosen.nights + 1):
        corpus = corpus_of(night)
        changed = change(before, corpus)
        alone = without_versions(folder / "warm", folder / f"cold-{night}")
        warm, last_warm = build(folder / "warm", corpus, settings, chosen.family), warm
        cold, last_cold = build(alone, corpus, settings, chosen.family), cold
        shutil.rmtree(alone)
        redone = warm.redone(last_warm), cold.redone(last_cold)
        for what in redone[0].keys() | redone[1].keys():
            own = tuple(one.get(what, Share(0, 0)) for one in redone)
            one, other = sums.get(what, (Share(0, 0), Share(0, 0)))
            sums[what] = one.and_(own[0]), other.and_(own[1])
        share = warm.modularity / cold.modularity if warm.modularity and cold.modularity else None
        shares += [] if share is None else [share]
        print(
            f"{night:>5}  {changed.documents:>9}  {changed.share:>6.2%}  {redone[0]['all']!s:>16}  "
            f"{redone[1]['all']!s:>16}  {told(warm.modularity):>15}  {told(cold.modularity):>5}  "
            f"{'-' if share is None else f'{share:.1%}':>11}",
            flush=True,
        )
        before = corpus
    for what, (one, other) in sorted(sums.items()):
        print(f"all nights, {what}: redone {one} warm, {other} cold")
    if shares:
        print(f"modularity of warm at least {min(shares):.1%} of cold")


def told(modularity: float | None) -> str:
    return "-" if modularity is None else f"{modularity:.3f}"


if __name__ == "__main__":
    main()
