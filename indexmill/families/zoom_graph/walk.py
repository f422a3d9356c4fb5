"""The coarse walk of ZoomRAG: one matrix for all questions, a distribution for each (section 3.3, eqs. 3, 6-9).

The shared matrix M links documents and entities. A question is an additional node: H links it to some documents and
entities; the walk starts there and returns to the question in every step. Questions do not share state, and a
question's links are added to a column's sum on the fly (the denominator of eq. 7), so M is neither copied nor changed
for any number of questions. Several questions walk together, and the links of a followed node are gathered once and
used in all later steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import sums
from indexmill.retrieve.matrices import Integers, Rows, Scores, TooManyLinks

Scale = Literal["cells", "links"]
"""The denominator of a block's average weight: all its cells, or its stored links."""


MOST_LINKS = 1 << 19
"""The maximum number of links in memory at once for several questions, about 20 MiB."""


class CsrBlock(NamedTuple):
    """A block of rows of the matrix M (CSR): pointers, columns and weights."""

    indptr: Integers
    indices: Integers
    weights: npt.NDArray[np.floating]

    def owners(self) -> Rows:
        """Return the row of every link."""
        return np.arange(len(self.indptr) - 1).repeat(np.diff(self.indptr))


class QuestionLinks(NamedTuple):
    """The links [H] of some questions: their nodes, ascending by question and node, and weights, rescaled like M's."""

    questions: Rows
    nodes: Rows
    weights: Scores

    def slice(self, first: int, last: int) -> QuestionLinks:
        """Select the links of the questions ``first`` to ``last`` (exclusive), renumbered from 0."""
        cut = slice(*self.questions.searchsorted((first, last)))
        return QuestionLinks(self.questions[cut] - first, self.nodes[cut], self.weights[cut])


@dataclass(frozen=True, slots=True)
class Shared:
    """The symmetric matrix M of eq. 6 over documents, then entities, with blocks of equal average weight."""

    indptr: Rows
    indices: npt.NDArray[np.int32]
    weights: Scores
    sums: Scores
    documents: int

    def without(self, documents: npt.NDArray[np.bool_], entities: npt.NDArray[np.bool_] | None = None) -> Shared:
        """Copy the matrix without the links of some documents and entities; other weights do not change."""
        gone = np.zeros(len(self.sums), dtype=np.bool_)
        gone[: self.documents] = documents
        if entities is not None:
            gone[self.documents :] = entities
        owners = np.arange(len(self.sums)).repeat(np.diff(self.indptr))
        stay = ~(gone[owners] | gone[self.indices])
        nodes, rows, weights = len(self.sums), owners[stay], self.weights[stay]
        indptr = np.concatenate([[0], np.bincount(rows, minlength=nodes).cumsum()]).astype(np.int64)
        indices = self.indices[stay].astype(np.int32, copy=False)
        return Shared(indptr, indices, weights, _sums(rows, weights, nodes), self.documents)


def average(total: float, links: int, cells: int, scale: Scale) -> float:
    """Return the average weight of a block, the divisor of its weights; 1 for an empty block."""
    return total / (links if scale == "links" else cells) if total > 0 else 1.0


def averages(totals: Scores, links: Rows, cells: int, scale: Scale) -> Scores:
    """Return ``average`` of the blocks of several questions."""
    over = np.maximum(links, 1) if scale == "links" else max(cells, 1)
    return np.where(totals > 0, totals / over, 1.0)


def shared(documents: CsrBlock, contents: CsrBlock, entities: CsrBlock, linked: int, scale: Scale) -> Shared:
    """Assemble M: document links, incidence (documents x entities) in both directions, entity links.

    linked: the number of entities that occur in documents, which determines the number of cells of a block. A node's
    links to documents come before its links to entities, each in the order of their block: placing them takes a tenth
    of the time of sorting them.
    """
    n, m = len(documents.indptr) - 1, len(entities.indptr) - 1
    scaled = [
        block.weights / average(float(block.weights.sum(dtype=np.float64)), len(block.weights), cells, scale)
        for block, cells in ((documents, n * n), (contents, n * linked), (entities, linked**2))
    ]
    across, back, alike = (np.diff(one.indptr).astype(np.int64) for one in (documents, contents, entities))
    holders = np.bincount(contents.indices, minlength=m)
    indptr = np.concatenate([[0], np.concatenate([across + back, holders + alike]).cumsum()]).astype(np.int64)
    indices, weights = np.empty(indptr[-1], dtype=np.int32), np.empty(indptr[-1])

    def place(starts: Rows, lengths: Rows, columns: Integers, values: npt.NDArray[np.floating]) -> None:
        places = (starts - lengths.cumsum() + lengths).repeat(lengths)
        places += np.arange(len(places))
        indices[places], weights[places] = columns, values

    by_entity = _by_column(contents.indices)
    place(indptr[:n], across, documents.indices, scaled[0])
    place(indptr[:n] + across, back, contents.indices + np.int32(n), scaled[1])
    place(indptr[n:-1], holders, contents.owners().take(by_entity), scaled[1].take(by_entity))
    place(indptr[n:-1] + holders, alike, entities.indices + np.int32(n), scaled[2])
    owners = np.arange(n + m).repeat(np.diff(indptr))
    return Shared(indptr, indices, weights, _sums(owners, weights, n + m), n)


def _by_column(columns: Integers) -> Rows:
    """Order links by column, stably: by the lower 16 bits, then by the upper 16, which numpy does by radix."""
    order = (columns & 0xFFFF).astype(np.uint16).argsort(kind="stable")
    upper = (columns >> 16).astype(np.uint16)
    return order[upper[order].argsort(kind="stable")] if upper.any() else order


def _sums(rows: Rows, weights: Scores, nodes: int) -> Scores:
    """Sum the columns of a symmetric matrix, computed as row sums."""
    return np.bincount(rows, weights, nodes).astype(np.float64, copy=False)


@dataclass(frozen=True, slots=True)
class WalkResult:
    """The result of a walk, valid until the next walk.

    scores: the scores of the reached nodes, by number. remaining: ``(n_questions,)``, the score left at each question.
    """

    scores: Scores
    remaining: Scores
    numbers: _Numbers

    def of_nodes(self, questions: Rows, nodes: Rows) -> Scores:
        """Return the scores of (question, node) pairs, zero for nodes not reached."""
        places = self.numbers.of(questions, nodes)
        scores = np.zeros(len(places))
        (reached,) = (places >= 0).nonzero()
        scores[reached] = self.scores.take(places[reached])
        return scores

    def below(self, nodes: int) -> tuple[Rows, Rows, Scores]:
        """Return the questions, nodes and scores of the reached nodes below ``nodes``, ascending."""
        questions, reached = self.numbers.parts(self.numbers.keys)
        (some,) = ((reached < nodes) & (self.scores > 0)).nonzero()
        some = some[self.numbers.keys.take(some).argsort()]
        return questions.take(some), reached.take(some), self.scores.take(some)


class _Numbers:
    """A numbering of the nodes that questions reach, so that their scores fit into a short array.

    keys: the question and node of every number; the node takes the low ``bits``.
    """

    def __init__(self, questions: int, nodes: int) -> None:
        self.bits = max(nodes - 1, 0).bit_length()
        self.keys = np.empty(0, dtype=np.int64)
        self._number = np.full(questions << self.bits, -1, dtype=np.int32)

    def clear(self) -> None:
        self._number[self.keys] = -1
        self.keys = self.keys[:0]

    def parts(self, keys: Rows) -> tuple[Rows, Rows]:
        return keys >> self.bits, keys & ((1 << self.bits) - 1)

    def of(self, questions: Rows, nodes: Rows) -> Rows:
        """Return the numbers of (question, node) pairs, -1 for a pair without a number."""
        return self._number.take((questions << self.bits) | nodes).astype(np.int64)

    def add(self, questions: Rows, nodes: Rows) -> Rows:
        """Return the numbers of (question, node) pairs; assign missing ones."""
        keys = (questions << self.bits) | nodes
        new = keys.compress(self._number.take(keys) < 0)
        every = np.arange(len(new), dtype=np.int32)
        self._number[new] = every
        new = new.compress(self._number.take(new) == every)  # the last of duplicates
        self._number[new] = np.arange(len(self.keys), len(self.keys) + len(new))
        self.keys = np.concatenate([self.keys, new])
        return self._number.take(keys).astype(np.int64)


class _Followed:
    """The followed nodes, in order, and their links.

    numbers, questions: the number and the question of each node. linked: the weight of the question's link to the node.
    sums: the sum of the node's column.
    """

    def __init__(self) -> None:
        self._targets, self._weights = np.empty(0, dtype=np.int64), np.empty(0)
        self.clear()

    def clear(self) -> None:
        """Remove all nodes, but keep the buffers for links."""
        self.numbers = self.questions = self._lengths = np.empty(0, dtype=np.int64)
        self.linked = self.sums = np.empty(0)
        self.links = 0

    def add(self, numbers: Rows, linked: Scores, numbering: _Numbers, graph: Shared, most: int | None) -> None:
        """Follow more nodes; raises TooManyLinks if their links would exceed ``most`` in total."""
        questions, nodes = numbering.parts(numbering.keys.take(numbers))
        starts = graph.indptr.take(nodes)
        lengths = graph.indptr.take(nodes + 1) - starts
        ends = lengths.cumsum()
        more = int(ends[-1])
        first, last = self.links, self.links + more
        if most is not None and last > most:
            raise TooManyLinks
        if last > len(self._targets):
            room = max(2 * len(self._targets), last)
            targets, weights = np.empty(room, dtype=np.int64), np.empty(room)
            targets[:first], weights[:first] = self._targets[:first], self._weights[:first]
            self._targets, self._weights = targets, weights
        places = (starts - ends + lengths).repeat(lengths)
        places += np.arange(more)
        # The default mode would fill a copy of the output first, to keep the output intact on an error.
        graph.weights.take(places, out=self._weights[first:last], mode="clip")
        columns = graph.indices.take(places).astype(np.int64)
        self._targets[first:last] = numbering.add(questions.repeat(lengths), columns)
        self.links = last
        self.numbers = np.concatenate([self.numbers, numbers])
        self.questions = np.concatenate([self.questions, questions])
        self.linked = np.concatenate([self.linked, linked])
        self.sums = np.concatenate([self.sums, graph.sums.take(nodes) + linked])
        self._lengths = np.concatenate([self._lengths, lengths])

    def flow(self, passed: Scores, length: int) -> Scores:
        """Compute the flow into the first ``length`` numbered nodes. passed: what each passes on per unit of weight."""
        flow = passed.repeat(self._lengths)
        flow *= self._weights[: self.links]
        return sums(self._targets[: self.links], flow, length)


class Walk:
    """Walks on one matrix, for at most ``most`` questions together. Not thread-safe.

    A question's nodes are numbered as they are reached: a score is the sum of the flow into its number, and no number
    is shared by questions. So the size of a walk's state depends on the question and not on the corpus.
    """

    def __init__(self, graph: Shared, most: int) -> None:
        self._graph = graph
        self._numbers = _Numbers(most, len(graph.sums))
        self._followed = _Followed()

    def walk(self, links: QuestionLinks, count: int, steps: int, restart: float, follow: float = 0.0) -> WalkResult:
        """Compute the distributions after some steps from each of ``count`` questions (eq. 3).

        restart: the probability of a jump back to the question [alpha]. follow: a node with at most this score is not
        followed, as if its column were empty; 0 follows all. The score in an empty column is lost, so scores add up to
        one if no column is empty. A question without links keeps all of its score. Raises TooManyLinks if several
        questions follow more than MOST_LINKS.
        """
        numbers, followed = self._numbers, self._followed
        numbers.clear()
        followed.clear()
        numbers.add(links.questions, links.nodes)  # distinct pairs, so numbered from 0 in order
        linked_count = len(links.nodes)
        total = sums(links.questions, links.weights, count)
        start = (1 - restart) * (links.weights / total[links.questions])
        scores, remaining = np.zeros(linked_count), np.ones(count)
        linked, is_followed = links.weights, np.zeros(linked_count, dtype=np.bool_)
        for _ in range(steps):
            fresh = _unless(is_followed, scores > follow)
            if len(fresh):
                followed.add(fresh, linked.take(fresh), numbers, self._graph, None if count == 1 else MOST_LINKS)
                new = np.zeros(len(numbers.keys) - len(linked))
                linked, is_followed = np.concatenate([linked, new]), np.concatenate([is_followed, new > 0])
                scores = np.concatenate([scores, new])
            passed = scores.take(followed.numbers)
            flows = passed > follow
            passed /= followed.sums  # z of eq. 7
            passed *= 1 - restart
            passed *= flows
            returned = sums(followed.questions, followed.linked * passed, count)
            scores = followed.flow(passed, len(linked))
            scores[:linked_count] += start * remaining[links.questions]
            remaining = np.where(total > 0, returned + restart, 1.0)
        return WalkResult(scores, remaining, numbers)


def _unless(seen: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> Rows:
    """Return the chosen positions that are not marked in ``seen``, ascending, and mark them."""
    (places,) = chosen.nonzero()
    places = places[~seen.take(places)]
    seen[places] = True
    return places
