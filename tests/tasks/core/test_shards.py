"""Shards are a partition of the ids, within bounds, and a function of the set alone."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.shards import assign, estimate_tokens, hash_order, id_hash, id_hashes, shard_groups
from tests.deep import examples

Weights = dict[str, int]

WEIGHTS = st.dictionaries(st.text(max_size=8), st.integers(0, 100), max_size=60)
LIMITS = st.integers(1, 300)


def shards_of(weights: Weights, limit: int) -> dict[str, frozenset[str]]:
    names = list(weights)
    assigned = assign(id_hashes(names), np.array([weights[name] for name in names], dtype=np.int64), limit)
    return {label: frozenset(names[row] for row in rows) for label, rows in assigned.items()}


def bits_of(name: str) -> str:
    return "".join(f"{byte:08b}" for byte in id_hash(name))


@examples(20, deep=100)
@given(WEIGHTS, LIMITS)
def test_shards_partition_the_ids_within_bounds(weights: Weights, limit: int) -> None:
    shards = shards_of(weights, limit)
    assert sorted(name for shard in shards.values() for name in shard) == sorted(weights)
    for label, names in shards.items():
        assert names
        assert all(bits_of(name).startswith(label[1:]) for name in names)
        assert len(names) == 1 or sum(weights[name] for name in names) <= limit
        if label != "p":  # the parent had to split
            above = [name for name in weights if bits_of(name).startswith(label[1:-1])]
            assert len(above) > 1
            assert sum(weights[name] for name in above) > limit
    labels = list(shards)
    assert labels == sorted(labels)
    assert not any(other.startswith(one) for one in labels for other in labels if one != other)


@examples(20, deep=100)
@given(WEIGHTS, LIMITS, st.randoms())
def test_the_order_of_the_ids_does_not_matter(weights: Weights, limit: int, random: object) -> None:
    shuffled = list(weights.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert shards_of(dict(shuffled), limit) == shards_of(weights, limit)


@examples(20, deep=100)
@given(WEIGHTS, LIMITS, st.text(max_size=8), st.integers(0, 100))
def test_growth_splits_only_the_leaf_it_touches_and_shrinkage_joins_it_again(
    weights: Weights, limit: int, name: str, weight: int
) -> None:
    weights.pop(name, None)
    before = shards_of(weights, limit)
    after = shards_of({**weights, name: weight}, limit)
    path = "p" + bits_of(name)
    untouched = {label: names for label, names in before.items() if not path.startswith(label)}
    # Leaves that were split off the touched one stay below it; every other leaf is as it was.
    touched = [label for label in before if path.startswith(label)]
    for label, names in untouched.items():
        holder = next(other for other, held in after.items() if names <= held)
        assert holder == label
    for label in after:
        assert label in untouched or path.startswith(label) or any(label.startswith(one) for one in touched)
    assert shards_of(weights, limit) == before


def test_a_trie_worked_by_hand() -> None:
    hashes = np.zeros((4, 32), dtype=np.uint8)
    hashes[:, 0] = [0b0000_0000, 0b0100_0000, 0b1000_0000, 0b1100_0000]
    tokens = np.array([5, 5, 2, 2], dtype=np.int64)
    assert {label: rows.tolist() for label, rows in assign(hashes, tokens, 14).items()} == {"p": [0, 1, 2, 3]}
    assert {label: rows.tolist() for label, rows in assign(hashes, tokens, 9, "e").items()} == {
        "e00": [0],
        "e01": [1],
        "e1": [2, 3],
    }
    assert assign(hashes[:0], tokens[:0], 9) == {}


def test_hashes_that_differ_in_their_last_bit_are_told_apart() -> None:
    hashes = np.zeros((3, 32), dtype=np.uint8)
    hashes[0, 31], hashes[2, 8] = 1, 1
    tokens = np.full(3, 10, dtype=np.int64)
    assert hash_order(hashes).tolist() == [1, 0, 2]
    assigned = assign(hashes, tokens, 10)
    assert [len(label) for label in assigned] == [257, 257, 73]
    with pytest.raises(ValueError, match="same hash"):
        assign(np.zeros((2, 32), dtype=np.uint8), tokens[:2], 10)


def test_one_document_larger_than_the_limit_is_a_shard_of_its_own() -> None:
    assert shards_of({"a": 1000}, 10) == {"p": frozenset({"a"})}


def test_wrong_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected hashes"):
        assign(np.zeros((2, 31), dtype=np.uint8), np.zeros(2, dtype=np.int64), 10)
    with pytest.raises(ValueError, match="limit"):
        assign(np.zeros((2, 32), dtype=np.uint8), np.zeros(2, dtype=np.int64), 0)


def test_the_estimate_is_a_quarter_of_the_bytes() -> None:
    assert [estimate_tokens(size) for size in (0, 3, 4, 400)] == [1, 1, 2, 101]


@given(WEIGHTS, LIMITS, st.integers(1, 5))
def test_groups_of_shards_partition_them_within_bounds(weights: Weights, limit: int, most: int) -> None:
    labels = list(shards_of(weights, limit))
    groups = shard_groups(reversed(labels), most)
    assert sorted(label for within in groups.values() for label in within) == labels
    for group, within in groups.items():
        assert 1 <= len(within) <= most
        assert all(label.startswith(group) for label in within)
        if group != "p":  # the node above holds too many
            assert sum(label.startswith(group[:-1]) for label in labels) > most


@pytest.mark.slow
def test_a_million_documents_take_seconds() -> None:
    hashes = np.random.default_rng(0).integers(0, 256, (1_000_000, 32), dtype=np.uint8)
    tokens = np.full(1_000_000, 500, dtype=np.int64)
    began = time.process_time()
    assigned = assign(hashes, tokens, 128_000)
    assert time.process_time() - began < 5
    assert sum(len(rows) for rows in assigned.values()) == 1_000_000
    assert max(len(rows) for rows in assigned.values()) <= 512
