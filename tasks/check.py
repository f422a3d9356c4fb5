"""Stage `check`: the artifacts held against each other before anything is published.

A build that gets here has made every part; what could still be wrong is a bug, or bytes that changed on disk. Either
way nothing is published: the check raises, and names the artifact.
"""

from __future__ import annotations

import json

import numpy as np
import polars as pl

from indexmill.errors import IndexmillError
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE", "CheckError"]

_UNIT = 1e-3  # how far from 1 the length of a published vector may be


class CheckError(IndexmillError):
    """An invariant of the snapshot does not hold; nothing was published."""


def _compute(inputs: Inputs) -> Outputs:
    def scan(name: str, *columns: str) -> pl.LazyFrame:
        paths = [inputs.path(digest) for key, digest in sorted(inputs.job.inputs.items()) if key.startswith(name + "/")]
        return pl.scan_parquet(paths).select(*columns)

    def refuse(condition: bool, message: str) -> None:
        if condition:
            raise CheckError(
                f"{message}; nothing was published. Run `indexmill build --cold`, and report this if it stays"
            )

    passages = scan("passages", "passage_id", "document_id").collect()
    refuse(passages["passage_id"].n_unique() != passages.height, "passage ids are not unique")
    documents = scan("documents", "document_id").collect()["document_id"]
    refuse(documents.n_unique() != documents.len(), "document ids are not unique")
    orphans = passages.filter(~pl.col("document_id").is_in(documents.implode()))
    refuse(orphans.height > 0, f"{orphans.height} passages belong to no document")
    entities = scan("entities", "entity_id").collect()["entity_id"]
    refuse(
        not entities.is_sorted() or entities.n_unique() != entities.len(), "entities are not in the order of their ids"
    )
    mentioned = scan("mentions", "entity_id").unique().collect(engine="streaming")["entity_id"]
    refuse(
        mentioned.n_unique() != entities.len(), f"{entities.len()} entities for {mentioned.n_unique()} mentioned ids"
    )

    for name, digest in sorted(inputs.job.inputs.items()):
        kind, _, shard = name.partition("/")
        pairs = {"vectors": (("passages", "passages"), ("sentences", "sentences")), "names": (("vectors", "entities"),)}
        for array, table in pairs.get(kind, ()):
            vectors = inputs.pack(digest)[array]
            rows = pl.scan_parquet(inputs.path(inputs.job.inputs[f"{table}/{shard}"])).select(pl.len()).collect().item()
            refuse(len(vectors) != rows, f"{name}: {len(vectors)} vectors for {rows} rows of {table}/{shard}")
            lengths = np.linalg.norm(vectors, axis=1)
            refuse(bool((np.abs(lengths - 1) > _UNIT).any()), f"{name}: a vector of {array} is not of unit length")
    summary = {"documents": documents.len(), "passages": passages.height, "entities": entities.len()}
    return Outputs(files={"checked": json.dumps(summary, sort_keys=True).encode()})


STAGE = Stage("check", version=1, compute=_compute, libraries=("polars", "numpy"))
