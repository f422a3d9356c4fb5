"""Which entities are important, and what their attributes are made of."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.canonical_names import entity_id
from schemas.tables import SAME_AS
from storage.folder import FolderStore
from storage.table_blobs import put_table, read_table
from tasks.core.estimate import Range
from tasks.core.part_runner import PartSpec
from tasks.core.stage import WHOLE
from tasks.families.heterograph import text_inputs
from tasks.families.heterograph.attribute_inputs import STAGE, estimate, read_about
from tasks.families.heterograph.importance import important
from tasks.families.heterograph.tables import HETERO_MADE, HETERO_READ, HETERO_SOURCES
from tasks.families.heterograph.text_inputs import ReadingSettings
from tests.deep import examples
from tests.tasks.families.heterograph.graphs import Corpus, corpus_of, ids, put_corpus, unit
from tests.tasks.making import Parts

NAMES = [f"name {number}" for number in range(200)]
SHAPING: dict[str, Any] = {"units": 4, "relations": 3, "input_tokens": 100, "seed": 0}
EXTRACTIVE = {"backend": "extractive", "tokens": 40, "input_tokens": 100}
MODEL = {"backend": "openai", "model": "tester", "tokens": 40, "input_tokens": 100}


def many() -> Corpus:
    """60 passages of three units each, which name up to five of 200 entities, the first ones most."""
    draw = np.random.default_rng(0)
    passages = []
    for number in range(60):
        units = []
        for place in range(3):
            names = [f"name {row}" for row in np.unique((200 * draw.random(5) ** 3).astype(int))]
            says = tuple((one, "leads to", other) for one, other in pairwise(names))
            units.append(unit(f"unit {number} {place}", *names, says=says))
        passages.append(units)
    return corpus_of(*passages)


def spec(held: Mapping[str, str], writer: Mapping[str, Any] = EXTRACTIVE, **changes: Any) -> PartSpec:
    asks = writer["backend"] != "extractive"
    inputs = {name: digest for name, digest in held.items() if asks or not name.startswith(("mentions/", "extracted/"))}
    return PartSpec(WHOLE, inputs, ReadingSettings(**{**SHAPING, "writer": writer, **changes}))


def tables(store: FolderStore, outputs: Mapping[str, str], name: str, schema: pa.Schema) -> pa.Table:
    found = [read_table(store, digest, schema) for output, digest in sorted(outputs.items()) if output.startswith(name)]
    return pa.concat_tables(found)


def surfaces(names: list[str]) -> pa.Table:
    return pa.table({"entity_id": pa.array(ids(*names), pa.string()), "surface": [name.title() for name in names]})


def made_of(corpus: Corpus, **changes: Any) -> dict[str, str]:
    shaping = ReadingSettings(**{**SHAPING, "writer": EXTRACTIVE, **changes})
    tables = text_inputs.CorpusTexts(corpus.units, corpus.relations, surfaces(NAMES))
    _, _, made = read_about(tables, corpus.unit_entities, None, shaping)
    return dict(zip(made["owner"].to_pylist(), made["made_of"].to_pylist(), strict=True))


@pytest.mark.slow
def test_each_important_entity_reads_of_its_units_and_relations_in_its_own_shard(store: FolderStore) -> None:
    held, graph = put_corpus(store, many(), NAMES), many().first()
    outputs = Parts(store).make(STAGE, spec(held)).receipt.outputs
    assert set(outputs) == {f"attribute_{name}/{shard}" for name in ("read", "made") for shard in ("e0", "e1")}
    read, made = (
        tables(store, outputs, "attribute_read", HETERO_READ),
        tables(store, outputs, "attribute_made", HETERO_MADE),
    )
    chosen = important(graph).chosen
    entities = graph.ids_of("N").filter(pa.array(chosen)).to_pylist()
    assert sorted(made["owner"].to_pylist()) == sorted(set(read["owner"].to_pylist())) == entities
    by_id = dict(zip(ids(*NAMES), NAMES, strict=True))
    assert made["shown"].to_pylist() == [by_id[one].title() for one in made["owner"].to_pylist()]
    links = zip(*(many().unit_entities[name].to_pylist() for name in ("entity_id", "unit_id")), strict=True)
    named = set(links)
    said = dict(zip(*(many().units[name].to_pylist() for name in ("unit_id", "text")), strict=True))
    kinds: dict[str, int] = {}
    for row in read.to_pylist():
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + 1
        if row["kind"] == "S":
            assert (row["owner"], row["node_id"]) in named
            assert row["text"] == said[row["node_id"]]
        else:
            assert by_id[row["owner"]].title() in row["text"]
            assert " leads to " in row["text"]
    assert kinds.keys() == {"S", "R"}
    for shard in ("e0", "e1"):
        own = set(read_table(store, held[f"entities/{shard}"])["entity_id"].to_pylist())
        for name in ("read", "made"):
            assert set(read_table(store, outputs[f"attribute_{name}/{shard}"])["owner"].to_pylist()) <= own


def test_a_model_is_told_what_passages_it_is_asked_about(store: FolderStore) -> None:
    """Those of the units, those that say the relations, and one that writes each name as it is shown."""
    corpus = corpus_of(
        *(
            [unit(f"ada saw {other}", "ada", other, says=(("ada", "saw", other),))]
            for other in ("bell", "curie", "dirac", "euler")
        ),
        [unit("She saw her.", "ada", "bell", says=(("ada", "saw", "bell"),))],
        [unit("bell is here", "bell")],
    )
    names = ["ada", "bell", "curie", "dirac", "euler"]
    held = put_corpus(store, corpus, names)
    outputs = Parts(store).make(STAGE, spec(held, MODEL, units=1, relations=1)).receipt.outputs
    found: dict[str, set[str]] = {}
    for row in tables(store, outputs, "attribute_sources", HETERO_SOURCES).to_pylist():
        found.setdefault(row["owner"], set()).add(row["source_id"])
    read = tables(store, outputs, "attribute_read", HETERO_READ).to_pylist()
    passages = dict(zip(*(corpus.units[name].to_pylist() for name in ("unit_id", "passage_id")), strict=True))
    saying = {"Ada saw Bell": {"p0", "p4"}, "Ada saw Curie": {"p1"}, "Ada saw Dirac": {"p2"}, "Ada saw Euler": {"p3"}}
    first = {"Ada": "p0", "Bell": "p0", "Curie": "p1", "Dirac": "p2", "Euler": "p3"}  # the least that writes it so
    shown = {entity_id(name): name.title() for name in names}
    wanted: dict[str, set[str]] = {}
    for row in read:
        own = wanted.setdefault(row["owner"], {first[shown[row["owner"]]]})
        if row["kind"] == "S":
            own.add(passages[row["node_id"]])
        else:
            own |= saying[row["text"]] | {first[name] for name in row["text"].split() if name in first}
    assert found == wanted
    assert len(found) > 0
    without = Parts(store).make(STAGE, spec(held, units=1, relations=1)).receipt.outputs
    assert not [name for name in without if name.startswith("attribute_sources")]


def test_other_writers_and_names_make_other_attributes_of_the_same(store: FolderStore) -> None:
    first, other = made_of(many()), made_of(many(), writer={**EXTRACTIVE, "tokens": 41})
    assert first.keys() == other.keys()
    assert not set(first.values()) & set(other.values())
    shaping = ReadingSettings(**SHAPING, writer=EXTRACTIVE)
    renamed = surfaces(NAMES).to_pylist()
    owner = min(first)
    for row in renamed:
        row["surface"] = "Other" if row["entity_id"] == owner else row["surface"]
    corpus = many()
    tables = text_inputs.CorpusTexts(corpus.units, corpus.relations, pa.Table.from_pylist(renamed))
    _, read, made = read_about(tables, corpus.unit_entities, None, shaping)
    showing = set(pa.compute.filter(read["owner"], pa.compute.match_substring(read["text"], "Other")).to_pylist())
    now = dict(zip(made["owner"].to_pylist(), made["made_of"].to_pylist(), strict=True))
    assert {one for one in first if first[one] != now[one]} == {owner} | showing


def edited(corpus: Corpus, passage: str, word: str) -> Corpus:
    """The same corpus with another word in each unit of a passage, as if it had been written so."""
    texts = zip(corpus.units["passage_id"].to_pylist(), corpus.units["text"].to_pylist(), strict=True)
    text = pa.array([f"{text} {word}" if one == passage else text for one, text in texts], pa.string())
    fresh = {}
    for one, unit_id in zip(*(corpus.units[name].to_pylist() for name in ("passage_id", "unit_id")), strict=True):
        fresh[unit_id] = entity_id(f"{unit_id} {word}") if one == passage else unit_id
    units = corpus.units.set_column(corpus.units.column_names.index("text"), "text", text)

    def renamed(table: pa.Table) -> pa.Table:
        moved = pa.array([fresh[one] for one in table["unit_id"].to_pylist()], pa.string())
        return table.set_column(table.column_names.index("unit_id"), "unit_id", moved)

    return Corpus(corpus.passages, renamed(units), renamed(corpus.unit_entities), corpus.relations)


@examples(7, deep=25)
@given(st.integers(0, 59), st.sampled_from(("again", "no more", "at night")), st.integers(0, 2))
def test_an_edit_changes_what_few_attributes_are_made_of(number: int, word: str, seed: int) -> None:
    """Of the entities that stay important, those of the edited passage alone, and not even all of these."""
    passage, corpus = f"p{number}", many()
    before, after = made_of(corpus, seed=seed), made_of(edited(corpus, passage, word), seed=seed)
    links = zip(*(corpus.unit_entities[name].to_pylist() for name in ("passage_id", "entity_id")), strict=True)
    touched = {entity for one, entity in links if one == passage}
    changed = {one for one in before.keys() & after.keys() if before[one] != after[one]}
    assert changed <= touched
    assert len(before) > 20
    assert len(changed) <= len(before) / 3


def test_the_order_of_rows_leaves_no_trace() -> None:
    assert made_of(many().shuffled(3)) == made_of(many())


@pytest.mark.slow
def test_a_plan_knows_the_part(store: FolderStore) -> None:
    held, parts = put_corpus(store, many(), NAMES), Parts(store)
    for writer in (EXTRACTIVE, MODEL):
        foreseen = estimate(parts.inputs(STAGE, spec(held, writer)), {})
        made = parts.make(STAGE, spec(held, writer)).receipt
        assert foreseen.stand_ins == made.outputs
        assert not foreseen.guessed


def test_pairs_of_the_same_name_count_and_a_plan_without_them_is_a_guess(store: FolderStore) -> None:
    held, parts = put_corpus(store, many(), NAMES), Parts(store)
    rare, *others = sorted(many().first().ids_of("N").to_pylist())
    pairs = [{"entity_id": rare, "other_id": other, "cosine": 1.0, "likeness": 1.0} for other in others[:60]]
    held["same_as"] = put_table(store, pa.Table.from_pylist(pairs, SAME_AS), SAME_AS)[0]
    outputs = parts.make(STAGE, spec(held)).receipt.outputs
    assert rare in tables(store, outputs, "attribute_made", HETERO_MADE)["owner"].to_pylist()
    guess = estimate(parts.inputs(STAGE, spec({**held, "same_as": "0" * 64})), {"same_as": Range(0, 99)})
    assert guess.guessed
    assert not set(guess.stand_ins.values()) & set(outputs.values())
    named = tables(store, guess.stand_ins, "attribute_made", HETERO_MADE)["owner"].to_pylist()
    assert sorted(named) == sorted(made_of(many()))


def test_a_corpus_without_units_has_no_important_entities(store: FolderStore) -> None:
    held = put_corpus(store, corpus_of([]), [], shards=1)
    outputs = Parts(store).make(STAGE, spec(held, MODEL)).receipt.outputs
    assert set(outputs) == {f"attribute_{name}/e0" for name in ("read", "made", "sources")}
    assert all(read_table(store, digest).num_rows == 0 for digest in outputs.values())
