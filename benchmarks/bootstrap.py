"""Bootstrap intervals of paired differences (Efron and Tibshirani, An Introduction to the Bootstrap, 1993)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RESAMPLES = 2_000


class MeanDifference(NamedTuple):
    """A mean difference, and the 2.5th and 97.5th percentile of its resamples."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


@lru_cache(maxsize=4)
def counts_of(questions: int, resamples: int = RESAMPLES, seed: int = 0) -> npt.NDArray[np.float64]:
    """Return how often each resample draws each question, ``(resamples, questions)``: the same for every method."""
    drawn = np.random.default_rng(seed).multinomial(questions, np.full(questions, 1 / questions), resamples)
    return drawn.astype(np.float64)


def difference(values: Sequence[float], others: Sequence[float]) -> MeanDifference:
    """Return the mean of ``values - others``, paired by question, with its interval over resampled questions."""
    each = np.asarray(values, dtype=np.float64) - np.asarray(others, dtype=np.float64)
    means = counts_of(len(each)) @ each / len(each)
    low, high = np.percentile(means, [2.5, 97.5])
    return MeanDifference(float(each.mean()), float(low), float(high))
