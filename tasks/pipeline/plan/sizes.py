"""The estimated bytes of a plan's new parts, from the parts of the previous version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from storage.overlay import OverlayStore
from tasks.core.estimate import Range
from tasks.core.part_runner import Parent
from tasks.pipeline.plan.causes import PlannedPart, Why


@dataclass(frozen=True, slots=True)
class PlanBytes:
    """The bytes to be written: `snapshot`, for artifacts, and `work`, for parts that only later builds read.

    In each range, `low` counts only the parts that are certain to be made, `high` all that may be. unjudged: stages
    that have parts to make but did not run for the previous version, so their sizes are unknown.
    """

    snapshot: Range
    work: Range
    unjudged: Annotated[tuple[str, ...], Field(strict=False)] = ()


def sizes_of(
    parts: Sequence[PlannedPart], why: Sequence[Why | None], store: OverlayStore, parent: Parent | None, documents: int
) -> PlanBytes | None:
    """Estimate the bytes of the parts to be made (those with a cause in `why`); None without a readable parent.

    Assumes that a stage takes as many bytes per document as in the parent, evenly over its parts. documents: the size
    of the current corpus. A part whose blobs all exist adds nothing.
    """
    if parent is None or parent.manifest is None:
        return None
    growth = documents / max(parent.manifest.corpus.documents, 1)
    stages = {part.stage.name: part.stage for part in parts}
    counts, certain = Counter[str](), Counter[str]()
    for part, cause in zip(parts, why, strict=True):
        if cause is not None and any(
            store.blob_size(digest) is None or store.is_new(digest) for digest in part.outputs.values()
        ):
            counts[part.stage.name] += 1
            certain[part.stage.name] += cause.certain
    total = Counter(part.stage.name for part in parts)
    snapshot, work = [0.0, 0.0], [0.0, 0.0]
    judged = set()
    for entry in parent.lineage.entries:
        if entry.stage not in counts:
            continue
        judged.add(entry.stage)
        for name, digest in entry.outputs.items():
            is_read = stages[entry.stage].output(name).artifact_name(entry.shard, name) is not None
            size = growth * (store.blob_size(digest) or 0) / total[entry.stage]
            bounds = snapshot if is_read else work
            bounds[0] += size * certain[entry.stage]
            bounds[1] += size * counts[entry.stage]
    return PlanBytes(
        Range(*map(round, snapshot)),
        Range(*map(round, work)),
        unjudged=tuple(name for name in stages if name in counts and name not in judged),
    )
