"""Where a clustering starts from: the communities of the version before, under one rule for every family that has them.

A start is an input of the stage that clusters, and an output as well, so that the next night finds it. Where the graph
is the one that the version before had, so is the start, and the part is found: a night without a change makes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.store.pack_schema import Array, PackSchema
from storage.arrays import put_pack
from storage.lineage import LineageEntry
from tasks.core.run import Run
from tasks.core.stage import Settings, Stage, part_key

__all__ = ["START", "earlier_part", "start_inputs", "start_pack"]

START = PackSchema(
    "what a clustering starts from",
    {"labels": Array("int32", ("nodes",), "the community of each node; -1 for a node that was in none", least=-1)},
)


def earlier_part(run: Run, stage: Stage[Any], label: str) -> LineageEntry | None:
    """The part that the version before clustered a graph into, for a run that goes on from it: not a cold one."""
    return None if run.cold else run.earlier_part(stage.name, label)


def start_inputs(
    run: Run,
    stage: Stage[Any],
    label: str,
    graph: str,
    settings: Settings,
    start: Callable[[LineageEntry], NDArray[np.int64] | None],
) -> dict[str, str]:
    """What a graph (the digest) is clustered from: `graph` and, where there is one, `start`.

    settings: those that shape the part. start: of the part of the version before, where each node of the graph starts,
    see tasks.core.communities.leiden; None where nothing is known of that, or the graph is planned.
    """
    earlier = earlier_part(run, stage, label)
    if earlier is None:
        return {"graph": graph}
    kept = {name: digest for name, digest in earlier.outputs.items() if name == "start"}
    same = {"graph": graph, **kept}
    lost = any(run.store.blob_size(digest) is None for digest in kept.values())
    if not lost and part_key(stage, settings, same) == earlier.key:
        return same
    labels = start(earlier)
    if labels is None:
        return {"graph": graph}
    return {"graph": graph, "start": put_pack(run.store, run.run_id, start_pack(labels))[0]}


def start_pack(labels: NDArray[np.integer]) -> dict[str, NDArray[np.int32]]:
    """The pack `start` of labels `(n,)`."""
    return {"labels": labels.astype(np.int32)}
