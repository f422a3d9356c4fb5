"""Stage `zoom_graph`: documents and entities in one sparse graph (ZoomRAG, section 3.1, eqs. 1 and 2).

Rows are numbered over the whole corpus: documents, passages and sentences shard after shard in the order of their
labels, entities in the order of their ids. The pack `matrices`: indexmill.families.zoom_graph.schema.
Titles and subjects count as mentioned in every sentence that is about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import MATRICES
from schemas.tables import DOCUMENTS, PASSAGES
from tasks.core.estimate import Estimate, Range
from tasks.core.stage import Inputs, Outputs, Stage
from tasks.families.tri_graph.matrices import links, mentioned
from tasks.families.zoom_graph.links import chosen_links

__all__ = ["STAGE", "counts", "estimate"]

Integers = NDArray[np.int64]


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


def _compute(inputs: Inputs) -> Outputs:
    found = mentioned(inputs)
    links = dict(zip(("mentions", "mentioned_in"), found.sentences(), strict=True))
    passage_document, documents = _passage_documents(inputs)
    entities = len(found.entity_keys)
    pairs = passage_document[found.passage] * entities + found.entity
    marked = np.unique(pairs * 2 + (found.title | found.subject))  # a pair that is a title somewhere ends with one
    del pairs
    last = np.ones(len(marked), dtype=bool)
    np.not_equal(marked[1:] >> 1, marked[:-1] >> 1, out=last[:-1])
    titles = (marked[last] & 1).astype(np.uint8)
    owners, contained = np.divmod(marked[last] >> 1, max(entities, 1))
    arrays: dict[str, NDArray[Any]] = {
        "entity_keys": found.entity_keys,
        "sentence_passage": found.sentence_passage,
        "passage_document": passage_document.astype(np.int32),
        "contents.indptr": _pointers(owners, documents),
        "contents.indices": contained.astype(np.int32),
        "contents.titles": titles,
    }
    for name, matrix in links.items():
        arrays[f"{name}.indptr"], arrays[f"{name}.indices"] = matrix.indptr, matrix.indices
    cut = []
    for name, rows in (("documents", documents), ("entities", entities)):
        (indptr, indices, weights), counted = _links(inputs, name, rows, found.entity_keys)
        arrays |= {f"{name}.indptr": indptr, f"{name}.indices": indices, f"{name}.weights": weights}
        cut += [counted["cut"], counted["full"]]
    arrays["cut"] = np.array(cut, dtype=np.int64)
    return Outputs(packs={"matrices": MATRICES.conform(arrays)})


def estimate(inputs: Inputs, expected: Mapping[str, Range]) -> Estimate:
    """Bounds of the size of the graph: which documents resemble each other is not known before. No LLM."""
    found = links(inputs)
    lengths = {name: inputs.rows(name) for name in ("documents", "entities", "passages", "sentences")}
    linked = ("documents", "entities")

    def most(name: str) -> int:
        rows = lengths[name] if f"candidates/{name}" in inputs.job.inputs else 0
        return rows * min(rows - 1, 2 * inputs.settings["cap"]) if rows else 0

    def size(mentions: int, links: dict[str, int]) -> int:
        counts = dict.fromkeys(("mentions", "mentioned_in"), mentions) | {"contents": found.documents} | links
        return MATRICES.size(lengths | {f"{name} links": count for name, count in counts.items()})

    low = size(found.mentions.low, dict.fromkeys(linked, 0))
    high = size(found.mentions.high, {name: most(name) for name in linked})
    return Estimate(
        bytes={"matrices": Range(low, high)}, rows={"matrices": Range.exactly(sum(lengths[name] for name in linked))}
    )


def _links(
    inputs: Inputs, kind: str, rows: int, entity_keys: NDArray[np.uint64]
) -> tuple[tuple[Integers, NDArray[np.int32], NDArray[np.float32]], dict[str, int]]:
    """The links of a kind, numbered over all its rows: entities whose name has no vector have none."""
    digest = inputs.job.inputs.get(f"candidates/{kind}")
    if digest is None:
        none = np.zeros(rows + 1, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
        return none, {"cut": 0, "full": 0}
    (indptr, indices, weights), counted = chosen_links(inputs.pack(digest), inputs.settings["cap"])
    if kind == "entities":
        names = sorted(name for name in inputs.job.inputs if name.startswith("names/"))
        packs = [inputs.pack(inputs.job.inputs[name]) for name in names]
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *(pack["entity_keys"] for pack in packs)])
        row_of = np.searchsorted(entity_keys, keys)
        owners = row_of[np.repeat(np.arange(len(keys)), np.diff(indptr))]
        indptr, indices = _pointers(owners, rows), row_of[indices].astype(np.int32)
    return (indptr, indices, weights), counted


def _passage_documents(inputs: Inputs) -> tuple[Integers, int]:
    """The document of each passage, and the number of documents."""
    found: list[Integers] = [np.empty(0, dtype=np.int64)]
    documents = 0
    for name in sorted(name for name in inputs.job.inputs if name.startswith("documents/")):
        ids = inputs.table(name, DOCUMENTS, "document_id").column("document_id").combine_chunks()
        passages = inputs.table(f"passages/{name.partition('/')[2]}", PASSAGES, "document_id").column("document_id")
        found.append(pc.index_in(passages, ids).to_numpy().astype(np.int64) + documents)
        documents += len(ids)
    return np.concatenate(found), documents


def _pointers(rows: Integers, height: int) -> Integers:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=height))]).astype(np.int64)


STAGE = Stage("zoom_graph", version=2, compute=_compute, libraries=("numpy",), estimate=estimate)
