"""Searching a C-HNSW index: what it finds of what is nearest, alone and in a batch."""

from __future__ import annotations

import numpy as np
import pytest

from indexmill.families.community_tree.chnsw import Beam, Chnsw
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.store.packs import open_pack, write_pack
from tasks.families.community_tree.chnsw import ChnswLevel, build_chnsw

EVERY = Beam(whole=0)
"""Walks every level that is larger than its beam."""


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None]).astype(np.float32)


def ids(rows: int) -> list[str]:
    return [f"{row:06d}" for row in range(rows)]


def tree(vectors: np.ndarray, groups: int = 20, least: int = 4) -> list[ChnswLevel]:
    """Levels over vectors: means of those that stand together in the order of a random projection."""
    levels = [ChnswLevel(ids(len(vectors)), vectors)]
    while len(vectors) > least * groups:
        order = np.argsort(vectors @ np.random.default_rng(0).standard_normal(vectors.shape[1]))
        vectors = unit(np.stack([vectors[part].sum(axis=0) for part in np.array_split(order, len(vectors) // groups)]))
        levels.append(ChnswLevel(ids(len(vectors)), vectors))
    return levels


def clustered(rows: int, dimension: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and questions near some of them."""
    draw = np.random.default_rng(0)
    centres = unit(draw.standard_normal((rows // 40, dimension)))
    vectors = unit(centres[draw.integers(0, len(centres), rows)] + 0.1 * draw.standard_normal((rows, dimension)))
    return vectors, unit(vectors[::50] + 0.08 * draw.standard_normal((len(vectors[::50]), dimension)))


def spread(rows: int, dimension: int = 16) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(1)
    return unit(draw.standard_normal((rows, dimension))), unit(draw.standard_normal((80, dimension)))


def exact(index: Chnsw, number: int, questions: np.ndarray, k: int) -> np.ndarray:
    rows = index.level(number)
    products = on_grid(questions) @ index.vectors[rows].astype(np.float32).T
    return np.argsort(-products, axis=1, kind="stable")[:, :k] + rows.start


def recall(found: np.ndarray, true: np.ndarray) -> float:
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), true.tolist(), strict=True)]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [clustered, spread])
@pytest.mark.parametrize("levels", [1, 3])
def test_most_of_the_nearest_are_found_on_every_level(kind, levels: int) -> None:  # type: ignore[no-untyped-def]
    vectors, questions = kind(4000)
    index = build_chnsw(tree(vectors)[:levels]).index
    hits = index.search(questions, 5, EVERY)
    assert len(hits) == min(levels, len(tree(vectors)))
    for number, level in enumerate(hits):
        assert recall(level.rows, exact(index, number, questions, 5)) >= 0.95
    assert hits[0].compared.mean() < 0.3 * len(vectors)
    assert hits[0].compared.min() > 0


def test_a_batch_gives_each_question_what_it_gets_alone() -> None:
    vectors, questions = spread(2500)
    index = build_chnsw(tree(vectors)).index
    together = index.search(questions, 7, EVERY)
    for at in (0, 1, 63, 64, len(questions) - 1):
        for level, alone in zip(together, index.search(questions[at : at + 1], 7, EVERY), strict=True):
            for name in ("rows", "scores", "compared"):
                assert getattr(level, name)[at].tobytes() == getattr(alone, name)[0].tobytes()


def test_small_levels_are_compared_as_a_whole() -> None:
    vectors, questions = spread(900)
    index = build_chnsw(tree(vectors)).index
    for number, level in enumerate(index.search(questions, 5)):
        np.testing.assert_array_equal(level.rows, exact(index, number, questions, 5))
        assert (level.compared == index.level_offsets[number + 1] - index.level_offsets[number]).all()


def test_scores_are_cosines_in_order_and_equal_ones_in_the_order_of_rows() -> None:
    vectors = np.repeat(spread(300)[0], 3, axis=0)
    index = build_chnsw([ChnswLevel(ids(900), vectors)]).index
    for beam in (EVERY, Beam()):
        hits = index.search(vectors[:30:3], 3, beam)[0]
        np.testing.assert_array_equal(hits.rows, np.arange(30).reshape(10, 3))
        np.testing.assert_allclose(hits.scores, 1.0, atol=1e-3)
    hits = index.search(spread(300)[1], 9, EVERY)[0]
    assert (np.diff(hits.scores, axis=1) <= 0).all()


def test_fewer_nodes_than_asked_for_an_empty_level_and_no_level() -> None:
    vectors = spread(3)[0]
    empty = ChnswLevel([], np.empty((0, 16), dtype=np.float32))
    hits = build_chnsw([empty, ChnswLevel(ids(3), vectors), empty]).index.search(vectors, 5)
    assert hits[1].rows[:, 3:].tolist() == [[-1, -1]] * 3
    assert hits[1].rows[:, 0].tolist() == [0, 1, 2]
    assert (hits[0].rows == -1).all()
    assert (hits[2].rows == -1).all()
    assert not hits[0].scores.any()
    assert build_chnsw([]).index.search(vectors, 5) == []
    assert [level.rows.shape for level in build_chnsw([ChnswLevel(ids(3), vectors)]).index.search(vectors[:0], 5)] == [
        (0, 5)
    ]


def test_a_large_level_under_an_empty_one_is_entered_at_its_entry() -> None:
    vectors, questions = spread(1500)
    empty = ChnswLevel([], np.empty((0, 16), dtype=np.float32))
    index = build_chnsw([ChnswLevel(ids(1500), vectors), empty]).index
    hits = index.search(questions, 5, EVERY)[0]
    assert recall(hits.rows, exact(index, 0, questions, 5)) >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [np.zeros((600, 8), np.float32), np.repeat(spread(1, 8)[0], 600, axis=0)])
def test_vectors_that_are_all_the_same(vectors: np.ndarray) -> None:
    index = build_chnsw([ChnswLevel(ids(600), vectors), ChnswLevel(ids(200), vectors[:200])]).index
    for beam in (EVERY, Beam()):
        for level in index.search(vectors[:2], 5, beam):
            assert (level.rows >= 0).all()
            assert len(np.unique(level.scores)) == 1
    assert abs(level.scores[0, 0] - (vectors[0] @ vectors[0])) < 1e-3


def test_an_index_mapped_from_a_pack_finds_the_same(tmp_path) -> None:  # type: ignore[no-untyped-def]
    vectors, questions = spread(1500)
    index = build_chnsw(tree(vectors)).index
    write_pack(tmp_path / "chnsw", index.arrays())
    mapped = Chnsw.of(open_pack(tmp_path / "chnsw"))
    for level, other in zip(index.search(questions, 5, EVERY), mapped.search(questions, 5, EVERY), strict=True):
        assert level.rows.tobytes() == other.rows.tobytes()
    assert index.search(vectors[:1], 1)[0].scores[0, 0] == np.float32((on_grid(vectors[:1]) ** 2).sum() / UNIT)
