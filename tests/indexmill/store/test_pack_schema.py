from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tasks.registry  # noqa: F401 - declares the tables of families
from indexmill.retrieve.schemas import PACKS
from indexmill.store.pack_checks import check_arrays
from indexmill.store.pack_schema import (
    Array,
    PackCheck,
    PackSchema,
    gathered,
    indices,
    pointers,
    schema_of,
    split_dimension,
    vectors,
)
from schemas.tables import TABLES

LINKS = PackSchema(
    "links of some rows",
    {
        "indptr": pointers("rows", "links", "where each row's links begin, and the end"),
        "indices": indices("links", "rows", "rows"),
        "levels": Array("float64", ("rows - 1", 2), "of all rows but the first"),
        "marks": Array("uint*", ("links",), "how often"),
    },
)

HELD: dict[str, Any] = {
    "indptr": np.array([0, 2, 2, 3]),
    "indices": np.array([1, 2, 0], np.int32),
    "levels": np.zeros((2, 2)),
    "marks": np.array([1, 9, 300], np.uint16),
}


def test_a_dimension_is_a_name_with_an_integer() -> None:
    named = ("nodes", "own passages", "nodes + 1", "levels - 1", 16)
    assert [split_dimension(one) for one in named] == [
        ("nodes", 0),
        ("own passages", 0),
        ("nodes", 1),
        ("levels", -1),
        ("", 16),
    ]


def test_arrays_as_declared_conform_and_fit() -> None:
    assert list(LINKS.conform(HELD)) == list(HELD)
    assert check_arrays(LINKS, HELD, {}) == ""


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"indptr": np.array([0, 2, 2, 3], np.int32)}, "'indptr' is int32; its schema says int64"),
        ({"indices": np.array([1, 2], np.int32), "marks": np.zeros(3, np.uint8)}, "expected 2 where it has 3"),
        ({"marks": np.zeros(3, np.int8)}, "'marks' is int8; its schema says uint"),
        ({"levels": np.zeros((3, 2))}, "expected 2 where it has 3"),
        ({"levels": np.zeros(2)}, "expected 2 dimensions"),
        ({"other": np.zeros(2)}, r"no arrays \['other'\]"),
    ],
)
def test_a_writer_that_breaks_the_declaration_is_told_which_array(other: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        LINKS.conform(HELD | other)


def test_a_writer_that_leaves_an_array_out_is_told() -> None:
    some = {name: HELD[name] for name in ("indices", "marks")}
    with pytest.raises(ValueError, match=r"lacks \['indptr', 'levels'\]"):
        LINKS.conform(some)
    assert check_arrays(LINKS, some, {}) == "'indptr' is missing"


def test_an_array_that_the_schema_does_not_know_is_no_problem() -> None:
    assert check_arrays(LINKS, HELD | {"of a newer writer": np.zeros(1)}, {}) == ""


def test_a_table_bounds_only_the_lengths_that_the_schema_says_are_its_rows() -> None:
    own = PackSchema("", {"a": vectors("passages", "")})
    of_table = PackSchema("", {"a": vectors("passages", "")}, tables=("passages",))
    arrays = {"a": np.zeros((3, 4), np.float32)}
    assert check_arrays(own, arrays, {"passages": 2}) == ""
    assert "expected 2 where it has 3" in check_arrays(of_table, arrays, {"passages": 2})
    assert "expected 5 where it has 4" in check_arrays(own, arrays, {"dimensions": 5})


@pytest.mark.parametrize(
    "declare",
    [
        lambda: PackSchema("", {"rows": indices("links", "rows", "")}),
        lambda: PackSchema("", {"rows": Array("int32", ("links",), "")}, tables=("passages",)),
        lambda: PackSchema("", {}, checks=(PackCheck("", ("rows",), lambda rows: iter(())),)),
        lambda: gathered({"a": LINKS}, {"a": LINKS}),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused(declare: Any) -> None:
    with pytest.raises(ValueError, match=r"bounded by|no array refers to|not an array of|two schemas"):
        declare()


@pytest.mark.parametrize("name", PACKS)
def test_a_dimension_with_the_name_of_a_table_is_its_rows(name: str) -> None:
    schema = PACKS[name]
    dimensions = {length for array in schema.arrays.values() for length in array.lengths}
    tables = {one.partition("/<")[0] for one in TABLES}
    assert {one for one in dimensions if one.removeprefix("own ") in tables} <= set(schema.tables)
    assert {one.removeprefix("own ") for one in schema.tables} <= tables


def test_an_artifact_is_found_by_its_name_or_by_its_folder() -> None:
    assert schema_of("bm25/p01", PACKS) is PACKS["bm25/<shard>"]
    assert schema_of("lsh_tree/tree", PACKS) is PACKS["lsh_tree/tree"]
    assert schema_of("lsh_tree/other", PACKS) is schema_of("nothing", PACKS) is None
