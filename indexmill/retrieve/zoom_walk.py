"""The coarse walk of ZoomRAG: one matrix for all questions, a distribution for each (section 3.3, eqs. 3, 6-9).

The shared matrix M holds documents and entities. A question is a node of its own: it is linked to some of them by H,
starts the walk, and is returned to in every step. Its state never meets another question's, and its links are added to
a column's sum on the fly (the denominator of eq. 7), so that M is neither copied nor changed, however many questions
are at work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.matrices import Integers, Rows, Scores

__all__ = ["Block", "QuestionLinks", "Scale", "Shared", "average", "shared", "walk"]

Scale = Literal["cells", "links"]
"""What the average weight of a block is taken over: all its cells, or its stored links."""

_LINKS_AT_ONCE = 1 << 16
"""Links that are laid out at once: a walk's memory does not grow with the matrix."""


class Block(NamedTuple):
    """A block of M by rows (CSR): pointers, columns and weights."""

    indptr: Integers
    indices: Integers
    weights: npt.NDArray[np.floating]

    def owners(self) -> Rows:
        """The row of every link."""
        return np.arange(len(self.indptr) - 1).repeat(np.diff(self.indptr))


class QuestionLinks(NamedTuple):
    """A question's links [H]: nodes, ascending, and weights, rescaled as the blocks of M are."""

    nodes: Rows
    weights: Scores


@dataclass(frozen=True, slots=True)
class Shared:
    """The matrix M of eq. 6 over documents, then entities; symmetric, each block of the same average weight.

    sums: ``(n_nodes,)``, of the columns.
    """

    indptr: Rows
    indices: npt.NDArray[np.int32]
    weights: Scores
    sums: Scores
    documents: int

    def without(self, documents: npt.NDArray[np.bool_]) -> Shared:
        """The same matrix without some documents: nothing leads to or from them; weights stay."""
        gone = np.zeros(len(self.sums), dtype=np.bool_)
        gone[: self.documents] = documents
        owners = np.arange(len(self.sums)).repeat(np.diff(self.indptr))
        stay = ~(gone[owners] | gone[self.indices])
        return _compressed(owners[stay], self.indices[stay], self.weights[stay], len(self.sums), self.documents)


def average(total: float, links: int, cells: int, scale: Scale) -> float:
    """The average weight of a block, which its weights are divided by; 1 for an empty one."""
    return total / (links if scale == "links" else cells) if total > 0 else 1.0


def shared(documents: Block, contents: Block, entities: Block, linked: int, scale: Scale) -> Shared:
    """Put M together: document links, incidence (documents x entities) both ways, entity links.

    linked: the number of entities that count as cells of a block: those in any document.
    """
    n, m = len(documents.indptr) - 1, len(entities.indptr) - 1
    rows: list[Rows] = []
    columns: list[Rows] = []
    weights: list[Scores] = []
    blocks = ((documents, n * n, 0, 0), (contents, n * linked, 0, n), (entities, linked**2, n, n))
    for block, cells, below, right in blocks:
        held = block.weights.astype(np.float64)
        held = held / average(float(held.sum()), len(held), cells, scale)
        owner, column = block.owners() + below, block.indices.astype(np.int64) + right
        rows.append(owner)
        columns.append(column)
        weights.append(held)
        if block is contents:
            rows.append(column)
            columns.append(owner)
            weights.append(held)
    row, column, weight = np.concatenate(rows), np.concatenate(columns), np.concatenate(weights)
    order = np.lexsort((column, row))
    return _compressed(row[order], column[order], weight[order], n + m, n)


def _compressed(rows: Rows, columns: Integers, weights: Scores, nodes: int, documents: int) -> Shared:
    """A symmetric matrix from links ordered by row, then column."""
    indptr = np.concatenate([[0], np.bincount(rows, minlength=nodes).cumsum()]).astype(np.int64)
    return Shared(
        indptr,
        columns.astype(np.int32, copy=False),
        weights,
        np.bincount(rows, weights, nodes).astype(np.float64),  # symmetric: a column's sum is its row's
        documents,
    )


def walk(graph: Shared, links: QuestionLinks, steps: int, restart: float, follow: float = 0.0) -> tuple[Scores, float]:
    """The distribution after some steps from the question (eq. 3): over the nodes of M, and what the question holds.

    restart: the probability to jump back to the question [alpha]. follow: a node with no more than this is not followed
    further, as if its column were empty; 0 follows all. What stands in an empty column is lost, so scores add up to one
    where no column is. One question's state is all that is held: ``O(n_nodes)``.
    """
    nodes = len(graph.sums)
    total = links.weights.sum()
    score, asked = np.zeros(nodes), 1.0
    if not len(links.nodes):
        return score, asked
    start = (1 - restart) * (links.weights / total)
    denominators = graph.sums.copy()
    denominators[links.nodes] += links.weights
    for _ in range(steps):
        active = (score > follow).nonzero()[0]
        passed = (1 - restart) * (score[active] / denominators[active])  # z of eq. 7
        back = np.zeros(nodes)
        back[active] = passed
        returned = float((links.weights * back[links.nodes]).sum())
        score = _spread(graph, active, passed)
        score[links.nodes] += start * asked
        asked = returned + restart
    return score, asked


def _spread(graph: Shared, active: Rows, passed: Scores) -> Scores:
    """M z: what some nodes, each passing on so much per weight, give to all."""
    starts = graph.indptr.take(active)
    lengths = graph.indptr.take(active + 1) - starts
    ends = lengths.cumsum()
    reached = np.zeros(len(graph.sums))
    first = 0
    while first < len(active):
        before = int(ends[first - 1]) if first else 0
        last = max(int(ends.searchsorted(before + _LINKS_AT_ONCE, side="right")), first + 1)
        some = lengths[first:last]
        places = (starts[first:last] - ends[first:last] + some + before).repeat(some)
        places += np.arange(len(places))
        flow = passed[first:last].repeat(some)
        flow *= graph.weights.take(places)
        reached += np.bincount(graph.indices.take(places), flow, len(reached))
        first = last
    return reached
