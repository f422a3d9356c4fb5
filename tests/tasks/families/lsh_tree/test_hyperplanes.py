"""Codes are exact, depend on nothing but the vector, and collide as the angle says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.families.lsh_tree.hyperplanes import BITS, MOST_DIMENSIONS, Hyperplanes

DIMENSION = 48

NORMALS = [[12, 74, 101, -183], [117, 185, 172, 489]]
CODES = [17422293427888171415, 15073806455253936613, 15265756950808105473, 9056731112978843216]


def drawn(rows: int, dimension: int = DIMENSION, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)


@pytest.mark.parametrize("degrees", [0, 5, 30, 60, 90, 120, 179, 180])
@pytest.mark.parametrize("dimension", [2, 3, 384])
def test_two_vectors_share_a_bit_with_probability_1_minus_their_angle_over_pi(degrees: int, dimension: int) -> None:
    theta = math.radians(degrees)
    axes = np.linalg.qr(np.random.default_rng(degrees).standard_normal((dimension, 2)))[0].T
    pair = np.stack([axes[0], math.cos(theta) * axes[0] + math.sin(theta) * axes[1]]).astype(np.float32)
    draws, shared = 320, 0
    for seed in range(draws):
        one, other = Hyperplanes(seed, dimension).codes(pair).tolist()
        shared += BITS - (one ^ other).bit_count()
    expected = 1 - theta / math.pi
    tosses = draws * BITS
    tolerance = 4.5 * math.sqrt(expected * (1 - expected) / tosses)  # one test in 140,000 fails by chance
    assert abs(shared / tosses - expected) <= tolerance + 1e-9
    printed = (1 + math.cos(theta)) / 2  # the paper's Theorem 1
    if degrees in (30, 120):
        assert abs(shared / tosses - printed) > 3 * tolerance


@given(
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.sampled_from(["slice", "one by one", "shuffled", "Fortran", "strided", "float64", "read-only"]),
)
def test_a_code_depends_on_its_vector_alone(rows: int, seed: int, form: str) -> None:
    vectors = drawn(rows, seed=seed)
    planes = Hyperplanes(3, DIMENSION)
    whole = planes.codes(vectors)
    order = np.random.default_rng(seed).permutation(rows)
    wide = np.zeros((2 * rows, 3 * DIMENSION), dtype=np.float32)
    wide[::2, ::3] = vectors
    frozen = vectors.copy()
    frozen.flags.writeable = False
    found = {
        "slice": lambda: planes.codes(vectors[rows // 2 :]),
        "one by one": lambda: np.concatenate([planes.codes(vectors[row : row + 1]) for row in range(rows)]),
        "shuffled": lambda: planes.codes(vectors[order])[np.argsort(order)],
        "Fortran": lambda: planes.codes(np.asfortranarray(vectors)),
        "strided": lambda: planes.codes(wide[::2, ::3]),
        "float64": lambda: planes.codes(vectors.astype(np.float64)),
        "read-only": lambda: Hyperplanes(3, DIMENSION).codes(frozen),
    }[form]()
    assert np.array_equal(found, whole[rows // 2 :] if form == "slice" else whole)


def test_codes_of_many_rows_do_not_depend_on_how_they_are_tiled() -> None:
    vectors = drawn(9000, 384)
    planes = Hyperplanes(0, 384)
    whole = planes.codes(vectors)
    assert np.array_equal(np.concatenate([planes.codes(part) for part in np.array_split(vectors, 7)]), whole)
    assert len(np.unique(whole)) == len(whole)


def test_products_are_the_integers_they_stand_for() -> None:
    planes = Hyperplanes(1, 384)
    vectors = drawn(20, 384, seed=5)
    normals = planes.normals().astype(object)
    assert np.abs(planes.normals().astype(int)).max() <= 2**10
    for row, code in enumerate(planes.codes(vectors).tolist()):
        peak = float(np.abs(vectors[row]).max())
        scale = 2 ** (15 - math.frexp(peak)[1])
        whole = [round(float(number) * scale) for number in vectors[row]]  # rounds half to even, as rint does
        assert max(map(abs, whole)) <= 2**15
        bits = [sum(a * b for a, b in zip(normal, whole, strict=True)) > 0 for normal in normals]
        assert code == int("".join("01"[bit] for bit in bits), 2)


def test_the_largest_products_are_exact() -> None:
    """The bound is d * 2**25 <= 2**53; what lies one beyond it is not told apart from it."""
    assert MOST_DIMENSIONS * 2**25 == 2**53
    assert 4096 * 2**25 < 2**53
    assert float(2**53 - 1) != float(2**53) == float(2**53 + 1)
    with pytest.raises(ValueError, match="dimension"):
        Hyperplanes(0, MOST_DIMENSIONS + 1)
    dimension = 4096
    planes = Hyperplanes(0, dimension)
    aligned = np.sign(planes.normals()).astype(np.float32)  # the longest products there are
    codes = planes.codes(aligned)
    assert all(codes[row] >> np.uint64(BITS - 1 - row) & np.uint64(1) for row in range(BITS))
    assert np.array_equal(planes.codes(-aligned), ~codes)


def test_codes_follow_direction_and_no_power_of_two() -> None:
    planes = Hyperplanes(0, DIMENSION)
    vectors = drawn(50)
    for power in (-100, -1, 1, 100):
        assert np.array_equal(planes.codes(vectors * np.float32(2.0**power)), planes.codes(vectors))
    tiny = np.full((1, DIMENSION), np.float32(1e-45))  # the least above zero
    assert np.array_equal(planes.codes(tiny), planes.codes(np.ones((1, DIMENSION), dtype=np.float32)))


def test_every_hyperplane_tells_one_hot_vectors_from_their_opposites() -> None:
    planes = Hyperplanes(0, DIMENSION)
    one_hot = np.eye(DIMENSION, dtype=np.float32)
    assert np.array_equal(planes.codes(-one_hot), ~planes.codes(one_hot))
    assert planes.codes(np.zeros((2, DIMENSION), dtype=np.float32)).tolist() == [0, 0]
    assert planes.codes(np.empty((0, DIMENSION), dtype=np.float32)).tolist() == []


def test_normals_are_normal_and_seeds_are_independent() -> None:
    normals = np.concatenate([Hyperplanes(seed, 384).normals() for seed in range(8)]).astype(float)
    normals /= normals.std()
    count = normals.size
    assert abs(normals.mean()) < 4.5 / math.sqrt(count)
    assert abs((normals**4).mean() - 3) < 4.5 * math.sqrt(96 / count)
    products = normals @ normals.T / 384
    assert np.abs(products[~np.eye(len(products), dtype=bool)]).max() < 6 / math.sqrt(384)
    assert np.array_equal(Hyperplanes(5, 384).normals(), Hyperplanes(5, 384).normals())


def test_the_hyperplanes_of_a_seed_stay_what_they_are() -> None:
    """A snapshot's codes would be others if they did not."""
    assert Hyperplanes(0, 4).normals()[:2].tolist() == NORMALS
    assert Hyperplanes(0, 4).codes(np.eye(4, dtype=np.float32)).tolist() == CODES


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_is_refused_by_its_row(wrong: float) -> None:
    vectors = drawn(5000)
    vectors[4321, 7] = wrong
    with pytest.raises(ValueError, match=r"row 4321.*NaN"):
        Hyperplanes(0, DIMENSION).codes(vectors)


def test_another_dimension_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\(n, 48\).*\(2, 47\)"):
        Hyperplanes(0, DIMENSION).codes(np.zeros((2, 47), dtype=np.float32))
    with pytest.raises(ValueError, match="dimension"):
        Hyperplanes(0, 0)
