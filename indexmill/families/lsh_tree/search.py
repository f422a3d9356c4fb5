"""A tree of summaries over passages, and what a question is given of it (EraRAG, section III.D, Algorithm 2).

The search is collapsed: passages and summaries of every layer are one flat set, and the k nearest to the question are
the candidates. Two patterns fix how many of each kind there are, p the ratio:

    detailed      ceil(p k) passages,   then  k - ceil(p k) summaries
    summarised    ceil(p k) summaries,  then  k - ceil(p k) passages

The paper writes pk and k - pk; the favoured kind gets the fraction. Where one kind has too few, the other fills up.

A token budget is spent on the candidates in turn, the nearest first, under a pattern those of the favoured kind before
the others. One that does not fit into what is left of it is passed over and the next is tried: one long text would
otherwise keep out the shorter ones that follow, or everything where it comes first. Nothing beyond the k candidates
takes its place, so a budget only leaves out, and does not reach for far texts because they are short.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.retrieve.base import Allowed
from indexmill.retrieve.matrices import Sparse

__all__ = ["Nodes", "Tree", "candidates"]

Rows = npt.NDArray[np.int64]
Integers = npt.NDArray[np.integer]


class Nodes(NamedTuple):
    """Nodes of the tree in some order, and how near each is to the question."""

    rows: Rows
    scores: npt.NDArray[np.float32]


def candidates(passages: Nodes, summaries: Nodes, k: int, setting: LshTreeParameters) -> Nodes:
    """The k candidates in the order in which a budget is spent on them.

    passages, summaries: the k nearest of each kind, best first; fewer where there are fewer.
    """
    if setting.pattern == "collapsed":
        merged = _joined(passages, summaries)
        order = np.argsort(-merged.scores, kind="stable")[:k]  # of equal ones passages first, each kind as it stands
        return Nodes(merged.rows[order], merged.scores[order])
    detailed = setting.pattern == "detailed"
    favoured, others = (passages, summaries) if detailed else (summaries, passages)
    share = math.ceil(round(setting.ratio * k, 9))  # 0.7 * 10 is a little more than 7
    share = max(min(share, len(favoured.rows)), min(k - len(others.rows), len(favoured.rows)))
    rest = k - share
    return _joined(
        Nodes(favoured.rows[:share], favoured.scores[:share]), Nodes(others.rows[:rest], others.scores[:rest])
    )


def _joined(first: Nodes, second: Nodes) -> Nodes:
    return Nodes(np.concatenate([first.rows, second.rows]), np.concatenate([first.scores, second.scores]))


@dataclass(frozen=True, slots=True)
class Tree:
    """The nodes by row, layer after layer: passages in the snapshot's order, then summaries in that of their tables.

    offsets: ``(n_layers + 2,)``, where each layer begins, and the number of all nodes. links: summaries x nodes, the
    children of every summary, of the layer below. parents: ``(n_nodes,)``, the summary above, -1 for a root.
    """

    offsets: Integers
    links: Sparse
    parents: Integers

    @property
    def passages(self) -> int:
        """How many of the nodes are passages: the rows of layer 0."""
        return int(self.offsets[1])

    @property
    def layers(self) -> int:
        """How many layers of summaries there are."""
        return len(self.offsets) - 2

    def rows(self, layer: int) -> range:
        """The rows of a layer."""
        return range(int(self.offsets[layer]), int(self.offsets[layer + 1]))

    def layer(self, row: int) -> int:
        """The layer of a node, 0 of a passage."""
        return int(self.offsets.searchsorted(row, side="right")) - 1

    def roots(self) -> Rows:
        """The nodes without a summary above them: those of the top layer."""
        (rows,) = (self.parents < 0).nonzero()
        return rows

    def children(self, rows: Rows) -> Rows:
        """The children of some summaries of one layer, ascending."""
        return np.sort(self.links.links(rows - self.passages)[1])

    def passages_under(self, row: int) -> Rows:
        """The passages that a summary was made from, over all layers, ascending."""
        rows = np.array([row], dtype=np.int64)
        for _ in range(self.layer(row)):
            rows = self.children(rows)
        return rows

    def above(self, row: int) -> list[int]:
        """The summaries above a node, from the nearest to the root."""
        found: list[int] = []
        while (row := int(self.parents[row])) >= 0:
            found.append(row)
        return found

    def sizes(self) -> Rows:
        """How many passages are under every node, 1 for a passage: ``(n_nodes,)``."""
        found = np.ones(len(self.parents), dtype=np.int64)
        found[self.passages :] = 0
        for layer in range(self.layers):
            below = slice(*self.offsets[layer : layer + 2])
            parents = self.parents[below]
            inside = parents >= 0
            found += np.bincount(parents[inside], found[below][inside], len(found)).astype(np.int64)
        return found

    def allowed(self, passages: Allowed) -> Allowed:
        """Which nodes may be shown where some passages may not: of the summaries those of allowed passages alone.

        A summary tells what its passages say, so one forbidden passage forbids it.
        """
        found = np.ones(len(self.parents), dtype=np.bool_)
        found[: self.passages] = passages
        for layer in range(self.layers):
            below = slice(*self.offsets[layer : layer + 2])
            parents = self.parents[below]
            found[parents[~found[below] & (parents >= 0)]] = False
        return found
