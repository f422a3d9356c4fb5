"""The coarse walk of ZoomRAG: one matrix for all questions, a distribution for each (section 3.3, eqs. 3, 6-9).

The shared matrix M holds documents and entities. A question is a node of its own: it is linked to some of them by H,
starts the walk, and is returned to in every step. Its state never meets another question's, and its links are added to
a column's sum on the fly (the denominator of eq. 7), so that M is neither copied nor changed, however many questions
are at work. Some questions walk together, and the links of a node that one follows are laid out once, for all
further steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import sums
from indexmill.retrieve.matrices import Integers, Rows, Scores, TooManyLinks

__all__ = ["Block", "QuestionLinks", "Scale", "Shared", "Walk", "Walked", "average", "averages", "shared"]

Scale = Literal["cells", "links"]
"""What the average weight of a block is taken over: all its cells, or its stored links."""


MOST_LINKS = 1 << 19
"""Most links that are laid out at once for several questions, some 20 MiB."""


class Block(NamedTuple):
    """A block of M by rows (CSR): pointers, columns and weights."""

    indptr: Integers
    indices: Integers
    weights: npt.NDArray[np.floating]

    def owners(self) -> Rows:
        """The row of every link."""
        return np.arange(len(self.indptr) - 1).repeat(np.diff(self.indptr))


class QuestionLinks(NamedTuple):
    """The links [H] of some questions: their nodes, ascending by question and node, and weights, rescaled as M's."""

    questions: Rows
    nodes: Rows
    weights: Scores

    def slice(self, first: int, last: int) -> QuestionLinks:
        """Those of the questions from ``first`` to before ``last``, which are numbered from 0."""
        cut = slice(*self.questions.searchsorted((first, last)))
        return QuestionLinks(self.questions[cut] - first, self.nodes[cut], self.weights[cut])


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


def averages(totals: Scores, links: Rows, cells: int, scale: Scale) -> Scores:
    """``average`` of the blocks of several questions."""
    over = np.maximum(links, 1) if scale == "links" else max(cells, 1)
    return np.where(totals > 0, totals / over, 1.0)


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


@dataclass(frozen=True, slots=True)
class Walked:
    """Where some questions' walks end: the scores of documents ``(n_questions, n_documents)`` and of entities, and what
    each question holds ``(n_questions,)``. Good until the next walk."""

    documents: Scores
    entities: Scores
    held: Scores
    numbers: _Numbers

    def of_entities(self, questions: Rows, entities: Rows) -> Scores:
        """The scores of some questions' entities, zero for one that was not reached."""
        places = self.numbers.of(questions, entities)
        found = np.zeros(len(places))
        (reached,) = (places >= 0).nonzero()
        found[reached] = self.entities.take(places[reached])
        return found


class _Numbers:
    """Counts the entities that some questions reach: few of many, so that what they hold is a short column.

    keys: question and entity of every number, in so many ``bits``.
    """

    def __init__(self, questions: int, entities: int) -> None:
        self.bits = max(entities - 1, 0).bit_length()
        self.keys = np.empty(0, dtype=np.int64)
        self._number = np.full(questions << self.bits, -1, dtype=np.int32)

    def clear(self) -> None:
        """Forget all."""
        self._number[self.keys] = -1
        self.keys = self.keys[:0]

    def of(self, questions: Rows, entities: Rows) -> Rows:
        """The numbers of some questions' entities, -1 for none."""
        return self._number.take((questions << self.bits) | entities).astype(np.int64)

    def add(self, questions: Rows, entities: Rows) -> Rows:
        """The numbers of some questions' entities, new ones where they have none."""
        keys = (questions << self.bits) | entities
        new = keys.compress(self._number.take(keys) < 0)
        every = np.arange(len(new), dtype=np.int32)
        self._number[new] = every
        new = new.compress(self._number.take(new) == every)  # of equal ones the last
        self._number[new] = np.arange(len(self.keys), len(self.keys) + len(new))
        self.keys = np.concatenate([self.keys, new])
        return self._number.take(keys).astype(np.int64)


class _Laid(NamedTuple):
    """The links of some nodes that are followed.

    places, questions, linked, sums: of each node its place, its question, the weight of the question's link to it, and
    the sum of its column. lengths: how many links it has. targets, weights: of every link.
    """

    places: Rows
    questions: Rows
    linked: Scores
    sums: Scores
    lengths: Rows
    targets: Rows
    weights: Scores

    def and_(self, more: _Laid) -> _Laid:
        """These links and others after them."""
        both: list[Any] = [np.concatenate(column) for column in zip(self, more, strict=True)]
        return _Laid(*both)


class Walk:
    """Walks on one matrix, of at most ``most`` questions together. Not to be shared by threads.

    A question's documents have a place each, its entities one as they are reached: a score is the sum of what flows to
    its place, and no place is two questions'.
    """

    def __init__(self, graph: Shared, most: int) -> None:
        self._graph = graph
        self._numbers = _Numbers(most, len(graph.sums) - graph.documents)

    def walk(self, links: QuestionLinks, count: int, steps: int, restart: float, follow: float = 0.0) -> Walked:
        """The distributions after some steps from each of ``count`` questions (eq. 3).

        restart: the probability to jump back to the question [alpha]. follow: a node with no more than this is not
        followed further, as if its column were empty; 0 follows all. What stands in an empty column is lost, so scores
        add up to one where no column is. A question that has no links holds everything. Raises TooManyLinks where
        several questions follow more than MOST_LINKS.
        """
        self._numbers.clear()
        width = count * self._graph.documents
        total = sums(links.questions, links.weights, count)
        start = (1 - restart) * (links.weights / total[links.questions])
        own = self._places(links.questions, np.ones(len(links.nodes), dtype=np.int64), links.nodes, width)
        score, held = np.zeros(width + len(self._numbers.keys)), np.ones(count)
        linked = np.zeros(len(score))
        linked[own] = links.weights
        laid: _Laid | None = None
        is_laid = np.zeros(len(score), dtype=np.bool_)
        for _ in range(steps):
            fresh = score > follow
            fresh &= ~is_laid
            if fresh.any():
                is_laid |= fresh
                most = None if count == 1 else MOST_LINKS - (0 if laid is None else len(laid.targets))
                new = self._lay_out(fresh.nonzero()[0], linked, width, most)
                laid = new if laid is None else laid.and_(new)
                more = np.zeros(width + len(self._numbers.keys) - len(score))
                linked, is_laid = np.concatenate([linked, more]), np.concatenate([is_laid, more > 0])
            before, score = score, np.zeros(len(score))
            returned = np.zeros(count)
            if laid is not None:
                passed = before.take(laid.places)
                passed = np.where(passed > follow, (1 - restart) * (passed / laid.sums), 0.0)  # z of eq. 7
                returned = sums(laid.questions, laid.linked * passed, count)
                flow = passed.repeat(laid.lengths)
                flow *= laid.weights
                score = sums(laid.targets, flow, len(linked))
            score[own] += start * held[links.questions]
            held = np.where(total > 0, returned + restart, 1.0)
        documents = score[:width].reshape(count, self._graph.documents)
        return Walked(documents, score[width:], held, self._numbers)

    def _places(self, questions: Rows, lengths: Rows, nodes: Integers, width: int) -> Rows:
        """The places of nodes, so many of each of some questions: those of documents are below ``width``."""
        places = (questions * self._graph.documents).repeat(lengths)
        places += nodes
        (entities,) = (nodes >= self._graph.documents).nonzero()
        if len(entities):
            rows = nodes.take(entities).astype(np.int64) - self._graph.documents
            asking = questions.repeat(lengths).take(entities)
            places[entities] = self._numbers.add(asking, rows) + width
        return places

    def _lay_out(self, places: Rows, linked: Scores, width: int, most: int | None) -> _Laid:
        """Lay out the links of what stands at some places; raises TooManyLinks for more than ``most``."""
        documents = self._graph.documents
        cut = int(places.searchsorted(width))
        questions, nodes = np.divmod(places[:cut], documents) if documents else (places[:0], places[:0])
        keys = self._numbers.keys[places[cut:] - width]
        questions = np.concatenate([questions, keys >> self._numbers.bits])
        nodes = np.concatenate([nodes, (keys & ((1 << self._numbers.bits) - 1)) + documents])
        starts = self._graph.indptr.take(nodes)
        lengths = self._graph.indptr.take(nodes + 1) - starts
        ends = lengths.cumsum()
        if most is not None and ends[-1] > most:
            raise TooManyLinks
        links = (starts - ends + lengths).repeat(lengths)
        links += np.arange(len(links))
        targets = self._places(questions, lengths, self._graph.indices.take(links), width)
        own = linked.take(places)
        return _Laid(
            places,
            questions,
            own,
            self._graph.sums.take(nodes) + own,
            lengths,
            targets,
            self._graph.weights.take(links),
        )
