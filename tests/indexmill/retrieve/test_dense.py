"""Exact nearest passages: order, ties, and the same bits for a question alone and in a batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from indexmill.retrieve import dense
from indexmill.retrieve.columns import products
from indexmill.retrieve.directions import directions_of, unit_vectors
from indexmill.retrieve.retrieval_method import Vectors


def some_vectors(rows: int, dimensions: int, seed: int = 0) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((rows, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def every_product(rows: Vectors, question: Vectors) -> dense.Scores:
    return products([rows], question[None], np.arange(len(rows)))


def test_the_nearest_rows_come_first_across_shards() -> None:
    shards = [np.float32([[1, 0], [0, 1]]), np.float32([[0.6, 0.8]]), np.float32([[-1, 0], [0.8, 0.6]])]
    ((rows, found),) = dense.nearest(shards, np.float32([[1, 0]]), 3)
    assert rows.tolist() == [0, 4, 2]
    assert found.tolist() == pytest.approx([1.0, 0.8, 0.6])


def test_ties_go_to_the_lower_row_even_across_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dense, "ROW_TILE", 2)
    monkeypatch.setattr(dense, "BLOCK_ROWS", 4)
    same = np.tile(np.float32([[0, 1]]), (5, 1))
    best = np.float32([[1, 0]])
    ((rows, _),) = dense.nearest([same, best, same], np.float32([[1, 1]]), 4)
    assert rows.tolist() == [0, 1, 2, 3]
    ((rows, _),) = dense.nearest([same, best, same], np.float32([[1, 0.5]]), 4)
    assert rows.tolist() == [5, 0, 1, 2]


@pytest.mark.parametrize("k", [1, 5, 40, 1000])
def test_top_k_is_what_a_full_sort_gives(k: int) -> None:
    shards = [some_vectors(rows, 24, seed) for seed, rows in enumerate((7, 0, 33, 1))]
    questions = some_vectors(20, 24, 9)
    for question, (rows, found) in zip(questions, dense.nearest(shards, questions, k), strict=True):
        values = every_product(np.concatenate(shards), question)
        expected = np.argsort(-values, kind="stable")[:k]
        assert rows.tolist() == expected.tolist()
        assert found.tobytes() == values[expected].tobytes()


@pytest.mark.parametrize(("rows", "dimensions"), [(1, 8), (7, 33), (100, 64), (513, 384), (1300, 384), (8200, 96)])
def test_a_question_gets_the_same_bits_alone_and_in_any_batch(rows: int, dimensions: int) -> None:
    shards = [some_vectors(rows, dimensions), some_vectors(rows // 3 + 1, dimensions, 1)]
    questions = some_vectors(37, dimensions, 2)
    alone = [dense.nearest(shards, question[None], 10)[0] for question in questions]
    for (rows_alone, found_alone), (rows_batch, found_batch) in zip(
        alone, dense.nearest(shards, questions, 10), strict=True
    ):
        assert rows_alone.tolist() == rows_batch.tolist()
        assert found_alone.tobytes() == found_batch.tobytes()
    few = [found for at in range(0, 37, 3) for found in dense.nearest(shards, questions[at : at + 3], 10)]
    assert [found.tobytes() for _, found in few] == [found.tobytes() for _, found in alone]
    backwards = dense.nearest(shards, questions[::-1], 10)[::-1]
    assert [found.tobytes() for _, found in backwards] == [found.tobytes() for _, found in alone]


@pytest.mark.parametrize("questions", [1, 9])
@pytest.mark.parametrize("share", [1.0, 0.7, 0.2])
def test_directions_are_ranked_as_their_unit_vectors(
    questions: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In tiles and blocks of any length, whichever rows may be found; zeros, too, which titles may be."""
    monkeypatch.setattr(dense, "DIRECTION_TILE", 64)
    monkeypatch.setattr(dense, "BLOCK_ROWS", 256)
    shards = [directions_of(some_vectors(rows, 48, seed)) for seed, rows in enumerate((100, 0, 333, 1))]
    shards[0][::7] = 0
    asked = some_vectors(questions, 48, 9)
    allowed = None if share == 1 else np.random.default_rng(5).random(434) < share
    expected = dense.nearest([unit_vectors(shard) for shard in shards], asked, 20, allowed)
    for (rows, found), (other_rows, other_found) in zip(
        dense.nearest(shards, asked, 20, allowed), expected, strict=True
    ):
        assert rows.tolist() == other_rows.tolist()
        assert found.tobytes() == other_found.tobytes()


@pytest.mark.parametrize("way", ["alone", "batch"])
def test_estimates_may_be_off_by_their_rounding_error(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows so close that the estimates order them wrongly come in the order of their products."""
    close = np.repeat(some_vectors(1, 384), 3000, axis=0)
    close += np.float32(1e-7) * some_vectors(3000, 384, 1)
    questions = some_vectors(1 if way == "alone" else 9, 384, 2)
    chance = np.random.default_rng(3)
    estimates = dense._estimates

    def rougher(shards: Sequence[Vectors], asked: Vectors, chosen: dense.Rows | None) -> dense.Scores:
        found = estimates(shards, asked, chosen)
        worst = np.float32(384 * 2.0**-24) * chance.choice(np.float32([-1, 1]), found.shape)
        return found + worst * np.linalg.norm(asked, axis=1, keepdims=True)

    monkeypatch.setattr(dense, "_estimates", rougher)
    for question, (rows, found) in zip(questions, dense.nearest([close], questions, 20), strict=True):
        values = every_product(close, question)
        expected = np.argsort(-values, kind="stable")[:20]
        assert rows.tolist() == expected.tolist()
        assert found.tobytes() == values[expected].tobytes()


def test_no_rows_and_no_questions_give_no_hits() -> None:
    assert dense.nearest([some_vectors(3, 4)], np.empty((0, 4), np.float32), 5) == []
    ((rows, found),) = dense.nearest([], some_vectors(1, 4), 5)
    assert len(rows) == len(found) == 0


@settings(max_examples=80)
@given(
    values=arrays.arrays(np.float32, st.integers(0, 300), elements=st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0])),
    k=st.one_of(st.integers(1, 4), st.integers(1, 310)),
    slack=st.sampled_from([0.0, 0.25, 0.5]),
)
def test_at_least_top_keeps_all_that_reach_the_bound(values: npt.NDArray[np.float32], k: int, slack: float) -> None:
    bound = sorted(values, reverse=True)[k - 1] - slack if k < len(values) else -np.inf
    assert dense.at_least_top(values, k, slack).tolist() == [i for i, value in enumerate(values) if value >= bound]
