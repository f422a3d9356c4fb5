"""What `check` refuses of lsh_tree: summaries that do not fit their segments, and a tree that is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tasks.core.checks import CheckError
from tasks.families.lsh_tree.check import check_tree
from tests.corpora import documents
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index
from tests.tasks.making import Built, Check


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    """A store with a tree of several layers."""
    with quick_folder() as folder:
        Index(folder / "store", families={"lsh_tree": {"smallest": 2, "largest": 4}}).build(documents(40))
        yield Built(folder / "store")


@pytest.fixture
def pack(built: Built) -> dict[str, Any]:
    return built.pack("lsh_tree", "tree")


def refuses(pack: dict[str, Any], why: str) -> None:
    passages, summaries = 40, len(pack["stand_ins"])
    with pytest.raises(CheckError, match=why):
        check_tree(pack, passages, summaries)


def test_a_sound_tree_passes(pack: dict[str, Any]) -> None:
    check_tree(pack, 40, len(pack["stand_ins"]))
    assert len(pack["layer_offsets"]) >= 4  # two layers of summaries, or the rest tells little


def test_rows_that_are_missing_are_refused(pack: dict[str, Any]) -> None:
    refuses(pack | {"codes": pack["codes"][:-1]}, "rows for 40 passages")
    with pytest.raises(CheckError, match="for 39 passages"):
        check_tree(pack, 39, len(pack["stand_ins"]) + 1)


def test_a_tree_that_is_too_high_or_not_high_enough_is_refused(pack: dict[str, Any]) -> None:
    smallest, largest, _, seed = pack["bounds"].tolist()
    refuses(pack | {"bounds": np.array([smallest, largest, 1, seed])}, "layers of")
    top = int(np.diff(pack["layer_offsets"])[-1])
    refuses(pack | {"bounds": np.array([smallest, top - 1, 16, seed])}, "roots, and no layer over them")


def test_segments_out_of_bounds_are_refused(pack: dict[str, Any]) -> None:
    _, largest, layers, seed = pack["bounds"].tolist()
    refuses(pack | {"bounds": np.array([largest, largest, layers, seed])}, "segments are not of 4 to 4")


def test_a_passage_that_no_root_reaches_is_refused(pack: dict[str, Any]) -> None:
    parents = pack["parents"].copy()
    parents[3] = -1
    refuses(pack | {"parents": parents}, "parent is not in the layer above")
    parents[3] = len(parents) - 1  # a root, over the layers between
    refuses(pack | {"parents": parents}, "parent is not in the layer above")
    parents = pack["parents"].copy()
    parents[-1] = len(parents) - 2
    refuses(pack | {"parents": parents}, "a root has a parent")


def test_children_that_are_not_those_of_their_parents_are_refused(pack: dict[str, Any]) -> None:
    indices = pack["children.indices"].copy()
    low = int(pack["children.indptr"][1])
    indices[[0, low]] = indices[[low, 0]]
    refuses(pack | {"children.indices": indices}, "children and parents do not agree")
    refuses(pack | {"children.indices": pack["children.indices"][:-1]}, "children and parents do not agree")


@pytest.fixture
def group(built: Built) -> Check:
    """The check of the summaries of passages."""
    segments = built.outputs["lsh_segments", "l1"]["segments/a"]
    return built.check("a", "lsh_summaries", "lsh_vectors", segments=segments)


def test_summaries_that_do_not_fit_their_segments_are_refused(group: Check) -> None:
    group.run()
    table = group.table("summaries")
    for changed, why in (
        (group.with_table("summaries", table.slice(1)), "not one row for each of segments"),
        (group.with_column("summaries", "layer", pc.add(table["layer"], pa.scalar(1, pa.int32()))), "another layer"),
        (
            group.with_column("summaries", "text", pc.binary_join_element_wise(table["text"], "changed", " ")),
            "not that of its digest",
        ),
        (group.with_shard("a0"), "belongs to another group"),
    ):
        with pytest.raises(CheckError, match=why):
            changed.run()


@pytest.mark.parametrize(
    ("name", "why"), [("keys", "of other nodes"), ("text_keys", "of other texts"), ("vectors", "unit length")]
)
def test_vectors_of_something_else_are_refused(group: Check, name: str, why: str) -> None:
    array = group.pack("summary_vectors")[name]
    with pytest.raises(CheckError, match=why):
        group.with_arrays("summary_vectors", **{name: array * 2 if name == "vectors" else array[::-1]}).run()
