"""The driver of community_tree: it finds communities and reports on them, level by level (ArchRAG, Algorithm 1).

A level has four stages: the graph, its clusters, the members of each community, and the reports. Only the second
depends on the previous version: Leiden starts from that version's communities (tasks.core.warm_start).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping

import pyarrow.compute as pc

from indexmill.errors import CorruptBlob
from storage.lineage import LineageEntry
from tasks.core.communities.clusterings import Clusters, Stops, earlier_names, start_of
from tasks.core.communities.graph import Labels
from tasks.core.groups import Ids
from tasks.core.part_runner import Parts, PartSpec
from tasks.core.redone import count_redone
from tasks.core.run import Run
from tasks.core.stage import WHOLE
from tasks.core.warm_start import earlier_part, start_inputs
from tasks.families.community_tree import clusters as community_clusters
from tasks.families.community_tree import graph as community_graph
from tasks.families.community_tree import levels as community_levels
from tasks.families.community_tree import reports as community_reports
from tasks.families.community_tree import tree as community_tree
from tasks.families.community_tree.clusters import ClusterSettings
from tasks.stages.write.text_writer import worker_settings

Digests = Mapping[str, str]


class _Before:
    """The previous version's communities and node ids, level by level."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._names: Ids | None = None  # the earlier ids of the next level's nodes; None: unchanged
        self._followed = True  # True if every level below was mapped to the previous version

    def inputs(self, level: int, graph: str, settings: ClusterSettings) -> dict[str, str]:
        """Return the inputs of a level's clustering: its graph and, if there is one, a start."""

        def start(_: LineageEntry) -> Labels | None:
            before = self._clusters(level)
            nodes = self._run.pack(graph)
            if before is None or nodes is None or not self._followed:
                return None
            return start_of(nodes["ids"] if self._names is None else self._names, before)

        label = community_graph.level_label(level)
        return start_inputs(self._run, community_clusters.STAGE, label, graph, settings, start)

    def climb(self, level: int, digest: str) -> None:
        """Advance to the next level, whose nodes are the communities of `level`. digest: the clusters of `level`."""
        earlier, before, pack = self._earlier(level), self._clusters(level), self._run.pack(digest)
        if earlier is not None and earlier.outputs["clusters"] == digest:
            self._names, self._followed = None, True
        elif before is None or pack is None:
            self._followed = False
        else:
            clusters = Clusters.of(pack)
            names = clusters.nodes if self._names is None else self._names
            self._names = earlier_names(clusters, names, before)

    def _earlier(self, level: int) -> LineageEntry | None:
        return earlier_part(self._run, community_clusters.STAGE, community_graph.level_label(level))

    def _clusters(self, level: int) -> Clusters | None:
        earlier = self._earlier(level)
        with contextlib.suppress(CorruptBlob):  # a lost or damaged start is ignored
            pack = None if earlier is None else self._run.pack(earlier.outputs["clusters"])
            return None if pack is None else Clusters.of(pack)
        return None


def make_tree(run: Run) -> None:
    """Make every level, the tree over all levels, and its index."""
    settings = run.configuration.families.community_tree
    stops = Stops(settings.levels, settings.fewest)
    dimension: int = run.opened_encoder.numbers["dimension"]
    before = _Before(run)
    described, extracted = run.outputs("described", "related"), run.outputs("extracted")
    below = {**described, **run.outputs("description_vectors"), **_same_as(run)}
    tree = {**described, **run.outputs("description_vectors", "passages", "mentions"), **extracted}
    sources = {**extracted, **run.outputs("pieces")}
    parts, table = run.parts["describe"], "described"
    texts = {label: {name: part.outputs[name] for name in ("described", "related")} for label, part in parts.items()}
    level = 0
    while run.wants_layer(
        community_graph.STAGE.name,
        community_graph.level_label(level + 1),
        functools.partial(stops.want_another, level),
        parts,
        table,
    ):
        level += 1
        graph = _graph(run, level, below)
        clusters = _clusters(run, level, graph, before)
        before.climb(level, clusters)
        pack = run.pack(clusters)
        if pack is None:
            run.mark_uncertain()
        elif not Clusters.of(pack).joins:
            break
        tables = _groups(run, level, {"clusters": clusters, **_nodes(below), **sources, **described})
        described = {}  # only the first level has relations
        parts, table = _reports(run, level, tables, texts), "communities"
        if pack is not None and run.makes_parts:
            thousandths = round(1000 * float(pack["modularity"][0]))
            run.counts(community_clusters.STAGE.name)[f"modularity_thousandths_l{level}"] = thousandths
        texts = {group: {"communities": part.outputs["communities"]} for group, part in parts.items()}
        reports = {f"{name}/{group}": digest for group, part in parts.items() for name, digest in part.outputs.items()}
        sources = {name: digest for name, digest in tables.items() if name.startswith("community_sources/")}
        tree |= reports | {name: digest for name, digest in tables.items() if name.startswith("community_members/")}
        below = {**reports, "graph": graph, "clusters": clusters}
    whole = community_tree.CommunityTreeStageSettings(
        **settings.model_dump(include={"levels", "fewest", "m"}), dimension=dimension
    )
    run.make(community_tree.STAGE, [PartSpec(WHOLE, tree, whole)])


def _same_as(run: Run) -> dict[str, str]:
    """Return the input `same_as` with its digest; empty if no stage made that table."""
    part = run.parts.get("same_as", {}).get(WHOLE)
    return {} if part is None else {"same_as": part.outputs["same_as"]}


def _nodes(below: Digests) -> dict[str, str]:
    return {name: digest for name, digest in below.items() if name.startswith(("described/", "communities/"))}


def _graph(run: Run, level: int, below: Digests) -> str:
    settings, label = run.configuration.families.community_tree, community_graph.level_label(level)
    shaping = community_graph.CommunityGraphSettings(
        **settings.model_dump(include={"augmentation", "neighbours", "threshold", "alpha"}),
        level=level,
        dimension=run.opened_encoder.numbers["dimension"],
    )
    return run.make(community_graph.STAGE, [PartSpec(label, below, shaping)])[label].outputs["graph"]


def _clusters(run: Run, level: int, graph: str, before: _Before) -> str:
    """Find the communities of a level and return their digest."""
    settings, label = run.configuration.families.community_tree, community_graph.level_label(level)
    shaping = ClusterSettings(**settings.model_dump(include={"clustering", "grain", "largest", "seed"}), level=level)
    spec = PartSpec(label, before.inputs(level, graph, shaping), shaping)
    return run.make(community_clusters.STAGE, [spec])[label].outputs["clusters"]


def _groups(run: Run, level: int, inputs: Digests) -> Digests:
    """Make the `community_*` tables of a level and return their digests, by name and group."""
    settings, label = run.configuration.families.community_tree, community_graph.level_label(level)
    writer = run.models.writer(community_reports.WRITER)
    needed = {
        name: digest
        for name, digest in inputs.items()
        if writer.asks or not name.startswith(("extracted/", "pieces/", "community_sources/"))
    }
    shaping = community_levels.LevelSettings(
        level=level,
        group=settings.group,
        largest=settings.largest,
        asks=writer.asks,
        summariser=writer.fingerprint,
    )
    return run.make(community_levels.STAGE, [PartSpec(label, needed, shaping)])[label].outputs


def _reports(run: Run, level: int, tables: Digests, texts: Mapping[str, Digests]) -> Parts:
    """Make the reports of a level and return their parts, by group."""
    writer, encoder = run.models.writer(community_reports.WRITER), run.opened_encoder
    groups = [name.partition("/")[2] for name in tables if name.startswith("community_members/")]
    specs = []
    for group in groups:
        inputs = {"members": tables[f"community_members/{group}"]}
        if f"community_relations/{group}" in tables:
            inputs["relations"] = tables[f"community_relations/{group}"]
        settings = community_reports.ReportSettings(
            level=level,
            summariser=writer.fingerprint,
            encoder=encoder.numbers,
            opening=encoder.opening,
            texts=texts,
            **worker_settings(run, community_reports.STAGE, writer),
            sources=tables.get(f"community_sources/{group}"),
        )
        specs.append(PartSpec(group, inputs, settings))
    receipts = run.make(community_reports.STAGE, specs)
    parts = {group: receipts[group] for group in groups}
    letter = community_graph.LETTERS[level - 1]
    count_redone(
        run,
        community_reports.STAGE,
        "communities",
        [part.outputs["communities"] for part in parts.values()],
        "made_of",
        named="reports",
        layer=f"_l{level}",
        of_layer=lambda label: label.startswith(letter),
        where=pc.field("members") > 1,
    )
    return parts
