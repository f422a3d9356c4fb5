"""The coarse walk of ZoomRAG: one matrix for all questions, a distribution for each (section 3.3, eqs. 3, 6-9).

The shared matrix M holds documents and entities. A question is a node of its own: it is linked to some of them by H,
starts the walk, and is returned to in every step. Its state never meets another question's, and its links are added to
a column's sum on the fly (the denominator of eq. 7), so that M is neither copied nor changed, however many questions
are at work. Some questions walk together, and the links of a node that one follows are laid out once, for all
further steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import positions, sums
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

    middles: ``(n_nodes,)``, where a row's links to documents end and those to entities begin. sums: ``(n_nodes,)``, of
    the columns.
    """

    indptr: Rows
    middles: Rows
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
    to_documents = np.bincount(rows[columns < documents], minlength=nodes)
    return Shared(
        indptr,
        indptr[:-1] + to_documents,
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


class _Links:
    """The links to documents, or those to entities, of the nodes that are followed, in the order of the nodes.

    lengths: how many of each node. targets, weights: of every link, with room for more.
    """

    def __init__(self) -> None:
        self.lengths = np.empty(0, dtype=np.int64)
        self._count = 0
        self._targets, self._weights = np.empty(0, dtype=np.int64), np.empty(0)

    def clear(self) -> None:
        """Forget all, but keep the room."""
        self.lengths, self._count = self.lengths[:0], 0

    def __len__(self) -> int:
        return self._count

    def add(self, starts: Rows, lengths: Rows, graph: Shared) -> tuple[npt.NDArray[np.int32], Rows]:
        """Add links of the matrix, so many from each start: their columns, and their targets, still to be filled."""
        ends = lengths.cumsum()
        more = int(ends[-1]) if len(ends) else 0
        first, self._count = self._count, self._count + more
        if self._count > len(self._targets):
            room = max(2 * len(self._targets), self._count)
            targets, weights = np.empty(room, dtype=np.int64), np.empty(room)
            targets[:first], weights[:first] = self._targets[:first], self._weights[:first]
            self._targets, self._weights = targets, weights
        self.lengths = np.concatenate([self.lengths, lengths])
        places = (starts - ends + lengths).repeat(lengths)
        places += np.arange(more)
        # Not the default mode, which would fill a copy of the output first to keep it whole on an error.
        graph.weights.take(places, out=self._weights[first : self._count], mode="clip")
        return graph.indices.take(places), self._targets[first : self._count]

    def flow(self, passed: Scores, length: int) -> Scores:
        """What comes to each target below ``length`` where every node passes on so much along a link of weight one."""
        flow = passed.repeat(self.lengths)
        flow *= self._weights[: self._count]
        return sums(self._targets[: self._count], flow, length)


class _Followed(NamedTuple):
    """Nodes that are followed, documents before entities.

    documents, entities: where their scores stand. questions, linked, sums: of each node its question, the weight of the
    question's link to it, and the sum of its column.
    """

    documents: Rows
    entities: Rows
    questions: Rows
    linked: Scores
    sums: Scores


class Walk:
    """Walks on one matrix, of at most ``most`` questions together. Not to be shared by threads.

    A question's documents have a place each, its entities a number as they are reached: a score is the sum of what
    flows to its place, and no place is two questions'.
    """

    def __init__(self, graph: Shared, most: int) -> None:
        self._graph = graph
        self._numbers = _Numbers(most, len(graph.sums) - graph.documents)
        self._to_documents, self._to_entities = _Links(), _Links()

    def walk(self, links: QuestionLinks, count: int, steps: int, restart: float, follow: float = 0.0) -> Walked:
        """The distributions after some steps from each of ``count`` questions (eq. 3).

        restart: the probability to jump back to the question [alpha]. follow: a node with no more than this is not
        followed further, as if its column were empty; 0 follows all. What stands in an empty column is lost, so scores
        add up to one where no column is. A question that has no links holds everything. Raises TooManyLinks where
        several questions follow more than MOST_LINKS.
        """
        for laid in (self._numbers, self._to_documents, self._to_entities):
            laid.clear()
        n = self._graph.documents
        total = sums(links.questions, links.weights, count)
        start = (1 - restart) * (links.weights / total[links.questions])
        is_entity = links.nodes >= n
        (to_documents,), (to_entities,) = (~is_entity).nonzero(), is_entity.nonzero()
        own = links.questions[to_documents] * n + links.nodes[to_documents]
        self._numbers.add(links.questions[to_entities], links.nodes[to_entities] - n)  # distinct: from 0 in their order
        documents, entities, held = np.zeros(count * n), np.zeros(len(to_entities)), np.ones(count)
        weights, linked = links.weights[to_documents], links.weights[to_entities]
        is_laid, entity_is_laid = np.zeros(count * n, dtype=np.bool_), np.zeros(len(to_entities), dtype=np.bool_)
        followed: list[_Followed] = []
        for step in range(steps):
            if step:
                fresh = _unless(is_laid, documents > follow)
                fresh_entities = _unless(entity_is_laid, entities > follow)
                if len(fresh) or len(fresh_entities):
                    at, known = positions(fresh, own)
                    its = np.zeros(len(fresh))
                    its[known] = weights[at[known]]
                    its = np.concatenate([its, linked.take(fresh_entities)])
                    followed.append(self._follow(fresh, fresh_entities, its, count == 1))
                    new = np.zeros(len(self._numbers.keys) - len(linked))
                    linked, entity_is_laid = np.concatenate([linked, new]), np.concatenate([entity_is_laid, new > 0])
            returned = np.zeros(count)
            passed = np.empty(0)
            if followed:
                every = [(documents.take(one.documents), entities.take(one.entities)) for one in followed]
                passed = np.concatenate([scores for both in every for scores in both])
                column = np.concatenate([one.sums for one in followed])
                flows = passed > follow
                passed /= column  # z of eq. 7
                passed *= 1 - restart
                passed *= flows
                back = np.concatenate([one.linked for one in followed]) * passed
                returned = sums(np.concatenate([one.questions for one in followed]), back, count)
            documents = self._to_documents.flow(passed, count * n)
            entities = self._to_entities.flow(passed, len(linked))
            again = start * held[links.questions]
            documents[own] += again[to_documents]
            entities[: len(to_entities)] += again[to_entities]
            held = np.where(total > 0, returned + restart, 1.0)
        return Walked(documents.reshape(count, n), entities, held, self._numbers)

    def _follow(self, places: Rows, numbers: Rows, linked: Scores, alone: bool) -> _Followed:
        """Lay out the links of documents at some places, and of entities of some numbers."""
        graph, bits = self._graph, self._numbers.bits
        n, keys = graph.documents, self._numbers.keys[numbers]
        asking, nodes = np.divmod(places, n) if n else (places, places)
        questions = np.concatenate([asking, keys >> bits])
        nodes = np.concatenate([nodes, (keys & ((1 << bits) - 1)) + n])
        starts, middles, ends = graph.indptr.take(nodes), graph.middles.take(nodes), graph.indptr.take(nodes + 1)
        held = len(self._to_documents) + len(self._to_entities)
        if not alone and held + int((ends - starts).sum()) > MOST_LINKS:
            raise TooManyLinks
        lengths = middles - starts
        columns, targets = self._to_documents.add(starts, lengths, graph)
        np.add((questions * n).repeat(lengths), columns, out=targets)
        lengths = ends - middles
        columns, targets = self._to_entities.add(middles, lengths, graph)
        targets[:] = self._numbers.add(questions.repeat(lengths), columns.astype(np.int64) - n)
        return _Followed(places, numbers, questions, linked, graph.sums.take(nodes) + linked)


def _unless(known: npt.NDArray[np.bool_], chosen: npt.NDArray[np.bool_]) -> Rows:
    """The places that are chosen and not known yet, ascending; they are known from now on."""
    (places,) = chosen.nonzero()
    places = places[~known.take(places)]
    known[places] = True
    return places
