"""The units, attributes and elements of heterograph with their vectors, for ``indexmill export --vectors``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from indexmill.errors import CorruptBlob
from indexmill.export.export_tables import DocumentIds, TableOf, spans, vector_table, with_vectors
from indexmill.families.heterograph.nodes import GRAPH
from indexmill.families.heterograph.search import KINDS
from indexmill.retrieve.matrices import Sparse

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def units(artifacts: Artifacts, documents: DocumentIds) -> TableOf:
    """Return the units and their passages. Raises CorruptBlob."""
    columns = {"id": "unit_id", "text": "text", "passage_id": "passage_id"}
    return _table(artifacts, documents, "S", "units", "unit_vectors", columns)


def attributes(artifacts: Artifacts, documents: DocumentIds) -> TableOf:
    """Return the attributes of important entities, and the documents behind them. Raises CorruptBlob."""
    columns = {"id": "attribute_id", "text": "text", "entity_id": "entity_id", "stand_in": "stand_in"}
    return _table(artifacts, documents, "A", "attributes", "attribute_vectors", columns)


def elements(artifacts: Artifacts, documents: DocumentIds) -> TableOf:
    """Return the high-level elements, and the documents behind them. Raises CorruptBlob."""
    columns = {"id": "element_id", "title": "title", "text": "text", "stand_in": "stand_in"}
    return _table(artifacts, documents, "H", "elements", "element_vectors", columns)


def _table(
    artifacts: Artifacts, documents: DocumentIds, kind: str, name: str, pack: str, columns: Mapping[str, str]
) -> TableOf:
    """Build the table of one kind of nodes: renamed columns, the documents of each row, and its vector."""

    def rows() -> Iterator[Mapping[str, Any]]:
        nodes, support = _nodes(artifacts, kind), Sparse.of(artifacts.arrays(GRAPH), "passages")
        for start, table, vectors in with_vectors(artifacts, name, list(columns.values()), pack):
            row_nodes = nodes[start : start + len(table)]
            if len(row_nodes) < len(table):
                raise CorruptBlob(f"{artifacts.path}: {name!r} has more rows than {GRAPH!r} has {kind} nodes")
            for first, last in spans(0, support.degrees(row_nodes)):
                part = table.slice(first, last - first)
                owners, passages, _ = support.links(row_nodes[first:last])
                yield {
                    **{one: part[column] for one, column in columns.items()},
                    "document_ids": documents.behind(owners, passages, len(part)),
                    "vector": vectors[first:last],
                }

    kinds = {one: pa.bool_() if one == "stand_in" else pa.string() for one in columns}
    kinds["document_ids"] = pa.list_(pa.string())
    return vector_table(name, artifacts.dimensions or 0, kinds, rows())


def _nodes(artifacts: Artifacts, kind: str) -> npt.NDArray[np.int64]:
    """Return the node of each row in the table of nodes of ``kind``; raises CorruptBlob if a row has none."""
    arrays = artifacts.arrays(GRAPH)
    first, last = arrays["offsets"][KINDS.index(kind) :][:2].tolist()
    rows = arrays["rows"][first:last]
    nodes = np.full(last - first, -1, np.int64)
    inside = rows < len(nodes)
    nodes[rows[inside]] = first + np.flatnonzero(inside)
    if (nodes < 0).any():
        raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} lacks nodes of kind {kind}")
    return nodes
