"""Dense retrieval: exact nearest passages by inner product, the baseline of every other method.

Vectors are of unit length, so the score is the cosine. The matrix product runs in tiles of fixed shape: a question's
column in a tile is the same arithmetic whatever stands in the other columns, so a batch gives each question to the
bit what it gets alone. (Measured with OpenBLAS: sixteen columns cost about as much as two, and a question in a batch
about a tenth of one alone.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexmill.hits import Hit
from indexmill.retrieve.base import Encode, Vectors

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot

__all__ = ["QUESTION_TILE", "Dense", "nearest", "scores", "top"]

QUESTION_TILE = 16
"""Questions per matrix product; fewer are padded with zeros."""

ROW_TILE = 8192
"""Rows per matrix product, so that a tile of passage vectors stays near the processor."""

BLOCK_ROWS = 1 << 18
"""Rows whose scores are held at once: 16 MiB per question tile."""

Rows = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float32]


def scores(shards: Sequence[Vectors], questions: Vectors) -> Scores:
    """Inner products ``(n_questions, n_rows) float32`` of questions with the rows of all shards."""
    found = np.empty((len(questions), sum(len(shard) for shard in shards)), dtype=np.float32)
    tile = np.zeros((QUESTION_TILE, questions.shape[1]), dtype=np.float32)
    for first in range(0, len(questions), QUESTION_TILE):
        held = questions[first : first + QUESTION_TILE]
        tile[: len(held)] = held
        tile[len(held) :] = 0.0
        column = 0
        for shard in shards:
            for row in range(0, len(shard), ROW_TILE):
                product = shard[row : row + ROW_TILE] @ tile.T
                found[first : first + len(held), column : column + len(product)] = product[:, : len(held)].T
                column += len(product)
    return found


def top(values: npt.NDArray[np.floating], k: int) -> Rows:
    """Positions of the k largest values ``(n,)``, largest first, ties by position."""
    count = min(k, len(values))
    if count == 0:
        return np.empty(0, dtype=np.int64)
    if count == len(values):
        chosen = np.arange(count)
    else:
        bound = np.partition(values, len(values) - count)[len(values) - count]
        above = np.flatnonzero(values > bound)
        equal = np.flatnonzero(values == bound)[: count - len(above)]
        chosen = np.concatenate([above, equal])
    order = np.lexsort((chosen, -values[chosen]))
    return chosen[order].astype(np.int64, copy=False)


def nearest(shards: Sequence[Vectors], questions: Vectors, k: int) -> list[tuple[Rows, Scores]]:
    """The k rows of largest inner product with each question, and the products; ties by row.

    shards: ``(n, d) float32`` arrays whose rows are numbered one after the other. questions: ``(n_questions, d)
    float32``.
    """
    nothing = (np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32))
    best: list[tuple[Rows, Scores]] = [nothing] * len(questions)
    for first_question in range(0, len(questions), QUESTION_TILE):
        tile = questions[first_question : first_question + QUESTION_TILE]
        first_row = 0
        for block in _blocks(shards):
            products = scores(block, tile)
            for i, values in enumerate(products, start=first_question):
                rows = top(values, k)
                candidates = np.concatenate([best[i][1], values[rows]])
                numbered = np.concatenate([best[i][0], rows + first_row])
                kept = top(candidates, k)  # earlier blocks come first, so ties still go to the lower row
                best[i] = (numbered[kept], candidates[kept])
            first_row += products.shape[1]
    return best


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


class Dense:
    """The passages whose vectors are nearest to the question's."""

    uses_vectors = True

    def __init__(self, snapshot: Snapshot) -> None:
        self._passages = snapshot.passages
        self._vectors = snapshot.vectors("vectors", "passages")

    def search(
        self, questions: Sequence[str], vectors: Vectors, k: int, explain: bool, encode: Encode | None
    ) -> list[list[Hit]]:
        """The passages of each question: see ``Retriever``; there is nothing to explain."""
        return [self._passages.hits(rows, found) for rows, found in nearest(self._vectors, vectors, k)]
