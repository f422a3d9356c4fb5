"""Blocks are leaves of a trie over where summaries lie: a function of the set, small, and found by a path."""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.core.groups import hex_ids
from tasks.core.shards import assign, id_hashes
from tasks.families.lsh_tree.blocks import (
    LETTERS,
    NodePlaces,
    bits_of_paths,
    blocks_of,
    document_paths,
    groups_of,
    most_of,
)
from tasks.families.lsh_tree.segmentation import gray_ranks
from tests.deep import examples

CODES = st.lists(st.sampled_from([0, 1, 2, 7, 2**63, 2**63 + 5, 2**64 - 1]) | st.integers(0, 2**64 - 1), max_size=120)


def ids_of(count: int) -> np.ndarray:
    hashed = (hashlib.sha256(f"node {number}".encode()).digest()[:16] for number in range(count))
    return np.frombuffer(b"".join(hashed), np.uint8).reshape(-1, 16)


@given(CODES, st.integers(1, 20), st.randoms(use_true_random=False))
def test_blocks_are_a_function_of_the_set_and_no_larger_than_they_may_be(
    codes: list[int], most: int, random: object
) -> None:
    ids, words = ids_of(len(codes)), np.array(codes, np.uint64)
    found = blocks_of(ids, words, most, "a")
    assert sorted(row for rows in found.values() for row in rows.tolist()) == list(range(len(codes)))
    assert list(found) == sorted(found)
    paths = bits_of_paths(ids, words)
    for label, rows in found.items():
        assert 1 <= len(rows) <= most
        assert all(paths[row].startswith(label[1:]) for row in rows.tolist())
        assert hex_ids(ids[rows]) == sorted(hex_ids(ids[rows]))
    order = list(range(len(codes)))
    random.shuffle(order)  # type: ignore[attr-defined]
    again = blocks_of(ids[order], words[order], most, "a")
    assert {label: hex_ids(ids[order][rows]) for label, rows in again.items()} == {
        label: hex_ids(ids[rows]) for label, rows in found.items()
    }


def test_another_summary_leaves_the_other_blocks_as_they_are() -> None:
    ids, codes = ids_of(400), np.random.default_rng(0).integers(0, 2**64, 400, dtype=np.uint64)
    before, after = (
        {label: hex_ids(ids[rows]) for label, rows in blocks_of(ids[:count], codes[:count], 16, "a").items()}
        for count in (399, 400)
    )
    changed = [label for label, held in after.items() if before.get(label) != held]
    assert 1 <= len(changed) <= 2  # a block that is full is two


@examples(20, deep=100)
@given(CODES, st.integers(1, 20))
def test_a_text_is_found_in_its_block_by_its_path(codes: list[int], most: int) -> None:
    ids, words = ids_of(len(codes)), np.array(codes, np.uint64)
    found = blocks_of(ids, words, most, "b")
    expected = {row: label for label, rows in found.items() for row in rows.tolist()}
    assert NodePlaces(found).of(gray_ranks(words), ids) == [expected[row] for row in range(len(codes))]


def test_a_passage_is_found_in_the_shard_of_its_document() -> None:
    documents = [f"document {number % 90}" for number in range(300)]
    distinct = sorted(set(documents))
    shards = assign(id_hashes(distinct), np.ones(len(distinct), np.int64), 7)
    expected = {distinct[row]: label for label, rows in shards.items() for row in rows.tolist()}
    found = NodePlaces(shards).of(document_paths(pa.array(documents)), ids_of(300))
    assert found == [expected[document] for document in documents]
    with pytest.raises(LookupError, match="p1"):
        NodePlaces(["p1"]).of(np.array([1], np.uint64), ids_of(1))
    assert NodePlaces([]).of(np.empty(0, np.uint64), ids_of(0)) == []


@examples(20, deep=100)
@given(CODES, st.integers(1, 5), st.integers(0, 6))
def test_groups_are_subtrees_of_so_many_blocks(codes: list[int], most: int, blocks: int) -> None:
    labels = list(blocks_of(ids_of(len(codes)), np.array(codes, np.uint64), most, "c"))
    found = groups_of(labels, blocks)
    assert [label for held in found.values() for label in held] == labels
    for group, held in found.items():
        assert len(held) <= max(blocks, 1)
        assert held == [label for label in labels if label.startswith(group)]
    joined = [one[:-1] for one in found if len(one) > 1]
    assert all(sum(label.startswith(parent) for label in labels) > max(blocks, 1) for parent in joined)
    assert groups_of(labels[::-1], blocks) == found


def test_a_block_never_holds_more_than_a_part_and_fewer_in_upper_layers() -> None:
    assert [most_of(layer, 512) for layer in (1, 2, 3, 4, 16)] == [128, 64, 32, 32, 32]
    assert [most_of(layer, 20) for layer in (1, 2, 3)] == [20, 20, 20]
    assert len(set(LETTERS) - {"e", "p"}) == 16
