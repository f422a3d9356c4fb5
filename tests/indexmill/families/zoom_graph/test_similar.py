"""Links put together from blocks, and blocks that no build has written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.families.zoom_graph.schema import DOCUMENT_VECTORS, LINKS
from indexmill.families.zoom_graph.similar import (
    LARGEST_STEP,
    STEPS_PER_UNIT,
    NamedRows,
    UnknownName,
    document_links,
    documents_of,
    entity_links,
    linked,
    weights,
)
from indexmill.retrieve.mention_matrices import mention_links_of
from indexmill.snapshot import Snapshot
from indexmill.store.pack_checks import check_arrays
from tests.corpora import documents
from tests.indexmill.families.zoom_graph.test_search import built

NAMES = np.array([50, 10, 40, 20, 30], dtype=np.uint64)
BLOCKS: list[dict[str, Any]] = [
    {
        "names": np.array([10, 20, 50], dtype=np.uint64),
        "indptr": np.array([0, 2, 3, 3], dtype=np.uint8),
        "partners": np.array([1, 2, 2], dtype=np.uint8),
        "steps": np.array([31_000, 100, -5], dtype=np.int16),
    },
    {
        "names": np.array([30, 50], dtype=np.uint64),
        "indptr": np.array([0, 1, 1], dtype=np.uint8),
        "partners": np.array([1], dtype=np.uint8),
        "steps": np.array([20_000], dtype=np.int16),
    },
]


@pytest.mark.slow
def test_no_weight_is_so_near_the_middle_of_two_that_processors_could_round_it_apart() -> None:
    table = weights()
    assert len(table) == 2 * (LARGEST_STEP + 1)
    exact = [math.exp((step + 0.5) / STEPS_PER_UNIT) for step in range(-LARGEST_STEP - 1, LARGEST_STEP + 1)]
    for value, weight in zip(exact, table.tolist(), strict=True):
        neighbours = np.nextafter(np.float32(weight), np.float32([0, 9])).astype(np.float64)
        assert abs(value - weight) < abs(value - neighbours).min()
        middles = (weight + neighbours) / 2
        assert (np.abs(middles - value) / value).min() > 1e-13


def test_links_are_put_together_both_ways() -> None:
    block = linked(BLOCKS, NamedRows(NAMES))
    found = {
        (row, column): weight
        for row, column, weight in zip(
            block.owners().tolist(), block.indices.tolist(), block.weights.tolist(), strict=True
        )
    }
    at = {name: row for row, name in enumerate(NAMES.tolist())}
    expected = {}
    for low, high, step in ((10, 20, 31_000), (10, 50, 100), (20, 50, -5), (30, 50, 20_000)):
        weight = float(weights()[step + LARGEST_STEP + 1])
        assert weight == pytest.approx(math.exp(step / STEPS_PER_UNIT), rel=2e-5)
        expected[at[low], at[high]] = expected[at[high], at[low]] = weight
    assert found == expected
    assert len(block.indptr) == len(NAMES) + 1


def test_without_blocks_there_are_no_links() -> None:
    block = linked([], NamedRows(NAMES))
    assert block.indptr.tolist() == [0] * (len(NAMES) + 1)
    assert len(block.indices) == len(block.weights) == 0


def test_links_do_not_depend_on_the_order_of_rows() -> None:
    order = np.array([3, 1, 4, 0, 2])
    one, other = (linked(BLOCKS, NamedRows(names)) for names in (NAMES, NAMES[order]))
    ends = {(int(order[a]), int(order[b])) for a, b in zip(other.owners(), other.indices, strict=True)}
    assert ends == set(zip(one.owners().tolist(), one.indices.tolist(), strict=True))


@pytest.mark.parametrize("name", [45, 60, 0])
def test_a_row_that_does_not_exist_is_refused(name: int) -> None:
    strange = {**BLOCKS[1], "names": np.sort(np.array([30, name], dtype=np.uint64))}
    with pytest.raises(UnknownName):
        linked([strange], NamedRows(NAMES))


@pytest.mark.parametrize(
    ("name", "values", "problem"),
    [
        ("names", [10, 10, 50], "contains a row twice"),
        ("names", [20, 10, 50], "does not ascend"),
        ("indptr", [0, 2, 1, 3], "does not ascend"),
        ("indptr", [0, 2, 3, 9], "expected from 0 to 3"),
        ("indptr", [0, 3, 3], "has the shape"),
        ("partners", [1, 3, 2], "expected less than 3"),
        ("partners", [1, 2, 1], "not listed under its lower name"),
        ("partners", [0, 2, 2], "not listed under its lower name"),
        ("partners", [2, 1, 2], "do not ascend"),
        ("partners", [2, 2, 2], "do not ascend"),
        ("steps", [1, 2], "has the shape"),
    ],
)
def test_a_broken_block_is_refused(name: str, values: list[int], problem: str) -> None:
    assert check_arrays(LINKS, BLOCKS[0], {}) == ""
    broken = {**BLOCKS[0], name: np.array(values, dtype=BLOCKS[0][name].dtype)}
    assert problem in check_arrays(LINKS, broken, {})


def test_a_vector_off_the_grid_is_refused() -> None:
    pack = {"keys": np.zeros(2, np.uint64), "vectors": np.zeros((2, 3), np.int16)}
    sizes = {"own documents": 2, "dimensions": 3}
    assert check_arrays(DOCUMENT_VECTORS, pack, sizes) == ""
    for value in (4_001, -4_001):
        assert "expected" in check_arrays(
            DOCUMENT_VECTORS, {**pack, "vectors": np.full((2, 3), value, np.int16)}, sizes
        )


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    families = {"zoom_graph": {"threshold": 0.5, "cap": 4, "entity_links": True}}
    root = built(tmp_path_factory.mktemp("similar"), documents(60, words=60), families=families)
    with indexmill.open(root) as opened:
        yield opened


def test_links_of_a_snapshot_are_symmetric_and_counted(snapshot: Snapshot) -> None:
    counts = snapshot.manifest.families["zoom_graph"].counts
    keys = mention_links_of(snapshot).keys
    for kind, block in (("document", document_links(snapshot)), ("entity", entity_links(snapshot, keys))):
        ends = set(zip(block.owners().tolist(), block.indices.tolist(), strict=True))
        assert {(b, a) for a, b in ends} == ends
        assert len(ends) == len(block.indices) == 2 * counts[f"{kind}_links"] > 0


def test_weights_are_those_of_the_vectors(snapshot: Snapshot) -> None:
    block, vectors = document_links(snapshot), documents_of(snapshot).vectors
    cosines = np.einsum("ij,ij->i", vectors[block.owners()], vectors[block.indices]) / 4000**2
    assert block.weights == pytest.approx(np.exp(cosines), rel=3e-5)


def test_a_link_to_a_document_that_does_not_exist_is_damage(
    snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    with indexmill.open(snapshot.path) as opened:
        arrays = opened.arrays

        def changed(name: str) -> Any:
            found = arrays(name)
            return {**found, "names": found["names"] + np.uint64(1)} if name.startswith("document_links/") else found

        monkeypatch.setattr(opened, "arrays", changed)
        with pytest.raises(CorruptBlob, match="document_links: a similarity link leads to a row that does not exist"):
            document_links(opened)
