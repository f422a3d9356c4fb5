"""The residual of a question: its vector with the names in it removed, wholly or in part.

The names in a question pull its vector towards their entities, which linking finds anyway. To let similarity find
something else, the component of the vector in the span of the names' vectors is reduced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import positions, take_rows
from indexmill.retrieve.linking import Links, link_columns
from indexmill.retrieve.retrieval_method import Vectors

LEAST = 1e-2
"""The threshold below which a relative similarity or the length of a question's remainder is noise."""

_REMAINDER = 3e-2
"""The length below which the part of a name's vector outside the span is noise: directions err by up to 0.014."""

Rows = npt.NDArray[np.int64]
Parts = npt.NDArray[np.float64]


def named_parts(vectors: Vectors, names: Sequence[Vectors], questions: Rows, rows: Rows) -> Parts:
    """Project each question's vector onto the span of the vectors of its names: ``(n_questions, d)``.

    vectors: ``(n_questions, d) float32``. names: ``(n, d)`` arrays of names' vectors or directions, numbered
    consecutively. questions, rows: parallel columns of question numbers, ascending, and rows of name vectors. The basis
    of the span is built by Gram-Schmidt in the order of the rows, for the n-th names of all questions at once.
    """
    projections = np.zeros(vectors.shape)
    order = rows.argsort()
    basis = np.empty((len(rows), vectors.shape[1]))
    if len(rows):
        basis[order] = take_rows(names, rows[order])
    rank = np.arange(len(rows)) - questions.searchsorted(questions)
    for n in range(int(rank.max(initial=-1)) + 1):
        (at,) = (rank == n).nonzero()
        rest = basis[at]
        for before in range(n, 0, -1):
            direction = basis[at - before]
            rest -= np.vecdot(rest, direction)[:, None] * direction
        length = np.sqrt(np.vecdot(rest, rest))
        rest *= np.where(length > _REMAINDER, 1.0 / np.maximum(length, _REMAINDER), 0.0)[:, None]
        basis[at] = rest
        asking = questions[at]
        projections[asking] += np.vecdot(rest, vectors[asking])[:, None] * rest
    return projections


def linked_parts(
    vectors: Vectors, linked: Sequence[Links], names: Sequence[Vectors], entities: npt.NDArray[np.integer] | None
) -> Parts:
    """Return ``named_parts`` for linked entities. entities: the entity of each name vector, ascending; None for all."""
    questions, rows, _ = link_columns(linked)
    if not names:
        return np.zeros(vectors.shape)
    if entities is not None:
        rows, has_vector = positions(rows, entities)
        questions, rows = questions[has_vector], rows[has_vector]
    return named_parts(vectors, names, questions, rows)


def without(vectors: Vectors, named: Parts, share: float) -> Vectors:
    """Subtract a share of ``named`` from vectors, and renormalise; a vector that would vanish stays unchanged."""
    if not share:
        return vectors
    rest = vectors - share * named
    length = np.sqrt(np.vecdot(rest, rest))[:, None]
    return np.where(length < LEAST, vectors, rest / np.maximum(length, LEAST)).astype(np.float32)
