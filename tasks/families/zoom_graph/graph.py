"""Stage `zoom_graph`: documents and entities in one sparse graph (ZoomRAG, section 3.1, eqs. 1 and 2).

Rows are numbered over the whole corpus: documents, passages and sentences shard after shard in the order of their
labels, entities in the order of their ids. The pack `matrices`: indexmill.families.zoom_graph.schema.
Titles and subjects count as mentioned in every sentence that is about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import MATRICES
from indexmill.retrieve.matrices import distinct, pointers
from indexmill.retrieve.shared_schema import NAMES
from schemas.tables import DOCUMENTS, ENTITIES, MENTIONS, PASSAGES, SENTENCES
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, Output, Outputs, Part, Settings, Stage
from tasks.families.zoom_graph.links import CANDIDATES, chosen_links
from tasks.stages.resolve.mention_links import mentioned

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


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """The sizes of a built graph, as the manifest states them."""
    cut = pack["cut"].tolist()
    return {
        "documents": len(pack["documents.indptr"]) - 1,
        "entities": len(pack["entity_keys"]),
        "document_links": len(pack["documents.indices"]) // 2,
        "entity_links": len(pack["entities.indices"]) // 2,
        "content_links": len(pack["contents.indices"]),
        "document_links_cut": cut[0],
        "documents_cut": cut[1],
        "entity_links_cut": cut[2],
        "entities_cut": cut[3],
    }


def _compute(part: Part[GraphSettings]) -> Outputs:
    found = mentioned(part)
    links = dict(zip(("mentions", "mentioned_in"), found.sentences(), strict=True))
    passage_document, documents = _passage_documents(part)
    entities = len(found.entity_keys)
    pairs = passage_document[found.passage] * entities + found.entity
    marked = distinct(pairs * 2 + (found.title | found.subject))  # a pair that is a title somewhere ends with one
    del pairs
    last = np.ones(len(marked), dtype=bool)
    np.not_equal(marked[1:] >> 1, marked[:-1] >> 1, out=last[:-1])
    titles = (marked[last] & 1).astype(np.uint8)
    owners, contained = np.divmod(marked[last] >> 1, max(entities, 1))
    arrays: dict[str, NDArray[Any]] = {
        "entity_keys": found.entity_keys,
        "sentence_passage": found.sentence_passage,
        "passage_document": passage_document.astype(np.int32),
        "contents.indptr": pointers(owners, documents),
        "contents.indices": contained.astype(np.int32),
        "contents.titles": titles,
    }
    for name, matrix in links.items():
        arrays[f"{name}.indptr"], arrays[f"{name}.indices"] = matrix.indptr, matrix.indices
    cut = []
    for name, rows in (("documents", documents), ("entities", entities)):
        (indptr, indices, weights), counted = _links(part, name, rows, found.entity_keys)
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


def _passage_documents(part: Part[GraphSettings]) -> tuple[Integers, int]:
    """The document of each passage, and the number of documents."""
    found: list[Integers] = [np.empty(0, dtype=np.int64)]
    documents = 0
    for label in part.labels("documents"):
        ids = part.table(f"documents/{label}", "document_id").column("document_id").combine_chunks()
        passages = part.table(f"passages/{label}", "document_id").column("document_id")
        found.append(pc.index_in(passages, ids).to_numpy().astype(np.int64) + documents)
        documents += len(ids)
    return np.concatenate(found), documents


STAGE = Stage(
    "zoom_graph",
    version=2,
    compute=_compute,
    settings=GraphSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("documents", DOCUMENTS, each=True),
        Input("passages", PASSAGES, each=True),
        Input("sentences", SENTENCES, each=True),
        Input("mentions", MENTIONS, each=True),
        Input("entities", ENTITIES, each=True),
        Input("names", NAMES, stage="embed_names", each=True),
        Input("candidates", CANDIDATES, each=True, output="zoom_candidates"),
    ),
    outputs=(Output("matrices", MATRICES, artifact="zoom_graph/matrices"),),
)
