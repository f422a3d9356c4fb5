"""Trees stored layer by layer: leaves first, then nodes that summarise the nodes of the layer below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.matrices import Integers, Rows, Sparse
from indexmill.retrieve.retrieval_method import Allowed


@dataclass(frozen=True)
class LayeredTree:
    """A tree whose nodes are rows.

    offsets: ``(n_layers + 1,)``, the first row of each layer, then the number of nodes; layer 0 contains the leaves.
    children: one row per node above the leaves; its columns are the rows of the child nodes. parents: ``(n_nodes,)``,
    -1 for a root.
    """

    offsets: Integers
    children: Sparse
    parents: Integers

    @classmethod
    def of_parents(cls, offsets: Integers, above: Integers) -> LayeredTree:
        """Build a tree, given the position of each node's parent in the layer above (0.02 s for 381,320 leaves)."""
        bounds: Rows = offsets.astype(np.int64)
        sizes: Rows = bounds[1:] - bounds[:-1]
        children = above + bounds[1:-1].repeat(sizes[:-1])
        child_counts = np.bincount(children - offsets[1], minlength=int(offsets[-1] - offsets[1]))
        order = [
            begin + above[begin:end].argsort(kind="stable")
            for begin, end in zip(offsets.tolist(), offsets.tolist()[1:-1], strict=False)
        ]
        indices = np.concatenate([np.empty(0, np.int64), *order]).astype(np.int32)
        parents = np.full(int(offsets[-1]), -1, np.int32)
        parents[: len(children)] = children
        return cls(offsets, Sparse(np.concatenate([[0], child_counts.cumsum()]), indices), parents)

    @property
    def leaves(self) -> int:
        """The number of leaves, which are the first rows."""
        return int(self.offsets[1])

    @property
    def height(self) -> int:
        """The number of layers above the leaves."""
        return len(self.offsets) - 2

    def rows(self, layer: int) -> range:
        return range(int(self.offsets[layer]), int(self.offsets[layer + 1]))

    def layer(self, row: int) -> int:
        """Return the layer of a node, 0 for a leaf."""
        return int(self.offsets.searchsorted(row, side="right")) - 1

    def roots(self) -> Rows:
        """Return the nodes without a parent."""
        (rows,) = (self.parents < 0).nonzero()
        return rows

    def members(self, row: int) -> Rows:
        """Return the children of a node that is not a leaf, ascending."""
        return self.children.links(np.array([row - self.leaves]))[1]

    def ancestors(self, row: int) -> list[int]:
        """List the ancestors of a node, from the nearest to the root."""
        ancestors: list[int] = []
        while (row := int(self.parents[row])) >= 0:
            ancestors.append(row)
        return ancestors

    def leaves_under(self, rows: Rows) -> tuple[Rows, Rows]:
        """Find the leaves under some nodes, in any order: the position of each leaf's node in ``rows``, and its row."""
        owners, leaves = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        layers = self.offsets.searchsorted(rows, side="right") - 1
        for layer in range(self.height + 1):
            (places,) = (layers == layer).nonzero()
            current = rows[places]
            for _ in range(layer):
                whose, current, _ = self.children.links(current - self.leaves)
                places = places[whose]
            owners.append(places)
            leaves.append(current)
        return np.concatenate(owners), np.concatenate(leaves)

    def summed(self, of_leaves: npt.NDArray[np.integer]) -> Rows:
        """Sum a number per leaf over the leaves under each node: ``(n_nodes,) int64``."""
        sums = np.zeros(len(self.parents), dtype=np.int64)
        sums[: self.leaves] = of_leaves
        for layer in range(self.height):
            below = slice(*self.offsets[layer : layer + 2])
            parents = self.parents[below]
            inside = parents >= 0
            np.add.at(sums, parents[inside], sums[below][inside])
        return sums

    def allowed_above(self, leaves: Allowed) -> Allowed:
        """Return a mask ``(n_nodes,)`` of the nodes whose leaves are all allowed: only these may be shown."""
        forbidden = self.summed((~leaves).astype(np.int64))
        return np.asarray(forbidden == 0)
