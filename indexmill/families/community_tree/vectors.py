"""The entities and communities of community_tree with their vectors, for ``indexmill export --vectors``.

The vectors come from the C-HNSW index, which rounds them to its grid; they are scaled to unit length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexmill.errors import CorruptBlob
from indexmill.export.entity_graph import pieces
from indexmill.export.export_tables import DocumentIds, TableOf, spans, vector_table
from indexmill.families.community_tree.nodes import INDEX, TREE, open_tree

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

_TEXTS = dict.fromkeys(("id", "title", "text"), pa.string())
_SHARED = {"tokens": pa.int32(), "stand_in": pa.bool_(), "document_ids": pa.list_(pa.string())}
_DESCRIBED = {**_TEXTS, "type": pa.string(), **_SHARED}
_COMMUNITIES = {**_TEXTS, "level": pa.int32(), "rating": pa.float32(), "members": pa.int32(), **_SHARED}


def described(artifacts: Artifacts, documents: DocumentIds) -> TableOf:
    """Return the entities with their descriptions, and the documents they were extracted from. Raises CorruptBlob."""
    columns = {"id": "entity_id", "title": "surface", "text": "description"}
    rows = _rows(artifacts, documents, "described", columns, _DESCRIBED)
    return vector_table("described", artifacts.dimensions or 0, _DESCRIBED, rows)


def communities(artifacts: Artifacts, documents: DocumentIds) -> TableOf:
    """Return the communities with their reports, and the documents behind their entities. Raises CorruptBlob."""
    rows = _rows(artifacts, documents, "communities", {"id": "community_id"}, _COMMUNITIES)
    return vector_table("communities", artifacts.dimensions or 0, _COMMUNITIES, rows)


def _rows(
    artifacts: Artifacts,
    documents: DocumentIds,
    name: str,
    renamed: Mapping[str, str],
    kinds: Mapping[str, pa.DataType],
) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes of a table. renamed: the table's column for each output column that has a different name."""
    tree = open_tree(artifacts)
    columns = {field: renamed.get(field, field) for field in kinds if field != "document_ids"}
    before = 0 if name == "described" else tree.leaves
    places = tree.index_places
    if (places < 0).any():
        raise CorruptBlob(f"{artifacts.path}: {INDEX!r} lacks nodes of {TREE!r}")
    for start, table in pieces(artifacts, name, list(columns.values())):
        begin = before + start
        if begin + len(table) > len(places):
            raise CorruptBlob(f"{artifacts.path}: {name!r} has more rows than {TREE!r}")
        for first, last in spans(0, tree.extractions[begin : begin + len(table)]):
            part = table.slice(first, last - first)
            owners, entities = tree.leaves_under(np.arange(begin + first, begin + last))
            whose, passages, _ = tree.passages.links(entities)
            yield {
                **{field: part[column] for field, column in columns.items()},
                "document_ids": documents.behind(owners[whose], passages, len(part)),
                "vector": _units(tree.index.vectors[places[begin + first : begin + last]]),
            }


def _units(grid: npt.NDArray[np.int16]) -> npt.NDArray[np.float32]:
    """Convert grid vectors to unit vectors; integer sums give the same bits with every library."""
    whole = grid.astype(np.int64)
    lengths = np.sqrt((whole * whole).sum(axis=1).astype(np.float64))
    return np.asarray(whole / np.maximum(lengths, 1.0)[:, None], dtype=np.float32)
