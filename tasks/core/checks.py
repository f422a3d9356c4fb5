"""What every check uses: reading columns, and refusing what is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from indexmill.errors import IndexmillError
from tasks.core.stage import Input, Part

__all__ = ["Check", "CheckError", "check_lengths", "check_parents", "columns", "refuse_if"]

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


def check_parents(name: str, pack: Mapping[str, NDArray[Any]], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Raise CheckError where parents and children of layers of these sizes do not agree; how many children each has.

    Each row below the uppermost layer has its parent in the next, which makes each reachable from one root.
    """
    parents, rows = pack["parents"].astype(np.int64), int(sizes.sum())
    layer = np.repeat(np.arange(len(sizes)), sizes)
    refuse_if(bool((parents[layer == len(sizes) - 1] != -1).any()), f"{name}: a root has a parent")
    below = np.flatnonzero(layer < len(sizes) - 1)
    above = parents[below]
    inside = bool(((above >= sizes[0]) & (above < rows)).all()) and bool((layer[above] == layer[below] + 1).all())
    refuse_if(not inside, f"{name}: a node's parent is not in the layer above it")
    indptr, indices = pack["children.indptr"], pack["children.indices"]
    held: NDArray[np.int64] = np.diff(indptr)
    refuse_if(len(held) != rows - sizes[0] or indptr[0] != 0, f"{name}: not every inner node has children")
    owners = np.repeat(np.arange(sizes[0], rows), held)
    same = len(owners) == len(indices) == len(below) and np.array_equal(np.sort(indices), below)
    same = same and np.array_equal(parents[indices], owners)
    refuse_if(not same, f"{name}: children and parents do not agree")
    return held
