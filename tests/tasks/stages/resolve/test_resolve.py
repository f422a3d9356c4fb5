"""One entity table for what is mentioned and what is extracted, and the pieces of what is told of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.canonical_names import entity_id
from schemas.tables import ENTITIES, PIECES, RELATION_PIECES
from tasks.stages.resolve import entity_ranges, name_counts
from tasks.stages.resolve.name_counts import count_names
from tasks.stages.resolve.piece_counts import count_entity_pieces, count_relation_pieces
from tasks.stages.resolve.pieces import entity_pieces, relation_pieces
from tasks.stages.resolve.resolve import resolve
from tests.corpora import documents
from tests.deep import examples
from tests.tasks.extracted import Shard, told
from tests.tasks.indexes import Index

ADA, VELL, ORRIN = (entity_id(name) for name in ("ada marl", "vell", "orrin bay"))


def resolved(*shards: Shard, extracting: bool = True) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Entities, surfaces and names."""
    return everything(*shards, extracting=extracting)[:3]


def everything(*shards: Shard, extracting: bool = True) -> tuple[pa.Table, pa.Table, pa.Table, pa.Table]:
    """These, and how entities are shown; the names of each shard are counted for themselves."""
    counts = [
        count_names([shard.file("mentions")], [shard.file("passages")], [shard.file("extracted")] * extracting)[0]
        for shard in shards
    ]
    return resolve(pa.concat_tables(counts))


def shown(*shards: Shard) -> pl.DataFrame:
    """How each entity is shown, and by which passage."""
    return pl.DataFrame(pl.from_arrow(everything(*shards)[3]))


def pieces_of(*shards: Shard) -> pa.Table:
    """The pieces of entities."""
    counts = [count_entity_pieces([shard.file("extracted")]) for shard in shards]
    return entity_pieces(pa.concat_tables(counts), shown(*shards))


def by_name(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in table.to_pylist()}


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    made = Shard(tmp_path)
    made.passage(
        1, ["Ada Marl", "Vell"], [told("Ada Marl", "person", "She built."), told("Orrin Bay", "place", "Deep.")]
    )
    made.passage(2, ["Ada Marl"], [told("ADA MARL", "person", "She built."), told("Vell", "town", "")])
    return made.passage(3, [], [told("Ada Marl", "engineer", "She left Vell.")])


def test_what_is_mentioned_and_what_is_extracted_are_one_table(shard: Shard) -> None:
    entities, surfaces, names = resolved(shard)
    assert entities.schema == ENTITIES
    assert entities["entity_id"].to_pylist() == sorted((ADA, VELL, ORRIN))
    rows = by_name(entities)
    counted = {name: (row["mentions"], row["passages"], row["documents"]) for name, row in rows.items()}
    assert counted == {"ada marl": (2, 3, 3), "vell": (1, 2, 2), "orrin bay": (0, 1, 1)}
    assert rows["ada marl"]["surface"] == "Ada Marl"
    forms = {(row["surface"], row["mentions"]) for row in surfaces.to_pylist()}
    assert forms == {("Ada Marl", 2), ("ADA MARL", 0), ("Vell", 1), ("Orrin Bay", 0)}
    assert names["name"].to_pylist() == ["ada marl"]  # what is only extracted leads to no other passage of a graph


def test_without_extraction_the_table_is_that_of_the_mentions_alone(shard: Shard, tmp_path: Path) -> None:
    entities, surfaces, names = resolved(shard, extracting=False)
    rows = by_name(entities)
    assert {name: (row["mentions"], row["passages"]) for name, row in rows.items()} == {
        "ada marl": (2, 2),
        "vell": (1, 1),
    }
    (tmp_path / "empty").mkdir()
    empty = Shard(tmp_path / "empty").passage(1, ["Ada Marl", "Vell"]).passage(2, ["Ada Marl"]).passage(3)
    assert resolved(empty) == (entities, surfaces, names)


def test_an_entity_is_shown_as_it_is_mentioned_then_as_passages_tell_of_it(tmp_path: Path) -> None:
    made = (
        Shard(tmp_path).passage(1, ["VELL", "Vell"], [told("vell")]).passage(2, [], [told("vell"), told("ORRIN bay")])
    )
    made.passage(3, [], [told("Orrin Bay")]).passage(4, [], [told("orrin bay")]).passage(5, [], [told("orrin bay")])
    rows = by_name(resolved(made)[0])
    assert rows["vell"]["surface"] == "VELL"  # mentioned as often as Vell, told of as often, and smaller
    assert rows["orrin bay"]["surface"] == "orrin bay"


def test_pieces_are_what_passages_say_and_how_many_do(shard: Shard) -> None:
    pieces = pieces_of(shard)
    assert pieces.schema == PIECES
    rows = [tuple(row.values()) for row in pieces.to_pylist()]
    assert rows == sorted(rows)
    assert [row[1:] for row in rows if row[0] == ADA] == [
        ("description", "She built.", 2, "p1"),
        ("description", "She left Vell.", 1, "p3"),
        ("name", "ada marl", 3, "p1"),
        ("surface", "Ada Marl", 3, "p1"),
        ("type", "engineer", 1, "p3"),
        ("type", "person", 2, "p1"),
    ]
    assert [row[1:] for row in rows if row[0] == VELL] == [
        ("name", "vell", 1, "p2"),
        ("surface", "Vell", 1, "p1"),  # where it is mentioned so
        ("type", "town", 1, "p2"),
    ]


def test_pieces_of_relations_keep_their_direction_and_a_wording_stands_in(tmp_path: Path) -> None:
    both = [told("Ada Marl"), told("Vell")]
    there = ("Ada Marl", "Vell", "making", "built", "She built it.")
    made = Shard(tmp_path).passage(1, [], both, [there, ("Vell", "Ada Marl", "", "was left by", "")])
    made.passage(2, [], both, [there, ("Ada Marl", "Vell", "leaving", "left", "")])
    ends = shown(made)
    pieces = relation_pieces(count_relation_pieces([made.file("relations")]), [ends[:1], ends[1:]])  # of two ranges
    assert pieces.schema == RELATION_PIECES
    rows = [tuple(row.values()) for row in pieces.to_pylist()]
    assert rows == sorted(rows)
    assert [row[2:] for row in rows if row[:2] == (ADA, VELL)] == [
        ("description", "She built it.", 2, "p1"),
        ("kind", "leaving", 1, "p2"),
        ("kind", "making", 2, "p1"),
        ("source", "Ada Marl", 3, "p1"),
        ("target", "Vell", 3, "p1"),
        ("wording", "left", 1, "p2"),
    ]
    assert [row[2:] for row in rows if row[:2] == (VELL, ADA)] == [
        ("source", "Vell", 1, "p1"),
        ("target", "Ada Marl", 1, "p1"),
        ("wording", "was left by", 1, "p1"),
    ]


NAMES = st.sampled_from(["Ada Marl", "ADA MARL", "Vell", "Orrin Bay", "vell"])
TOLD = st.tuples(NAMES, st.sampled_from(["", "town", "person"]), st.sampled_from(["", "One.", "Two."]))
PASSAGE = st.tuples(st.lists(NAMES, max_size=3), st.lists(TOLD, max_size=3, unique_by=lambda one: one[0].lower()))


@examples(6, deep=40)
@given(passages=st.lists(PASSAGE, min_size=1, max_size=6), shards=st.integers(1, 3), seed=st.integers(0, 99))
def test_neither_the_order_of_passages_nor_their_shards_matter(
    tmp_path: Path, passages: list[Any], shards: int, seed: int
) -> None:
    def tables(order: list[int], count: int) -> list[list[dict[str, Any]]]:
        made = [Shard(tmp_path, f"p{number}") for number in range(count)]
        for number in order:
            mentions, extracted = passages[number]
            made[number % count].passage(number, mentions, extracted)
        found = resolved(*made)
        return [table.to_pylist() for table in (*found, pieces_of(*made))]

    order = list(range(len(passages)))
    whole = tables(order, 1)
    random.Random(seed).shuffle(order)  # noqa: S311
    assert tables(order, shards) == whole


@pytest.mark.slow
def test_entities_are_the_same_in_one_range_and_in_many(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    families = {name: {"enabled": False} for name in ("lsh_tree", "zoom_graph", "bm25")}
    chosen: dict[str, Any] = {
        "shards": {"document_tokens": 1_000},
        "families": families,
        "resolve": {"description": {"enabled": True}},
    }
    one, many = Index(quick / "one", **chosen), Index(quick / "many", **chosen)
    one.build(documents(30))
    monkeypatch.setattr(entity_ranges, "SHARDS_PER_RANGE", 1)
    monkeypatch.setattr(name_counts, "SHARDS_PER_GROUP", 2)
    many.build(documents(30))
    ranges = many.labels("resolve")
    assert (one.labels("resolve"), ranges) == ({"e"}, {"e00", "e01", "e10", "e11"})
    assert len(many.labels("count_names")) > 1
    for table in ("entities", "surfaces", "described", "related"):
        assert many.rows(table) == one.rows(table)
        with many.snapshot() as snapshot:
            labels = {shard.name.partition("/")[2] for shard in snapshot.shards(table)}
        assert {label[:3] for label in labels} == ranges
    outputs = many.outputs()
    assert not many.build(documents(30)).published
    assert many.outputs() == outputs
