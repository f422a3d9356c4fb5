"""The C-HNSW index: its graph, its links down, and that it is a function of the set of nodes."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from indexmill.families.community_tree.chnsw import Chnsw
from indexmill.retrieve.grid import on_grid
from tasks.core.neighbours import Lists, ListSettings, nearest_of_all
from tasks.families.community_tree import level_links as links_module
from tasks.families.community_tree.chnsw import ChnswLevel, ChnswSettings, build_chnsw
from tasks.families.community_tree.level_links import ChnswLinkSettings, level_links
from tests.deep import examples
from tests.paths import ROOT

KINDS = ("clustered", "random", "identical", "zeros", "two far clusters")


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)[:, None]).astype(np.float32)


def draw(rows: int, kind: str, seed: int, dimension: int = 12) -> np.ndarray:
    generator = np.random.default_rng(seed)
    noise = generator.standard_normal((rows, dimension))
    if kind == "zeros":
        return np.zeros((rows, dimension), dtype=np.float32)
    if kind == "identical":
        return unit(np.repeat(generator.standard_normal((1, dimension)), rows, axis=0))
    if kind == "random":
        return unit(noise)
    centres = unit(generator.standard_normal((2 if kind == "two far clusters" else rows // 20 + 1, dimension)))
    tight = 0.01 if kind == "two far clusters" else 0.2
    return unit(centres[generator.integers(0, len(centres), rows)] + tight * noise)


def level(rows: int, kind: str, seed: int) -> ChnswLevel:
    ids = [f"{row * 7919 % 10007:05d}-{seed}" for row in range(rows)]
    return ChnswLevel(ids, draw(rows, kind, seed))


def small(least: int, exact: int = 10_000, products: int = 10**6) -> ChnswSettings:
    links = ChnswLinkSettings(least=least, candidates=max(3 * least, 4), far=min(2, least), thinning=3)
    return ChnswSettings(links, ListSettings(exact=exact, probes=3), products)


def reached(index: Chnsw, number: int) -> set[int]:
    """The rows that links lead to from the entry of a level."""
    seen = {int(index.entries[number])}
    todo = list(seen)
    while todo:
        row = todo.pop()
        for other in index.indices[index.indptr[row] : index.indptr[row + 1]].tolist():
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def check(index: Chnsw, sizes: list[int], least: int) -> None:
    assert np.diff(index.level_offsets).tolist() == sizes
    owners = np.repeat(np.arange(len(index.down)), np.diff(index.indptr))
    pairs = set(zip(owners.tolist(), index.indices.tolist(), strict=True))
    assert len(pairs) == len(index.indices)
    assert all((other, one) in pairs and one != other for one, other in pairs)
    for number, size in enumerate(sizes):
        rows = index.level(number)
        degrees = np.diff(index.indptr)[rows]
        if not size:
            assert index.entries[number] == -1
            continue
        mine = index.indices[index.indptr[rows.start] : index.indptr[rows.stop]]
        assert ((mine >= rows.start) & (mine < rows.stop)).all()
        assert (degrees >= min(least, size - 1)).all()
        assert (degrees <= 2 * least).all()
        if size <= least + 1:
            assert (degrees == size - 1).all()
        assert reached(index, number) == set(range(rows.start, rows.stop))
        down = index.down[rows]
        if number == 0 or not sizes[number - 1]:
            assert (down == -1).all()
        else:
            below = index.level(number - 1)
            assert ((down >= below.start) & (down < below.stop)).all()


@examples(25, deep=60)
@given(
    st.lists(st.tuples(st.integers(0, 120), st.sampled_from(KINDS)), max_size=4),
    st.integers(1, 6),
    st.sampled_from([10_000, 20]),
    st.sampled_from([10**6, 0]),
    st.integers(0, 10**6),
)
@example([(1, "random")], 4, 10_000, 0, 0)
@example([(0, "random"), (3, "random")], 4, 10_000, 0, 0)
@example([(90, "zeros"), (0, "random"), (40, "identical"), (1, "zeros")], 2, 20, 0, 0)
@example([(120, "two far clusters"), (2, "identical")], 3, 10_000, 0, 1)
def test_the_graph_of_every_level(
    shape: list[tuple[int, str]], least: int, exact: int, products: int, seed: int
) -> None:
    levels = [level(rows, kind, seed + number) for number, (rows, kind) in enumerate(shape)]
    built = build_chnsw(levels, small(least, exact, products))
    check(built.index, [rows for rows, _ in shape], least)
    for number, one in enumerate(levels):
        rows = built.index.level(number)
        ids = [one.ids[source] for source in built.sources[rows].tolist()]
        assert ids == sorted(one.ids)
        np.testing.assert_array_equal(built.index.vectors[rows], on_grid(one.vectors[built.sources[rows]]))


@examples(6, deep=30)
@given(
    st.integers(0, 150),
    st.integers(0, 60),
    st.sampled_from(KINDS),
    st.sampled_from([(10_000, 0), (20, 10**6)]),
    st.integers(0, 10**6),
)
def test_a_link_down_leads_to_the_nearest_node_below(
    low: int, high: int, kind: str, bounds: tuple[int, int], seed: int
) -> None:
    """Whether the level below is in lists or not; only beyond both bounds may it be another one."""
    index = build_chnsw([level(low, kind, seed), level(high, "random", seed + 1)], small(4, *bounds)).index
    vectors = index.vectors.astype(np.int64)
    for row in range(low, low + high):
        if low:
            assert index.down[row] == np.argmax(vectors[:low] @ vectors[row])  # the first of equal ones


@settings(max_examples=30)
@given(st.integers(1, 150), st.sampled_from(KINDS), st.sampled_from([10_000, 20]), st.integers(0, 10**6))
def test_the_order_of_the_input_changes_no_bit(rows: int, kind: str, exact: int, seed: int) -> None:
    levels = [level(rows, kind, seed), level(rows // 5, "random", seed + 1)]
    generator = np.random.default_rng(seed)
    turned = []
    for one in levels:
        order = generator.permutation(len(one.ids))
        turned.append(ChnswLevel([one.ids[row] for row in order], one.vectors[order]))
    first, second = (build_chnsw(some, small(3, exact)).index.arrays() for some in (levels, turned))
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name


@pytest.mark.parametrize("products", [10**6, 0])
def test_the_size_of_tiles_changes_no_bit(monkeypatch: pytest.MonkeyPatch, products: int) -> None:
    levels = [level(400, "clustered", 1), level(60, "random", 2)]
    setting = small(4, 50, products)
    first = build_chnsw(levels, setting).index.arrays()
    for name, size in (("_CELLS", 700), ("_BLOCK", 13)):
        monkeypatch.setattr(f"tasks.core.neighbours.{name}", size)
    monkeypatch.setattr(links_module, "_TILE", 7)
    second = build_chnsw(levels, setting).index.arrays()
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name


@pytest.mark.slow
def test_threads_and_the_hash_seed_change_no_bit() -> None:
    program = """
import hashlib
from tasks.families.community_tree.chnsw import ChnswLevel, build_chnsw
from tests.tasks.families.community_tree.test_chnsw import draw, small
levels = [ChnswLevel([f"{row:04d}" for row in range(rows)], draw(rows, "clustered", rows, 96)) for rows in (2400, 200)]
arrays = build_chnsw(levels, small(4, 1000)).index.arrays()
print(hashlib.sha256(b"".join(arrays[name].tobytes() for name in sorted(arrays))).hexdigest())
"""
    printed = set()
    for threads, seed in (("1", "0"), ("2", "1")):
        limits = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        run = [sys.executable, "-c", program]
        child = subprocess.run(run, cwd=ROOT, env=os.environ | limits, capture_output=True, text=True, check=True)
        printed.add(child.stdout)
    assert len(printed) == 1
    assert len(printed.pop()) == 65


def test_one_more_level_changes_nothing_below() -> None:
    low, high = level(100, "clustered", 1), level(20, "random", 2)
    one, two = build_chnsw([low], small(3)).index, build_chnsw([low, high], small(3)).index
    np.testing.assert_array_equal(one.indices, two.indices[: len(one.indices)])
    np.testing.assert_array_equal(one.down, two.down[:100])


def test_components_without_room_are_joined_by_exchanging_links() -> None:
    vectors = on_grid(draw(12, "random", 0))
    graph = links_module._Graph(vectors, 1)  # rings: every node has both of its links
    ring = np.array([0, 1, 2, 3])
    low = np.concatenate([ring + 4 * part for part in range(3)])
    graph.fill(low, np.concatenate([(ring + 1) % 4 + 4 * part for part in range(3)]))
    assert len(set(graph.components().tolist())) == 3
    while graph.join():
        pass
    assert set(graph.components().tolist()) == {0}
    assert graph.degrees.tolist() == [2] * 12
    indptr, indices = graph.links()
    assert len(set(zip(np.repeat(np.arange(12), np.diff(indptr)), indices, strict=True))) == 24


def test_a_component_without_room_is_joined_to_one_with_room() -> None:
    graph = links_module._Graph(on_grid(draw(7, "random", 0)), 1)
    graph.fill(np.array([0, 1, 0, 3, 4, 5]), np.array([1, 2, 2, 4, 5, 6]))  # a ring of three, a path of four
    while graph.join():
        pass
    assert set(graph.components().tolist()) == {0}
    assert graph.degrees.tolist() == [2, 2, 2, 1, 2, 2, 1]


def test_a_node_that_finds_no_room_is_put_between_two_others() -> None:
    graph = links_module._Graph(on_grid(draw(5, "random", 0)), 1)
    graph.fill(np.array([0, 1, 2, 0]), np.array([1, 2, 3, 3]))
    assert graph.complete(4, np.arange(5))
    assert graph.degrees.tolist() == [2] * 5
    assert set(graph.components().tolist()) == {0}


@pytest.mark.parametrize("kind", ["clustered", "random"])
def test_lists_find_most_of_the_nearest_and_all_when_all_are_probed(kind: str) -> None:
    vectors = on_grid(draw(900, kind, 3))
    order = np.random.default_rng(0).permutation(900)
    exact = Lists(vectors, order, ListSettings(exact=900)).nearest(vectors, 10, alone=True)
    products = vectors @ vectors.T
    np.fill_diagonal(products, -np.inf)
    np.testing.assert_array_equal(exact.rows, np.argsort(-products, axis=1, kind="stable")[:, :10])
    every = Lists(vectors, order, ListSettings(exact=100, probes=60)).nearest(vectors, 10, alone=True)
    np.testing.assert_array_equal(every.rows, exact.rows)
    some = Lists(vectors, order, ListSettings(exact=100, probes=24)).nearest(vectors, 10, alone=True)
    shared = [len(set(a) & set(b)) / 10 for a, b in zip(some.rows.tolist(), exact.rows.tolist(), strict=True)]
    assert np.mean(shared) > 0.9


@settings(max_examples=60)
@given(
    st.integers(0, 30),
    st.integers(1, 90),
    st.sampled_from(KINDS),
    st.sampled_from([1, 2, 12, 40]),
    st.sampled_from(["none", "any", "best"]),
    st.sampled_from([1, 128]),
    st.integers(0, 10**6),
)
def test_the_nearest_of_all_whatever_was_guessed(
    asked: int, rows: int, kind: str, dimension: int, guessed: str, few: int, seed: int
) -> None:
    """`few`: of 128 of the products one may be finished by itself, or all."""
    vectors = on_grid(draw(rows, kind, seed, dimension))
    questions = on_grid(draw(asked, "random", seed + 1, dimension))
    nearest = np.argmax(questions @ vectors.T, axis=1) if asked else np.empty(0, dtype=np.int64)
    guess = {
        "none": None,
        "any": np.random.default_rng(seed).integers(-1, rows, asked),
        "best": len(vectors) - 1 - np.argmax((questions @ vectors.T)[:, ::-1], axis=1) if asked else nearest,
    }[guessed]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tasks.core.neighbours._BLOCK", 16)
        patch.setattr("tasks.core.neighbours._FEW", few)
        np.testing.assert_array_equal(nearest_of_all(questions, vectors, guess), nearest)


def test_a_repeated_id_and_too_few_vectors_are_refused() -> None:
    with pytest.raises(ValueError, match="level 0: 2 ids"):
        build_chnsw([ChnswLevel(["a", "a"], np.zeros((2, 3), dtype=np.float32))])
    with pytest.raises(ValueError, match="level 0: 2 ids"):
        build_chnsw([ChnswLevel(["a", "b"], np.zeros((1, 3), dtype=np.float32))])
    with pytest.raises(ValueError, match="least"):
        ChnswLinkSettings(least=0)


def test_links_point_in_different_directions() -> None:
    """Worked by hand: 0 chooses 1; 2 is nearer to 1 than to 0 and comes after 3, which is not."""
    angles = np.radians([0, 10, 25, -30, 170, 180, 190])
    vectors = on_grid(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32))
    lists = Lists(vectors, np.arange(7), ListSettings())
    near = lists.nearest(vectors, 6, alone=True)
    owners, partners, _ = links_module._choices(vectors, np.arange(7), near, 2)
    assert partners[owners == 0].tolist() == [1, 3]
    indptr, indices = level_links(lists, ChnswLinkSettings(least=2, candidates=4, far=0))
    assert indices[indptr[0] : indptr[1]].tolist()[:1] == [1]
    assert 3 in indices[indptr[0] : indptr[1]].tolist()
