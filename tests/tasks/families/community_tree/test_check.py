"""What `check` refuses of community_tree: reports that do not fit their communities, a tree or index that is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tasks.core.checks import CheckError
from tasks.families.community_tree.check import check_communities
from tests.corpora import documents
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index
from tests.tasks.making import Built

Pack = dict[str, Any]


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    """A store with a tree of several levels."""
    with quick_folder() as folder:
        small = {"enabled": True, "fewest": 3, "grain": 20, "largest": 12, "group": 4}
        Index(folder / "store", families={"community_tree": small}).build(documents(60))
        yield Built(folder / "store")


@pytest.fixture(scope="module")
def rows(built: Built) -> dict[str, int]:
    """How many rows there are of what the tree is about."""
    return {name: built.rows(name) for name in ("passages", "described", "communities", "related")}


@pytest.fixture
def packs(built: Built) -> tuple[Pack, Pack]:
    return built.pack("community_tree", "tree"), built.pack("community_tree", "index")


def test_a_sound_tree_passes(rows: dict[str, int], packs: tuple[Pack, Pack]) -> None:
    check_communities(*packs, rows)
    assert len(packs[0]["level_offsets"]) >= 4  # two levels of communities, or the rest tells little
    assert rows["related"] > 10


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("stand_ins", lambda array: array[1:], "'stand_ins' has the shape"),
        ("bounds", lambda array: np.array([1, *array[1:]]), "the levels have"),
        ("bounds", lambda array: np.array([array[0], 10_000, array[2]]), "the levels have"),
        ("parents", lambda array: np.r_[-1, array[1:]], "children and parents do not agree"),
        ("passages.indices", lambda array: array + 10_000, "expected less than"),
        ("relations.indices", lambda array: np.roll(array, 1), "is missing in one direction"),
        ("relations.rows", lambda array: np.zeros_like(array), "related pair"),
    ],
)
def test_a_tree_that_is_none_is_refused(
    rows: dict[str, int], packs: tuple[Pack, Pack], name: str, change: Any, why: str
) -> None:
    tree, index = packs
    with pytest.raises(CheckError, match=why):
        check_communities(tree | {name: change(tree[name])}, index, rows)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("rows", lambda array: np.r_[array[1], array[1:]], "does not contain each"),
        ("rows", lambda array: array[::-1], "another level"),
        ("indptr", lambda array: np.r_[0, np.full(len(array) - 1, array[-1])], "leads to another level|more than"),
    ],
)
def test_an_index_of_something_else_is_refused(
    rows: dict[str, int], packs: tuple[Pack, Pack], name: str, change: Any, why: str
) -> None:
    tree, index = packs
    with pytest.raises(CheckError, match=why):
        check_communities(tree, index | {name: change(index[name])}, rows)
