"""Stage `zoom_graph`: documents and entities in one sparse graph (ZoomRAG, section 3.1, eqs. 1 and 2).

Rows are numbered over the whole corpus: documents, passages and sentences shard after shard in the order of their
labels, entities in the order of their ids. The pack `matrices`: indexmill.families.zoom_graph.schema.
Titles and subjects count as mentioned in every sentence that is about them. Links of similar rows: `links`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.zoom_graph.schema import MATRICES
from indexmill.retrieve.matrices import distinct, pointers
from indexmill.store.pack_schema import Array, PackSchema
from schemas.tables import DOCUMENTS, ENTITIES, MENTIONS, PASSAGES, SENTENCES
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Input, NoSettings, Output, Outputs, Part, Stage
from tasks.families.zoom_graph.links import STATE
from tasks.stages.resolve.mention_links import mentioned

__all__ = ["COUNTED", "SIZES", "STAGE", "counts", "drive"]

Integers = NDArray[np.int64]


COUNTED = (
    "documents",
    "entities",
    "document_links",
    "entity_links",
    "content_links",
    "documents_full",
    "entities_full",
)
"""What a built graph is counted by, in the order of the pack `counted`; full rows choose as many links as they may."""

SIZES = PackSchema("the sizes of the graph", {"counted": Array("int64", (len(COUNTED),), ", ".join(COUNTED))})


def drive(run: Run) -> None:
    """Build the graph of documents and entities (ZoomRAG)."""
    run.make(STAGE, [PartSpec(WHOLE, run.inputs(STAGE, WHOLE), NoSettings())])


def counts(pack: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """The sizes of a built graph, as the manifest states them."""
    return dict(zip(COUNTED, pack["counted"].tolist(), strict=True))


def _compute(part: Part[Any]) -> Outputs:
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
    return Outputs(
        packs={"matrices": arrays, "sizes": {"counted": _counted(part, documents, entities, len(contained))}}
    )


def _counted(part: Part[Any], documents: int, entities: int, contents: int) -> NDArray[np.int64]:
    """The values of COUNTED."""
    links = {kind: [0, 0] for kind in ("documents", "entities")}
    links |= {kind: part.pack(f"links/{kind}")["counts"].tolist() for kind in part.labels("links")}
    (similar, full), (alike, entities_full) = links["documents"], links["entities"]
    return np.array([documents, entities, similar, alike, contents, full, entities_full], dtype=np.int64)


def _passage_documents(part: Part[Any]) -> tuple[Integers, int]:
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
    version=3,
    compute=_compute,
    settings=NoSettings,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        Input("documents", DOCUMENTS, each=True),
        Input("passages", PASSAGES, each=True),
        Input("sentences", SENTENCES, each=True),
        Input("mentions", MENTIONS, each=True),
        Input("entities", ENTITIES, each=True),
        Input("links", STATE, each=True, output="zoom_state"),
    ),
    outputs=(Output("matrices", MATRICES, artifact="zoom_graph/matrices"), Output("sizes", SIZES)),
)
