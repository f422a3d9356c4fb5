"""Pooling of a text's hidden states into one vector in NumPy, as sentence-transformers defines it.

Every sum adds the rows of one text in order, so that a vector depends only on these rows. No text is padded, so no mask
is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def mean(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean of one text's rows, added in order."""
    return _sum(states) / np.float32(len(states))


def _sum(states: NDArray[np.float32]) -> NDArray[np.float32]:
    total: NDArray[np.float32] = np.add.reduce(states, axis=0, dtype=np.float32)
    return total


def _maximum(states: NDArray[np.float32]) -> NDArray[np.float32]:
    largest: NDArray[np.float32] = states.max(axis=0)
    return largest


POOLINGS: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.float32]]] = MappingProxyType(
    {
        "cls": lambda states: states[0],
        "lasttoken": lambda states: states[-1],
        "max": _maximum,
        "mean": mean,
        "mean_sqrt_len_tokens": lambda states: _sum(states) / np.sqrt(np.float32(len(states))),
    }
)
"""Functions from a text's hidden states ``(tokens, d)`` to its vector, by the library's name for the pooling."""


def pooled(states: NDArray[np.float32], pooling: str, skip: int = 0) -> NDArray[np.float32]:
    """Pool the states of one text into its vector, without normalising it.

    states: ``(tokens, d)``. pooling: a name, or several joined by ``+``, whose vectors are concatenated. skip: the
    number of tokens up to the end of an excluded prompt; a text that is cut within its prompt keeps its last token.
    """
    states = states[min(skip, len(states) - 1) :]
    vectors = [POOLINGS[mode](states) for mode in pooling.split("+")]
    return vectors[0] if len(vectors) == 1 else np.concatenate(vectors)


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale the rows to length 1."""
    lengths = np.sqrt(np.add.reduce(np.square(rows, dtype=np.float64), axis=1, keepdims=True))
    return (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
