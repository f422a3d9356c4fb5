"""What `check` refuses of lsh_tree: summaries that do not fit their segments, and a tree that is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tasks.core.checks import CheckError
from tasks.families.lsh_tree.check import check_tree
from tests.corpora import documents
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index
from tests.tasks.making import Built


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
    refuses(pack | {"above": pack["above"][:-1]}, "nodes have a parent; expected all below the uppermost")
    with pytest.raises(CheckError, match="40 nodes for 39 passages"):
        check_tree(pack, 39, len(pack["stand_ins"]))


def test_a_tree_that_is_too_high_or_not_high_enough_is_refused(pack: dict[str, Any]) -> None:
    smallest, largest, _, seed = pack["bounds"].tolist()
    refuses(pack | {"bounds": np.array([smallest, largest, 1, seed])}, "layers have")
    top = int(np.diff(pack["layer_offsets"])[-1])
    refuses(pack | {"bounds": np.array([smallest, top - 1, 16, seed])}, "there is no layer above")


def test_segments_out_of_bounds_are_refused(pack: dict[str, Any]) -> None:
    _, largest, layers, seed = pack["bounds"].tolist()
    refuses(pack | {"bounds": np.array([largest, largest, layers, seed])}, "segments are not of 4 to 4")


def test_a_parent_that_is_not_there_is_refused(pack: dict[str, Any]) -> None:
    above, offsets = pack["above"].copy(), pack["layer_offsets"]
    above[0] = offsets[2] - offsets[1]
    refuses(pack | {"above": above}, "a parent has the number")


def test_a_child_that_is_taken_from_its_segment_is_refused(pack: dict[str, Any]) -> None:
    """Every number of `above` is a parent, so what is wrong shows in the sizes of segments."""
    smallest, largest, *_ = pack["bounds"].tolist()
    above = pack["above"].copy()
    above[: pack["layer_offsets"][1]] = 0
    refuses(pack | {"above": above}, f"segments are not of {smallest} to {largest}")
