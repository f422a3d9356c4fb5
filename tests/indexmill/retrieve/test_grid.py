"""Products on the grid are exact: no shape of a matrix product changes a bit."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.retrieve.grid import UNIT, on_grid


def unit(rows: int, dimension: int, seed: int) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal((rows, dimension))
    return (made / np.linalg.norm(made, axis=1)[:, None]).astype(np.float32)


@settings(max_examples=25)
@given(st.integers(1, 60), st.sampled_from([2, 24, 384, 1024]), st.integers(0, 2**32))
def test_a_product_is_the_integer_that_it_stands_for(rows: int, dimension: int, seed: int) -> None:
    vectors = on_grid(unit(rows, dimension, seed))
    whole = vectors.astype(np.int64)
    assert (vectors == whole).all()
    products = vectors @ vectors.T
    assert (products == whole @ whole.T).all()
    assert (products[0] == np.array([vectors @ vectors[0]])).all()


def test_cosines_on_the_grid_are_close() -> None:
    vectors = unit(200, 384, 1)
    apart = on_grid(vectors) @ on_grid(vectors).T / UNIT - vectors @ vectors.T
    assert np.abs(apart).max() < 1e-3


def test_the_worst_vector_stays_below_what_float32_counts() -> None:
    vectors = on_grid(np.full((2, 10_000), 0.01 + 0.49 / 4000, dtype=np.float32))  # each component rounded up
    assert (vectors @ vectors.T == vectors.astype(np.int64) @ vectors.astype(np.int64).T).all()
