from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import JsonValue

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.retrieve.schemas import PACKS
from indexmill.store import pack_checks
from indexmill.store.manifest import Manifest
from indexmill.store.pack_checks import ArrayLengths, check_arrays
from indexmill.store.pack_schema import schema_of
from tests.indexmill.damage import changed
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter, writer_of

Arrays = dict[str, np.ndarray]

SUMMARIES: Arrays = {
    "layer_offsets": np.array([0, 4, 6, 7]),
    "above": np.array([0, 0, 1, 1, 0, 0], np.uint8),
    "hyperplanes": np.zeros((64, 8), np.int16),
    "bounds": np.array([2, 3, 5, 0]),
    "stand_ins": np.zeros(3, np.uint8),
}
COMMUNITIES: Arrays = {
    "level_offsets": np.array([0, 4, 6, 7]),
    "children.indptr": np.array([0, 2, 4, 6]),
    "children.indices": np.array([0, 1, 2, 3, 4, 5], np.int32),
    "parents": np.array([4, 4, 5, 5, 6, 6, -1], np.int32),
    "passages.indptr": np.array([0, 1, 2, 3, 4]),
    "passages.indices": np.array([0, 1, 2, 3], np.int32),
    "passages.about": np.ones(4, np.uint8),
    "relations.indptr": np.zeros(5, np.int64),
    "relations.indices": np.empty(0, np.int32),
    "relations.rows": np.empty(0, np.int32),
    "stand_ins": np.zeros(3, np.uint8),
    "quality": np.zeros((2, 2)),
    "bounds": np.array([5, 2, 4]),
    "entity_keys": np.arange(4, dtype=np.uint64),
}
INDEX: Arrays = {
    "vectors": np.zeros((5, 8), np.int16),
    "level_offsets": np.array([0, 3, 5]),
    "indptr": np.array([0, 1, 2, 2, 3, 4]),
    "indices": np.array([1, 0, 4, 3], np.int32),
    "down": np.array([-1, -1, -1, 0, 2], np.int32),
    "entries": np.array([0, 3], np.int32),
    "rows": np.arange(5),
}
FIELD: Arrays = {
    "keys": np.array([3, 9], np.uint64),
    "indptr": np.array([0, 1, 3], np.uint8),
    "passages": np.array([0, 0, 1], np.uint8),
    "counts": np.array([1, 2, 1], np.uint8),
    "lengths": np.array([4, 5], np.uint8),
}
TERMS = FIELD | {f"titles.{name}": array for name, array in FIELD.items()}


def check(name: str, arrays: Arrays, **other: np.ndarray) -> str:
    changed = arrays | {one.replace("__", "."): array for one, array in other.items()}
    return check_arrays(
        schema_of(name, PACKS), changed, {"dimensions": 8, "own passages": 2, "passages": 4, "summaries": 3}
    )


def test_arrays_that_fit_have_nothing_wrong() -> None:
    assert check("lsh_tree/tree", SUMMARIES) == ""
    assert check("community_tree/tree", COMMUNITIES) == check("community_tree/index", INDEX) == ""
    assert check("bm25/p0", TERMS) == ""
    assert check("what/nobody/knows", TERMS) == ""


@pytest.mark.parametrize("array", COMMUNITIES)
def test_an_array_that_is_missing_is_named(array: str) -> None:
    rest = {name: values for name, values in COMMUNITIES.items() if name != array}
    assert check("community_tree/tree", rest) == f"{array!r} is missing"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"parents": np.zeros(7, np.int32)}, "do not agree"),
        ({"parents": np.array([4, 4, 5, 5, 6, 6, 6], np.int32)}, "do not agree"),
        ({"parents": np.array([5, 5, 4, 4, 6, 6, -1], np.int32)}, "do not agree"),
        ({"parents": np.array([4, 4, 5, 5, 6, -1, -1], np.int32)}, "do not agree"),
        ({"parents": np.array([4, 4, 5, 5, 6, 6, -2], np.int32)}, "-2; expected at least -1"),
        ({"parents": np.array([4, 4, 5, 5, 6, 6, 7], np.int32)}, "7; expected less than 7"),
        ({"children__indices": np.array([0, 0, 2, 3, 4, 5], np.int32)}, "do not agree"),
        ({"children__indices": np.array([0, 1, 2, 3, 4, 1 << 30], np.int32)}, "expected less than 7"),
        ({"children__indptr": np.array([0, 4, 2, 6])}, "does not ascend"),
        ({"children__indptr": np.array([0, 2, 4, 1 << 40])}, "runs from 0 to"),
        ({"children__indptr": np.array([1, 2, 4, 6])}, "runs from 1 to 6"),
        ({"children__indptr": np.array([0, 2, 6])}, "has the shape"),
        ({"children__indptr": np.array([0.0, 2, 4, 6])}, "contains float64; expected integer"),
        ({"level_offsets": np.array([0, 4, 7, 7])}, "layer above"),
        ({"level_offsets": np.array([0, 5, 6, 7])}, "nodes have children"),
        ({"level_offsets": np.array([7])}, "has the shape"),
        ({"level_offsets": np.empty(0, np.int64)}, "has the shape"),
        (
            {
                "parents": np.array([4, 4, 5, 5, 5, -1, -1], np.int32),
                "children__indptr": np.array([0, 2, 5, 5]),
                "children__indices": np.array([0, 1, 2, 3, 4], np.int32),
            },
            "layer above",
        ),
    ],
)
def test_a_tree_that_is_none_is_told(other: Arrays, why: str) -> None:
    assert why in check("community_tree/tree", COMMUNITIES, **other)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"above": np.array([0, 0, 2, 1, 0, 0], np.uint8)}, "number 2; the layer above has 2 nodes"),
        ({"above": np.array([0, 0, 1, 1, 0, 1], np.uint8)}, "number 1; the layer above has 1 nodes"),
        ({"above": np.array([0, 0, 1, 1, 0], np.uint8)}, "5 nodes have a parent"),
        ({"above": np.array([0, 0, -1, 1, 0, 0])}, "-1; expected at least 0"),
        ({"above": np.array([0.0, 0, 1, 1, 0, 0])}, "contains float64; expected integer"),
        ({"stand_ins": np.zeros(4, np.uint8)}, "expected 3 where it has 4"),
        ({"layer_offsets": np.array([0, 4, 6, 1 << 40])}, "nodes above the lowest layer; expected 3"),
        ({"layer_offsets": np.array([1, 4, 6, 7])}, "6 nodes have a parent"),
        ({"layer_offsets": np.array([0, 4, 2, 7])}, "does not ascend"),
        ({"layer_offsets": np.array([0, 6, 6, 9])}, "number 1; the layer above has 0 nodes"),
        ({"layer_offsets": np.array([6])}, "6 nodes have a parent"),
    ],
)
def test_parents_that_are_none_are_told(other: Arrays, why: str) -> None:
    assert why in check("lsh_tree/tree", SUMMARIES, **other)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"indices": np.array([1, 4, 4, 3], np.int32)}, "another level"),
        ({"down": np.array([-1, -1, -1, 0, 3], np.int32)}, "link down"),
        ({"down": np.array([-1, -1, -1, 0, -1], np.int32)}, "link down"),
        ({"down": np.array([-1, 3, -1, 0, 2], np.int32)}, "link down"),
        ({"entries": np.array([0, 0], np.int32)}, "no entry"),
        ({"entries": np.array([-1, 3], np.int32)}, "no entry"),
        ({"entries": np.array([0], np.int32)}, "expected 2 where it has 1"),
        ({"vectors": np.zeros((5, 9), np.int16)}, "expected 8 where it has 9"),
        ({"rows": np.array([0, 1, 2, 3, 5])}, "5; expected less than 5"),
    ],
)
def test_an_index_that_is_none_is_told(other: Arrays, why: str) -> None:
    assert why in check("community_tree/index", INDEX, **other)


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"keys": np.array([9, 3], np.uint64)}, "'keys' does not ascend"),
        ({"passages": np.array([0, 0, 2], np.uint8)}, "expected less than 2"),
        ({"counts": np.array([1, -2, 1])}, "expected at least 0"),
        ({"lengths": np.array([4, 5, 6], np.uint8)}, "expected 2 where it has 3"),
        ({"counts": np.array([[1, 2, 1]], np.uint8)}, "expected 1 dimensions"),
    ],
)
def test_postings_that_are_none_are_told(other: Arrays, why: str) -> None:
    assert why in check("bm25/p0", TERMS, **other)


def test_values_are_compared_beyond_the_first_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexmill.store.pack_checks._PIECE", 2)
    keys = np.array([1, 2, 3, 4, 5], np.uint64)
    names: Arrays = {"vectors": np.zeros((5, 8), np.int8), "keys": np.zeros((5, 16), np.uint8)}
    assert check("names/e0", names, entity_keys=keys) == ""
    for at in range(1, 5):
        fallen = keys.copy()
        fallen[at] = 0
        assert "does not ascend" in check("names/e0", names, entity_keys=fallen)


@pytest.fixture
def writer(tmp_path: Path) -> SnapshotWriter:
    """Of a snapshot with a tree over three passages."""
    written = SnapshotWriter(tmp_path / "store")
    written.shard("p", WORLD["p0"])
    written.lsh_tree([[("Of a bridge.", [0, 1, 2])]])
    return written


def test_arrays_that_are_not_those_of_the_manifest_are_corrupt(writer: SnapshotWriter) -> None:
    (tree,) = (one for one in writer.artifacts if one.name == "lsh_tree/tree")
    writer.artifacts.remove(tree)
    writer.artifacts.append(tree.model_copy(update={"schema_": {}}))
    writer.publish()
    with indexmill.open(writer.store.root) as snapshot, pytest.raises(CorruptBlob, match="that the manifest declares"):
        snapshot.arrays("lsh_tree/tree")


def test_a_tree_without_end_is_refused_before_it_is_climbed(writer: SnapshotWriter) -> None:
    changed("lsh_tree/tree", "above", np.ones_like)(writer)
    writer.publish()
    with indexmill.open(writer.store.root) as snapshot:
        with pytest.raises(CorruptBlob, match="the layer above has 1 nodes"):
            snapshot.retrieve("who paid for the bridge?", method="lsh_tree")
        assert snapshot.retrieve("who paid for the bridge?", method="dense")


@pytest.mark.parametrize("value", ["1", 10**12, None, [5]])
def test_a_parameter_of_the_manifest_has_to_be_one_that_the_method_takes(
    writer: SnapshotWriter, value: JsonValue
) -> None:
    writer.families["lsh_tree"].parameters["pool"] = value
    writer.publish()
    with (
        indexmill.open(writer.store.root) as snapshot,
        pytest.raises(indexmill.ConfigurationError, match="parameters of lsh_tree: pool is"),
    ):
        snapshot.retrieve("who paid for the bridge?", method="lsh_tree")


def test_the_manifest_is_walked_once_for_all_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walked = []

    class Counted(ArrayLengths):
        def __init__(self, manifest: Manifest) -> None:
            walked.append(len(manifest.artifacts))
            super().__init__(manifest)

    monkeypatch.setattr(pack_checks, "ArrayLengths", Counted)
    writer = writer_of(tmp_path)
    writer.bm25()
    writer.publish()
    with indexmill.open(tmp_path) as snapshot:
        packs = [one.name for one in snapshot.manifest.artifacts if one.kind == "arrays"]
        for name in packs:
            snapshot.arrays(name)
        assert len(packs) > 3
        assert walked == [len(snapshot.manifest.artifacts)]


def test_the_lengths_of_a_shard_are_those_of_its_label(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.publish()
    with indexmill.open(tmp_path) as snapshot:
        rows = {one.name: one.rows or 0 for one in snapshot.manifest.under("passages")}
        sizes = ArrayLengths(snapshot.manifest)
        for name, own in rows.items():
            found = sizes.of(name.replace("passages", "vectors"))
            assert (found["own passages"], found["passages"]) == (own, sum(rows.values()))
            assert found["dimensions"] == snapshot.dimensions
