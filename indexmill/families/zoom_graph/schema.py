"""The packs of the family zoom_graph: documents and entities in a sparse graph (ZoomRAG, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.grid import SCALE
from indexmill.retrieve.shared_schema import sentence_arrays
from indexmill.store.pack_schema import SMALLEST, Array, Check, PackSchema, hashes, indices, keys, sparse, vectors

MATRICES = PackSchema(
    "documents and entities in a sparse graph; only in older snapshots",
    {
        **sentence_arrays(),
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
        **sparse(
            "contents",
            "documents",
            "entities",
            "documents by entities",
            titles=("uint8", "1 where the entity is the document's title or a subject of it"),
        ),
        "passage_document": indices("passages", "documents", "the row of each passage's document"),
        "cut": Array("int64", (4,), "links cut by the cap and the rows they are of: of documents, then of entities"),
    },
    tables=("documents", "passages", "sentences", "entities"),
)

DOCUMENT_VECTORS = PackSchema(
    "vectors of the shard's documents, row by row with `documents`",
    {
        "vectors": Array(
            "int16",
            ("own documents", "dimensions"),
            f"the normalised mean of the vectors of the document's passages, times {SCALE}, rounded",
            below=SCALE + 1,
            least=-SCALE,
        ),
        "keys": Array("uint64", ("own documents",), "the first 16 digits of the SHA-256 of the document's id"),
    },
    tables=("own documents",),
)

VECTORS = PackSchema(
    "vectors of documents; in older snapshots alone",
    {
        "vectors": vectors(
            "documents", "the normalised mean of the vectors of the document's passages, times 4000, rounded"
        ),
        "keys": hashes("documents", "hashes of the vectors"),
    },
    tables=("documents",),
)


def _link_problems(names: npt.NDArray[Any], indptr: npt.NDArray[Any], partners: npt.NDArray[Any]) -> Iterator[str]:
    if (names[1:] <= names[:-1]).any():
        yield "'names' has the same row twice"
    bounds = indptr.astype(np.int64)
    owners = np.arange(len(names)).repeat(bounds[1:] - bounds[:-1])
    if (partners <= owners).any():
        yield "a pair is not listed at its lower name"
    if ((partners[1:] <= partners[:-1]) & (owners[1:] == owners[:-1])).any():
        yield "the pairs of a row do not ascend"


LINKS = PackSchema(
    "pairs of similar rows: of documents, or, if they are asked for, of entities",
    {
        "names": keys("rows", "the key of each document or entity that is in a pair"),
        "indptr": Array(SMALLEST, ("rows + 1",), "where the pairs of each lower row begin, and the end", into="pairs"),
        "partners": Array(SMALLEST, ("pairs",), "the higher row of each pair", below="rows", least=0),
        "steps": Array("int16", ("pairs",), "the cosine of the two vectors times 31,250, rounded down"),
    },
    checks=(
        Check(
            "each pair is listed once, at its lower row, and those of a row ascend",
            ("names", "indptr", "partners"),
            _link_problems,
        ),
    ),
)

PACKS = {
    "zoom_graph/matrices": MATRICES,
    "zoom_graph/vectors": VECTORS,
    "document_vectors/<shard>": DOCUMENT_VECTORS,
    "document_links/<block>": LINKS,
    "entity_links/<block>": LINKS,
}
