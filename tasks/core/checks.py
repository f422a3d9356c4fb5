"""What every check uses: reading columns, and refusing what is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from indexmill.errors import IndexmillError
from indexmill.store.pack_checks import check_arrays
from indexmill.store.pack_schema import PackSchema
from tasks.core.stage import Input, Part

__all__ = ["Check", "CheckError", "check_lengths", "check_pack", "columns", "refuse_if"]

_UNIT = 1e-3  # how far from 1 the length of a published vector may be


class CheckError(IndexmillError):
    """An invariant of the snapshot does not hold; nothing was published."""


@dataclass(frozen=True)
class Check:
    """What is held against what before anything is published.

    inputs: what it reads, declared as a stage declares it. whole: False for a check of each shard or group, which is
    run for every label that has the first of the inputs; True for the check of what is made of the whole corpus, which
    is run where its first input is there. Among its inputs, `<stage>/<output>` is an output of the part of the whole
    corpus of a stage, and an input with `each` is of all labels. check: raises CheckError; it gets the inputs, and what
    was counted before it: by the checks of the same label, or of all labels for that of the whole. It returns what it
    has counted itself; only what checks of labels count is kept. It is a module's function, since it goes to workers.
    """

    inputs: tuple[Input, ...]
    check: Callable[[Part[Any], Mapping[str, int]], Mapping[str, int]]
    whole: bool = False


def refuse_if(broken: bool, message: str) -> None:
    """Raise CheckError with a message that says what is broken."""
    if broken:
        raise CheckError(
            f"{message}; nothing was published. `indexmill build --cold` makes every part again; please report this"
        )


def columns(part: Part[Any], name: str, *columns: str) -> pl.DataFrame:
    """Some columns of an input table."""
    return pl.scan_parquet(part.path(part.job.inputs[name])).select(*columns).collect()


def check_lengths(vectors: NDArray[Any], where: str) -> None:
    """Raise CheckError where a vector (n, d) is not of unit length."""
    for first in range(0, len(vectors), 65_536):
        lengths = np.linalg.norm(vectors[first : first + 65_536], axis=1)
        refuse_if(bool((np.abs(lengths - 1) > _UNIT).any()), f"{where}: a vector is not of unit length")


def check_pack(schema: PackSchema, pack: Mapping[str, NDArray[Any]], where: str, sizes: Mapping[str, int]) -> None:
    """Raise CheckError where the arrays of a pack are not what its schema says; sizes: of the tables that it names."""
    problem = check_arrays(schema, pack, sizes)
    refuse_if(bool(problem), f"{where}: {problem}")
