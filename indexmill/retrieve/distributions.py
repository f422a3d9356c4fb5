"""Distributions and levels of an index family, for the report about a version.

A family declares a module (``ReaderFamily.distributions``) that says how its nodes are linked and grouped, so the
report needs no code per family. The numbers are computed from mapped arrays, in time linear in their length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution of counts, such as the number of entities per passage.

    name: a title, such as "Entities per passage". of: a plural noun for the things that have one number each, such as
    "passages". numbers: ``(n,)`` integers of at least 0, in any order.
    """

    name: str
    of: str
    numbers: Integers


@dataclass(frozen=True, slots=True)
class LevelSize:
    """The size of a level of a tree, or of a kind of nodes; the lowest level comes first."""

    name: str
    nodes: int
