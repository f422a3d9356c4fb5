"""The axes are a function of the encoder, and the first hyperplanes of a tree."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.models.embedder import HashEmbedder
from tasks.families.lsh_tree.axes import AXES, TOPICS, principal_axes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes


def stretched(rows: int = 200, dimension: int = 48) -> np.ndarray:
    """Vectors that vary most along the first coordinate, less along each after it, around a mean that is not zero."""
    draw = np.random.default_rng(0)
    return (draw.standard_normal((rows, dimension)) * 0.5 ** np.arange(dimension) + 3).astype(np.float32)


def test_axes_are_where_vectors_vary_most_first() -> None:
    axes = principal_axes(stretched())
    assert np.abs(axes[:6].astype(int)).argmax(axis=1).tolist() == [0, 1, 2, 3, 4, 5]
    assert (axes.max(axis=1) == 2**10).all()  # their largest number is positive: an axis has one sign
    assert np.abs(axes.astype(int)).max() == 2**10
    assert axes.dtype == np.int16


def test_neither_order_nor_sign_nor_repeats_of_the_texts_matter() -> None:
    vectors = stretched().astype(np.float64)
    axes = principal_axes(vectors)
    assert np.array_equal(axes[:8], principal_axes(vectors[::-1])[:8])
    assert np.array_equal(axes[:8], principal_axes(6 - vectors)[:8])
    assert np.array_equal(axes[:8], principal_axes(np.concatenate([vectors, vectors]))[:8])


def test_directions_without_variation_are_no_axes() -> None:
    vectors = np.zeros((50, 40), dtype=np.float32)
    assert principal_axes(vectors).shape == (0, 40)
    vectors[:, :3] = np.random.default_rng(1).standard_normal((50, 3))
    assert principal_axes(vectors).shape == (3, 40)
    assert principal_axes(np.random.default_rng(1).standard_normal((300, 384))).shape == (AXES, 384)


def test_axes_come_first_and_random_hyperplanes_after() -> None:
    axes = principal_axes(HashEmbedder().encode(sorted(TOPICS)))
    dimension = axes.shape[1]
    planes, seeded = Hyperplanes(0, dimension, axes), Hyperplanes(0, dimension)
    assert np.array_equal(planes.normals()[: len(axes)], axes)
    assert np.array_equal(planes.normals()[len(axes) :], seeded.normals()[len(axes) :])
    vectors = np.random.default_rng(2).standard_normal((100, dimension)).astype(np.float32)
    low = np.uint64(2 ** (64 - len(axes)) - 1)
    assert np.array_equal(planes.codes(vectors) & low, seeded.codes(vectors) & low)


def test_axes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(m, 48\)"):
        Hyperplanes(0, 48, np.ones((2, 47), dtype=np.int16))
    with pytest.raises(ValueError, match="at most 64"):
        Hyperplanes(0, 48, np.ones((65, 48), dtype=np.int16))
    with pytest.raises(ValueError, match="not exact"):
        Hyperplanes(0, 48, np.full((2, 48), 1025, dtype=np.int16))
