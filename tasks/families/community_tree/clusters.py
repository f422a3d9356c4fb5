"""Stage `community_clusters`: which nodes of a level are one community (ArchRAG, Algorithm 1, line 6).

Leiden goes on from the communities of the version before: `start` says of every node of the graph which of them it was
in. It is an input like any other, and an output as well, so that the next night finds it: a graph that is the
same is clustered from the same start, which is to say not at all. A start holds numbers of nodes that are there, and
so nothing of nodes that are gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.store.pack_schema import Array, PackSchema
from tasks.core.communities.graph import ALONE, Labels, Weighted, in_order
from tasks.core.communities.leiden import leiden
from tasks.core.communities.levels import Cluster, community_id
from tasks.core.communities.measures import modularity
from tasks.core.communities.node2vec import node2vec
from tasks.core.communities.scan import scan
from tasks.core.communities.spectral import spectral
from tasks.core.estimate import Estimate, Range
from tasks.core.groups import hex_ids, id_bytes
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.core.warm_start import START

__all__ = ["CLUSTERS", "STAGE", "Clusters", "clusters_of", "earlier_names", "estimate", "start_of"]

Ids = NDArray[np.uint8]
Pack = Mapping[str, NDArray[Any]]

_MEMBERS = 24
"""Members of a community where a clustering has to be told how many communities to find: as Leiden finds (ours)."""

CLUSTERS = PackSchema(
    "which nodes of a level are one community",
    {
        "nodes": Array("uint8", ("nodes", 16), "the ids of the nodes, ascending"),
        "labels": Array("int32", ("nodes",), "the row of each node's community", below="communities", least=0),
        "communities": Array("uint8", ("communities", 16), "the ids of the communities, ascending"),
        "modularity": Array("float64", (1,), "of the clustering, at resolution 1"),
    },
)


@dataclass(frozen=True)
class Clusters:
    """A clustering by bytes of ids: nodes (n, 16) ascending, labels (n,), communities (C, 16) ascending."""

    nodes: Ids
    labels: Labels
    communities: Ids

    @classmethod
    def of(cls, pack: Pack) -> Clusters:
        """The clustering that a pack holds."""
        return cls(pack["nodes"], pack["labels"].astype(np.int64), pack["communities"])

    @property
    def joins(self) -> bool:
        """Whether two nodes at least are one community."""
        return len(self.communities) < len(self.nodes)


def clusters_of(level: int, nodes: Ids, labels: Labels) -> Clusters:
    """The communities of nodes, labelled 0, 1, ..., and their ids."""
    ids = hex_ids(nodes)
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels)
    members = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []
    found = [community_id(level, [ids[row] for row in rows.tolist()]) for rows in members]
    by_id = sorted(range(len(found)), key=found.__getitem__)
    row = np.empty(len(found), dtype=np.int64)
    row[by_id] = np.arange(len(found))
    return Clusters(nodes, row[labels], id_bytes([found[one] for one in by_id]))


def start_of(names: Ids, before: Clusters) -> NDArray[np.int64]:
    """Where nodes of these names start, (n,): those of one earlier community have one number, unknown ones ALONE."""
    place, known = _places(names, before.nodes)
    start = np.full(len(names), ALONE)
    if known.any():
        start[known] = in_order(before.labels[place[known]])
    return start


def earlier_names(clusters: Clusters, names: Ids, before: Clusters) -> Ids:
    """By which id the version before knew each community: that of the one that held most of its members.

    The smallest id of equals; zeros for a community none of whose members were known. names: those of the nodes.
    """
    place, known = _places(names, before.nodes)
    pairs = np.stack([clusters.labels[known], before.labels[place[known]]], axis=1)
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.lexsort((found[:, 1], -counts, found[:, 0]))
    owners, first = np.unique(found[order, 0], return_index=True)
    made = np.zeros((len(clusters.communities), 16), dtype=np.uint8)
    made[owners] = before.communities[found[order[first], 1]]
    return made


def _places(names: Ids, nodes: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The row in nodes (ascending) of each name, and whether it has one."""
    held, wanted = _words(nodes), _words(names)
    place = np.searchsorted(held, wanted)
    known = place < len(held)
    known[known] = held[place[known]] == wanted[known]
    return place, known


def _words(ids: Ids) -> NDArray[np.bytes_]:
    """Ids as values that compare like their bytes: of equal length, they differ before any trailing zeros end."""
    words: NDArray[np.bytes_] = np.ascontiguousarray(ids).reshape(-1).view("S16")
    return words


def _compute(inputs: Inputs) -> Outputs:
    settings = inputs.settings
    pack = inputs.pack(inputs.job.inputs["graph"])
    graph = Weighted(len(pack["ids"]), pack["edges"].astype(np.int64), np.asarray(pack["weights"]))
    digest = inputs.job.inputs.get("start")
    start = None if digest is None else np.asarray(inputs.pack(digest)["labels"])
    labels = _cluster(settings, graph.size)(graph, None if start is None else start.astype(np.int64))
    found = clusters_of(settings["level"], pack["ids"], labels)
    clusters = {
        "nodes": found.nodes,
        "labels": found.labels.astype(np.int32),
        "communities": found.communities,
        "modularity": np.array([round(modularity(graph, labels), 6)]),
    }
    packs = {"clusters": CLUSTERS.conform(clusters)}
    if start is not None:
        packs["start"] = START.conform({"labels": start})
    return Outputs(packs=packs)


def _cluster(settings: Mapping[str, Any], nodes: int) -> Cluster:
    seed: int = settings["seed"]
    if settings["clustering"] == "leiden":
        return partial(leiden, grain=settings["grain"], largest=settings["largest"], seed=seed)
    clusters = max(1, round(nodes / (min(settings["largest"] / 2, _MEMBERS) if settings["largest"] else _MEMBERS)))
    ways: dict[str, Cluster] = {
        "spectral": lambda graph, _: spectral(graph, clusters, seed=seed),
        "scan": lambda graph, _: scan(graph),
        "node2vec": lambda graph, _: node2vec(graph, clusters, seed=seed),
    }
    return ways[settings["clustering"]]


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of the sizes of memberships."""
    rows = expected.get("graph")
    if rows is None:
        rows = Range.exactly(len(inputs.pack(inputs.job.inputs["graph"])["ids"]))
    sizes = {"clusters": Range(0, CLUSTERS.size({"nodes": rows.high, "communities": rows.high}))}
    if "start" in inputs.job.inputs:
        sizes["start"] = Range(0, START.size({"nodes": rows.high}))
    return Estimate(bytes=sizes, rows=dict.fromkeys(sizes, rows))


STAGE = Stage(
    "community_clusters",
    version=2,
    compute=_compute,
    libraries=("igraph", "leidenalg", "numpy", "scipy"),
    estimate=estimate,
)
