"""The centre of passage vectors: only where unrelated texts are similar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from indexmill.retrieve.centre import centre_of


class Shards:
    """Artifacts with passage vectors in two shards."""

    def __init__(self, vectors: np.ndarray) -> None:
        self._vectors = vectors

    def once(self, key: object, make: Callable[[], Any]) -> Any:
        return make()

    def row_vectors(self, table: str) -> Sequence[np.ndarray]:
        assert table == "passages"
        return [self._vectors[:7], self._vectors[7:]]


def vectors(count: int, common: float) -> np.ndarray:
    """Unit vectors whose mean cosine is about `common`."""
    apart = np.random.default_rng(1).normal(size=(count, 8))
    apart /= np.linalg.norm(apart, axis=1, keepdims=True)
    shared = np.full((count, 1), np.sqrt(common))
    return np.concatenate([np.sqrt(1 - common) * apart, shared], axis=1).astype(np.float32)


def test_the_centre_is_the_mean_of_similar_vectors() -> None:
    similar = vectors(3_000, 0.75)
    centre = centre_of(Shards(similar))  # type: ignore[arg-type]
    assert centre is not None
    assert centre == pytest.approx(similar.mean(axis=0), abs=0.03)


@pytest.mark.parametrize(("count", "common"), [(3_000, 0.2), (50, 0.75), (0, 0.75)])
def test_other_encoders_and_few_passages_have_none(count: int, common: float) -> None:
    assert centre_of(Shards(vectors(count, common))) is None  # type: ignore[arg-type]
