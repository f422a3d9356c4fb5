"""Turns the node ids of a tree that is built layer by layer into row numbers, children and parents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


class TreeRows:
    """A tree whose rows are numbered layer by layer, the lowest first; within a layer in the order of the given ids.

    offsets: the first row of each layer, then the total number of rows.
    """

    def __init__(self, ids: pa.Array) -> None:
        self.offsets = [0]
        self._children = [np.empty(0, dtype=np.int32)]
        self._pointers = [np.zeros(1, dtype=np.int64)]
        self._stand_ins = [np.empty(0, dtype=np.uint8)]
        self._parents: list[NDArray[np.int32]] = []
        self._begin(ids)

    def _begin(self, ids: pa.Array) -> None:
        self._ids = ids
        self._parents.append(np.full(len(ids), -1, dtype=np.int32))
        self.offsets.append(self.offsets[-1] + len(ids))

    def add(self, nodes: pa.Table, links: pa.Table) -> NDArray[np.int64]:
        """Add a layer; return the row of the parent of each node of the layer below.

        nodes: ids and `stand_in`. links: the ids of a node and of one of its children; each child has one parent.
        """
        ids = nodes.column(0).combine_chunks()
        owner = pc.index_in(links.column(0), ids).to_numpy().astype(np.int64)
        child = pc.index_in(links.column(1), self._ids).to_numpy()
        order = np.lexsort((child, owner))
        self._children.append((child[order] + self.offsets[-2]).astype(np.int32))
        self._pointers.append(np.cumsum(np.bincount(owner, minlength=len(ids))) + self._pointers[-1][-1])
        self._stand_ins.append(nodes.column("stand_in").to_numpy().astype(np.uint8))
        labels = np.empty(len(self._ids), dtype=np.int64)
        labels[child] = owner
        self._parents[-1][child] = owner + self.offsets[-1]
        self._begin(ids)
        return labels

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the tree as `children.indptr`, `children.indices`, `parents` and `stand_ins`."""
        return {
            "children.indptr": np.concatenate(self._pointers),
            "children.indices": np.concatenate(self._children),
            "parents": np.concatenate(self._parents),
            "stand_ins": np.concatenate(self._stand_ins),
        }
