"""Entities whose names are nearly the same: which pairs are found, whatever else is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder
from indexmill.retrieve.grid import UNIT, on_grid
from indexmill.text.canonical_names import canonical_name, entity_id
from schemas.tables import SAME_AS
from tasks.stages.resolve import same_as as stage
from tasks.stages.resolve.name_similarity import likenesses, marks, plain_name
from tasks.stages.resolve.same_as import same_as
from tests.deep import examples
from tests.tasks.stages.resolve.test_name_similarity import SERIES

OPEN: dict[str, Any] = {"cosine": 0.5, "likeness": 0.6, "neighbours": 8}


def pairs(names: list[str], **bounds: Any) -> set[tuple[str, str]]:
    """The pairs among some names, each with the lesser id first."""
    by_id = {entity_id(name): name for name in map(canonical_name, names)}
    ids = sorted(by_id)
    vectors = HashEmbedder().encode([by_id[one] for one in ids])
    table = same_as(ids, [by_id[one] for one in ids], on_grid(vectors), **{**OPEN, **bounds})
    assert table.schema == SAME_AS
    rows = table.to_pylist()
    assert [(row["entity_id"], row["other_id"]) for row in rows] == sorted(
        (row["entity_id"], row["other_id"]) for row in rows
    )
    return {(by_id[row["entity_id"]], by_id[row["other_id"]]) for row in rows}


def pair(one: str, other: str) -> tuple[str, str]:
    first, second = sorted(map(canonical_name, (one, other)), key=entity_id)
    return first, second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("University of Oxford", "Universty of Oxford"),
        ("World War II", "World War 2"),
        ("Ludwig van Beethoven", "Ludwig van Bethoven"),
        ("hyper text transfer protocol", "hypertext transfer protocol"),
        ("Marl, Ada", "Ada Marl"),
    ],
)
def test_names_that_are_written_otherwise_are_found(one: str, other: str) -> None:
    others = ["Goran Stave", "Orrin Bay", "Countess of Orrin"]
    assert pairs([one, other, *others]) == {pair(one, other)}


def test_names_of_a_series_are_never_the_same_whatever_the_bounds() -> None:
    for one, other in SERIES:
        assert pairs([one, other], cosine=-1, likeness=0) == set(), (one, other)


def test_the_bounds_are_what_they_say() -> None:
    names = ["colour theory", "color theory"]
    vectors = HashEmbedder().encode(names)
    cosine = float(on_grid(vectors[:1])[0] @ on_grid(vectors[1:])[0]) / UNIT
    assert pairs(names, cosine=cosine - 0.001, likeness=5 / 6 - 0.001) == {pair(*names)}
    assert pairs(names, cosine=cosine + 0.001, likeness=0) == set()
    assert pairs(names, cosine=-1, likeness=5 / 6 + 0.001) == set()


def test_only_the_nearest_names_are_compared() -> None:
    ids, names = ["0" * 31 + digit for digit in "123"], ["ada marl", "ada mark", "ada marx"]
    angles = np.array([0.0, 0.1, 0.3])
    vectors = on_grid(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    few = same_as(ids, names, vectors, cosine=0.0, likeness=0.5, neighbours=1)
    assert list(zip(few["entity_id"].to_pylist(), few["other_id"].to_pylist(), strict=True)) == [
        (ids[0], ids[1]),
        (ids[1], ids[2]),
    ]  # each has its one nearest
    assert len(same_as(ids, names, vectors, cosine=0.0, likeness=0.5, neighbours=2)) == 3


@pytest.mark.parametrize("names", [[], ["ada marl"]])
def test_fewer_than_two_entities_have_no_pair(names: list[str]) -> None:
    vectors = on_grid(HashEmbedder().encode(names)) if names else np.empty((0, 64), dtype=np.float32)
    assert len(same_as([entity_id(name) for name in names], names, vectors, **OPEN)) == 0


WORDS = st.sampled_from(["ada", "adda", "marl", "marle", "vell", "vel", "bay", "ii", "2", "north"])
NAMES = st.lists(st.lists(WORDS, min_size=1, max_size=3).map(" ".join), max_size=14, unique=True)


@examples(20, deep=100)
@given(NAMES)
def test_the_pairs_are_those_that_a_look_at_all_would_find(names: list[str]) -> None:
    ids = sorted(map(entity_id, names))
    by_id = {entity_id(name): name for name in names}
    ordered = [by_id[one] for one in ids]
    vectors = HashEmbedder().encode(ordered) if names else np.empty((0, 64), dtype=np.float32)
    expected = set()
    for row, one in enumerate(ordered):
        for other_row, other in enumerate(ordered[:row]):
            products = on_grid(vectors[[row]]) @ on_grid(vectors[[other_row]]).T
            plain = plain_name(other), plain_name(one)
            near = products[0, 0] / UNIT >= 0.5 and likenesses([plain])[0] >= np.float32(0.6)
            if near and marks(plain[0]) == marks(plain[1]):
                expected.add((other, one))
    assert pairs(names, neighbours=20) == expected


def test_a_set_beyond_the_exact_size_is_compared_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    words = [f"{a}{b}{c}or tower" for a in "bcdfgh" for b in "aeiou" for c in "lmnrst"]
    twins = [f"{word}s" for word in words[::9]]
    whole = pairs([*words, *twins], likeness=0.8)
    monkeypatch.setattr(stage, "_EXACT", 16)
    listed = pairs([*words, *twins], likeness=0.8)
    assert listed == pairs([*twins, *words], likeness=0.8)
    assert len(listed & whole) > 0.7 * len(whole) > 10
