"""community_tree over a snapshot: the hits of a question, what is told of them, and how a snapshot shows its tree."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import indexmill
from indexmill.errors import CorruptBlob
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.community_tree.show import statistics
from indexmill.hits import Hit
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch
from indexmill.snapshot import Snapshot
from tests.indexmill.contract import gives_alone_what_a_batch_gives
from tests.indexmill.damage import Change, changed, without
from tests.indexmill.running import Run
from tests.indexmill.small_communities import Group, Related, Thing, write_communities
from tests.indexmill.small_snapshot import SnapshotWriter, Text

DOCUMENTS = [Text(f"d{i}", f"Title {i}", f"stone {word} water") for i, word in enumerate("abcdefghi")]
THINGS = [
    Thing("Ada Venn", "a clockmaker who paid for stone a", [0, 1], type="person"),
    Thing("Marrow Bridge", "a bridge of stone b", [1]),
    Thing("Ilse", "a cold river", [2, 3, 4], type="river", stand_in=True),
    Thing("Tallow", "a town of lamps", [5]),
    Thing("Grey Hills", "", [6, 7]),
    Thing("Lone", "lamp alone", [8]),
]
LEVELS = [
    [
        Group("Builders", "Ada Venn and her bridge", [0, 1], rating=7.5),
        Group("Places", "river town hills", [2, 3, 4], rating=3.0, stand_in=True),
        Group("Lone", "lamp alone", [5]),
    ],
    [Group("The valley", "bridge and river and hills", [0, 1]), Group("Lone", "lamp alone", [2])],
]
RELATED = [
    Related(0, 1, "Ada Venn paid for the bridge", "paid for"),
    Related(1, 2, "the bridge crosses the river", "crosses"),
    Related(2, 1, "the river flows under the bridge", "flows under"),
    Related(3, 4, "Tallow lies below the hills", ""),
]
QUESTIONS = ["stone a water", "Ada Venn and her bridge", "the cold river", "lamp alone", "", "nothing of the kind"]
EVERY = 99


def written(
    path: Path, version: int = 1, levels: Any = LEVELS, things: Sequence[Thing] = THINGS, **parameters: Any
) -> SnapshotWriter:
    writer = SnapshotWriter(path)
    for label, some in (("p0", DOCUMENTS[:5]), ("p1", DOCUMENTS[5:])):
        writer.shard(label, some)
    write_communities(writer, things, levels, RELATED, **parameters)
    writer.publish(version)
    return writer


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("communities") / "store"
    written(path)
    return path


def ask(snapshot: Snapshot, question: str, k: int = 5, **given: Any) -> list[Hit]:
    where = given.pop("where", None)
    return snapshot.retrieve(question, method="community_tree", k=k, parameters=given, where=where)


def of_kind(hits: Sequence[Hit], kind: str) -> list[Hit]:
    return [hit for hit in hits if hit.kind == kind]


def titles(hits: Sequence[Hit]) -> list[str]:
    return [hit.title for hit in hits]


# Hits


def test_entities_communities_and_passages_are_one_list_best_first(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in (one for one in QUESTIONS if one):
            hits = ask(snapshot, question, EVERY)
            assert [len(of_kind(hits, kind)) for kind in ("entity", "community", "passage")] == [5, 3, 9]
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
            assert len({hit.id for hit in hits}) == len(hits)
            assert ask(snapshot, question, 6) == hits[:6]


def test_a_node_is_as_near_as_its_vector_on_the_grid(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        (asked,) = snapshot.encode(["the cold river"])
        for hit in ask(snapshot, "the cold river", EVERY, passages=0):
            text = f"{hit.title}\n{hit.text}" if hit.kind == "community" else f"{hit.title}: {hit.text}"
            if hit.title != "Grey Hills":  # of which nothing is said
                assert hit.score == pytest.approx(float(snapshot.encode([text])[0] @ asked), abs=2e-3)


def test_a_community_of_one_member_is_never_given(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "Lone lamp alone", EVERY)
        assert [(hit.kind, hit.title) for hit in hits if hit.title == "Lone"] == [("entity", "Lone")]
        assert of_kind(hits, "entity")[0].title == "Lone"
        assert set(titles(of_kind(hits, "community"))) == {"Builders", "Places", "The valley"}


def test_an_entity_tells_its_relations_with_those_before_it(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        ids = {row["surface"]: row["entity_id"] for row in snapshot.table("described").to_pylist()}
        hits = of_kind(ask(snapshot, "Marrow Bridge: a bridge of stone b", EVERY, k_level=6), "entity")
        first, told = hits[0], {hit.title: hit.explanation or {} for hit in hits}
        assert (first.kind, first.title, first.text, first.id) == (
            "entity",
            "Marrow Bridge",
            "a bridge of stone b",
            ids["Marrow Bridge"],
        )
        assert (first.document_ids, first.tokens, first.version) == (("d1",), 7, 1)
        assert first.explanation == {"type": "thing", "relations": []}
        river = told["Ilse"]
        assert (river["type"], river["stand_in"]) == ("river", True)
        between = [one for one in river["relations"] if "Marrow Bridge" in (one["source"], one["target"])]
        assert sorted((one["source"], one["kind"], one["target"]) for one in between) == [
            ("Ilse", "flows under", "Marrow Bridge"),
            ("Marrow Bridge", "crosses", "Ilse"),
        ]
        assert {one["entity_id"] for one in between} == {ids["Marrow Bridge"]}
        every = [one["description"] for its in told.values() for one in its["relations"]]
        assert sorted(every) == sorted(one.description for one in RELATED)  # each once, whichever end comes first
        assert [hit.text for hit in hits if hit.title == "Grey Hills"] == ["Grey Hills"]
        few = of_kind(ask(snapshot, "Marrow Bridge: a bridge of stone b", EVERY, k_level=1), "entity")
        assert [hit.explanation for hit in few] == [{"type": "thing", "relations": []}]


def test_a_community_tells_its_level_its_rating_and_its_members(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        ids = {row["title"]: row["community_id"] for row in snapshot.table("communities").to_pylist()}
        things = {row["surface"]: row["entity_id"] for row in snapshot.table("described").to_pylist()}
        told = {hit.title: hit for hit in of_kind(ask(snapshot, "river", EVERY), "community")}
        low, top = told["Places"], told["The valley"]
        assert (low.id, low.text, low.document_ids) == (
            ids["Places"],
            "river town hills",
            tuple(f"d{i}" for i in range(2, 8)),
        )
        assert low.explanation == {
            "level": 1,
            "rating": 3.0,
            "size": 3,
            "members": sorted(things[name] for name in ("Ilse", "Tallow", "Grey Hills")),
            "stand_in": True,
        }
        assert top.explanation == {
            "level": 2,
            "rating": 5.0,
            "size": 5,
            "members": sorted([ids["Builders"], ids["Places"]]),
        }
        assert top.document_ids == tuple(f"d{i}" for i in range(8))


def test_a_passage_tells_through_which_nodes_it_was_found(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        setting = {"similarity_weight": 0.5, "community_weight": 0.4, "spread": 1.0}
        hits = ask(snapshot, "Ada Venn and her bridge", EVERY, k_level=9, **setting)
        entity = {hit.title: hit.score for hit in of_kind(hits, "entity")}
        level = {hit.title: hit.score for hit in of_kind(hits, "community")}
        least = min(entity.values())
        hit = next(hit for hit in hits if hit.document_ids == ("d1",) and hit.kind == "passage")
        assert hit.explanation is not None
        entities = {one["surface"]: one["added"] for one in hit.explanation["entities"]}
        assert entities == {
            "Ada Venn": pytest.approx((entity["Ada Venn"] - least) / 2),
            "Marrow Bridge": pytest.approx(entity["Marrow Bridge"] - least),
        }
        communities = {one["title"]: (one["level"], one["added"]) for one in hit.explanation["communities"]}
        assert communities == {  # both entities of the first are there, two of nine extractions of the second
            "Builders": (1, pytest.approx(0.4 * (level["Builders"] - least) * 2 / 3)),
            "The valley": (2, pytest.approx(0.4 * (level["The valley"] - least) * 2 / 9)),
        }
        added = [one["added"] for kind in hit.explanation.values() for one in kind]
        (dense,) = [
            one for one in snapshot.retrieve("Ada Venn and her bridge", method="dense", k=99) if one.id == hit.id
        ]
        assert hit.score == pytest.approx(least + 0.5 * (dense.score - least) + sum(added))
        assert [one["added"] for one in hit.explanation["entities"]] == sorted(entities.values(), reverse=True)
        bare = snapshot.retrieve("Ada Venn", method="community_tree", k=EVERY, explain=False)
        assert [one.explanation for one in bare] == [None] * len(bare)


# Names


def test_an_entity_that_the_question_names_is_found_with_those_beside_it(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for k_level in (1, 3):
            hits = ask(snapshot, "Who paid for Marrow Bridge?", EVERY, k_level=k_level, reach=3)
            first, *rest = of_kind(hits, "entity")
            assert (first.title, first.score) == ("Marrow Bridge", pytest.approx(1.0))  # it is in one passage
            by_vectors = titles(of_kind(ask(snapshot, "Who paid?", EVERY, k_level=k_level, name_weight=0), "entity"))
            assert k_level == 1 or "Ada Venn" in titles(rest) or "Ada Venn" in by_vectors
        named = {hit.document_ids: hit.score for hit in of_kind(hits, "passage")}
        without = ask(snapshot, "Who paid for Marrow Bridge?", EVERY, reach=3, name_weight=0)
        bare = {hit.document_ids: hit.score for hit in of_kind(without, "passage")}
        assert named["d1",] > bare["d1",]
        assert max(named, key=lambda one: named[one]) == ("d1",)


def test_names_are_found_for_a_question_that_is_known_to_mention_them(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        given: dict[str, Any] = {"method": "community_tree", "k": EVERY, "parameters": {"k_level": 1}}
        (told,) = snapshot.retrieve_batch(["stone a water"], names=[["Tallow"]], **given)
        (bare,) = snapshot.retrieve_batch(["stone a water"], **given)
        assert titles(of_kind(told, "entity")) == ["Tallow"]
        assert titles(of_kind(bare, "entity")) != ["Tallow"]


def test_a_named_entity_that_a_filter_leaves_out_is_not_shown(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "Marrow Bridge", EVERY, where={"document_id": {"!=": "d1"}})
        assert not {"Marrow Bridge", "Ada Venn"} & set(titles(of_kind(hits, "entity")))


@pytest.mark.slow
def test_what_is_said_in_a_document_that_a_filter_leaves_out_moves_no_score(store: Path, tmp_path: Path) -> None:
    venn, bridge, *others = THINGS
    things = [replace(venn, description="a smith of lamps"), replace(bridge, description="cold water"), *others]
    levels = [[replace(LEVELS[0][0], text="lamps and cold water"), *LEVELS[0][1:]], *LEVELS[1:]]
    written(tmp_path / "store", things=things, levels=levels)
    where = {"document_id": {"!=": "d1"}}
    with indexmill.open(store) as one, indexmill.open(tmp_path / "store") as other:
        for question in (*QUESTIONS, "Who paid for Marrow Bridge?", "a bridge of stone b"):
            for method in ("community_tree", "fused"):
                given: dict[str, Any] = {"method": method, "k": EVERY, "where": where}
                assert one.retrieve(question, **given) == other.retrieve(question, **given)
        assert ask(one, "the bridge of stone", EVERY) != ask(other, "the bridge of stone", EVERY)


def test_the_paper_is_asked_for_by_one_setting(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        paper = ask(snapshot, "Ada Venn and her bridge", EVERY, preset="paper")
        same = ask(snapshot, "Ada Venn and her bridge", EVERY, name_weight=0, passages=0, ef=1, reach=5)
        assert paper == same
        assert len(of_kind(paper, "passage")) == 0


# Settings


def test_the_parameters_choose_what_is_found(store: Path) -> None:
    with indexmill.open(store) as snapshot:

        def counts(**given: Any) -> list[int]:
            hits = ask(snapshot, "Ada Venn and her bridge", EVERY, **given)
            return [len(of_kind(hits, kind)) for kind in ("entity", "community", "passage")]

        assert counts() == [5, 3, 9]
        assert counts(k_level=1) == [1, 2, 9]
        assert counts(k_level=1, passages=2) == [1, 2, 2]
        assert counts(passages=0) == [5, 3, 0]
        assert counts(levels=0) == [5, 0, 9]
        assert counts(levels=1) == [5, 2, 9]
        assert counts(levels=7, k_level=6) == [6, 3, 9]
        paper = ask(snapshot, "Ada Venn and her bridge", 4, passages=0)
        assert paper == ask(snapshot, "Ada Venn and her bridge", EVERY, passages=0)[:4]


def test_a_level_weight_lowers_the_levels_above(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        plain = {hit.id: hit for hit in ask(snapshot, "the river and hills", EVERY)}
        lowered = {hit.id: hit for hit in ask(snapshot, "the river and hills", EVERY, level_weight=0.5)}
        assert set(plain) == set(lowered)
        for key, hit in lowered.items():
            factor = 0.5 ** (hit.explanation or {}).get("level", 0)
            assert hit.score == pytest.approx(plain[key].score * factor)


def test_a_budget_leaves_out_what_does_not_fit(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        whole = ask(snapshot, "Ada Venn and her bridge", 8)
        for budget in (1, 3, 12, 25, 1000):
            hits = ask(snapshot, "Ada Venn and her bridge", 8, token_budget=budget)
            left, expected = budget, []
            for hit in whole:
                if (hit.tokens or 0) <= left:
                    expected.append(hit.id)
                    left -= hit.tokens or 0
            assert [hit.id for hit in hits] == expected


def test_passages_that_no_node_speaks_for_rank_as_dense_ranks_them(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in (one for one in QUESTIONS if one):
            dense = snapshot.retrieve(question, method="dense", k=EVERY)
            given = {"reach": 1, "community_weight": 0, "name_weight": 0}  # one node is the least near
            plain = of_kind(ask(snapshot, question, EVERY, **given), "passage")
            assert [hit.id for hit in plain] == [hit.id for hit in dense]
            alone = of_kind(
                ask(snapshot, question, EVERY, reach=1, community_weight=0, similarity_weight=1.0, name_weight=0),
                "passage",
            )
            assert [hit.score for hit in alone] == pytest.approx([hit.score for hit in dense])


# What every method promises


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{}, {"k_level": 2, "levels": 1}, {"token_budget": 12}, {"passages": 0}])
@pytest.mark.parametrize("where", [None, {"document_id": ["d0", "d1", "d5", "d6", "d7"]}])
def test_a_batch_gives_each_question_what_it_gets_alone(
    store: Path, parameters: dict[str, Any], where: dict[str, Any] | None
) -> None:
    given: dict[str, Any] = {"method": "community_tree", "k": 7, "where": where, "parameters": parameters}
    with indexmill.open(store) as snapshot:
        gives_alone_what_a_batch_gives(snapshot, QUESTIONS, 30, **given)  # more than go together


def test_no_node_tells_of_a_document_that_a_filter_leaves_out(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "Ada Venn and her bridge", EVERY, k_level=9, where={"document_id": {"!=": "d3"}})
        assert set(titles(of_kind(hits, "entity"))) == {"Ada Venn", "Marrow Bridge", "Tallow", "Grey Hills", "Lone"}
        assert titles(of_kind(hits, "community")) == ["Builders"]
        assert len(of_kind(hits, "passage")) == 8
        unfiltered = {hit.id: hit.score for hit in ask(snapshot, "Ada Venn and her bridge", EVERY, k_level=9)}
        known = {hit.id for hit in hits}
        for hit in hits:
            assert "d3" not in hit.document_ids
            assert hit.kind == "passage" or hit.score == unfiltered[hit.id]
            explanation = hit.explanation or {}
            named = [one["entity_id"] for one in explanation.get("entities", [])]
            named += [one["community_id"] for one in explanation.get("communities", [])]
            named += [one["entity_id"] for one in explanation.get("relations", [])]
            assert set(named) <= known
        (only,) = ask(snapshot, "river", EVERY, where={"document_id": "d3"})
        assert (only.kind, only.explanation) == ("passage", {"entities": [], "communities": []})


def test_fused_ranks_and_explains_its_passages(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        assert snapshot.methods == ("fused", "community_tree", "dense")
        found = ask(snapshot, "Ada Venn and her bridge", EVERY)
        retriever = snapshot.retriever("community_tree")
        assert isinstance(retriever, PassageRetriever)
        (ranked,) = retriever.rank(QueryBatch(QUESTIONS[1:2], snapshot.encode(QUESTIONS[1:2])), EVERY)
        assert passages_of(snapshot).ids(ranked.rows) == [hit.id for hit in of_kind(found, "passage")]
        hit = snapshot.retrieve("Ada Venn and her bridge", k=1, parameters={"community_tree": 0.5})[0]
        told = hit.explanation or {}
        assert [one["name"] for one in told["methods"]] == ["dense", "community_tree"]
        assert told["community_tree"] == {one.id: one.explanation for one in found}[hit.id]


# Snapshots of other kinds


def test_a_snapshot_without_communities_still_has_its_entities(tmp_path: Path) -> None:
    written(tmp_path / "s", levels=[])
    with indexmill.open(tmp_path / "s") as snapshot:
        hits = ask(snapshot, "Ada Venn", EVERY)
        assert [len(of_kind(hits, kind)) for kind in ("entity", "community", "passage")] == [5, 0, 9]
        assert len(communities_of(snapshot)) == 0


def test_where_nothing_was_extracted_passages_are_found(tmp_path: Path, run: Run) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p", DOCUMENTS)
    write_communities(writer, [], [])
    writer.publish()
    with indexmill.open(tmp_path / "s") as snapshot:
        hits = ask(snapshot, "stone a water", 3)
        assert [hit.kind for hit in hits] == ["passage"] * 3
        assert hits[0].explanation == {"entities": [], "communities": []}
        assert ask(snapshot, "stone", 3, passages=0) == []
        assert ask(snapshot, "stone", 3, where={"document_id": "d2"})[0].document_ids == ("d2",)
    assert "no communities: nothing was extracted" in run.text("show", "--communities", "--store", tmp_path / "s")


TREE, INDEX = "community_tree/tree", "community_tree/index"


@pytest.mark.parametrize(
    "change",
    [
        without("described/e0"),
        without("communities/s"),
        without("related/e1"),
        changed(TREE, "quality", None),
        changed(TREE, "level_offsets", lambda held: held[:-1]),
        changed(TREE, "passages.indices", lambda held: held + 5),
        changed(TREE, "relations.rows", lambda held: held + 20),
        changed(INDEX, "rows", None),
        changed(INDEX, "level_offsets", lambda held: np.array([0, held[-1]])),
    ],
)
def test_arrays_that_do_not_fit_are_damage(tmp_path: Path, change: Change) -> None:
    writer = written(tmp_path / "s")
    change(writer)
    writer.publish(2)
    with indexmill.open(tmp_path / "s") as snapshot, pytest.raises(CorruptBlob, match=r"communit|quality"):
        ask(snapshot, "stone")


def test_levels_whose_quality_is_not_told_are_damage(tmp_path: Path) -> None:
    writer = written(tmp_path / "s")
    changed(TREE, "quality", None)(writer)
    writer.publish(2)
    with indexmill.open(tmp_path / "s") as snapshot, pytest.raises(CorruptBlob, match="'quality'"):
        statistics(snapshot)


# Evaluation


def test_evaluation_counts_passages_alone_and_says_how_good_the_communities_are(
    store: Path, run: Run, tmp_path: Path
) -> None:
    with indexmill.open(store) as snapshot:
        found = evaluate(snapshot, [Question("1", "The valley bridge", ("d0", "d8"))], ["community_tree"], ks=(1, 9))
        result = found.methods["community_tree"]
        assert (result.recall[1], result.recall[9]) in ((0.0, 1.0), (0.5, 1.0))
        hits = ask(snapshot, "The valley bridge", EVERY)
        last = max(place for place, hit in enumerate(hits) if hit.kind == "passage")
        assert result.tokens_per_question == sum(hit.tokens or 0 for hit in hits[: last + 1])
        assert found.to_dict()["communities"] == {
            "1": {"communities": 3, "chi": 11.0, "sim": 0.51},
            "2": {"communities": 2, "chi": 12.0, "sim": 0.52},
        }
    questions = tmp_path / "q.jsonl"
    questions.write_text(json.dumps({"id": "1", "question": "river", "gold_ids": ["d2"]}) + "\n")
    told = run.text("evaluate", questions, "--store", store)
    assert [line.split() for line in told.splitlines()[-3:]] == [
        ["level", "communities", "CHI", "Sim"],
        ["1", "3", "11.000", "0.5100"],
        ["2", "2", "12.000", "0.5200"],
    ]


# Commands


def test_the_query_command_shows_entities_and_communities(store: Path, run: Run) -> None:
    query = ("query", "Ada Venn and her bridge", "--store", store, "--method", "community_tree")
    found = run.json(*query, "-k", 20, "--k-level", 2, "--levels", 1, "--passages", 1)
    assert found["parameters"] == {"k_level": 2, "levels": 1, "passages": 1}
    assert sorted(hit["kind"] for hit in found["hits"]) == ["community"] * 2 + ["entity"] * 2 + ["passage"]
    told = run.text(*query, "-k", 20, "--explain")
    lines = [line.rstrip() for line in told.splitlines()]
    assert any(line.endswith("Ada Venn (entity)  [d0, d1]") for line in lines)
    assert any(line.endswith("Builders (community)  [d0, d1]") for line in lines)
    assert any(line.endswith("  Title 0  [d0]") for line in lines)
    assert "      level: 1" in lines
    assert "      rating: 7.5" in lines
    assert any("source Ada Venn, target Marrow Bridge, kind paid for, Ada Venn paid for the" in line for line in lines)
    assert any(line.strip().startswith("- Builders, level 1, added 0.") for line in lines)
    assert run.text(*query, "--token-budget", 1) == "no hits\n"
    for wrong in (("--k-level", 0), ("--levels", -1), ("--passages", -1)):
        assert run(*query, *wrong) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--k-level", "3"), "--k-level: fused does not accept that; add --method community_tree"),
        (
            ("--token-budget", "3"),
            "--token-budget: fused does not accept that; add --method lsh_tree or community_tree",
        ),
        (
            ("--ratio", "0.5", "--levels", "1"),
            "--ratio, --levels: fused does not accept that, and no method accepts all",
        ),
        (
            ("--method", "community_tree", "--ratio", "0.5"),
            "community_tree does not accept that; add --method lsh_tree",
        ),
    ],
)
def test_an_option_of_another_method_is_refused(store: Path, run: Run, options: tuple[str, ...], message: str) -> None:
    assert run("query", "x", "--store", store, *options) == 2
    assert message in run.err


def test_show_tells_how_many_and_how_good_the_communities_are(store: Path, run: Run) -> None:
    told = run.json("show", "--store", store)
    assert told["families"]["community_tree"]["counts"]["level_1"] == 3
    assert told["communities"]["2"] == {"communities": 2, "chi": 12.0, "sim": 0.52}
    lines = run.text("show", "--store", store).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("community_tree"))
    assert lines[at].endswith("depends on the previous snapshot")
    counts = [line.split() for line in lines[at + 1 : at + 6]]
    assert counts == [["communities", "5"], ["entities", "6"], ["levels", "2"], ["relations", "4"], ["roots", "2"]]
    levels = next(i for i, line in enumerate(lines) if line.split() == ["level", "communities", "CHI", "Sim"])
    assert [line.split() for line in lines[levels + 1 : levels + 3]] == [
        ["1", "3", "11.000", "0.5100"],
        ["2", "2", "12.000", "0.5200"],
    ]


def test_the_communities_are_drawn_from_the_roots_down(store: Path, run: Run) -> None:
    drawn = run.text("show", "--communities", "--store", store).splitlines()
    assert drawn[:4] == [
        "version 1  6 entities in 5 communities, 2 roots",
        "  level 2  2 communities, CHI 12.000, Sim 0.520",
        "  level 1  3 communities, CHI 11.000, Sim 0.510",
        "",
    ]
    assert drawn[4:] == [
        "5 entities in 2, rating 5: The valley",
        "├─ 3 entities, rating 3: Places",
        "└─ 2 entities, rating 7.5: Builders",
        "1 entity in 1, rating 5: Lone",
        "└─ 1 entity, rating 5: Lone",
    ]
    narrow = run.text("show", "--communities", "--store", store, "--depth", 3, "--width", 1).splitlines()
    assert narrow[4:6] == ["5 entities in 2, rating 5: The valley", "├─ 3 entities, rating 3: Places"]
    assert narrow[6].startswith("│  ├─ ")
    assert narrow[7:] == ["│  └─ 2 more, 2 entities", "└─ 1 more, 2 entities", "1 more"]


def test_the_communities_as_json_count_what_they_leave_out(store: Path, run: Run) -> None:
    told = run.json("show", "--communities", "--store", store, "--depth", 3)
    assert (told["entities"], told["roots"], set(told["levels"])) == (6, 2, {"1", "2"})
    root = told["tree"][0]
    assert {key: root[key] for key in ("kind", "level", "entities", "title", "text", "rating", "below")} == {
        "kind": "community",
        "level": 2,
        "entities": 5,
        "title": "The valley",
        "text": "bridge and river and hills",
        "rating": 5.0,
        "below": 2,
    }
    leaf = root["children"][1]["children"][0]
    assert set(leaf) == {"id", "kind", "level", "entities", "title", "text"}
    assert leaf["kind"] == "entity"
