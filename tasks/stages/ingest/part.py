"""Stage `ingest`: the documents of a shard, read from the spill of the scan and stored as a part."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.tables import DOCUMENTS
from tasks.core.stage import Output, Outputs, Part, Settings, Stage, worker_arg
from tasks.stages.ingest.spill import Shard, documents_of

__all__ = ["STAGE", "IngestSettings"]


@dataclass(frozen=True, kw_only=True)
class IngestSettings(Settings):
    """The location of a shard's documents: the spill folder, and the shard as planned."""

    spill: str = worker_arg()
    shard: Shard = worker_arg()


def _compute(part: Part[IngestSettings]) -> Outputs:
    return Outputs(tables={"documents": documents_of(part.settings.shard, part.settings.spill)})


STAGE = Stage(
    "ingest",
    version=1,
    compute=_compute,
    settings=IngestSettings,
    outputs=(Output("documents", DOCUMENTS, artifact="documents/{label}"),),
    priority=40,
    local=True,
)
