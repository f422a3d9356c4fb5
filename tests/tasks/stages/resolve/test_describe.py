"""Descriptions of entities and of related pairs: what they are put together from, and when they are made again."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder
from indexmill.store.packs import open_pack
from indexmill.text.canonical_names import entity_id
from tasks.core.shards import estimate_tokens, id_hashes
from tasks.stages.embed.embed import row_key
from tasks.stages.resolve.consolidate import capped, entity_text, joined
from tests.corpora import documents
from tests.tasks.indexes import Index, edited


@pytest.fixture
def index(quick: Path) -> Index:
    families = {name: {"enabled": False} for name in ("lsh_tree", "zoom_graph", "tri_graph", "bm25")}
    return Index(quick / "store", "resolve.description", families=families, resolve={"description": {"enabled": True}})


def parts(index: Index) -> dict[str, Mapping[str, str]]:
    """The outputs of the descriptions by shard."""
    return {label: outputs for (stage, label), outputs in index.outputs().items() if stage == "describe"}


# --- texts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (("Ada Marl", "person", "She built."), "Ada Marl (person): She built."),
        (("Ada Marl", "", "She built."), "Ada Marl: She built."),
        (("Ada Marl", "person", ""), "Ada Marl (person)"),
        (("Ada Marl", "", ""), "Ada Marl"),
        (("Ada Marl", "title", "She built."), "Ada Marl: She built."),  # how it is mentioned tells nothing of it
    ],
)
def test_the_text_of_an_entity_names_it_and_says_what_it_is(told: tuple[str, str, str], text: str) -> None:
    assert entity_text(*told) == text


def test_pieces_are_joined_in_their_order_and_none_twice() -> None:
    assert joined(["One said.", "Two said. One said.", "Three said."], 200) == "Two said. One said. Three said."
    assert joined(["A long word.", "A long word. And more.", "word."], 200) == "A long word. And more."
    assert joined([], 200) == ""


def test_pieces_are_joined_up_to_their_tokens() -> None:
    pieces = ["x" * 396, "y" * 200, "z" * 196]  # 100, 51 and 50 tokens
    assert joined(pieces, 150) == f"{pieces[0]} {pieces[2]}"
    assert joined(pieces, 200) == f"{pieces[0]} {pieces[1]}"
    assert joined(["word " * 1_000], 10) == " ".join(["word"] * 16)  # one piece that is too long is cut


@settings(max_examples=100)
@given(st.lists(st.text("ab .", min_size=1, max_size=30), unique=True, max_size=12), st.integers(1, 40), st.data())
def test_what_is_read_of_many_pieces_is_theirs_not_their_orders(
    pieces: list[str], tokens: int, data: st.DataObject
) -> None:
    read = [pieces[row] for row in capped(pieces, tokens)]
    moved = data.draw(st.permutations(pieces))
    assert [moved[row] for row in capped(moved, tokens)] == read
    assert bool(read) == bool(pieces)
    sizes = [estimate_tokens(len(piece.encode())) for piece in read]
    assert len(read) <= 1 or sum(sizes) <= tokens
    if len(pieces) > 1:  # one that comes or goes takes at most those with it that no longer fit
        fewer = [piece for piece in pieces if piece != pieces[0]]
        kept = [fewer[row] for row in capped(fewer, tokens)]
        assert kept[: len(read)] == read[: len(kept)] or pieces[0] in read


# --- builds ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_extracted_entity_and_every_related_pair_is_described(index: Index) -> None:
    told = index.counts(index.build(documents(20, words=90), most_pieces=4), "describe")
    described, related = index.rows("described"), index.rows("related")
    extracted, relations = index.rows("extracted"), index.rows("relations")
    assert [row["entity_id"] for row in described] == sorted({row["entity_id"] for row in extracted})
    pairs = [(row["source"], row["target"]) for row in relations]
    assert [(row["source"], row["target"]) for row in related] == sorted(set(pairs))
    assert {(row["source"], row["target"]): row["relations"] for row in related} == {
        pair: pairs.count(pair) for pair in pairs
    }
    by_id = {row["entity_id"]: row for row in index.rows("entities")}
    for row in described:
        own = [one for one in extracted if one["entity_id"] == row["entity_id"]]
        pieces = {one["description"] for one in own} - {""}
        assert (row["pieces"], row["passages"]) == (len(pieces), len(own))
        assert (row["name"], row["surface"]) == tuple(by_id[row["entity_id"]][name] for name in ("name", "surface"))
        assert row["digest"] == row_key(entity_text(row["surface"], row["type"], row["description"])).hex()
        assert row["tokens"] >= 3
        assert bool(row["description"]) == bool(pieces)
        if 0 < len(pieces) <= 4:
            assert all(piece in row["description"] for piece in pieces)
    many = [row for row in described if row["pieces"] > 4]
    assert many
    assert {row["stand_in"] for row in (*described, *related)} == {False}
    assert told["descriptions_made"] == len(many) + sum(
        len({one["description"] for one in relations if (one["source"], one["target"]) == pair}) > 4
        for pair in set(pairs)
    )
    assert told["entities_described"] == len(described)


@pytest.mark.slow
def test_the_vectors_are_those_of_the_texts(index: Index) -> None:
    index.build(documents(12))
    store = index.store()
    with index.snapshot() as snapshot:
        tables = {one.name.partition("/")[2]: snapshot.table(one.name) for one in snapshot.shards("described")}
        assert not any(
            artifact.name.startswith(("description_", "name_v", "pieces")) for artifact in snapshot.manifest.artifacts
        )
        assert snapshot.manifest.corpus.counts["described"] == sum(len(table) for table in tables.values())
        assert snapshot.manifest.models["describer"]["backend"] == "extractive"  # type: ignore[index, call-overload]
    made = parts(index)
    assert set(made) == set(tables)
    for label, table in tables.items():
        rows = table.to_pylist()
        texts = [entity_text(row["surface"], row["type"], row["description"]) for row in rows]
        for name, of in (("description_vectors", texts), ("name_vectors", [row["name"] for row in rows])):
            pack = open_pack(store.open_local(made[label][name]))
            assert np.array_equal(pack["keys"], id_hashes(row["entity_id"] for row in rows))
            assert [key.tobytes() for key in pack["text_keys"]] == [row_key(text) for text in of]
            expected = HashEmbedder().encode(of) if of else np.empty((0, 64), dtype=np.float32)
            assert np.array_equal(pack["vectors"], expected)


@pytest.mark.slow
def test_a_shard_is_described_again_only_where_its_own_pieces_change(index: Index) -> None:
    rows = documents(40, words=90)
    made = index.counts(index.build(rows, most_pieces=2), "describe")
    before = parts(index)
    assert len(before) > 2
    told = "Orrin Bay is older than the sea."  # of one entity alone
    outcome = index.build({**rows, "new": ("", told)}, most_pieces=2)
    now = parts(index)
    changed = {label for label in now if now[label] != before.get(label)}
    (bay,) = (label for label in now if f"{int(entity_id('orrin bay'), 16):0128b}".startswith(label[1:]))
    assert changed == {bay}
    redone = index.counts(outcome, "describe")
    assert redone["parts_made"] == 1
    assert 0 < redone["descriptions_made"] <= 2 < made["descriptions_made"]
    assert redone["descriptions_reused"] > 0
    assert redone["vectors_made"] <= 2
    assert index.beside().build({**rows, "new": ("", told)}, most_pieces=2).manifest == outcome.manifest


@pytest.mark.slow
def test_neither_the_order_of_the_corpus_nor_its_history_shows(index: Index) -> None:
    rows = documents(24, words=90)
    whole = index.beside().build(rows, most_pieces=3)
    shuffled = list(rows.items())
    random.Random(3).shuffle(shuffled)  # noqa: S311
    index.build(dict(shuffled[:9]), most_pieces=3)
    index.build(dict(shuffled[:20]), most_pieces=3)
    assert index.build(dict(shuffled), most_pieces=3).manifest == whole.manifest


@pytest.mark.slow
def test_settings_that_shape_nothing_of_it_change_nothing(index: Index) -> None:
    rows = documents(10)
    index.build(rows)
    settings_of = index.sections["resolve"]
    settings_of["same_as"] = {"cosine": 0.5}
    assert index.counts(index.build(rows), "describe")["parts_made"] == 0
    settings_of["same_as"] = {"enabled": False}
    outcome = index.build(rows)
    assert "same_as" not in index.artifacts()
    assert index.counts(outcome, "describe")["vectors_made"] == 0  # the part lacks those of names; others are copied
    index.sections["extract"] = {"enabled": True}
    del settings_of["same_as"]
    index.build(rows, enabled=False)
    with index.snapshot() as snapshot:
        assert not {"described", "related"} & index.artifacts()
        assert "resolve" not in snapshot.manifest.configuration
        assert "describer" not in snapshot.manifest.models


@pytest.mark.slow
def test_a_corpus_without_a_name_has_no_descriptions_and_no_pairs(index: Index) -> None:
    index.build({"d": ("", "nothing is named in here.")})
    assert index.rows("same_as") == []
    with index.snapshot() as snapshot:
        assert snapshot.manifest.corpus.counts["described"] == 0


@pytest.mark.slow
def test_a_plan_says_how_many_vectors_are_made_and_why(index: Index) -> None:
    rows = documents(20, words=90)
    for now in (rows, edited(rows), rows):
        plan, outcome = index.planned(now, most_pieces=3)
        assert plan.llm_calls.high == 0
        assert plan.stages["describe"].made == index.counts(outcome, "describe")["parts_made"]
    assert not index.plan(rows, most_pieces=3).publishes
    plan = index.plan(rows, most_pieces=4)
    assert set(plan.stages["describe"].causes) == {"settings"}
    assert {name for name, stage in plan.stages.items() if stage.made} <= {"describe", "same_as", "check"}
