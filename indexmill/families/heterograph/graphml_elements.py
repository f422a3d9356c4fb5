"""The heterograph of a snapshot for GraphML: nodes and edges in the order of their tables.

Only the rows of all entities and the texts of one shard, or of one row group of a corpus-wide table, are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import CorruptBlob
from indexmill.export.entity_graph import paired, pieces
from indexmill.export.graphml import Elements
from indexmill.families.heterograph.nodes import GRAPH, SHOWN
from indexmill.families.heterograph.search import KINDS
from indexmill.retrieve.matrices import Integers
from indexmill.retrieve.method_registry import check_family, enable

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

_UNDIRECTED = ("same_as", "near")  # the undirected kinds of edges: source and target are interchangeable

_NODES = pa.schema(dict.fromkeys(("id", "label", "kind", "text", "document"), pa.string()))

_EDGES = pa.schema(
    {
        **dict.fromkeys(("source", "target", "kind"), pa.string()),
        "directed": pa.bool_(),
        "weight": pa.float64(),
    }
)


def heterograph(artifacts: Artifacts) -> tuple[Elements, Elements]:
    """Return the nodes and edges of a snapshot's heterograph. Raises FamilyNotFound, CorruptBlob.

    A node has a ``kind``, as in hits, and a ``label``: the title of a text's document, the entity of an attribute, or
    the wording of a relation. All nodes except entities and overviews have a ``text``; texts also have a ``document``.
    An edge has a ``kind``, a ``weight``, and ``directed``, which is false for undirected kinds. A relation is a node
    between its entities, with an edge from its source and an edge to its target.
    """
    advice = f"; set {enable(GRAPH)} in indexmill.yaml, build, and export the new version"
    check_family(artifacts.manifest, artifacts.path, "heterograph", advice)
    arrays = artifacts.arrays(GRAPH)
    nodes = _nodes(artifacts, arrays["offsets"], arrays["rows"])
    return Elements(_NODES, nodes), Elements(_EDGES, _edges(artifacts))


def _nodes(artifacts: Artifacts, offsets: Integers, rows: Integers) -> Iterator[pa.Table]:
    first, last = offsets[KINDS.index("N") :][:2].tolist()
    named = np.sort(rows[first:last])
    tables = {
        "T": _texts(artifacts),
        "S": _pieces_of("S", _shards(artifacts, "units", {"id": "unit_id", "text": "text"})),
        "A": _attributes(artifacts),
        "H": _pieces_of("H", _shards(artifacts, "elements", {"id": "element_id", "label": "title", "text": "text"})),
        "R": _relations(artifacts),
        "N": _entities(artifacts, named),
        "O": _pieces_of("O", _shards(artifacts, "elements", {"id": "overview_id", "label": "title"})),
    }
    for (kind, pieces_of_kind), expected in zip(tables.items(), np.diff(offsets).tolist(), strict=True):
        count = 0
        for piece in pieces_of_kind:
            count += len(piece)
            yield piece
        if count != expected:
            raise CorruptBlob(
                f"{artifacts.path}: {GRAPH!r} has {expected} nodes of kind {kind}; the tables have {count}; check the "
                "snapshot with `indexmill verify`, or build again"
            )


def _texts(artifacts: Artifacts) -> Iterator[pa.Table]:
    columns = ["passage_id", "document_id", "text"]
    for _, table, documents in paired(artifacts, "passages", columns, "documents", ["document_id", "title"]):
        yield _piece(
            "T",
            {
                "id": table["passage_id"],
                "label": _lookup(table["document_id"], documents["document_id"], documents["title"]),
                "text": table["text"],
                "document": table["document_id"],
            },
        )


def _attributes(artifacts: Artifacts) -> Iterator[pa.Table]:
    columns = ["attribute_id", "entity_id", "text"]
    for _, table, entities in paired(artifacts, "attributes", columns, "entities", ["entity_id", "surface"]):
        surfaces = _lookup(table["entity_id"], entities["entity_id"], entities["surface"])
        yield _piece("A", {"id": table["attribute_id"], "label": surfaces, "text": table["text"]})


def _relations(artifacts: Artifacts) -> Iterator[pa.Table]:
    for table in _row_groups(artifacts, "heterograph/relations", ["node_id", "text", "said"]):
        yield _piece("R", {"id": table["node_id"], "label": table["text"], "text": table["said"]})


def _entities(artifacts: Artifacts, named: np.ndarray) -> Iterator[pa.Table]:
    """Yield the entity nodes. named: the rows of the entities that are nodes, ascending."""
    for first, table in pieces(artifacts, "entities", ["entity_id", "surface"]):
        low, high = np.searchsorted(named, [first, first + len(table)])
        nodes = table.take(pa.array(named[low:high] - first))
        yield _piece("N", {"id": nodes["entity_id"], "label": nodes["surface"]})


def _edges(artifacts: Artifacts) -> Iterator[pa.Table]:
    for table in _row_groups(artifacts, "heterograph/edges", ["source", "target", "kind", "weight"]):
        directed = pc.invert(pc.is_in(table["kind"], pa.array(_UNDIRECTED)))
        yield table.append_column("directed", directed).select(_EDGES.names).cast(_EDGES)


def _shards(artifacts: Artifacts, name: str, columns: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """Yield some columns of a table under other names, a shard at a time."""
    for _, table in pieces(artifacts, name, sorted(set(columns.values()))):
        yield {new: table[old] for new, old in columns.items()}


def _pieces_of(kind: str, shards: Iterator[Mapping[str, Any]]) -> Iterator[pa.Table]:
    for columns in shards:
        yield _piece(kind, columns)


def _piece(kind: str, columns: Mapping[str, Any]) -> pa.Table:
    """Build a table of nodes of one kind; missing columns are null."""
    count = len(columns["id"])
    values = {"kind": pa.repeat(SHOWN[kind], count), **columns}
    return pa.table({name: values.get(name, pa.nulls(count, pa.string())) for name in _NODES.names}, schema=_NODES)


def _lookup(keys: pa.ChunkedArray, ids: pa.ChunkedArray, values: pa.ChunkedArray) -> pa.ChunkedArray:
    return values.take(pc.index_in(keys, ids.combine_chunks()))


def _row_groups(artifacts: Artifacts, name: str, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield some columns of a single-file table, a row group at a time. Raises NotFound, CorruptBlob."""
    from indexmill.store.table_reader import row_groups

    for table in row_groups(artifacts.file(name), artifacts.artifact(name), columns):
        yield table.select(list(columns))
