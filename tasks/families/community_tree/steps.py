"""The driver of community_tree: level by level, find the communities and report on them (ArchRAG, Algorithm 1).

A level is four stages: the graph, its clusters, what each community is made of, and the reports. Only the second looks
back: Leiden starts from the communities of the version before, as these were called there (tasks.core.warm_start).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from indexmill.errors import CorruptBlob
from schemas.tables import COMMUNITIES
from storage.lineage import LineageEntry
from storage.tables import read_table
from tasks.core.communities.graph import Labels
from tasks.core.communities.levels import Stops
from tasks.core.part_runner import WHOLE, Parts, Want
from tasks.core.warm_start import held_part, start_inputs
from tasks.families.community_tree import clusters as community_clusters
from tasks.families.community_tree import graph as community_graph
from tasks.families.community_tree import levels as community_levels
from tasks.families.community_tree import reports as community_reports
from tasks.families.community_tree import tree as community_tree
from tasks.families.community_tree.clusters import Clusters, earlier_names, start_of

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["make"]

_GRAPH = ("augmentation", "neighbours", "threshold", "alpha")
_CLUSTERS = ("clustering", "grain", "largest", "seed")


class _Before:
    """The communities of the version before, level by level, and the ids by which it knew the nodes of a level."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._names: community_clusters.Ids | None = None  # of the nodes of the next level; None: their own
        self._followed = True  # whether the levels below all have names

    def inputs(self, level: int, graph: str, settings: Mapping[str, object]) -> dict[str, str]:
        """What a level's graph is clustered from: itself and, where there is one, a start."""

        def start(_: LineageEntry) -> Labels | None:
            before = self._clusters(level)
            nodes = self._build.pack(graph)
            if before is None or nodes is None or not self._followed:
                return None
            return start_of(nodes["ids"] if self._names is None else self._names, before)

        label = community_graph.level_label(level)
        return start_inputs(self._build, community_clusters.STAGE, label, graph, settings, start)

    def climb(self, level: int, made: str) -> None:
        """Go on to the nodes of the next level: the communities of this one."""
        held, before, pack = self._held(level), self._clusters(level), self._build.pack(made)
        if held is not None and held.outputs["clusters"] == made:
            self._names, self._followed = None, True
        elif before is None or pack is None:
            self._followed = False
        else:
            clusters = Clusters.of(pack)
            names = clusters.nodes if self._names is None else self._names
            self._names = earlier_names(clusters, names, before)

    def _held(self, level: int) -> LineageEntry | None:
        return held_part(self._build, community_clusters.STAGE, community_graph.level_label(level))

    def _clusters(self, level: int) -> Clusters | None:
        held = self._held(level)
        with contextlib.suppress(CorruptBlob):  # a start that was lost or damaged is none
            pack = None if held is None else self._build.pack(held.outputs["clusters"])
            return None if pack is None else Clusters.of(pack)
        return None


def make(build: Build) -> None:
    """Make every level, the tree of them, and its index."""
    settings = build.configuration.families.community_tree
    stops = Stops(settings.levels, settings.fewest)
    dimension = build.opened_encoder.numbers["dimension"]
    before = _Before(build)
    described, extracted = build.outputs("described", "related"), build.outputs("extracted")
    below = {**described, **build.outputs("description_vectors"), **_same_as(build)}
    tree = {**described, **build.outputs("description_vectors", "passages", "mentions"), **extracted}
    sources = {**extracted, **build.outputs("pieces")}
    texts = {
        label: {name: part.outputs[name] for name in ("described", "related")}
        for label, part in build.parts["describe"].items()
    }
    parts, table = build.parts["describe"], "described"
    level = 0
    while build.wants_layer(
        community_graph.STAGE.name,
        community_graph.level_label(level + 1),
        functools.partial(stops.want_another, level),
        parts,
        table,
    ):
        level += 1
        label = community_graph.level_label(level)
        whole = {**{name: getattr(settings, name) for name in _GRAPH}, "level": level, "dimension": dimension}
        graph = build.make(community_graph.STAGE, [Want(label, below, whole)])[label].outputs["graph"]
        whole = {**{name: getattr(settings, name) for name in _CLUSTERS}, "level": level}
        want = Want(label, before.inputs(level, graph, whole), whole)
        clusters = build.make(community_clusters.STAGE, [want])[label].outputs["clusters"]
        before.climb(level, clusters)
        pack = build.pack(clusters)
        if pack is None:
            build.mark_uncertain()
        elif not Clusters.of(pack).joins:
            break
        made = _groups(build, level, {"clusters": clusters, **_nodes(below), **sources, **described})
        described = {}  # the relations are those of the first level
        parts, table = _reports(build, level, made, texts), "communities"
        if build.makes_parts:
            _tell(build, level, parts, clusters)
        texts = {group: {"communities": part.outputs["communities"]} for group, part in parts.items()}
        reports = {f"{name}/{group}": digest for group, part in parts.items() for name, digest in part.outputs.items()}
        members = {name: digest for name, digest in made.items() if name.startswith("community_members/")}
        sources = {name: digest for name, digest in made.items() if name.startswith("community_sources/")}
        tree |= {**reports, **members}
        below = {**reports, "graph": graph, "clusters": clusters}
    whole = {"levels": settings.levels, "fewest": settings.fewest, "m": settings.m, "dimension": dimension}
    build.make(community_tree.STAGE, [Want(WHOLE, tree, whole)])


def _same_as(build: Build) -> dict[str, str]:
    """The pairs of entities of nearly the same name, where they are looked for."""
    found = build.parts.get("same_as", {}).get(WHOLE)
    return {} if found is None else {"same_as": found.outputs["same_as"]}


def _nodes(below: Mapping[str, str]) -> dict[str, str]:
    """Of what the graph of a level is made of, the tables of its nodes."""
    return {name: digest for name, digest in below.items() if name.startswith(("described/", "communities/"))}


def _groups(build: Build, level: int, inputs: Mapping[str, str]) -> Mapping[str, str]:
    """The tables that say what the communities of a level are made of, by name and group."""
    settings, label = build.configuration.families.community_tree, community_graph.level_label(level)
    asks = build.report_prompt is not None
    kept = {
        name: digest
        for name, digest in inputs.items()
        if asks or not name.startswith(("extracted/", "pieces/", "community_sources/"))
    }
    shaping = {"level": level, "group": settings.group, "largest": settings.largest, "asks": asks}
    rows = {"level": level, "summariser": build.report_fingerprint}
    return build.make(community_levels.STAGE, [Want(label, kept, shaping, encoder=rows)])[label].outputs


def _reports(build: Build, level: int, made: Mapping[str, str], texts: Mapping[str, Mapping[str, str]]) -> Parts:
    """The parts of a level's groups."""
    summariser, numbers = build.report_fingerprint, build.opened_encoder.numbers
    extra = {
        "opening": build.opened_encoder.opening,
        "texts": texts,
        "language": build.configuration.split.language,
        "asking": build.asking(community_reports.STAGE.name),
        "prompt": build.report_prompt,
    }
    groups = [name.partition("/")[2] for name in made if name.startswith("community_members/")]
    wants = []
    for group in groups:
        inputs = {"members": made[f"community_members/{group}"]}
        if f"community_relations/{group}" in made:
            inputs["relations"] = made[f"community_relations/{group}"]
        wants.append(
            Want(
                group,
                inputs,
                {"level": level, "summariser": summariser, "encoder": numbers},
                {**extra, "sources": made.get(f"community_sources/{group}")},
                encoder={**numbers, "summariser": summariser},
            )
        )
    found = build.make(community_reports.STAGE, wants)
    return {group: found[group] for group in groups}


def _tell(build: Build, level: int, parts: Parts, clusters: str) -> None:
    """Count in the report the reports that the parent has, too, and those that it has not; and modularity."""
    letter = community_graph.LETTERS[level - 1]
    before = {
        entry.outputs["communities"]
        for entry in (build.parent.lineage.entries if build.parent else ())
        if entry.stage == community_reports.STAGE.name and entry.shard.startswith(letter)
    }
    now = {part.outputs["communities"] for part in parts.values()}
    known, new = _made_of(build, before - now), _made_of(build, now - before)
    redone = len(new - known)
    counts = build.report.stage(community_reports.STAGE.name).counts
    counts[f"reports_redone_l{level}"] = redone
    counts[f"reports_kept_l{level}"] = len(_made_of(build, now)) - redone
    pack = build.pack(clusters)
    if pack is not None:
        thousandths = round(1000 * float(pack["modularity"][0]))
        build.report.stage(community_clusters.STAGE.name).counts[f"modularity_thousandths_l{level}"] = thousandths


def _made_of(build: Build, tables: Iterable[str]) -> set[str]:
    """What some reports on several members are made of; nothing of a table that was lost or damaged."""
    found: set[str] = set()
    for digest in sorted(tables):
        try:
            table = read_table(build.store, digest, COMMUNITIES, columns=["made_of", "members"])
        except CorruptBlob:
            continue
        both = zip(table["made_of"].to_pylist(), table["members"].to_pylist(), strict=True)
        found.update(made_of for made_of, members in both if members > 1)
    return found
