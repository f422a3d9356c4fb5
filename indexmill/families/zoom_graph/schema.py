"""The packs of the family zoom_graph: vectors of documents, and similarity links (ZoomRAG, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.grid import SCALE
from indexmill.store.pack_schema import SMALLEST, Array, PackCheck, PackSchema, keys

DOCUMENT_VECTORS = PackSchema(
    "vectors of the shard's documents, one per row of `documents`",
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


def _link_problems(names: npt.NDArray[Any], indptr: npt.NDArray[Any], partners: npt.NDArray[Any]) -> Iterator[str]:
    if (names[1:] <= names[:-1]).any():
        yield "'names' contains a row twice"
    bounds = indptr.astype(np.int64)
    owners = np.arange(len(names)).repeat(bounds[1:] - bounds[:-1])
    if (partners <= owners).any():
        yield "a pair is not listed under its lower name"
    if ((partners[1:] <= partners[:-1]) & (owners[1:] == owners[:-1])).any():
        yield "the pairs of a row do not ascend"


LINKS = PackSchema(
    "pairs of similar rows: of documents or, if requested, of entities",
    {
        "names": keys("rows", "the key of each document or entity that is in a pair"),
        "indptr": Array(SMALLEST, ("rows + 1",), "where the pairs of each lower row begin, and the end", into="pairs"),
        "partners": Array(SMALLEST, ("pairs",), "the higher row of each pair", below="rows", least=0),
        "steps": Array("int16", ("pairs",), "the cosine of the two vectors times 31,250, rounded down"),
    },
    checks=(
        PackCheck(
            "each pair is listed once, under its lower row, and the pairs of a row ascend",
            ("names", "indptr", "partners"),
            _link_problems,
        ),
    ),
)

PACKS = {
    "document_vectors/<shard>": DOCUMENT_VECTORS,
    "document_links/<block>": LINKS,
    "entity_links/<block>": LINKS,
}
