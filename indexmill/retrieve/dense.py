"""Dense retrieval: exact nearest passages by inner product, the baseline of every other method.

Vectors are of unit length, so the score is the cosine. It is found in two steps. Products over all rows estimate it,
whichever way the linear algebra library likes best for this number of questions; the rows whose estimate is within the
rounding error of the k best are then multiplied again, each alone with the question (``columns.products``). So a score,
and with it the order, depends on the row and the question and on nothing else: a batch gives each question to the bit
what it gets alone. (Measured with OpenBLAS, 11,675 rows: 0.6 ms for one question and 0.15 ms for each of 128.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.base import READ, Allowed, Asked, Found, PassageRetriever, Vectors
from indexmill.retrieve.columns import first_of_each, paired, parts, products

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["QUESTION_TILE", "Dense", "at_least_top", "nearest", "nearest_passages"]

QUESTION_TILE = 128
"""Most questions per matrix product."""

FEW_QUESTIONS = 4
"""Up to so many questions, one inner product after the other takes half the time of OpenBLAS's matrix products."""

ROW_TILE = 8192
"""Most rows per matrix product, so that a tile of passage vectors stays near the processor."""

BLOCK_ROWS = 1 << 16
"""Rows whose estimates are held at once: 32 MiB per question tile."""

_GROUPS = 16
"""Groups per value wanted, when the largest values are looked for by the largest of each group."""

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


def at_least_top(values: npt.NDArray[np.floating], k: int, slack: float = 0.0) -> Rows:
    """Positions, ascending, of all values ``(n,)`` that are at most ``slack`` below the k-th largest."""
    if k >= len(values):
        return np.arange(len(values))
    chosen = None
    groups = _GROUPS * k
    if len(values) >= 4 * groups:
        # The k-th largest of the groups' maxima is a lower bound: few values reach it, and only they are sorted.
        each = len(values) // groups
        maxima = values[: each * groups].reshape(each, groups).max(axis=0)
        maxima.partition(groups - k)
        (chosen,) = (values >= maxima[groups - k] - slack).nonzero()
        values = values[chosen]
    ordered = np.partition(values, len(values) - k)
    (kept,) = (values >= ordered[len(values) - k] - slack).nonzero()
    reached: Rows = kept if chosen is None else chosen[kept]
    return reached


def nearest(
    shards: Sequence[Vectors], questions: Vectors, k: int, allowed: Allowed | None = None
) -> list[tuple[Rows, Scores]]:
    """The k rows of largest inner product with each question, and the products; ties by row.

    shards: ``(n, d) float32`` arrays of unit rows, numbered one after the other. questions: ``(n_questions, d)
    float32``. allowed: ``(n,)``, of which rows; None for all.
    """
    found: list[tuple[Rows, Scores]] = []
    slack = _slack(questions)
    blocks = _blocks(shards)
    for first_question in range(0, len(questions), QUESTION_TILE):
        tile = questions[first_question : first_question + QUESTION_TILE]
        pairs, scores = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        first_row = 0
        for block in blocks:
            length = sum(map(len, block))
            chosen = None if allowed is None else allowed[first_row : first_row + length].nonzero()[0]
            estimates = _estimates(block, tile, chosen)
            likely = [at_least_top(values, k, slack[first_question + i]) for i, values in enumerate(estimates)]
            if chosen is not None:
                likely = [chosen[rows] for rows in likely]
            more = paired(np.arange(len(tile)).repeat([len(rows) for rows in likely]), np.concatenate(likely))
            pairs = np.concatenate([pairs, more + first_row])
            scores = np.concatenate([scores, products(block, tile, more)])
            order = pairs.argsort()
            best = order[first_of_each(parts(pairs[order])[0], scores[order], k)]
            pairs, scores = pairs[best], scores[best]
            first_row += length
        asking, rows = parts(pairs)
        cuts = asking.searchsorted(np.arange(len(tile) + 1)).tolist()
        found += [(rows[begin:end], scores[begin:end]) for begin, end in pairwise(cuts)]
    return found


def _estimates(shards: Sequence[Vectors], questions: Vectors, chosen: Rows | None = None) -> Scores:
    """Inner products ``(n_questions, n_rows) float32`` of all rows or of some, ascending, rounded in any way."""
    lengths = [len(shard) for shard in shards]
    found = np.empty((len(questions), sum(lengths) if chosen is None else len(chosen)), dtype=np.float32)
    column = first = 0
    for shard, length in zip(shards, lengths, strict=True):
        kept = None
        if chosen is not None:
            kept = chosen[slice(*chosen.searchsorted((first, first + length)))] - first
            first += length
            if 2 * len(kept) < length:  # a copy of these costs less than products of the others
                shard, kept = shard[kept], None
        width = len(shard) if kept is None else len(kept)
        part = found[:, column : column + width]
        column += width
        if len(questions) > FEW_QUESTIONS:
            product = (shard @ questions.T).T
            part[:] = product if kept is None else product[:, kept]
        else:
            for question, estimates in zip(questions, part, strict=True):
                product = np.vecdot(shard, question)
                estimates[:] = product if kept is None else product[kept]
    return found


def _slack(questions: Vectors) -> list[float]:
    """How far below the k-th largest estimate one of the k largest products may be estimated, for each question.

    Two ways to add d products differ by 2 d u |row| |question| at most, with the unit roundoff u (Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.1). Of two rows, one may be estimated too low and the other too high.
    Rows are of unit length but for their own rounding, which the last factor allows for.
    """
    error = 2 * questions.shape[1] * float(np.finfo(np.float32).eps) / 2
    lengths = np.sqrt(np.add.reduce(questions.astype(np.float64) ** 2, axis=1))
    slack: list[float] = (2 * error * 1.1 * lengths).tolist()
    return slack


def _blocks(shards: Sequence[Vectors]) -> list[list[Vectors]]:
    """The shards cut into runs of at most BLOCK_ROWS rows: a function of the shards alone."""
    blocks: list[list[Vectors]] = [[]]
    held = 0
    for shard in shards:
        for row in range(0, len(shard), ROW_TILE):
            piece = shard[row : row + ROW_TILE]
            if held + len(piece) > BLOCK_ROWS:
                blocks.append([])
                held = 0
            blocks[-1].append(piece)
            held += len(piece)
    return blocks


class Dense(PassageRetriever):
    """The passages whose vectors are nearest to the question's; there is nothing to explain."""

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._vectors = snapshot.vectors("vectors", "passages")

    def rank(self, asked: Asked, k: int) -> Iterator[Found]:
        """The passages of each question: see ``PassageRetriever``."""
        return (Found(rows, scores) for rows, scores in nearest_passages(self._vectors, asked, k))


def nearest_passages(shards: Sequence[Vectors], asked: Asked, k: int) -> list[tuple[Rows, Scores]]:
    """``nearest`` for what is asked of the passages' vectors: found once, for all methods that want them."""
    held, found = asked.shared.get("nearest", (0, []))
    if held < k:
        held = max(k, asked.shared.get(READ, 0))
        found = nearest(shards, asked.vectors, held, asked.allowed)
        asked.shared["nearest"] = (held, found)
    return found if held == k else [(rows[:k], scores[:k]) for rows, scores in found]
