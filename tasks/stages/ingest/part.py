"""Stage `ingest`: the documents of a shard, read from the spill of the scan and stored as a part."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.tables import DOCUMENTS
from storage.table_blobs import read_table
from tasks.core.stage import Output, Outputs, Part, Stage, StageSettings, worker_arg
from tasks.stages.ingest.shard_plan import Shard, documents_of


@dataclass(frozen=True, kw_only=True)
class IngestSettings(StageSettings):
    """A planned shard, and its spill folder. before: previous tables that may contain some of the shard's documents."""

    spill: str = worker_arg()
    shard: Shard = worker_arg()
    before: tuple[str, ...] = worker_arg(())


def _compute(part: Part[IngestSettings]) -> Outputs:
    settings = part.settings
    before = (read_table(part.store, digest, DOCUMENTS) for digest in settings.before)
    return Outputs(tables={"documents": documents_of(settings.shard, settings.spill, before)})


STAGE = Stage(
    "ingest",
    version=2,
    compute=_compute,
    outputs=(Output("documents", DOCUMENTS, artifact="documents/{label}"),),
    priority=40,
    local=True,
)
