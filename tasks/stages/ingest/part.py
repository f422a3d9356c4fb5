"""Stage `ingest`: the documents of a shard, taken out of the spill of the scan and kept as a part."""

from __future__ import annotations

from typing import Any

from schemas.tables import DOCUMENTS
from tasks.core.stage import Inputs, Output, Outputs, Stage
from tasks.stages.ingest.spill import Shard, documents_of

__all__ = ["STAGE"]


def _compute(inputs: Inputs[Any]) -> Outputs:
    shard = Shard(**inputs.settings["shard"])
    return Outputs(tables={"documents": documents_of(shard, inputs.settings["spill"])})


STAGE = Stage(
    "ingest",
    version=1,
    compute=_compute,
    outputs=(Output("documents", DOCUMENTS, artifact="documents/{label}"),),
    priority=40,
)
