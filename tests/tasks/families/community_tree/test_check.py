"""What `check` refuses of community_tree: reports that do not fit their communities, a tree or index that is none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tasks.core.checks import CheckError
from tasks.families.community_tree.check import check_communities
from tests.corpora import documents
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index
from tests.tasks.making import Built, Check

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
    found = {name: built.rows(name) for name in ("passages", "communities", "related")}
    return {**found, "entities": built.rows("described")}


@pytest.fixture
def packs(built: Built) -> tuple[Pack, Pack]:
    return built.pack("community_tree", "tree"), built.pack("community_tree", "index")


def test_a_sound_tree_passes(rows: dict[str, int], packs: tuple[Pack, Pack]) -> None:
    check_communities(*packs, **rows)
    assert len(packs[0]["level_offsets"]) >= 4  # two levels of communities, or the rest tells little
    assert rows["related"] > 10


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("parents", lambda array: array[:-1], "rows for"),
        ("stand_ins", lambda array: array[1:], "rows for"),
        ("bounds", lambda array: np.array([1, *array[1:]]), "levels of"),
        ("bounds", lambda array: np.array([array[0], 10_000, array[2]]), "levels of"),
        ("parents", lambda array: np.r_[-1, array[1:]], "not in the level above|not in the layer above"),
        ("parents", lambda array: np.r_[array[:-1], len(array) - 2], "a root has a parent"),
        ("children.indices", lambda array: array[::-1], "children and parents do not agree"),
        ("passages.indices", lambda array: array + 10_000, "passages of entities"),
        ("passages.indptr", lambda array: array[1:], "passages of entities"),
        ("passages.about", lambda array: array[1:], "what passages are about"),
        ("entity_keys", lambda array: array[1:], "keys are not the entities'"),
        ("entity_keys", lambda array: array[::-1], "keys are not the entities'"),
        ("relations.indptr", lambda array: np.r_[array[:-1], array[-1] + 1], "relations of entities"),
        ("relations.indices", lambda array: np.roll(array, 1), "does not lead both ways"),
        ("relations.rows", lambda array: np.zeros_like(array), "related pair"),
    ],
)
def test_a_tree_that_is_none_is_refused(
    rows: dict[str, int], packs: tuple[Pack, Pack], name: str, change: Any, why: str
) -> None:
    tree, index = packs
    with pytest.raises(CheckError, match=why):
        check_communities(tree | {name: change(tree[name])}, index, **rows)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("rows", lambda array: array[:-1], "does not hold each"),
        ("rows", lambda array: np.r_[array[1], array[1:]], "does not hold each"),
        ("rows", lambda array: array[::-1], "another level"),
        ("indices", lambda array: array[:-1], "links of the index"),
        ("indptr", lambda array: array * 100, "links of the index"),
    ],
)
def test_an_index_of_something_else_is_refused(
    rows: dict[str, int], packs: tuple[Pack, Pack], name: str, change: Any, why: str
) -> None:
    tree, index = packs
    with pytest.raises(CheckError, match=why):
        check_communities(tree, index | {name: change(index[name])}, **rows)


@pytest.fixture
def group(built: Built) -> Check:
    """The check of a group of reports on entities."""
    label = next(shard for stage, shard in built.outputs if stage == "community_reports" and shard.startswith("s"))
    members = built.outputs["community_levels", "k1"][f"community_members/{label}"]
    return built.check(label, "community_reports", members=members)


def test_reports_that_do_not_fit_their_communities_are_refused(group: Check) -> None:
    group.run()
    table = group.table("communities")
    level = group.with_column("communities", "level", pc.add(table["level"], pa.scalar(1, pa.int32())))
    said = [
        group.with_column("communities", name, pc.binary_join_element_wise(table[name], "changed", " "))
        for name in ("text", "title")
    ]
    for changed, why in (
        (group.with_table("communities", table.slice(1)), "not one row for each of members"),
        (level, "another layer"),
        *((one, "not that of its digest") for one in said),
    ):
        with pytest.raises(CheckError, match=why):
            changed.run()


@pytest.mark.parametrize(
    ("name", "why"), [("keys", "of other nodes"), ("text_keys", "of other texts"), ("vectors", "unit length")]
)
def test_vectors_of_something_else_are_refused(group: Check, name: str, why: str) -> None:
    array = group.pack("community_vectors")[name]
    assert len(array) > 1
    with pytest.raises(CheckError, match=why):
        group.with_arrays("community_vectors", **{name: array * 2 if name == "vectors" else array[::-1]}).run()
