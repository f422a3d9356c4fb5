"""The packs of the family zoom_graph: documents and entities in a sparse graph (ZoomRAG, section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from indexmill.retrieve.shared_schema import sentence_arrays
from indexmill.store.pack_schema import Array, PackSchema, hashes, indices, sparse, vectors

__all__ = ["MATRICES", "PACKS", "VECTORS"]


def _former(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays of older snapshots, whose content newer ones have in `mention_links`."""
    return {name: replace(array, former=True) for name, array in arrays.items()}


MATRICES = PackSchema(
    "the similarity links of documents and of entities",
    {
        **_former(sentence_arrays()),
        **sparse(
            "documents",
            "documents",
            "documents",
            "documents by documents, symmetric",
            weights=("float32", "exp(cosine) of the two vectors"),
        ),
        **sparse(
            "entities",
            "entities",
            "entities",
            "entities by entities, symmetric; no links unless they are asked for",
            weights=("float32", "exp(cosine) of the two vectors"),
        ),
        **_former(
            sparse(
                "contents",
                "documents",
                "entities",
                "documents by entities",
                titles=("uint8", "1 where the entity is the document's title or a subject of it"),
            )
        ),
        **_former({"passage_document": indices("passages", "documents", "the row of each passage's document")}),
        "cut": Array("int64", (4,), "links cut by the cap and the rows they are of: of documents, then of entities"),
    },
    tables=("documents", "passages", "sentences", "entities"),
)

VECTORS = PackSchema(
    "vectors of documents",
    {
        "vectors": vectors(
            "documents", "the normalised mean of the vectors of the document's passages, times 4000, rounded"
        ),
        "keys": hashes("documents", "hashes of the vectors"),
    },
    tables=("documents",),
)

PACKS = {"zoom_graph/matrices": MATRICES, "zoom_graph/vectors": VECTORS}
