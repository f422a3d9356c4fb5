"""The summaries of lsh_tree with their vectors, for ``indexmill export --vectors``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from indexmill.errors import CorruptBlob
from indexmill.export.export_tables import DocumentIds, TableOf, spans, vector_table, with_vectors
from indexmill.families.lsh_tree.summaries import open_tree
from indexmill.models.pooling import unit_rows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

_SUMMARIES = {
    "id": pa.string(),
    "text": pa.string(),
    "layer": pa.int32(),
    "tokens": pa.int32(),
    "stand_in": pa.bool_(),
    "document_ids": pa.list_(pa.string()),
}


def summaries(artifacts: Artifacts, documents: DocumentIds) -> TableOf:
    """Return the summaries, each with the ids of the documents of the passages under it. Raises CorruptBlob."""
    return vector_table("summaries", artifacts.dimensions or 0, _SUMMARIES, _summaries(artifacts, documents))


def _summaries(artifacts: Artifacts, documents: DocumentIds) -> Iterator[Mapping[str, Any]]:
    tree = open_tree(artifacts)
    sizes = tree.summed(np.ones(tree.leaves, np.int64))
    columns = ["node_id", "text", "layer", "tokens", "stand_in"]
    for start, table, vectors in with_vectors(artifacts, "summaries", columns, "summary_vectors"):
        begin = tree.leaves + start
        if begin + len(table) > len(sizes):
            raise CorruptBlob(f"{artifacts.path}: 'summaries' has more summaries than 'lsh_tree/tree'")
        for first, last in spans(0, sizes[begin : begin + len(table)]):
            part = table.slice(first, last - first)
            owners, passages = tree.leaves_under(np.arange(begin + first, begin + last))
            yield {
                "id": part["node_id"],
                **{name: part[name] for name in columns[1:]},
                "document_ids": documents.behind(owners, passages, len(part)),
                "vector": unit_rows(vectors[first:last]),  # stored as float16
            }
