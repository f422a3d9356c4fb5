"""Distributions and levels of an index family, as a report about a version draws them.

A family that declares a module of them (``ReaderFamily.distributions``) says how its nodes are linked and grouped, so
that a report knows no family. Numbers come from mapped arrays; nothing is computed that grows faster than their length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """How many of one thing others have.

    name: a title, such as "Entities per passage". of: what is counted, in the plural ("passages"), one number each.
    numbers: ``(n,)`` integers of at least 0, in any order.
    """

    name: str
    of: str
    numbers: Integers


@dataclass(frozen=True, slots=True)
class Level:
    """A level of a tree, or a kind of nodes; the lowest comes first."""

    name: str
    nodes: int


def row_lengths(pointers: Integers) -> Integers:
    """The number of links of each row of a sparse matrix; pointers: ``(n_rows + 1,)``."""
    wide = np.asarray(pointers, np.int64)
    found: Integers = wide[1:] - wide[:-1]
    return found
