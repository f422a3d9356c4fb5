"""Stage `zoom_graph`: the similarity links of documents and of entities (ZoomRAG, section 3.1, eqs. 1 and 2).

Rows are numbered over the whole corpus: documents shard after shard in the order of their labels, entities in the
order of their ids. The pack `matrices`: indexmill.families.zoom_graph.schema. The entities in documents and sentences
are those of the stage `mention_links`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import MATRICES
from indexmill.retrieve.matrices import pointers
from indexmill.retrieve.mention_links import linked_documents
from indexmill.retrieve.shared_schema import NAMES
from schemas.tables import DOCUMENTS, ENTITIES
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, Output, Outputs, Part, Settings, Stage
from tasks.families.zoom_graph.links import CANDIDATES, chosen_links
from tasks.stages.resolve.resolve import entity_keys

__all__ = ["STAGE", "GraphSettings", "counts", "drive"]

Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class GraphSettings(Settings):
    """cap: the most links that a row chooses."""

    cap: int


def drive(run: Run) -> None:
    """Build the graph of documents and entities (ZoomRAG)."""
    settings = GraphSettings(cap=run.configuration.families.zoom_graph.cap)
    run.make(STAGE, [PartSpec(WHOLE, run.inputs(STAGE, WHOLE), settings)])


def counts(pack: Mapping[str, NDArray[Any]], mention_links: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, int]:
    """The sizes of a built graph, as the manifest states them."""
    cut = pack["cut"].tolist()
    return {
        "documents": len(pack["documents.indptr"]) - 1,
        "entities": len(pack["entities.indptr"]) - 1,
        "document_links": len(pack["documents.indices"]) // 2,
        "entity_links": len(pack["entities.indices"]) // 2,
        "content_links": sum(len(linked_documents(shard)[1]) for shard in mention_links),
        "document_links_cut": cut[0],
        "documents_cut": cut[1],
        "entity_links_cut": cut[2],
        "entities_cut": cut[3],
    }


def _compute(part: Part[GraphSettings]) -> Outputs:
    keys = entity_keys(part.tables("entities", "entity_id").column("entity_id"))
    documents = sum(part.rows_of(f"documents/{label}") for label in part.labels("documents"))
    arrays: dict[str, NDArray[Any]] = {}
    cut = []
    for name, rows in (("documents", documents), ("entities", len(keys))):
        (indptr, indices, weights), counted = _links(part, name, rows, keys)
        arrays |= {f"{name}.indptr": indptr, f"{name}.indices": indices, f"{name}.weights": weights}
        cut += [counted["cut"], counted["full"]]
    arrays["cut"] = np.array(cut, dtype=np.int64)
    return Outputs(packs={"matrices": arrays})


def _links(
    part: Part[GraphSettings], kind: str, rows: int, entity_keys: NDArray[np.uint64]
) -> tuple[tuple[Integers, NDArray[np.int32], NDArray[np.float32]], dict[str, int]]:
    """The links of a kind, numbered over all its rows; entities whose name has no vector have no links."""
    if not part.has(f"candidates/{kind}"):
        none = np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        return none, {"cut": 0, "full": 0}
    (indptr, indices, weights), counted = chosen_links(part.pack(f"candidates/{kind}"), part.settings.cap)
    if kind == "entities":
        own = (pack["entity_keys"] for pack in part.packs("names"))
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *own])
        row_of = np.searchsorted(entity_keys, keys)
        owners = row_of[np.repeat(np.arange(len(keys)), np.diff(indptr))]
        indptr, indices = pointers(owners, rows), row_of[indices].astype(np.int32)
    return (indptr, indices, weights), counted


STAGE = Stage(
    "zoom_graph",
    version=3,
    compute=_compute,
    settings=GraphSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("documents", DOCUMENTS, each=True),
        Input("entities", ENTITIES, each=True),
        Input("names", NAMES, stage="embed_names", each=True),
        Input("candidates", CANDIDATES, each=True, output="zoom_candidates"),
    ),
    outputs=(Output("matrices", MATRICES, artifact="zoom_graph/matrices"),),
)
