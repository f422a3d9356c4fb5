"""The warm start of a clustering from the previous version's communities, the same for all families with communities.

A start is both an input and an output of the clustering stage, so that the next build finds it. An unchanged graph gets
the previous version's start, so its part already exists: a build without changes computes nothing.
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
from tasks.core.stage import Stage, StageSettings, part_key

START = PackSchema(
    "what a clustering starts from",
    {"labels": Array("int32", ("nodes",), "the community of each node; -1 for a node that was in none", least=-1)},
)


def earlier_part(run: Run, stage: Stage[Any], label: str) -> LineageEntry | None:
    """Return the previous version's part of a clustering; None for a cold run."""
    return None if run.cold else run.earlier_part(stage.name, label)


def start_inputs(
    run: Run,
    stage: Stage[Any],
    label: str,
    graph: str,
    settings: StageSettings,
    start: Callable[[LineageEntry], NDArray[np.int64] | None],
) -> dict[str, str]:
    """Return the inputs of the clustering of a graph (given by its digest): `graph` and, if there is one, `start`.

    settings: the settings that shape the part. start: computes each node's starting label from the previous version's
    part (see tasks.core.communities.leiden); returns None if it is unknown, or the graph is only planned.
    """
    earlier = earlier_part(run, stage, label)
    if earlier is None:
        return {"graph": graph}
    earlier_start = {name: digest for name, digest in earlier.outputs.items() if name == "start"}
    same = {"graph": graph, **earlier_start}
    lost = any(run.store.blob_size(digest) is None for digest in earlier_start.values())
    if not lost and part_key(stage, label, settings, same) == earlier.key:
        return same
    labels = start(earlier)
    if labels is None:
        return {"graph": graph}
    return {"graph": graph, "start": put_pack(run.store, run.run_id, start_pack(labels))[0]}


def start_pack(labels: NDArray[np.integer]) -> dict[str, NDArray[np.int32]]:
    return {"labels": labels.astype(np.int32)}
