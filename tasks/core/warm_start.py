"""Where a clustering starts from: the communities of the version before, under one rule for every family that has them.

A start is an input of the stage that clusters, and an output as well, so that the next night finds it. Where the graph
is the one that the version before had, so is the start, and the part is found: a night without a change makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from indexmill.store.pack_schema import Array, PackSchema
from storage.arrays import put_pack
from storage.lineage import LineageEntry
from storage.protocol import Store
from tasks.core.stage import Stage, part_key

__all__ = ["START", "Successor", "held_part", "start_inputs", "start_pack"]

START = PackSchema(
    "what a clustering starts from",
    {"labels": Array("int32", ("nodes",), "the community of each node; -1 for a node that was in none", least=-1)},
)


class Successor(Protocol):
    """A run that may go on from a version before it: a Build."""

    store: Store
    run_id: str
    cold: bool

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        """The part that the version before has of a stage and shard; its blobs or receipt may be missing."""
        ...

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]] | None:
        """The arrays of a pack; None where it is not there: it is planned, or was lost."""
        ...


def held_part(build: Successor, stage: Stage, label: str) -> LineageEntry | None:
    """The part that the version before clustered a graph into, for a run that goes on from it: not a cold one."""
    return None if build.cold else build.earlier_part(stage.name, label)


def start_inputs(
    build: Successor,
    stage: Stage,
    label: str,
    graph: str,
    settings: Mapping[str, Any],
    start: Callable[[LineageEntry], NDArray[np.int64] | None],
) -> dict[str, str]:
    """What a graph (the digest) is clustered from: `graph` and, where there is one, `start`.

    settings: those that shape the part. start: of the part of the version before, where each node of the graph starts,
    as tasks.core.communities.graph.start_from numbers it; None where nothing is known of that, or the graph is planned.
    """
    held = held_part(build, stage, label)
    if held is None:
        return {"graph": graph}
    kept = {name: digest for name, digest in held.outputs.items() if name == "start"}
    same = {"graph": graph, **kept}
    lost = any(build.store.blob_size(digest) is None for digest in kept.values())
    if not lost and part_key(stage, settings, same) == held.key:
        return same
    labels = start(held)
    if labels is None:
        return {"graph": graph}
    return {"graph": graph, "start": put_pack(build.store, build.run_id, start_pack(labels))[0]}


def start_pack(labels: NDArray[np.integer]) -> dict[str, NDArray[Any]]:
    """The pack `start` of labels `(n,)`."""
    return START.conform({"labels": labels.astype(np.int32)})
