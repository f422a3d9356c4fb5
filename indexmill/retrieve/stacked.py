"""Rows of arrays that stand one after the other, as the shards of a snapshot's vectors do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
import numpy.typing as npt

__all__ = ["taken"]


def taken(shards: Sequence[npt.NDArray[np.float32]], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
    """The vectors ``(n_rows, d) float32`` of some rows, ascending, of shards that are numbered one after the other.

    shards: at least one, ``(n, d)`` each; may be memory maps, of which only these rows are read.
    """
    found = np.empty((len(rows), shards[0].shape[1]), dtype=np.float32)
    starts = _starts(tuple(map(len, shards)))
    cuts = rows.searchsorted(starts)
    places = rows - starts[:-1].repeat(cuts[1:] - cuts[:-1])
    bounds = cuts.tolist()
    for shard, done, upto in zip(shards, bounds[:-1], bounds[1:], strict=True):
        if upto > done:
            # Not the default mode, which would fill a copy of the output first to keep it whole on an error.
            shard.take(places[done:upto], 0, found[done:upto], "clip")
    return found


@lru_cache(maxsize=64)
def _starts(lengths: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """The first row of every shard, and the number of all rows."""
    return np.array([0, *accumulate(lengths)], dtype=np.int64)
