"""Measure how many of the communities' texts nightly builds redo, from a warm and from a cold start.

    python -m benchmarks.nights STATE FOLDER [--family heterograph] [--docs 600] [--nights 10]
    python -m benchmarks.nights STATE FOLDER --docs 60 --nights 2        # a minute or two, for daily use

STATE is a program that writes the corpus as it was after a night: `STATE NIGHT OUT --docs N --nights LAST`. The stores
are in FOLDER; those of an earlier run are reused. Night 0 is built, then each night twice: warm, like every refresh,
and cold, in a copy of the store without its versions, so that only the communities are computed from scratch.

redone: the share of texts whose inputs do not occur in the previous night's version of the same series, warm or cold;
with a language model each redone text is a call. For community_tree, texts are the reports on two or more members: a
report is redone if the members of its community or the text of a member changed. For the heterograph, texts are the
attributes of entities, and the high-level elements, counted once per community. modularity: that of the first level,
warm and cold, and the ratio of warm to cold; `-` if there is none or the run does not record it.

The inputs of heterograph texts depend on no vector (near edges come later), so `--encoder hash` measures them in a
fraction of the time; only passage ends, which depend on the encoder's tokens, differ. The communities of community_tree
do depend on vectors.
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
from benchmarks.machine import argument_parser, describe_machine, run_command
from benchmarks.refresh import change
from benchmarks.sets import write_night
from indexmill.snapshot import Snapshot


class VersionTexts(NamedTuple):
    """The input digests of a version's texts, by kind of text, and the modularity of its first-level communities."""

    made_of: dict[str, set[str]]
    modularity: float | None

    def redone(self, before: VersionTexts) -> dict[str, Share]:
        """Return the share of texts that the previous version did not have, by kind of text and for all texts."""
        previous = set[str]().union(*before.made_of.values())
        shares = {what: Share(len(made_of - previous), len(made_of)) for what, made_of in self.made_of.items()}
        now = set[str]().union(*self.made_of.values())
        return shares | {"all": Share(len(now - previous), len(now))}


class Share(NamedTuple):
    """A part of a total."""

    some: int
    all: int

    def __str__(self) -> str:
        part = f"{self.some / self.all:.0%}" if self.all else "-"
        return f"{self.some} of {self.all} {part:>4}"

    def and_(self, share: Share) -> Share:
        return Share(self.some + share.some, self.all + share.all)


def build(store: Path, corpus: Path, settings: Path, family: str) -> VersionTexts:
    outcome = run_command("build", "--config", settings, "--store", store, "--corpus", corpus)
    with indexmill.open(store) as snapshot:
        made_of, stage = FAMILIES[family](snapshot)
    counts = run_command("runs", outcome["run"], "--store", store)["stages"].get(stage, {})
    thousandths = next((counts[name] for name in MODULARITY if name in counts), None)
    return VersionTexts(made_of, None if thousandths is None else thousandths / 1000)


def of_reports(snapshot: Snapshot) -> tuple[dict[str, set[str]], str]:
    """Return the input digests of each level's reports, and the stage that records the first level's modularity."""
    table = snapshot.table("communities", ["level", "made_of", "members"]) if snapshot.shards("communities") else None
    made_of: dict[str, set[str]] = {}
    if table is not None:
        table = table.filter(pc.greater(table["members"], 1))
        for level, origin in zip(table["level"].to_pylist(), table["made_of"].to_pylist(), strict=True):
            made_of.setdefault(f"level {level}", set()).add(origin)
    return made_of, "community_clusters"


def of_heterograph(snapshot: Snapshot) -> tuple[dict[str, set[str]], str]:
    """Return the input digests of attributes and of each community's elements, and the stage that finds communities."""
    tables = [name for name in ("attributes", "elements") if snapshot.shards(name)]
    return {name: set(snapshot.table(name, ["made_of"])["made_of"].to_pylist()) for name in tables}, "hetero_groups"


FAMILIES: dict[str, Callable[[Snapshot], tuple[dict[str, set[str]], str]]] = {
    "community_tree": of_reports,
    "heterograph": of_heterograph,
}

MODULARITY = ("modularity_thousandths_l1", "modularity_thousandths")
"""The counts of a stage that record the modularity of the first level, or of the only level."""


def without_versions(store: Path, copy: Path) -> Path:
    """Copy a store with all its parts and none of its versions."""

    def link(source: str, target: str) -> None:
        os.link(source, target) if "/blobs/" in source else shutil.copy2(source, target)

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
            added = tuple(redone_of.get(what, Share(0, 0)) for redone_of in redone)
            warm_share, cold_share = sums.get(what, (Share(0, 0), Share(0, 0)))
            sums[what] = warm_share.and_(added[0]), cold_share.and_(added[1])
        share = warm.modularity / cold.modularity if warm.modularity and cold.modularity else None
        shares += [] if share is None else [share]
        print(
            f"{night:>5}  {changed.documents:>9}  {changed.share:>6.2%}  {redone[0]['all']!s:>16}  "
            f"{redone[1]['all']!s:>16}  {modularity_text(warm.modularity):>15}  {modularity_text(cold.modularity):>5}  "
            f"{'-' if share is None else f'{share:.1%}':>11}",
            flush=True,
        )
        before = corpus
    for what, (warm_share, cold_share) in sorted(sums.items()):
        print(f"all nights, {what}: redone {warm_share} warm, {cold_share} cold")
    if shares:
        print(f"modularity of warm at least {min(shares):.1%} of cold")


def modularity_text(modularity: float | None) -> str:
    return "-" if modularity is None else f"{modularity:.3f}"


if __name__ == "__main__":
    main()
