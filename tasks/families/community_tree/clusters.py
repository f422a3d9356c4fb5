"""Stage `community_clusters`: the communities of a level's nodes (ArchRAG, Algorithm 1, line 6).

Leiden starts from the communities of the previous version: `start` holds each node's previous community. It is both an
input and an output, so the next build finds it; an unchanged graph has the same start and is not clustered again.
`start` has labels of existing nodes only, so it reveals nothing about deleted nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.core.communities.clusterings import CLUSTERS, clusters_of
from tasks.core.communities.graph import Weighted
from tasks.core.communities.leiden import leiden
from tasks.core.communities.measures import modularity
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings
from tasks.core.warm_start import START
from tasks.families.community_tree.graph import GRAPH

Pack = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(StageSettings):
    """grain, largest: see `tasks.core.communities.leiden.leiden`."""

    clustering: str
    grain: int
    largest: int
    seed: int
    level: int


def _compute(part: Part[ClusterSettings]) -> Outputs:
    settings = part.settings
    pack = part.pack("graph")
    graph = Weighted(len(pack["ids"]), pack["edges"].astype(np.int64), np.asarray(pack["weights"]))
    start = np.asarray(part.pack("start")["labels"]) if part.has("start") else None
    labels = leiden(
        graph,
        None if start is None else start.astype(np.int64),
        grain=settings.grain,
        largest=settings.largest,
        seed=settings.seed,
    )
    clusters = clusters_of(settings.level, pack["ids"], labels)
    packs: dict[str, Pack] = {
        "clusters": {
            "nodes": clusters.nodes,
            "labels": clusters.labels.astype(np.int32),
            "communities": clusters.communities,
            "modularity": np.array([round(modularity(graph, labels), 6)]),
        }
    }
    if start is not None:
        packs["start"] = {"labels": start}
    return Outputs(packs=packs)


STAGE = Stage(
    "community_clusters",
    version=2,
    compute=_compute,
    libraries=("igraph", "leidenalg", "numpy", "scipy"),
    expensive=True,
    inputs=(
        Input("graph", GRAPH, stage="community_graph"),
        Input("start", START, stage="community_clusters", optional=True),
    ),
    outputs=(
        Output("clusters", CLUSTERS),
        Output("start", START),
    ),
)
