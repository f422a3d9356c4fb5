"""Distributions and levels of an index family, for the report about a version.

A family names a module (``ReaderFamily.distributions``) whose function ``sizes`` says how its nodes are linked and
grouped, so the report needs no code per family. The numbers are computed from mapped arrays, in linear time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
class FamilySizes:
    """The distributions of a family. levels: nodes by level of a tree, or by kind of node; the lowest comes first."""

    distributions: tuple[Distribution, ...]
    levels: Mapping[str, int] = field(default_factory=dict)
