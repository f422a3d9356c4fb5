"""heterograph over a snapshot: the hits of a question, what is told of them, and what a filter leaves of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.evaluate.fit import fit
from indexmill.evaluate.recall import Question, evaluate
from indexmill.hits import Hit
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import entity_id
from tasks.stages.extract.extraction_tables import Unit
from tests.indexmill.contract import gives_alone_what_a_batch_gives
from tests.indexmill.damage import Change, changed, without
from tests.indexmill.running import Run
from tests.indexmill.small_heterograph import Attribute, Element, write_heterograph
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter, Text
from tests.tasks.families.heterograph.graphs import unit

TEXTS = {
    "p0": (
        Text(
            "bridge",
            "Marrow Bridge",
            "The Marrow Bridge crosses the Ilse.\n\nAda Venn paid for the bridge.",
            sections=("", "Money\nGifts"),
        ),
        Text("venn", "Ada Venn", "Ada Venn was a clockmaker. She was born in Tallow."),
    ),
    "p1": (
        Text("guild", "", "The guild wrote: Ada Venn paid for the bridge of lamps."),
        Text("ilse", "Ilse", "The Ilse is a cold river. It rises in the Grey Hills."),
        Text("plain", "Plain", "Nothing is extracted from this."),
        Text("tallow", "", "Tallow is a town of lamps."),
    ),
}
PAID = ("ada venn", "paid for", "marrow bridge")
SAID = [
    [unit("The bridge crosses the river.", "marrow bridge", "ilse", says=(("marrow bridge", "crosses", "ilse"),))],
    [unit("Ada Venn paid for it.", "ada venn", "marrow bridge", says=(PAID,))],
    [unit("Ada Venn was a clockmaker.", "ada venn"), unit("She was born in Tallow.", "ada venn", "tallow")],
    [unit("The guild says that she paid.", "ada venn", "marrow bridge", "bridge guild of tallow", says=(PAID,))],
    [unit("The river rises in the hills.", "ilse", "grey hills")],
    [],
    [unit("Tallow is a town.", "tallow")],
]
SURFACES = {
    "marrow bridge": "Marrow Bridge",
    "ilse": "Ilse",
    "ada venn": "Ada Venn",
    "tallow": "Tallow",
    "grey hills": "Grey Hills",
    "bridge guild of tallow": "Bridge Guild of Tallow",
}
TOLD = [
    Attribute(
        "ada venn", "Venn made clocks and paid for stone.", ["Ada Venn was a clockmaker.", "Ada Venn paid for it."]
    ),
    Attribute("tallow", "A town where people are born.", ["She was born in Tallow."], stand_in=True),
]
ELEMENTS = [
    Element("Rivers", "Cold water comes from above.", ["The river rises in the hills."]),
    Element(
        "Money of Ada Venn", "Rich people built.", ["Ada Venn paid for it.", "Venn made clocks and paid for stone."]
    ),
]
QUESTIONS = [
    "Who paid for the Marrow Bridge?",
    "river",
    "",
    "who is ada venn",
    "nothing of the kind",
    "Где мост?",
    "town of lamps " * 700,
]
EVERY = 99
KINDS = ("text", "unit", "attribute", "high-level", "relation")


def written(path: Path, version: int = 1, near: int = 2, words: bool = True, **parameters: Any) -> SnapshotWriter:
    writer = SnapshotWriter(path)
    for label, some in TEXTS.items():
        writer.shard(label, some)
    if words:
        writer.bm25()
    write_heterograph(writer, SAID, TOLD, ELEMENTS, SURFACES, near, **parameters)
    writer.publish(version)
    return writer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("heterograph") / "store"
    written(path)
    return path


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without edges between near vectors, and without bm25: a walk goes by what is said alone."""
    path = tmp_path_factory.mktemp("heterograph") / "apart"
    written(path, near=0, words=False)
    return path


def ask(snapshot: Snapshot, question: str, k: int = 5, **given: Any) -> list[Hit]:
    """As the paper asks, unless it is said otherwise: its scores can be worked out by hand."""
    where, names = given.pop("where", None), given.pop("names", None)
    return snapshot.retrieve_batch(
        [question],
        method="heterograph",
        k=k,
        parameters={"preset": "paper", **given},
        where=where,
        names=None if names is None else [names],
    )[0]


def of_kind(hits: Sequence[Hit], kind: str) -> list[Hit]:
    return [hit for hit in hits if hit.kind == kind]


def texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text for hit in hits]


def reason(hit: Hit) -> dict[str, Any]:
    assert hit.explanation is not None
    return hit.explanation


# Hits


@pytest.mark.slow
def test_five_kinds_of_nodes_are_one_list_best_first(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in (one for one in QUESTIONS if one):
            hits = ask(snapshot, question, EVERY)
            assert {hit.kind for hit in hits} == set(KINDS)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert len({hit.id for hit in hits}) == len(hits)
            assert len(of_kind(hits, "text")) == 7
            for k in (1, 4, 11):
                assert ask(snapshot, question, k) == hits[:k]


def test_each_kind_tells_what_it_is_and_where_it_comes_from(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        hits = {hit.text: hit for hit in ask(snapshot, "Who is Ada Venn of the Ilse?", EVERY)}
        passage = {row["text"]: row["passage_id"] for row in snapshot.table("passages").to_pylist()}
        ids = {row["text"]: row["unit_id"] for row in snapshot.table("units").to_pylist()}
        ids |= {row["text"]: row["attribute_id"] for row in snapshot.table("attributes").to_pylist()}
        ids |= {row["text"]: row["element_id"] for row in snapshot.table("elements").to_pylist()}
        ids |= {row["said"]: row["node_id"] for row in snapshot.table("heterograph/relations").to_pylist()}
        paid, clocks = "Ada Venn paid for the bridge.", "Ada Venn was a clockmaker. She was born in Tallow."
        for text, kind, title, documents, tokens, passages in (
            (paid, "text", "Marrow Bridge", ("bridge",), 6, [paid]),
            ("Ada Venn paid for it.", "unit", "Marrow Bridge", ("bridge",), 5, [paid]),
            ("Venn made clocks and paid for stone.", "attribute", "Ada Venn", ("bridge", "venn"), 7, [paid, clocks]),
            ("Rich people built.", "high-level", "Money of Ada Venn", ("bridge", "venn"), 3, [paid, clocks]),
            (
                "Ada Venn paid for Marrow Bridge",
                "relation",
                "",
                ("bridge", "guild"),
                8,
                [paid, "The guild wrote: Ada Venn paid for the bridge of lamps."],
            ),
        ):
            hit = hits[text]
            assert (hit.kind, hit.title, hit.document_ids, hit.tokens) == (kind, title, documents, tokens)
            assert hit.id == (passage if kind == "text" else ids)[text]
            assert hit.version == 1
            assert reason(hit)["passages"] == [passage[one] for one in passages]
        assert reason(hits["A town where people are born."])["stand_in"] is True
        assert "stand_in" not in reason(hits["Rich people built."])


def test_a_text_is_cited_as_its_passage_is(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        passages = {hit.id: hit for hit in snapshot.retrieve("Ada Venn, the bridge, the Ilse", method="dense", k=EVERY)}
        found = of_kind(ask(snapshot, "Ada Venn, the bridge, the Ilse", EVERY), "text")
        assert len(found) == len(passages)
        for hit in found:
            told = {"kind": "text", "score": hit.score, "explanation": hit.explanation}
            assert hit == replace(passages[hit.id], **told)
            assert hit.span is not None
        assert ("Money", "Gifts") in {hit.section for hit in found}


def test_the_score_is_what_was_passed_on_and_what_an_entry_returns_to(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "Who paid for the Marrow Bridge?", EVERY, entries=3, restart=0.3)
        entries = 3 + 1  # one entity has the name
        assert sum(reason(hit)["entry"] for hit in hits) == 3
        for hit in hits:
            told = reason(hit)
            added = [one["added"] for one in told["through"]]
            assert added == sorted(added, reverse=True)
            assert len(added) <= 5
            if len(added) < 5 and hit.score > 0:
                assert hit.score == pytest.approx(0.3 / entries * told["entry"] + sum(added))
            assert (hit.score > 0) == bool(added or told["entry"])


def test_what_is_told_says_by_what_name_or_cosine_the_question_enters(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        question = "Who paid for the Marrow Bridge?"
        (asked,) = snapshot.encode([question])
        hits = ask(snapshot, question, EVERY, entries=2)
        for hit in hits:
            assert ("cosine" in reason(hit)) == (reason(hit)["entry"] or hit.score <= 0)
            if "cosine" in reason(hit):
                assert reason(hit)["cosine"] == pytest.approx(float(snapshot.encode([hit.text])[0] @ asked), abs=1e-5)
        (crosses,) = [hit for hit in hits if hit.text == "Marrow Bridge crosses Ilse"]
        first = reason(crosses)["through"][0]
        assert {key: first[key] for key in ("kind", "node_id", "title", "name")} == {
            "kind": "entity",
            "node_id": entity_id("marrow bridge"),
            "title": "Marrow Bridge",
            "name": "marrow bridge",
        }
        named = [one for hit in hits for one in reason(hit)["through"] if one["kind"] == "unit" and "cosine" in one]
        assert {one["title"] for one in named} <= {hit.text for hit in hits if reason(hit)["entry"]}
        bare = snapshot.retrieve(question, method="heterograph", k=EVERY, explain=False)
        assert [one.explanation for one in bare] == [None] * len(bare)


def test_a_walk_over_the_names_of_a_snapshot_is_the_one_by_hand(apart: Path) -> None:
    """From the entity Grey Hills alone: its one unit is said by one text, which is linked to nothing else.

    pi(1) = 1/2 on the entity and on the unit. The unit passes its half to four: the entity, Ilse, its text, and the
    element that it is matched with; so the text has 1/2 * 1/2 / 4.
    """
    with indexmill.open(apart) as snapshot:
        hits = ask(snapshot, "grey hills", 3, entries=0, texts=1)
        assert [(hit.kind, hit.text, hit.score) for hit in hits] == [
            ("unit", "The river rises in the hills.", pytest.approx(0.25)),
            ("text", "The Ilse is a cold river. It rises in the Grey Hills.", pytest.approx(1 / 16)),
            ("high-level", "Cold water comes from above.", pytest.approx(1 / 16)),
        ]
        assert reason(hits[1])["through"] == [
            {
                "kind": "unit",
                "node_id": hits[0].id,
                "title": "The river rises in the hills.",
                "added": pytest.approx(1 / 16),
            }
        ]


# Names


def entered(snapshot: Snapshot, question: str, **given: Any) -> set[tuple[str, str, str]]:
    """By which names a question enters: what the explanations of all that it finds say."""
    hits = ask(snapshot, question, EVERY, entries=0, **given)
    return {(one["kind"], one["title"], one["name"]) for hit in hits for one in reason(hit)["through"] if "name" in one}


def test_a_question_enters_at_names_and_overviews_that_hold_its_names_word_by_word(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        venn = {("entity", "Ada Venn", "ada venn"), ("overview", "Money of Ada Venn", "ada venn")}
        assert entered(snapshot, "Who is Ada Venn?") == venn
        assert entered(snapshot, "who is ada venn") == venn  # in any casing, where an entity has the name
        assert entered(snapshot, "Who is Ada Vennings?") == set()
        tallow = {("entity", "Tallow", "tallow"), ("entity", "Bridge Guild of Tallow", "tallow")}
        assert entered(snapshot, "What is Tallow?") == tallow
        assert entered(snapshot, "What is Tallow?", names=["Ada Venn"]) == tallow | venn
        assert entered(snapshot, "nothing", names=["grey hills", "guild of tallow"]) == {
            ("entity", "Grey Hills", "grey hills"),
            ("entity", "Bridge Guild of Tallow", "guild of tallow"),
        }


def test_of_many_names_those_of_the_fewest_words_are_entered(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        parameters = {"names": 1, "entries": 0, "preset": "paper"}
        (batch,) = snapshot.retrieve_batch(["What is Tallow?"], method="heterograph", k=EVERY, parameters=parameters)
        found = {one["title"] for hit in batch for one in reason(hit)["through"] if "name" in one}
        assert found == {"Tallow"}
        none = snapshot.retrieve(
            "What is Tallow?", method="heterograph", k=EVERY, parameters={**parameters, "names": 0}
        )
        assert {hit.kind for hit in none} == {"text"}


def test_under_a_filter_names_that_lead_to_nothing_leave_their_place_to_others(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        given: dict[str, Any] = {"method": "heterograph", "k": EVERY, "where": {"document_id": "guild"}}
        parameters = {"names": 1, "entries": 0, "preset": "paper"}
        hits = snapshot.retrieve("What is Tallow?", **given, parameters=parameters)
        assert (hits[0].kind, hits[0].text) == ("unit", "The guild says that she paid.")
        assert reason(hits[0])["through"][0]["title"] == "Bridge Guild of Tallow"


# Texts that the walk does not reach


def test_texts_that_the_walk_does_not_reach_follow_by_their_cosine(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        for question in ("Who is Ada Venn?", "the cold river"):
            hits = ask(snapshot, question, EVERY, entries=2)
            dense = {hit.id: hit.score for hit in snapshot.retrieve(question, method="dense", k=EVERY)}
            beyond = [hit for hit in hits if hit.score <= 0]
            assert beyond
            assert hits[-len(beyond) :] == beyond
            assert {hit.kind for hit in beyond} == {"text"}
            assert [hit.id for hit in beyond] == [one for one in dense if one in {hit.id for hit in beyond}]
            assert [hit.score for hit in beyond] == pytest.approx([dense[hit.id] - 1 for hit in beyond])
            assert all(reason(hit)["through"] == [] for hit in beyond)


def test_a_question_without_entries_gets_what_is_nearest(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        for question in ("river", "Где мост?"):
            hits = ask(snapshot, question, 4, entries=0)
            dense = snapshot.retrieve(question, method="dense", k=4)
            assert [(hit.id, hit.score) for hit in hits] == [(hit.id, hit.score) for hit in dense]
            assert [hit.kind for hit in hits] == ["text"] * 4
            assert reason(hits[0]) == {
                "entry": False,
                "cosine": pytest.approx(dense[0].score),
                "through": [],
                "passages": [hits[0].id],
            }


# Settings


def test_the_parameters_choose_what_is_found(store: Path) -> None:
    with indexmill.open(store) as snapshot:

        def counts(**given: Any) -> list[int]:
            hits = ask(snapshot, "Who paid for the Marrow Bridge?", EVERY, **given)
            return [len(of_kind(hits, kind)) for kind in KINDS]

        assert counts() == [7, 7, 2, 2, 2]
        none = {"texts": 0, "units": 0, "attributes": 0, "high_level": 0, "relations": 0}
        entries = counts(entries=4, **none)
        assert sum(entries) == 4
        assert entries[0] == entries[4] == 0  # texts and relations are never entries
        assert counts(**{**none, "texts": 2, "relations": 1, "entries": 0}) == [2, 0, 0, 0, 1]
        assert counts(entries=0, units=1, high_level=1, attributes=0) == [7, 1, 0, 1, 2]
        assert counts(texts=5)[0] == 5


def test_a_budget_is_spent_on_the_entries_first(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        question = "Who paid for the Marrow Bridge?"
        whole = ask(snapshot, question, 12, entries=4)
        for budget in (1, 5, 17, 40, 1000):
            hits = ask(snapshot, question, 12, entries=4, token_budget=budget)
            left, expected = budget, set[str]()
            for hit in sorted(whole, key=lambda hit: not reason(hit)["entry"]):
                if (hit.tokens or 0) <= left:
                    expected.add(hit.id)
                    left -= hit.tokens or 0
            assert hits == [hit for hit in whole if hit.id in expected]


# Entries of weight


def test_a_unit_that_names_what_the_question_names_is_a_bridge_to_what_else_it_names(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        given: dict[str, Any] = {"preset": "ours", "entries": 0, "near_texts": 0}
        hits = ask(snapshot, "What do the Grey Hills feed?", EVERY, **given)
        bridges = {one["title"]: one["bridge"] for hit in hits for one in reason(hit)["through"] if "bridge" in one}
        assert bridges == {"Ilse": "The river rises in the hills."}
        none = ask(snapshot, "What do the Grey Hills feed?", EVERY, **given, bridge=1)
        assert not [one for hit in none for one in reason(hit)["through"] if "bridge" in one]


def test_a_text_stands_before_the_units_that_it_says(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in QUESTIONS:
            hits = ask(snapshot, question, EVERY, preset="ours")
            place = {reason(hit)["passages"][0]: rank for rank, hit in enumerate(hits) if hit.kind == "text"}
            for rank, hit in enumerate(hits):
                if hit.kind == "unit":
                    assert place[reason(hit)["passages"][0]] < rank


@pytest.mark.parametrize("question", ["Who paid for the Marrow Bridge?", "Nothing of Ada Venn's town is extracted."])
def test_what_words_and_vectors_find_first_is_lifted(store: Path, question: str) -> None:
    with indexmill.open(store) as snapshot:
        lists = [[hit.id for hit in snapshot.retrieve(question, method=m, k=20)] for m in ("dense", "bm25")]
        places = [{passage: place for place, passage in enumerate(of_one)} for of_one in lists]
        worth = {passage: sum(1 / (6 + its[passage]) for its in places if passage in its) for passage in lists[0]}
        lifted = of_kind(ask(snapshot, question, EVERY, preset="ours", text_weight=9), "text")[0]
        assert worth[reason(lifted)["passages"][0]] == max(worth.values())
        without = ask(snapshot, question, EVERY, preset="ours", text_weight=0, unnamed_text_weight=0)
        assert lifted.score > of_kind(without, "text")[0].score


def test_where_nothing_is_named_and_only_texts_are_entries_it_is_dense(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        for question in ("river", "lamps and stone"):
            hits = of_kind(ask(snapshot, question, EVERY, preset="ours", entries=0, steps=0), "text")
            assert [hit.id for hit in hits] == [hit.id for hit in snapshot.retrieve(question, method="dense", k=EVERY)]


# What every method promises


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{}, {"entries": 2, "texts": 1}, {"token_budget": 12}, {"entries": 0}])
@pytest.mark.parametrize("preset", ["ours", "paper"])
@pytest.mark.parametrize("where", [None, {"document_id": ["bridge", "guild", "plain"]}])
def test_a_batch_gives_each_question_what_it_gets_alone(
    store: Path, parameters: dict[str, Any], preset: str, where: dict[str, Any] | None
) -> None:
    given: dict[str, Any] = {"method": "heterograph", "k": 9, "where": where}
    given["parameters"] = {"preset": preset, **parameters}
    with indexmill.open(store) as snapshot:
        gives_alone_what_a_batch_gives(snapshot, QUESTIONS, 12, **given)  # more than go together


@pytest.mark.slow
def test_the_rank_of_passages_is_that_of_the_texts_among_the_hits(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        retriever = snapshot.retriever("heterograph")
        assert isinstance(retriever, PassageRetriever)
        for where in (None, {"document_id": {"!=": "venn"}}):
            allowed = None if where is None else snapshot._selected(where, None).allowed
            asked = [question for question in QUESTIONS if question]
            ranked = retriever.rank(QueryBatch(asked, snapshot.encode(asked), snapshot.encode, allowed), 5)
            for question, found in zip(asked, ranked, strict=True):
                hits = of_kind(ask(snapshot, question, EVERY, where=where, preset="ours"), "text")[:5]
                assert passages_of(snapshot).ids(found.rows) == [hit.id for hit in hits]
                assert found.scores.tolist() == [hit.score for hit in hits]


def test_fused_takes_it_where_it_has_a_weight_and_says_through_what(tmp_path: Path) -> None:
    writer = written(tmp_path / "s", words=False)
    with indexmill.open(tmp_path / "s") as snapshot:
        hits = snapshot.retrieve("Who is Ada Venn?", method="fused", k=7)
        assert [one["name"] for one in reason(hits[0])["methods"]] == ["dense"]  # no weight of its own yet
    writer.families["fused"] = writer.families["heterograph"].model_copy(
        update={"parameters": {"heterograph": 1.0}, "history_dependent": False}
    )
    writer.publish(2)
    with indexmill.open(tmp_path / "s") as snapshot:
        hits = snapshot.retrieve("Who is Ada Venn?", method="fused", k=7)
        assert len(hits) == 7
        assert {hit.kind for hit in hits} == {"passage"}
        own = {hit.id: hit for hit in of_kind(ask(snapshot, "Who is Ada Venn?", EVERY, preset="ours"), "text")}
        for hit in hits:
            told = reason(hit)
            (score,) = [one["score"] for one in told["methods"] if one["name"] == "heterograph"]
            assert score == own[hit.id].score
            expected = {key: value for key, value in reason(own[hit.id]).items() if key != "passages"}
            assert told["heterograph"] == expected
        batch = snapshot.retrieve_batch(QUESTIONS, method="fused", k=5)
        assert batch == [snapshot.retrieve(question, method="fused", k=5) for question in QUESTIONS]
        questions = [Question(str(number), "Who is Ada Venn?", ("venn",)) for number in range(20)]
        assert set(fit(snapshot, questions, (1, 3)).weights) >= {"heterograph", "dense"}


# Filters


def test_a_relation_counts_the_tokens_of_what_a_reader_is_shown(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "store")
    for label, some in TEXTS.items():
        open_to = {"groups": ["staff"]}
        writer.shard(label, [one if one.id == "plain" else replace(one, metadata=open_to) for one in some])
    long = "The" + " " * 200 + "Marrow Bridge"
    write_heterograph(writer, SAID, TOLD, ELEMENTS, SURFACES | {"marrow bridge": long})
    writer.configuration = {"corpus": {"access": {"field": "groups", "required": True}}}
    writer.publish()
    with indexmill.open(tmp_path / "store") as snapshot:
        given: dict[str, Any] = {"method": "heterograph", "k": EVERY, "principals": ["staff"]}
        related = of_kind(snapshot.retrieve(QUESTIONS[0], **given), "relation")
        assert "ada venn paid for marrow bridge" in {hit.text for hit in related}
        assert all(hit.tokens == len(hit.text.encode()) // 4 + 1 for hit in related)
        few = snapshot.retrieve(QUESTIONS[0], parameters={"token_budget": 40, "texts": 0, "units": 0}, **given)
        assert "ada venn paid for marrow bridge" in {hit.text for hit in few}


def test_no_node_tells_of_a_document_that_a_filter_leaves_out(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "Who paid for the Marrow Bridge?", EVERY, where={"document_id": {"!=": "venn"}})
        assert texts(of_kind(hits, "attribute")) == []  # both are made of what it says, too
        assert texts(of_kind(hits, "high-level")) == ["Cold water comes from above."]
        assert not [one for hit in hits for one in reason(hit)["through"] if one["title"] == "Money of Ada Venn"]
        (paid,) = [hit for hit in hits if hit.text == "Ada Venn paid for Marrow Bridge"]
        assert paid.document_ids == ("bridge", "guild")
        hits = ask(snapshot, "Who paid for the Marrow Bridge?", EVERY, where={"document_id": "guild"})
        (paid,) = of_kind(hits, "relation")
        assert (paid.document_ids, len(reason(paid)["passages"])) == (("guild",), 1)
        assert ask(snapshot, "river", where={"document_id": "no such document"}) == []


NAMES = ("ada venn", "ilse", "tallow", "marrow bridge", "bridge guild of tallow")
WORDS = ("stone", "river", "lamp", "clock", "bridge")


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[str, list[Text]], list[list[Unit]], list[Attribute], list[Element]]:
    """Up to six documents of one passage in two shards, units of them, and what is told of these."""
    shards: dict[str, list[Text]] = {"p0": [], "p1": []}
    said: dict[str, list[list[Unit]]] = {"p0": [], "p1": []}
    for number in range(draw(st.integers(1, 6))):
        label = draw(st.sampled_from(("p0", "p1")))
        shards[label].append(Text(f"d{number}", f"T{number}", f"passage {number} {draw(st.sampled_from(WORDS))}"))
        units = []
        for place in range(draw(st.integers(0, 2))):
            names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
            says = ((names[0], "met", names[1]),) if len(names) > 1 else ()
            text = f"unit {number} {place} {draw(st.sampled_from(WORDS))}"
            units.append(unit(text, *names, says=says))
        said[label].append(units)
    shards = {label: held for label, held in shards.items() if held}
    every = [units for label in shards for units in said[label]]
    held = [(one.text, one.entities) for units in every for one in units]
    told = [
        Attribute(
            name, f"all of {name} {draw(st.sampled_from(WORDS))}", [text for text, names in held if name in names]
        )
        for name in draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
        if any(name in names for _, names in held)
    ]
    pieces = [*(text for text, _ in held), *(one.text for one in told)]
    elements = [
        Element(
            f"About {draw(st.sampled_from(NAMES))}",
            f"insight {number} {draw(st.sampled_from(WORDS))}",
            draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=3, unique=True)),
        )
        for number in range(draw(st.integers(0, 2)) if pieces else 0)
    ]
    return shards, every, told, elements


@pytest.mark.slow
@settings(max_examples=20)
@given(worlds(), st.data())
def test_whatever_the_graph_a_filter_shows_nothing_else_and_k_come_back(
    tmp_path_factory: pytest.TempPathFactory, world: Any, data: st.DataObject
) -> None:
    shards, said, told, elements = world
    writer = SnapshotWriter(tmp_path_factory.mktemp("worlds") / "s")
    for label, some in shards.items():
        writer.shard(label, some)
    write_heterograph(writer, said, told, elements, near=2)
    writer.publish()
    ids = [text.id for some in shards.values() for text in some]
    chosen = data.draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    where = data.draw(st.sampled_from((None, {"document_id": chosen})))
    k = data.draw(st.integers(1, 12))
    asked = ["Ada Venn and Tallow", "stone river", "what is the marrow bridge"]
    given: dict[str, Any] = {"method": "heterograph", "where": where}
    given["parameters"] = {
        "entries": data.draw(st.integers(0, 3)),
        "near_texts": data.draw(st.integers(0, 3)),
        "widest_entity": data.draw(st.sampled_from((0, 100))),
        "preset": data.draw(st.sampled_from(("ours", "paper"))),
    }
    with indexmill.open(writer.store.root) as snapshot:
        alone = [snapshot.retrieve(question, k=k, **given) for question in asked]
        assert snapshot.retrieve_batch(asked, k=k, **given) == alone
        left = set(ids if where is None else chosen)
        of_passage = {row["passage_id"]: row["document_id"] for row in snapshot.table("passages").to_pylist()}
        for hits, more in zip(alone, snapshot.retrieve_batch(asked, k=EVERY, **given), strict=True):
            assert hits == more[:k]
            assert len(hits) >= min(k, len(left))  # of each document its text, at least
            for hit in more:
                assert hit.document_ids
                assert set(hit.document_ids) == {of_passage[one] for one in reason(hit)["passages"]} <= left
                if hit.kind in ("attribute", "high-level"):
                    made = {one.text: one.units for one in told} | {one.text: one.made_of for one in elements}
                    units = {one.text: text for text, its in zip(ids, said, strict=True) for one in its}
                    read = [part for one in made[hit.text] for part in made.get(one, [one])]
                    assert {units[one] for one in read} <= left


# Snapshots of other kinds


def test_where_nothing_was_extracted_the_nearest_texts_are_found(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p", WORLD["p1"])
    write_heterograph(writer, [[], []])
    writer.publish()
    with indexmill.open(tmp_path / "s") as snapshot:
        assert [hit.kind for hit in ask(snapshot, "Who is Tallow?", 3)] == ["text"] * 2
        assert len(ask(snapshot, "lamps", 3, where={"document_id": "ilse"})) == 1


GRAPH, NAMED = "heterograph/graph", "heterograph/names"


@pytest.mark.parametrize(
    "change",
    [
        without("units/p1"),
        without("attributes/e"),
        without("elements/H"),
        without("entities/e0"),
        without("unit_vectors/p0"),
        without("heterograph/relations"),
        *(changed(GRAPH, name, None) for name in ("rows", "entity_keys", "passages.indptr", "relation_tokens")),
        changed(GRAPH, "offsets", lambda held: np.sort(held - [0, 1, 0, 0, 0, 0, 0, 0])),
        changed(GRAPH, "links.indices", lambda held: held + 5),
        changed(GRAPH, "passages.indices", lambda held: held + 1),
        changed(GRAPH, "rows", lambda held: held + 9),
        changed(GRAPH, "rows", lambda held: np.minimum(held, 1)),
        changed(GRAPH, "entity_keys", lambda held: held[1:]),
        changed(NAMED, "starts", None),
        changed(NAMED, "words", lambda held: held + 40),
        changed("unit_vectors/p0", "tokens", None),
    ],
)
def test_arrays_that_do_not_fit_are_damage(tmp_path: Path, change: Change) -> None:
    writer = written(tmp_path / "s")
    change(writer)
    writer.publish(2)
    with indexmill.open(tmp_path / "s") as snapshot, pytest.raises(CorruptBlob, match=r"heterograph|_vectors"):
        ask(snapshot, "stone")


# Evaluation and answers


def test_evaluation_counts_texts_and_units_alone(apart: Path) -> None:
    with indexmill.open(apart) as snapshot:
        question = "Who paid for the Marrow Bridge?"
        found = evaluate(snapshot, [Question("1", question, ("guild", "plain"))], ["heterograph"], ks=(1, 6))
        result = found.methods["heterograph"]
        seen: list[str] = []
        read = 0
        for hit in ask(snapshot, question, EVERY, preset="ours"):
            read += hit.tokens or 0
            seen += [one for one in hit.document_ids if hit.kind in ("text", "unit") and one not in seen]
            if len(seen) == 6:
                break
        assert set(seen) == {text.id for some in TEXTS.values() for text in some}  # each has a text
        assert result.recall == {1: 0.5 * (seen[0] in ("guild", "plain")), 6: 1.0}
        assert result.tokens_per_question == read


# Commands


def test_the_query_command_shows_all_five_kinds(store: Path, run: Run) -> None:
    query = ("query", "Who paid for the Marrow Bridge?", "--store", store, "--method", "heterograph")
    bounds = ("--entries", 1, "--texts", 2, "--units", 1, "--attributes", 0, "--high-level", 1, "--relations", 1)
    found = run.json(*query, "-k", 20, *bounds)
    assert found["parameters"] == {
        "entries": 1,
        "texts": 2,
        "units": 1,
        "attributes": 0,
        "high_level": 1,
        "relations": 1,
    }
    assert sorted(hit["kind"] for hit in found["hits"]).count("text") == 2
    lines = [line.rstrip() for line in run.text(*query, "-k", 20, "--explain").splitlines()]
    for ending in (
        "  Marrow Bridge (text)  [bridge]",
        "  Marrow Bridge (unit)  [bridge]",
        "  Ada Venn (attribute)  [bridge, venn]",
        "  Money of Ada Venn (high-level)  [bridge, venn]",
        "  (relation)  [bridge, guild]",
    ):
        assert any(line.endswith(ending) for line in lines), ending
    assert "      entry: True" in lines
    assert any(line.startswith("        - kind entity, Marrow Bridge, marrow bridge, added 0.") for line in lines)
    assert run.text(*query, "--token-budget", 1) == "no hits\n"
    assert run(*query, "--passages", 3) == 2
    assert "heterograph does not accept that; add --method community_tree" in run.err
    assert run("query", "x", "--store", store, "--units", "3") == 2
    assert "--units: fused does not accept that; add --method heterograph" in run.err
