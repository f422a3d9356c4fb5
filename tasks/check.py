"""Stage `check`: the artifacts held against each other before anything is published.

A build that gets here has made every part; what could still be wrong is a bug, or bytes that changed on disk. Either
way nothing is published: the check raises, and names the artifact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from indexmill.errors import IndexmillError
from indexmill.names import NameIndex
from tasks.estimate import Estimate, Range
from tasks.stage import Inputs, Outputs, Stage

__all__ = ["STAGE", "CheckError", "check_postings", "estimate"]

_UNIT = 1e-3  # how far from 1 the length of a published vector may be


class CheckError(IndexmillError):
    """An invariant of the snapshot does not hold; nothing was published."""


def _compute(inputs: Inputs) -> Outputs:
    passages = _columns(inputs, "passages", "passage_id", "document_id")
    documents = _columns(inputs, "documents", "document_id")["document_id"]
    entities = _columns(inputs, "entities", "entity_id")["entity_id"]
    mentioned = _columns(inputs, "mentions", "entity_id")["entity_id"].unique()
    _refuse_if(passages["passage_id"].n_unique() != passages.height, "passage ids are not unique")
    _refuse_if(documents.n_unique() != documents.len(), "document ids are not unique")
    orphans = passages.filter(~pl.col("document_id").is_in(documents.implode())).height
    _refuse_if(orphans > 0, f"{orphans} passages belong to no document")
    ordered = entities.is_sorted() and entities.n_unique() == entities.len()
    _refuse_if(not ordered, "entities are not in the order of their ids")
    _refuse_if(mentioned.len() != entities.len(), f"{entities.len()} entities for {mentioned.len()} mentioned ids")
    for label in _labels(inputs, "vectors"):
        pack = inputs.pack(inputs.job.inputs[f"vectors/{label}"])
        for table in ("passages", "sentences"):
            rows = _columns(inputs, table, "passage_id", label=label).height
            _refuse_if(len(pack[table]) != rows, f"vectors/{label}: {len(pack[table])} rows for {rows} {table}")
            _check_lengths(pack[table], f"vectors/{label}, {table}")
    for label in _labels(inputs, "bm25"):
        rows = _columns(inputs, "passages", "passage_id", label=label).height
        check_postings(inputs.pack(inputs.job.inputs[f"bm25/{label}"]), rows, f"bm25/{label}")
    for label in _labels(inputs, "names"):
        pack = inputs.pack(inputs.job.inputs[f"names/{label}"])
        known = NameIndex.keys(_columns(inputs, "entities", "entity_id", label=label)["entity_id"].to_list())
        strange = np.setdiff1d(pack["entity_keys"], known)
        _refuse_if(len(strange) > 0, f"names/{label}: {len(strange)} vectors of entities that are not there")
        _check_lengths(pack["vectors"], f"names/{label}")
    if "zoom_graph/matrices" in inputs.job.inputs:
        _check_zoom_graph(inputs, documents.len(), passages.height, entities.len())
    summary = {"documents": documents.len(), "passages": passages.height, "entities": entities.len()}
    return Outputs(files={"checked": json.dumps(summary, sort_keys=True).encode()})


def _check_zoom_graph(inputs: Inputs, documents: int, passages: int, entities: int) -> None:
    pack = inputs.pack(inputs.job.inputs["zoom_graph/matrices"])
    _refuse_if(len(pack["passage_document"]) != passages, "zoom_graph: not every passage has a document")
    for name, rows in (("documents", documents), ("entities", entities)):
        indptr, indices = pack[f"{name}.indptr"], pack[f"{name}.indices"]
        _refuse_if(len(indptr) - 1 != rows, f"zoom_graph: {len(indptr) - 1} rows of links for {rows} {name}")
        owners = np.repeat(np.arange(rows), np.diff(indptr))
        back = np.lexsort((owners, indices))  # a symmetric matrix by columns is itself by rows
        same = np.array_equal(indices[back], owners) and np.array_equal(owners[back], indices)
        same = same and np.array_equal(pack[f"{name}.weights"][back], pack[f"{name}.weights"])
        _refuse_if(not same, f"zoom_graph: the links of {name} are not symmetric")
        _refuse_if(bool((owners == indices).any()), f"zoom_graph: some of {name} are linked to themselves")


def _labels(inputs: Inputs, name: str) -> list[str]:
    return sorted(key.partition("/")[2] for key in inputs.job.inputs if key.startswith(name + "/"))


def _columns(inputs: Inputs, name: str, *columns: str, label: str | None = None) -> pl.DataFrame:
    """Some columns of a table, of all shards or of one."""
    labels = _labels(inputs, name) if label is None else [label]
    paths = [inputs.path(inputs.job.inputs[f"{name}/{shard}"]) for shard in labels]
    if not paths:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.String))
    return pl.scan_parquet(paths).select(*columns).collect(engine="streaming")


def _check_lengths(vectors: NDArray[Any], where: str) -> None:
    for first in range(0, len(vectors), 65_536):
        lengths = np.linalg.norm(vectors[first : first + 65_536], axis=1)
        _refuse_if(bool((np.abs(lengths - 1) > _UNIT).any()), f"{where}: a vector is not of unit length")


def check_postings(pack: Mapping[str, NDArray[Any]], rows: int, where: str) -> None:
    """Raise CheckError where a shard's bm25 arrays do not fit each other or its passages."""
    keys, ends, passages = pack["keys"], pack["indptr"].astype(np.int64), pack["passages"].astype(np.int64)
    _refuse_if(len(pack["lengths"]) != rows, f"{where}: {len(pack['lengths'])} lengths for {rows} passages")
    _refuse_if(bool((keys[1:] <= keys[:-1]).any()), f"{where}: the terms are not in the order of their keys")
    held = np.diff(ends)
    fits = len(held) == len(keys) and ends[:1].tolist() == [0] and bool((held > 0).all())
    fits = fits and held.sum() == len(passages) == len(pack["counts"])
    _refuse_if(not fits, f"{where}: the postings of the terms do not fit each other")
    place = np.arange(len(keys)).repeat(held) * rows + passages
    ordered = passages.max(initial=-1) < rows and bool((np.diff(place) > 0).all())
    _refuse_if(not ordered, f"{where}: a term's passages are not in the order of their rows")
    words = np.bincount(passages, pack["counts"], rows)
    _refuse_if(bool((words != pack["lengths"]).any()), f"{where}: occurrences do not add up to the passages' lengths")


def _refuse_if(broken: bool, message: str) -> None:
    if broken:
        raise CheckError(
            f"{message}; nothing was published. `indexmill build --cold` makes every part again; please report this"
        )


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """A few words."""
    return Estimate(bytes={"checked": Range(0, 200)})


STAGE = Stage("check", version=2, compute=_compute, libraries=("polars", "numpy"), estimate=estimate)
