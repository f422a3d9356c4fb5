"""Segments partition the nodes within bounds, are a function of the set, and change near a change alone."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.core.shards import id_hashes
from tasks.families.lsh_tree.hyperplanes import Hyperplanes
from tasks.families.lsh_tree.segmentation import Segments, gray_ranks, node_id
from tasks.families.lsh_tree.segmentation import segment as segment_codes
from tests.deep import examples

DIMENSION = 16
PLANES = Hyperplanes(0, DIMENSION)
KINDS = ("random", "equal", "zero", "two clusters", "opposite", "one-hot", "few distinct", "nearly equal", "mixed")
BOUNDS = st.integers(1, 9).flatmap(lambda s: st.tuples(st.just(s), st.integers(2 * s - 1, 3 * s + 2)))


def made(kind: str, rows: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    random = draw.standard_normal((rows, DIMENSION))
    one = draw.standard_normal(DIMENSION)
    signs = np.where(np.arange(rows) % 3 == 0, 1, -1)[:, None]
    vectors = {
        "random": random,
        "equal": np.broadcast_to(one, (rows, DIMENSION)),
        "zero": np.zeros((rows, DIMENSION)),
        "two clusters": signs * one + 0.05 * random,
        "opposite": signs * one,
        "one-hot": np.eye(DIMENSION)[np.arange(rows) % DIMENSION],
        "few distinct": random[np.arange(rows) % 3] if rows else random,
        "nearly equal": one + 1e-3 * random,
        "mixed": np.where(np.arange(rows)[:, None] % 2, one, random),
    }[kind]
    return vectors.astype(np.float32)


def segment(keys: np.ndarray, vectors: np.ndarray, planes: Hyperplanes, smallest: int, largest: int) -> Segments:
    return segment_codes(keys, planes.codes(vectors), smallest, largest)


def keys_of(rows: int, start: int = 0) -> np.ndarray:
    return id_hashes(f"node {number}" for number in range(start, start + rows))


def groups(found: Segments, names: list[int] | None = None) -> list[frozenset[int]]:
    return [frozenset(row if names is None else names[row] for row in rows.tolist()) for rows in found.rows()]


def check_partition(found: Segments, rows: int, smallest: int, largest: int) -> None:
    assert np.array_equal(np.sort(found.order), np.arange(rows))
    assert found.order.dtype == found.offsets.dtype == np.int64
    assert found.offsets[0] == 0
    assert found.offsets[-1] == rows
    sizes = np.diff(found.offsets)
    assert len(sizes) == len(found.rows())
    if 0 < rows < smallest:
        assert sizes.tolist() == [rows]
    else:
        assert all(smallest <= size <= largest for size in sizes.tolist())
    if 0 < rows <= largest:
        assert len(sizes) == 1


@examples(20, deep=100)
@given(st.sampled_from(KINDS), st.integers(0, 150), BOUNDS, st.integers(0, 99))
@example("equal", 150, (1, 1), 0)
@example("zero", 13, (7, 13), 0)
@example("zero", 14, (7, 13), 0)
def test_every_node_is_in_one_segment_within_bounds(kind: str, rows: int, bounds: tuple[int, int], seed: int) -> None:
    check_partition(segment(keys_of(rows), made(kind, rows, seed), PLANES, *bounds), rows, *bounds)


@given(st.sampled_from(KINDS), st.integers(0, 120), BOUNDS, st.randoms(use_true_random=False))
def test_segments_and_their_order_are_a_function_of_the_set(
    kind: str, rows: int, bounds: tuple[int, int], random: object
) -> None:
    keys, vectors = keys_of(rows), made(kind, rows)
    found = segment(keys, vectors, PLANES, *bounds)
    order = np.arange(rows)
    random.shuffle(order)  # type: ignore[attr-defined]
    again = segment(keys[order], vectors[order], PLANES, *bounds)
    assert np.array_equal(order[again.order], found.order)
    assert np.array_equal(again.offsets, found.offsets)


def trie(keys: np.ndarray, vectors: np.ndarray, smallest: int, largest: int) -> list[list[int]]:
    """The segmentation as its description says it, one node after another."""
    codes = PLANES.codes(vectors).tolist()
    bits = [
        f"{codes[row]:064b}" + "".join(f"{byte:08b}" for byte in hashlib.sha256(keys[row].tobytes()).digest())
        for row in range(len(keys))
    ]

    def shared(one: int, other: int) -> int:
        return next((at for at, (a, b) in enumerate(zip(bits[one], bits[other], strict=True)) if a != b), len(bits[0]))

    def build(rows: list[int], depth: int, swapped: bool) -> list[list[int]]:
        if not rows:
            return []
        if depth == len(bits[0]) or len({bits[row][depth:] for row in rows}) == 1:
            return [rows]
        zeros = [row for row in rows if bits[row][depth] == "0"]
        ones = [row for row in rows if bits[row][depth] == "1"]
        low, high = (ones, zeros) if swapped else (zeros, ones)
        sides = [build(side, depth + 1, swapped ^ (side is ones)) for side in (low, high)]
        if len(rows) <= largest:
            return [[row for side in sides for piece in side for row in piece]]
        left, right = sides
        if left and right and len(left[-1]) < smallest:
            return join(left[-1] + right[0]) + right[1:]
        if left and right and len(right[0]) < smallest:
            return left[:-1] + join(left[-1] + right[0])
        return left + right

    def join(rows: list[int]) -> list[list[int]]:
        if len(rows) <= largest:
            return [rows]
        best = min(
            range(smallest, len(rows) - smallest + 1),
            key=lambda at: (shared(rows[at - 1], rows[at]), abs(2 * at - len(rows)), at),
        )
        return [rows[:best], rows[best:]]

    return build(list(range(len(keys))), 0, False)


@examples(12, deep=60)
@given(st.sampled_from(KINDS), st.integers(1, 120), BOUNDS, st.integers(0, 999))
def test_segments_are_those_of_the_trie(kind: str, rows: int, bounds: tuple[int, int], seed: int) -> None:
    keys, vectors = keys_of(rows), made(kind, rows, seed)
    found = segment(keys, vectors, PLANES, *bounds)
    assert [piece.tolist() for piece in found.rows()] == trie(keys, vectors, *bounds)


def test_neighbouring_codes_differ_in_one_bit_of_their_first_difference() -> None:
    """Gray order: where the order steps from one subtree to its sibling, both sides begin alike below the split."""
    angles = np.linspace(0, 2 * np.pi, 4000, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    planes = Hyperplanes(0, 2)
    found = segment(keys_of(4000), circle, planes, 6, 12)
    codes = planes.codes(circle)[found.order].tolist()
    steps = [(one ^ other).bit_count() for one, other in pairwise(codes) if one != other]
    plain = sorted(set(codes))
    unordered = [(one ^ other).bit_count() for one, other in pairwise(plain)]
    assert np.mean(steps) < np.mean(unordered)


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(20, 400))
def test_one_more_node_redoes_segments_near_it_alone(seed: int, rows: int) -> None:
    """The rest stay: a change moves borders within the subtree that the node is in, and there seldom more than one."""
    keys, vectors = keys_of(rows), made("random", rows, seed)
    before = set(groups(segment(keys[:-1], vectors[:-1], PLANES, 6, 12)))
    after = groups(segment(keys, vectors, PLANES, 6, 12))
    assert sum(group not in before for group in after) <= 6


def test_deleting_what_was_inserted_leaves_no_trace() -> None:
    keys, vectors = keys_of(300), made("mixed", 300)
    names = np.random.default_rng(1).permutation(300)[:260].tolist()
    first = groups(segment(keys[:200], vectors[:200], PLANES, 6, 12))
    segment(keys[names], vectors[names], PLANES, 6, 12)
    back = sorted(names + list(set(range(200)) - set(names)))
    back = [row for row in back if row < 200]
    assert groups(segment(keys[back], vectors[back], PLANES, 6, 12), back) == first


def test_equal_vectors_are_told_apart_by_their_keys() -> None:
    keys, vectors = keys_of(500), made("equal", 500)
    found = segment(keys, vectors, PLANES, 6, 12)
    check_partition(found, 500, 6, 12)
    hashes = [hashlib.sha256(key.tobytes()).hexdigest() for key in keys]
    ends = [(hashes[rows[0]][0] < "8") == (hashes[rows[-1]][0] < "8") for rows in found.rows()]
    assert sum(ends) >= len(ends) - 1  # no more than one segment is on both sides of the first bit


def test_a_repeated_key_is_refused() -> None:
    keys = keys_of(30).copy()
    keys[20] = keys[5]
    with pytest.raises(ValueError, match=f"rows 5 and 20 have the same key {keys[5].tobytes().hex()}"):
        segment(keys, made("random", 30), PLANES, 6, 12)
    near = keys_of(30).copy()
    near[20, :31] = near[5, :31]  # one byte apart
    near[20, 31] = near[5, 31] ^ 1
    check_partition(segment(near, made("equal", 30), PLANES, 6, 12), 30, 6, 12)


def test_bounds_that_cannot_hold_are_refused() -> None:
    with pytest.raises(ValueError, match=r"2 \* smallest - 1"):
        segment(keys_of(30), made("random", 30), PLANES, 8, 12)
    with pytest.raises(ValueError, match="smallest"):
        segment(keys_of(30), made("random", 30), PLANES, 0, 12)
    with pytest.raises(ValueError, match=r"codes \(n,\).*\(29,\)"):
        segment(keys_of(30), made("random", 29), PLANES, 6, 12)
    with pytest.raises(ValueError, match=r"8 or more\) uint8.*\(30, 7\)"):
        segment(keys_of(30)[:, :7], made("random", 30), PLANES, 6, 12)
    with pytest.raises(ValueError, match="int64"):
        segment_codes(keys_of(2), np.zeros(2, np.int64), 6, 12)


def test_an_id_says_what_its_summary_was_made_from() -> None:
    children = [("b", "digest of b"), ("a", "digest of a")]
    found = node_id(1, children, "extractive")
    expected = b'[1,[["a","digest of a"],["b","digest of b"]],"extractive"]\n'
    assert found == hashlib.sha256(expected).hexdigest()[:32] == node_id(1, children[::-1], "extractive")
    others = [
        node_id(2, children, "extractive"),
        node_id(1, children, "another"),
        node_id(1, children[:1], "extractive"),
        node_id(1, [("b", "digest of b"), ("a", "another text")], "extractive"),
        node_id(1, [("b", "digest of b"), ("c", "digest of a")], "extractive"),
    ]
    assert len({found, *others}) == 6


def test_the_middle_of_a_segment_is_its_middle_row_or_the_later_of_two() -> None:
    found = Segments(np.array([4, 0, 1, 3, 2, 5]), np.array([0, 1, 3, 6]))
    assert found.middles().tolist() == [4, 1, 2]
    assert Segments(np.empty(0, np.int64), np.zeros(1, np.int64)).middles().tolist() == []


def test_the_rank_of_a_code_is_its_place_in_gray_order() -> None:
    """The n-th code in Gray order is n ^ (n >> 1)."""
    ranks = np.arange(1000, dtype=np.uint64)
    assert np.array_equal(gray_ranks(ranks ^ (ranks >> np.uint64(1))), ranks)
    assert gray_ranks(np.array([2**63], np.uint64)).tolist() == [2**64 - 1]
