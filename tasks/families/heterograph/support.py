"""The passages that nodes come from, and the invariants of a finished graph.

A text comes from itself, a unit or a relation from the passages that state it, an attribute or a high-level element
from the passages of all nodes that were read for it. A hit shows these passages, and a filter drops nodes that come
only from excluded passages; a node without any passage is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from indexmill.retrieve.matrices import Sparse
from indexmill.text.counted import counted
from tasks.families.heterograph.graph import TypedGraph, places, relation_ids

if TYPE_CHECKING:
    from scipy import sparse

_EXACTLY_ONCE = {
    "text": ((1, "S"),),
    "source": ((1, "R"),),
    "target": ((0, "R"),),
    "attribute": ((1, "A"),),
    "overview": ((0, "H"), (1, "O")),
}
"""The edges that every node of a kind has exactly once, on the given side."""


def support(
    graph: TypedGraph, passages: pa.Array, units: pa.Table, relations: pa.Table, read: pa.Table | None = None
) -> Sparse:
    """Return the matrix of nodes of the first five kinds (T, S, A, H, R) x the passages that they come from.

    passages: ids, in the order of the columns. units, relations: schemas UNITS and RELATIONS. read: the nodes read for
    attributes and high-level elements, columns `owner` (the attribute's or element's node_id) and `node_id`. Raises
    ValueError for a node that comes from no passage.
    """
    height, width = int(graph.offsets[5]), len(passages)
    ids, text_ids = graph.ids.slice(0, height), graph.ids_of("T")
    node_rows = [places(one, ids) for one in (text_ids, units["unit_id"], relation_ids(relations))]
    passage_columns = [places(one, passages) for one in (text_ids, units["passage_id"], relations["passage_id"])]
    matrix = _matrix(np.concatenate(node_rows), np.concatenate(passage_columns), (height, width))
    if read is not None:
        inputs = _matrix(places(read["owner"], ids), places(read["node_id"], ids), (height, height))
        for _ in range(2):  # an element reads attributes, an attribute reads none
            matrix = _ones(matrix + inputs @ matrix)
    matrix.sort_indices()
    alone = np.flatnonzero(np.diff(matrix.indptr) == 0)
    if alone.size:
        first = graph.ids[int(alone[0])].as_py()
        raise ValueError(f"the node {first!r} comes from no passage; there are {alone.size:,} such nodes")
    return Sparse(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))


def faults(graph: TypedGraph) -> list[str]:
    """List the violations of a finished graph's invariants: every unit has one text, every attribute one entity, ...

    The ends of edges are not checked: `tasks.families.heterograph.graph` allows only the right kinds.
    """
    violations = []
    for edge, sides in _EXACTLY_ONCE.items():
        for side, kind in sides:
            rows = graph.rows(kind)
            edge_counts = np.bincount(graph.of(edge)[:, side] - rows.start, minlength=rows.stop - rows.start)
            wrong = np.flatnonzero(edge_counts != 1)
            if wrong.size:
                first = f"{graph.ids_of(kind)[int(wrong[0])].as_py()!r} has {edge_counts[wrong[0]]}"
                violations.append(f"{wrong.size:,} nodes of kind {kind} do not have exactly one edge {edge}: {first}")
    named = np.zeros(len(graph), dtype=np.bool_)
    for edge in ("mention", "subject"):
        named[graph.of(edge)[:, 1]] = True
    entities = graph.rows("N")
    if not named[entities].all():
        unnamed = counted(int(np.count_nonzero(~named[entities])), "entity is", "entities are")
        violations.append(f"{unnamed} neither named by a unit nor the subject of one")
    return violations


def _matrix(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> sparse.csr_array:
    """Return a matrix with ones at the given positions; positions with a negative row or column are left out."""
    from scipy import sparse  # slow to import, and the checks of other families do not need it

    inside = (rows >= 0) & (columns >= 0)
    ones = np.ones(int(np.count_nonzero(inside)), dtype=np.int32)
    return _ones(sparse.csr_array((ones, (rows[inside], columns[inside])), shape=shape))


def _ones(matrix: sparse.csr_array) -> sparse.csr_array:
    matrix.sum_duplicates()
    matrix.data[:] = 1
    return matrix
