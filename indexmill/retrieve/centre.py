"""The centre of a snapshot's passage vectors, which tells how similar unrelated texts are with its encoder.

Encoders differ in this: two passages of 2WikiMultiHopQA have a cosine of .08 on average with all-MiniLM-L6-v2, and of
.76 with multilingual-e5-small, whose cosines all lie between .7 and 1. The mean of a vector's cosines with all passages
is its product with the centre. A similarity is comparable between encoders once that is subtracted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.columns import take_rows
from indexmill.retrieve.grid import SCALE, on_grid

_LEAST = 0.6
"""The mean cosine of two passages from which the centre is used: with all-MiniLM-L6-v2, that of English is below .2."""
_FEWEST, _SAMPLE = 100, 1_000  # passages

Centre = npt.NDArray[np.float32]

_CENTRE: CacheKey[list[Centre]] = CacheKey("centre of the passages")


def centre_of(artifacts: Artifacts) -> Centre | None:
    """Return the mean of passage vectors at even intervals, ``(d,)``, computed once.

    None if unrelated passages are not similar, or if there are too few passages to tell.
    """
    centres = artifacts.once(_CENTRE, lambda: _centre(artifacts))
    return centres[0] if centres else None


def mean_similarity(vectors: npt.NDArray[np.float32], centre: Centre) -> npt.NDArray[np.float64]:
    """Return the mean cosine of each vector, ``(n, d)``, with unrelated passages: ``(n,)``."""
    mean: npt.NDArray[np.float64] = np.vecdot(vectors, centre).astype(np.float64)
    return mean


def _centre(artifacts: Artifacts) -> list[Centre]:
    passages = artifacts.row_vectors("passages")
    total = sum(map(len, passages))
    if total < _FEWEST:
        return []
    rows = np.arange(0, total, max(total // _SAMPLE, 1))
    mean = take_rows(passages, rows).mean(axis=0, dtype=np.float64)
    centre = on_grid(mean) / np.float32(SCALE)  # equal on all machines, whatever the order of the sum
    return [centre] if float(np.vecdot(centre, centre)) >= _LEAST else []
