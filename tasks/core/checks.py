"""What every check uses: reading columns, and refusing what is broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from indexmill.errors import IndexmillError
from tasks.core.stage import Inputs

__all__ = ["CheckError", "check_lengths", "columns", "refuse_if"]

_UNIT = 1e-3  # how far from 1 the length of a published vector may be


class CheckError(IndexmillError):
    """An invariant of the snapshot does not hold; nothing was published."""


def refuse_if(broken: bool, message: str) -> None:
    """Raise CheckError with a message that says what is broken."""
    if broken:
        raise CheckError(
            f"{message}; nothing was published. `indexmill build --cold` makes every part again; please report this"
        )


def columns(inputs: Inputs[Any], name: str, *columns: str) -> pl.DataFrame:
    """Some columns of an input table."""
    return pl.scan_parquet(inputs.path(inputs.job.inputs[name])).select(*columns).collect()


def check_lengths(vectors: NDArray[Any], where: str) -> None:
    """Raise CheckError where a vector (n, d) is not of unit length."""
    for first in range(0, len(vectors), 65_536):
        lengths = np.linalg.norm(vectors[first : first + 65_536], axis=1)
        refuse_if(bool((np.abs(lengths - 1) > _UNIT).any()), f"{where}: a vector is not of unit length")
