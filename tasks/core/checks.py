"""The declaration of a check, and helpers that raise an error if an invariant is broken."""

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

_TILE = 65_536  # the number of vectors whose lengths are in memory at once
_UNIT = 1e-3  # the largest difference of a published vector's length from 1


class CheckError(IndexmillError):
    """An invariant of the snapshot does not hold; nothing was published."""


@dataclass(frozen=True)
class Check:
    """A consistency check that runs before anything is published.

    inputs: declared like a stage's inputs. whole: False for a check that runs for every label (shard or group) that has
    the first input; True for a check of the whole corpus, which runs if its first input exists. In a whole check,
    `<stage>/<output>` names an output of the stage's part for the whole corpus, and an input with `each` covers all
    labels. A check of labels with `each` inputs runs for every part that makes outputs of the first input, and covers
    the outputs whose labels begin with that part's label. check: a module-level function, since it is sent to workers;
    raises CheckError. It gets the inputs and the counts of earlier checks (for the same label, or for all labels if
    `whole`), and may return its own counts; counts of whole checks are dropped.
    """

    inputs: tuple[Input, ...]
    check: Callable[[Part[Any], Mapping[str, int]], Mapping[str, int] | None]
    whole: bool = False


def refuse_if(broken: bool, message: str) -> None:
    """Raise CheckError with the message if `broken` is true."""
    if broken:
        raise CheckError(
            f"{message}; nothing was published. `indexmill build --cold` makes every part again; please report this"
        )


def columns(part: Part[Any], name: str, *columns: str) -> pl.DataFrame:
    return pl.scan_parquet(part.path(part.job.inputs[name])).select(*columns).collect()


def check_lengths(vectors: NDArray[Any], where: str) -> None:
    """Raise CheckError if any of the vectors (n, d) does not have unit length."""
    for first in range(0, len(vectors), _TILE):
        lengths = np.linalg.norm(vectors[first : first + _TILE], axis=1)
        refuse_if(bool((np.abs(lengths - 1) > _UNIT).any()), f"{where}: a vector is not of unit length")


def check_pack(schema: PackSchema, pack: Mapping[str, NDArray[Any]], where: str, sizes: Mapping[str, int]) -> None:
    """Raise CheckError if a pack's arrays violate its schema. sizes: the row counts of tables that the schema names."""
    problem = check_arrays(schema, pack, sizes)
    refuse_if(bool(problem), f"{where}: {problem}")
