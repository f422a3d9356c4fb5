"""Dense retrieval: exact nearest passages by inner product, the baseline of every other method.

Vectors have unit length, so the score is the cosine. It is computed in two steps. Matrix products over all rows
estimate it, by the fastest method for this number of questions; the rows whose estimate is within the rounding error of
the k best are then multiplied again, each separately with the question (``columns.products``). So a score, and with it
the order, depends only on the row and the question: a question's result in a batch is bit-identical to its separate
result. (Measured with OpenBLAS, 11,675 rows: 0.6 ms for one question and 0.15 ms for each of 128.)

A document's title says what its passages are about: the cosine of the question and the title, times ``title``, is added
to that of the passage (``indexmill.retrieve.passage_vectors``). It is computed in the same two steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import Pairs, first_of_each, paired, parts, products
from indexmill.retrieve.directions import is_directions, lengths_of
from indexmill.retrieve.retrieval_method import Allowed, Vectors

QUESTION_TILE = 128
"""The maximum number of questions per matrix product."""

FEW_QUESTIONS = 4
"""Up to this number of questions, separate inner products take half the time of OpenBLAS's matrix products."""

ROW_TILE = 8192
"""The maximum number of rows per matrix product, so that a tile of passage vectors stays in the CPU cache."""

DIRECTION_TILE = 1024
"""ROW_TILE for directions: once converted to float32 for multiplication, a tile stays in the CPU cache."""

BLOCK_ROWS = 1 << 16
"""The number of rows whose estimates are in memory at once: 32 MiB per question tile."""

_GROUPS = 16
"""The number of groups per requested value, in the search for the largest values by group maxima."""

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


class Beside(NamedTuple):
    """Secondary vectors, whose weighted inner products are added to those of the rows.

    shards: ``(n, d)`` arrays of unit or zero vectors, as float32 or in the encoding of `directions`, numbered
    consecutively across shards. rows: ``(n_rows,)``, for every row the number of its secondary vector. weight: the
    factor by which a secondary vector's inner product with the question is multiplied.
    """

    shards: Sequence[Vectors]
    rows: Rows
    weight: float


def at_least_top(values: npt.NDArray[np.floating], k: int, slack: float = 0.0) -> Rows:
    """Return the positions, ascending, of all values ``(n,)`` that are at most ``slack`` below the k-th largest."""
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
    (top,) = (values >= ordered[len(values) - k] - slack).nonzero()
    reached: Rows = top if chosen is None else chosen[top]
    return reached


def nearest(
    shards: Sequence[Vectors], questions: Vectors, k: int, allowed: Allowed | None = None, beside: Beside | None = None
) -> list[tuple[Rows, Scores]]:
    """Find the k rows with the largest inner products with each question, and the products; ties by row.

    shards: ``(n, d)`` arrays of unit rows, float32 or directions, numbered consecutively. questions: ``(n_questions, d)
    float32``. allowed: ``(n,)``, a mask of the rows that may be returned; None for all. beside: secondary vectors, see
    ``similarities``.
    """
    rankings: list[tuple[Rows, Scores]] = []
    slack = _slack(questions, 0.0 if beside is None else beside.weight)
    blocks = _blocks(shards)
    for first_question in range(0, len(questions), QUESTION_TILE):
        tile = questions[first_question : first_question + QUESTION_TILE]
        pairs, scores = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
        first_row = 0
        for block in blocks:
            length = sum(map(len, block))
            chosen = None if allowed is None else allowed[first_row : first_row + length].nonzero()[0]
            estimates = _estimates(block, tile, chosen)
            if beside is not None:
                owners = beside.rows[first_row : first_row + length]
                _add_beside(estimates, beside, tile, owners if chosen is None else owners[chosen], chosen is None)
            likely = [at_least_top(values, k, slack[first_question + i]) for i, values in enumerate(estimates)]
            if chosen is not None:
                likely = [chosen[rows] for rows in likely]
            candidates = paired(np.arange(len(tile)).repeat([len(rows) for rows in likely]), np.concatenate(likely))
            pairs = np.concatenate([pairs, candidates + first_row])
            scores = np.concatenate([scores, similarities(block, tile, candidates, beside, first_row)])
            order = pairs.argsort()
            best = order[first_of_each(parts(pairs[order])[0], scores[order], k)]
            pairs, scores = pairs[best], scores[best]
            first_row += length
        asking, rows = parts(pairs)
        cuts = asking.searchsorted(np.arange(len(tile) + 1)).tolist()
        rankings += [(rows[begin:end], scores[begin:end]) for begin, end in pairwise(cuts)]
    return rankings


def similarities(
    shards: Sequence[Vectors], questions: Vectors, pairs: Pairs, beside: Beside | None = None, first_row: int = 0
) -> Scores:
    """Return the inner products ``(n_pairs,) float32`` of (question, row) pairs, plus weighted products of ``beside``.

    first_row: the number of the shards' first row among all rows. The rounding of a product does not depend on the
    other pairs.
    """
    scores = products(shards, questions, pairs)
    if beside is not None:
        asking, rows = parts(pairs)
        added = products(beside.shards, questions, paired(asking, beside.rows[rows + first_row]))
        scores += np.float32(beside.weight) * added
    return scores


def _add_beside(estimates: Scores, beside: Beside, questions: Vectors, owners: Rows, every: bool) -> None:
    """Add the estimates of the secondary vectors with the numbers ``owners`` to those of the rows.

    every: True if most vectors between the first and the last owner are needed, as when the rows of each document are
    contiguous; then the whole range is read.
    """
    if not len(owners):
        return
    low, high = int(owners.min()), int(owners.max()) + 1
    rows = None
    if every:
        owners = owners - low
    else:
        distinct, owners = np.unique(owners, return_inverse=True)
        rows = distinct - low
    more = _estimates(_between(beside.shards, low, high), questions, rows)
    more *= np.float32(beside.weight)
    for of_question, added in zip(estimates, more, strict=True):
        of_question += added[owners]


def _between(shards: Sequence[Vectors], low: int, high: int) -> list[Vectors]:
    """Return the vectors of the rows from ``low`` to ``high`` (exclusive), in tiles."""
    pieces, first = list[Vectors](), 0
    for shard in shards:
        pieces += _tiles(shard[max(low - first, 0) : max(high - first, 0)])
        first += len(shard)
    return pieces


def _estimates(shards: Sequence[Vectors], questions: Vectors, chosen: Rows | None = None) -> Scores:
    """Return rough products ``(n_questions, n_rows) float32`` with all rows, or with the ascending ``chosen``."""
    rows = sum(map(len, shards)) if chosen is None else len(chosen)
    estimates = np.empty((len(questions), rows), dtype=np.float32)
    column = first = 0
    for shard in shards:
        length = len(shard)
        selected = None
        if chosen is not None:
            selected = chosen[slice(*chosen.searchsorted((first, first + length)))] - first
            first += length
            if 2 * len(selected) < length:  # copying these rows is cheaper than multiplying the rest
                shard, selected = shard[selected], None
        lengths = None
        if is_directions(shard):
            shard = shard.astype(np.float32)
            lengths = lengths_of(shard)
        width = len(shard) if selected is None else len(selected)
        part = estimates[:, column : column + width]
        column += width
        if len(questions) > FEW_QUESTIONS:
            product = (shard @ questions.T).T
            part[:] = product if selected is None else product[:, selected]
        else:
            for question, of_question in zip(questions, part, strict=True):
                product = np.vecdot(shard, question)
                of_question[:] = product if selected is None else product[selected]
        if lengths is not None:  # dividing the products is cheaper than dividing every component
            part /= lengths if selected is None else lengths[selected]
    return estimates


def _slack(questions: Vectors, weight: float) -> list[float]:
    """Return, per question, how far below the k-th estimate the estimates of its k best rows may be.

    Two ways to add d products differ by at most 2 d u |row| |question|, with the unit roundoff u (Higham, Accuracy and
    Stability of Numerical Algorithms, section 3.1). Of two rows, one may be estimated too low and the other too high.
    Rows have unit length up to rounding, which the last factor allows for. Dividing directions by their lengths rounds
    once in the estimate and once in the score. Secondary products have ``weight`` times that error; weighting and
    adding them rounds twice in the estimate and twice in the score.
    """
    unit = float(np.finfo(np.float32).eps) / 2
    error = (2 * questions.shape[1] + 2 + (4 if weight else 0)) * unit * (1 + weight)
    lengths = np.sqrt(np.add.reduce(questions.astype(np.float64) ** 2, axis=1))
    slack: list[float] = (2 * error * 1.1 * lengths).tolist()
    return slack


def _blocks(shards: Sequence[Vectors]) -> list[list[Vectors]]:
    """Cut the shards into blocks of at most BLOCK_ROWS rows; the cuts depend only on the shards."""
    blocks: list[list[Vectors]] = [[]]
    size = 0
    for shard in shards:
        for piece in _tiles(shard):
            if size + len(piece) > BLOCK_ROWS:
                blocks.append([])
                size = 0
            blocks[-1].append(piece)
            size += len(piece)
    return blocks


def _tiles(shard: Vectors) -> list[Vectors]:
    tile = DIRECTION_TILE if is_directions(shard) else ROW_TILE
    return [shard[row : row + tile] for row in range(0, len(shard), tile)]
