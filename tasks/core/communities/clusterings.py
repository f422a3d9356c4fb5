"""Clusterings keyed by the bytes of ids, from which the next version starts; the ids and levels of communities."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.store.canonical import canonical_json
from indexmill.store.pack_schema import Array, PackSchema
from tasks.core.communities.graph import ALONE, Labels, in_order
from tasks.core.groups import Ids, as_words, hex_ids, id_bytes

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
class Stops:
    """When levels end (ArchRAG, Algorithm 1). levels: the most levels. fewest: the fewest nodes to cluster."""

    levels: int = 4
    fewest: int = 5

    def want_another(self, built: int, nodes: int) -> bool:
        """Return True if another level is built over `built` levels, the uppermost of which has `nodes` nodes."""
        return nodes >= self.fewest and built < self.levels


def community_id(level: int, members: Sequence[str]) -> str:
    """Return a community's id: a hash of its level and its members, whatever their order."""
    return hashlib.sha256(canonical_json([level, sorted(members)])).hexdigest()[:32]


@dataclass(frozen=True)
class Clusters:
    """A clustering keyed by the bytes of ids: nodes (n, 16) ascending, labels (n,), communities (C, 16) ascending."""

    nodes: Ids
    labels: Labels
    communities: Ids

    @classmethod
    def of(cls, pack: Mapping[str, NDArray[Any]]) -> Clusters:
        return cls(pack["nodes"], pack["labels"].astype(np.int64), pack["communities"])

    @property
    def joins(self) -> bool:
        """True if a community has at least two nodes."""
        return len(self.communities) < len(self.nodes)


def clusters_of(level: int, nodes: Ids, labels: Labels) -> Clusters:
    """Return the clustering of nodes with labels 0, 1, ...; computes the ids of the communities."""
    ids = hex_ids(nodes)
    order, sizes = np.argsort(labels, kind="stable"), np.bincount(labels)
    members = np.split(order, np.cumsum(sizes)[:-1]) if len(sizes) else []
    communities = [community_id(level, [ids[row] for row in rows.tolist()]) for rows in members]
    by_id = sorted(range(len(communities)), key=communities.__getitem__)
    row = np.empty(len(communities), dtype=np.int64)
    row[by_id] = np.arange(len(communities))
    return Clusters(nodes, row[labels], id_bytes([communities[one] for one in by_id]))


def start_of(names: Ids, before: Clusters) -> NDArray[np.int64]:
    """Return the starting label (n,) of each name: a number for each earlier community, ALONE for unknown nodes."""
    place, matched = _places(names, before.nodes)
    start = np.full(len(names), ALONE)
    if matched.any():
        start[matched] = in_order(before.labels[place[matched]])
    return start


def earlier_names(clusters: Clusters, names: Ids, before: Clusters) -> Ids:
    """Return, for each community, the id of the previous version's community that had most of its members.

    Ties go to the smallest id; zeros for a community without known members. names: the ids of the nodes.
    """
    place, matched = _places(names, before.nodes)
    pairs = np.stack([clusters.labels[matched], before.labels[place[matched]]], axis=1)
    overlaps, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.lexsort((overlaps[:, 1], -counts, overlaps[:, 0]))
    owners, first = np.unique(overlaps[order, 0], return_index=True)
    earlier_ids = np.zeros((len(clusters.communities), 16), dtype=np.uint8)
    earlier_ids[owners] = before.communities[overlaps[order[first], 1]]
    return earlier_ids


def _places(names: Ids, nodes: Ids) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the row of each name in `nodes` (ascending), and a mask of the names that were found."""
    node_words, name_words = as_words(nodes), as_words(names)
    place = np.searchsorted(node_words, name_words)
    matched = place < len(node_words)
    matched[matched] = node_words[place[matched]] == name_words[matched]
    return place, matched
