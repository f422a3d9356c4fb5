"""Stage `hetero_groups`: which nodes of the graph [G2] are one community (NodeRAG, section 2.3).

Leiden goes on from the communities of the version before, as it does for community_tree (tasks.core.warm_start):
`start` says of every node of the graph which of them it was in. It is an input like any other, and an output as well,
so that the next night finds it. A start holds numbers of nodes that are there, and so nothing of nodes that are gone.

    Want(WHOLE, inputs_of(build, WHOLE, graph, settings), settings := {"grain", "largest", "seed"})

`inputs_of` gives `graph`, of `hetero_graph`, and `start` where there is one. Of n nodes:

    hetero_communities  private table HETERO_COMMUNITIES, n rows
    start               private pack: labels (n,) int32 in the order of the graph's nodes, -1 for one that was in none
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.errors import CorruptBlob
from schemas.tables import HETERO_COMMUNITIES
from storage.lineage import LineageEntry
from storage.tables import read_table
from tasks.core.communities.graph import Labels
from tasks.core.estimate import Estimate, Range
from tasks.core.groups import id_bytes
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.core.warm_start import START, Successor, start_inputs, start_pack
from tasks.families.community_tree.clusters import Clusters, start_of
from tasks.families.heterograph.community_graph import graph_of_pack
from tasks.families.heterograph.groups import communities_of, community_rows, grouped, quality

__all__ = ["STAGE", "clusters_before", "estimate", "inputs_of"]


def inputs_of(build: Successor, label: str, graph: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """What the graph (the digest of its pack) is clustered from: `graph` and, where there is one, `start`.

    label, settings: those of the Want.
    """

    def start(held: LineageEntry) -> Labels | None:
        nodes = build.pack(graph)
        if nodes is None:
            return None
        with contextlib.suppress(CorruptBlob):  # a start that was lost or damaged is none
            table = read_table(build.store, held.outputs["hetero_communities"], HETERO_COMMUNITIES)
            return start_of(nodes["ids"], clusters_before(table))
        return None

    return start_inputs(build, STAGE, label, graph, settings, start)


def clusters_before(table: pa.Table) -> Clusters:
    """The communities of a table HETERO_COMMUNITIES by bytes of ids."""
    communities = communities_of(table)
    labels = community_rows(table, table["node_id"].combine_chunks(), communities)
    return Clusters(id_bytes(table["node_id"]), labels, id_bytes(communities))


def _compute(inputs: Inputs) -> Outputs:
    settings = inputs.settings
    graph = graph_of_pack(inputs.pack(inputs.job.inputs["graph"]))
    digest = inputs.job.inputs.get("start")
    start = None if digest is None else np.asarray(inputs.pack(digest)["labels"])
    table = grouped(
        graph,
        None if start is None else start.astype(np.int64),
        grain=settings["grain"],
        largest=settings["largest"],
        seed=settings["seed"],
    )
    return Outputs(
        tables={"hetero_communities": table},
        packs={} if start is None else {"start": start_pack(start)},
        counts={
            "communities": len(communities_of(table)),
            "modularity_thousandths": round(1000 * quality(graph, table)),
        },
    )


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of the sizes of memberships."""
    rows = expected.get("graph")
    if rows is None:
        rows = Range.exactly(len(inputs.pack(inputs.job.inputs["graph"])["ids"]))
    sizes = {"hetero_communities": Range(0, _ROW * rows.high + 4096)}
    if "start" in inputs.job.inputs:
        sizes["start"] = Range(0, START.size({"nodes": rows.high}))
    return Estimate(bytes=sizes, rows=dict.fromkeys(sizes, rows))


_ROW = 96  # bytes, of two ids and what Parquet keeps beside them

STAGE = Stage(
    "hetero_groups",
    version=2,
    compute=_compute,
    libraries=("igraph", "leidenalg", "numpy", "scipy"),
    estimate=estimate,
)
