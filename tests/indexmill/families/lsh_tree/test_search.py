"""lsh_tree: which passages and summaries a question is given, and what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.diff import compare
from indexmill.errors import CorruptBlob
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.lsh_tree.parameters import LshTreeParameters
from indexmill.families.lsh_tree.search import ScoredNodes, candidates
from indexmill.families.lsh_tree.summaries import summaries_of
from indexmill.hits import Hit
from indexmill.retrieve.budget import fitting
from indexmill.retrieve.retrieval_method import override_parameters
from indexmill.snapshot import Snapshot
from tests.deep import examples
from tests.indexmill.contract import gives_alone_what_a_batch_gives
from tests.indexmill.damage import without
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import SnapshotWriter, Text

DOCUMENTS = [Text(f"d{i}", f"Title {i}", f"stone {word} water") for i, word in enumerate("abcdefghi")]
SUMMARIES = [
    [("stone a b c", [0, 1, 2]), ("stone d e", [3, 4]), ("stone f g", [5, 6]), ("stone h i lamp", [7, 8])],
    [("all of a to e", [0, 1]), ("all of f to i", [2, 3])],
]
QUESTIONS = ["stone a water", "stone d e", "all of f", "lamp", "", "nothing of the kind"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tree") / "store"
    written(path)
    return path


def written(path: Path, layers: Any = SUMMARIES, version: int = 1, **parameters: Any) -> SnapshotWriter:
    writer = SnapshotWriter(path)
    for label, some in (("p0", DOCUMENTS[:5]), ("p1", DOCUMENTS[5:])):
        writer.shard(label, some)
    writer.lsh_tree(layers, stand_ins=["stone d e"], **parameters)
    writer.publish(version)
    return writer


def ask(snapshot: Snapshot, question: str, k: int = 5, **given: Any) -> list[Hit]:
    where = given.pop("where", None)
    return snapshot.retrieve(question, method="lsh_tree", k=k, parameters=given, where=where)


def kinds(hits: Sequence[Hit]) -> tuple[int, int]:
    return sum(hit.kind == "passage" for hit in hits), sum(hit.kind == "summary" for hit in hits)


# The choice


def nodes(*pairs: tuple[int, float]) -> ScoredNodes:
    return ScoredNodes(
        np.array([row for row, _ in pairs], np.int64), np.array([score for _, score in pairs], np.float32)
    )


PASSAGES = nodes((4, 0.9), (0, 0.5), (1, 0.5), (2, 0.1))
ABOVE = nodes((10, 0.8), (11, 0.5), (12, 0.2))


@pytest.mark.parametrize(
    ("pattern", "ratio", "k", "expected"),
    [
        ("collapsed", 0.8, 5, [4, 10, 0, 1, 11]),
        ("collapsed", 0.0, 99, [4, 10, 0, 1, 11, 12, 2]),
        ("detailed", 0.5, 3, [4, 0, 10]),  # ceil(1.5) passages
        ("summarised", 0.5, 3, [10, 11, 4]),
        ("detailed", 1.0, 3, [4, 0, 1]),
        ("detailed", 0.0, 3, [10, 11, 12]),
        ("summarised", 0.0, 2, [4, 0]),
        ("detailed", 0.0, 4, [4, 10, 11, 12]),  # three summaries in all: a passage fills up
        ("summarised", 1.0, 5, [10, 11, 12, 4, 0]),
        ("detailed", 1.0, 5, [4, 0, 1, 2, 10]),
        ("detailed", 0.5, 99, [4, 0, 1, 2, 10, 11, 12]),
    ],
)
def test_patterns_give_the_favoured_kind_its_part(pattern: Any, ratio: float, k: int, expected: list[int]) -> None:
    found = candidates(PASSAGES, ABOVE, k, LshTreeParameters(pattern, ratio))
    assert found.rows.tolist() == expected


def test_a_part_of_k_is_not_rounded_up_for_the_rounding_of_its_product() -> None:
    many = nodes(*((row, 1 - row / 100) for row in range(20)))
    found = candidates(many, ScoredNodes(many.rows + 50, many.scores), 10, LshTreeParameters("detailed", 0.7))
    assert int((found.rows < 50).sum()) == 7  # 0.7 * 10 > 7 in floating point


def test_what_does_not_fit_is_passed_over_and_the_next_is_tried() -> None:
    assert fitting([50, 30, 40, 20], 80) == [0, 1]
    assert fitting([90, 30, 40, 20, 10], 80) == [1, 2, 4]
    assert fitting([90, 100], 80) == []
    assert fitting([10**12, 3], None) == [0, 1]


some = st.lists(st.integers(-4, 4), max_size=12)


@examples(40, deep=200)
@given(
    leaves=some,
    above=some,
    k=st.integers(1, 15),
    ratio=st.floats(0, 1),
    pattern=st.sampled_from(["collapsed", "detailed", "summarised"]),
    tokens=st.lists(st.integers(1, 50), min_size=24, max_size=24),
    budget=st.integers(1, 300),
)
def test_a_choice_has_k_nodes_where_there_are_and_a_budget_only_leaves_out(
    leaves: list[int], above: list[int], k: int, ratio: float, pattern: Any, tokens: list[int], budget: int
) -> None:
    def ranked(values: list[int], first: int) -> ScoredNodes:
        return nodes(*((first + i, value / 4) for i, value in enumerate(sorted(values, reverse=True)[:k])))

    found = candidates(ranked(leaves, 0), ranked(above, 100), k, LshTreeParameters(pattern, ratio))
    assert len(found.rows) == len(set(found.rows.tolist())) == min(k, min(k, len(leaves)) + min(k, len(above)))
    passages = int((found.rows < 100).sum())
    if pattern == "detailed":
        assert passages >= min(len(leaves), ratio * k - 1e-6)
    elif pattern == "summarised":
        assert len(found.rows) - passages >= min(len(above), ratio * k - 1e-6)
    kept = fitting(tokens[: len(found.rows)], budget)
    assert sum(tokens[place] for place in kept) <= budget
    assert kept == sorted(kept)
    left = budget - sum(tokens[place] for place in kept)
    assert all(tokens[place] > left for place in set(range(len(found.rows))) - set(kept))


# Retrieval


def test_passages_and_summaries_are_one_flat_set(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        summaries = snapshot.table("summaries").to_pylist()
        passages = snapshot.table("passages").to_pylist()
        ids = [row["passage_id"] for row in passages] + [row["node_id"] for row in summaries]
        vectors = np.concatenate(
            [*snapshot.vectors("vectors", "passages"), *snapshot.vectors("summary_vectors", "vectors")]
        )
        for question in (one for one in QUESTIONS if one):
            (asked,) = snapshot.encode([question])
            scores = np.array([np.vecdot(row, asked) for row in vectors])
            order = np.argsort(-scores, kind="stable")
            for k in (1, 4, 99):
                hits = ask(snapshot, question, k, preset="paper")
                assert [hit.id for hit in hits] == [ids[row] for row in order[:k]]
                assert [hit.score for hit in hits] == scores[order[:k]].tolist()


def test_a_summary_names_its_layer_its_passages_and_their_documents(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hit = ask(snapshot, "stone d e", 1)[0]
        rows = {row["document_id"]: row["passage_id"] for row in snapshot.table("passages").to_pylist()}
        assert (hit.kind, hit.text, hit.title, hit.tokens, hit.version) == ("summary", "stone d e", "", 3, 1)
        assert hit.document_ids == ("d3", "d4")
        assert hit.explanation == {"layer": 1, "passages": [rows["d3"], rows["d4"]], "stand_in": True}
        top = ask(snapshot, "all of f to i", 1)[0]
        assert top.document_ids == ("d5", "d6", "d7", "d8")
        assert top.explanation == {"layer": 2, "passages": [rows[one] for one in top.document_ids]}
        leaf = ask(snapshot, "stone h water", 1)[0]
        assert leaf.kind == "passage"
        by_text = {row["text"]: row["node_id"] for row in snapshot.table("summaries").to_pylist()}
        assert leaf.explanation == {"layer": 0, "above": [by_text["stone h i lamp"], by_text["all of f to i"]]}
        bare = snapshot.retrieve("stone d e", method="lsh_tree", k=3, explain=False)
        assert [hit.explanation for hit in bare] == [None] * 3


@pytest.mark.slow
def test_patterns_and_budgets_hold_for_every_question(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in (one for one in QUESTIONS if one):
            assert kinds(ask(snapshot, question, 5, pattern="detailed", ratio=0.8)) == (4, 1)
            assert kinds(ask(snapshot, question, 5, pattern="summarised", ratio=0.8)) == (1, 4)
            assert kinds(ask(snapshot, question, 3, pattern="summarised", ratio=1)) == (0, 3)
            whole = ask(snapshot, question, 6)
            for budget in range(1, 30):
                hits = ask(snapshot, question, 6, token_budget=budget)
                assert sum(hit.tokens or 0 for hit in hits) <= budget
                assert [hit for hit in whole if hit in hits] == hits
            assert ask(snapshot, question, 6, token_budget=1000) == whole


def test_a_budget_is_spent_on_the_favoured_kind_first(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "stone d e", 4, pattern="detailed", ratio=0.5, token_budget=6)
        assert kinds(hits) == (2, 0)  # though the nearest of all is a summary
        assert kinds(ask(snapshot, "stone d e", 4, pattern="summarised", ratio=0.5, token_budget=6))[1] >= 1


@pytest.mark.parametrize(
    "parameters",
    [{}, {"pattern": "detailed", "ratio": 0.6}, {"pattern": "summarised", "token_budget": 9}, {"token_budget": 4}],
)
@pytest.mark.parametrize("where", [None, {"document_id": ["d0", "d1", "d2", "d5", "d6"]}])
def test_a_batch_gives_each_question_what_it_gets_alone(
    store: Path, parameters: dict[str, Any], where: dict[str, Any] | None
) -> None:
    given: dict[str, Any] = {"method": "lsh_tree", "k": 4, "where": where, "parameters": parameters}
    with indexmill.open(store) as snapshot:
        gives_alone_what_a_batch_gives(snapshot, QUESTIONS, **given)


def test_no_summary_tells_of_a_document_that_a_filter_leaves_out(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        hits = ask(snapshot, "stone d e", 99, where={"document_id": {"!=": "d4"}})
        texts = {hit.text for hit in hits if hit.kind == "summary"}
        assert texts == {"stone a b c", "stone f g", "stone h i lamp", "all of f to i"}
        assert kinds(hits) == (8, 4)
        known = {hit.id for hit in hits}
        for hit in hits:
            assert hit.explanation is not None
            assert "d4" not in hit.document_ids
            assert set(hit.explanation.get("above", [])) | set(hit.explanation.get("passages", [])) <= known
        unfiltered = {hit.id: hit.score for hit in ask(snapshot, "stone d e", 99, preset="paper")}
        filtered = ask(snapshot, "stone d e", 99, where={"document_id": {"!=": "d4"}}, preset="paper")
        assert all(hit.score == unfiltered[hit.id] for hit in filtered)
        assert kinds(ask(snapshot, "stone", 99, where={"document_id": "d4"})) == (1, 0)
        assert kinds(ask(snapshot, "stone", 3, where={"document_id": "d4"}, pattern="summarised", ratio=1)) == (1, 0)


def test_the_paper_ranks_passages_as_dense_does(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        for question in QUESTIONS:
            found = [hit for hit in ask(snapshot, question, 99, preset="paper") if hit.kind == "passage"]
            dense = snapshot.retrieve(question, method="dense", k=99)
            assert [(hit.id, hit.score) for hit in found] == [(hit.id, hit.score) for hit in dense]


def test_settling_keeps_what_is_not_named() -> None:
    setting = LshTreeParameters("detailed", 0.3, 100)
    assert override_parameters(setting, {"ratio": 1}) == LshTreeParameters("detailed", 1.0, 100)
    assert asdict(override_parameters(setting, {})) == asdict(setting)
    assert override_parameters(setting, {"ratio": np.float32(0.5), "token_budget": np.int64(7)}).token_budget == 7


# Snapshots of other kinds


def test_few_passages_have_no_summaries(tmp_path: Path) -> None:
    written(tmp_path / "s", layers=[])
    with indexmill.open(tmp_path / "s") as snapshot:
        assert len(summaries_of(snapshot)) == 0
        for pattern in ("collapsed", "detailed", "summarised"):
            assert kinds(ask(snapshot, "stone", 5, pattern=pattern)) == (5, 0)
        assert ask(snapshot, "stone", 1, preset="paper")[0].explanation == {"layer": 0, "above": []}
        assert ask(snapshot, "stone", 99, where={"document_id": "d3"})[0].document_ids == ("d3",)


def test_arrays_that_do_not_fit_are_damage(tmp_path: Path) -> None:
    def damaged(change: Any) -> None:
        writer = SnapshotWriter(tmp_path / f"s{len(list(tmp_path.iterdir()))}")
        writer.shard("p", DOCUMENTS)
        writer.lsh_tree(SUMMARIES)
        change(writer)
        writer.publish()
        with indexmill.open(writer.store.root) as snapshot, pytest.raises(CorruptBlob, match=r"lsh_tree|summar"):
            ask(snapshot, "stone")

    def of_another(writer: SnapshotWriter) -> None:
        without("lsh_tree")(writer)
        leaves = {"layer_offsets": np.array([0, 8, 12, 14]), "above": np.zeros(12, np.uint8)}
        writer.pack("lsh_tree/tree", leaves | {"stand_ins": np.zeros(6, np.uint8)})

    damaged(without("summaries/a"))
    damaged(without("summary_vectors/b"))
    damaged(of_another)


# Evaluation


def test_a_summary_is_no_evidence_but_costs_its_tokens(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = evaluate(snapshot, [Question("1", "stone d e", ("d3", "d8"))], ["lsh_tree", "dense"], ks=(1, 9))
    tree, dense = found.methods["lsh_tree"], found.methods["dense"]
    assert tree.recall == dense.recall
    assert tree.recall[9] == 1.0
    assert tree.tokens_per_question is not None
    assert dense.tokens_per_question is not None
    assert tree.tokens_per_question >= dense.tokens_per_question + 3


# Commands


def test_the_query_command_takes_pattern_ratio_and_budget(store: Path, run: Run) -> None:
    query = ("query", "stone d e", "--store", store, "--method", "lsh_tree")
    found = run.json(*query, "-k", 4, "--pattern", "summarised", "--ratio", 0.75, "--token-budget", 100)
    assert found["parameters"] == {"pattern": "summarised", "ratio": 0.75, "token_budget": 100}
    assert [hit["kind"] for hit in found["hits"]].count("summary") == 3
    told = run.text(*query, "-k", 2, "--explain")
    assert told.startswith(
        " 1. 1.0000  (summary)  [d3, d4]\n    stone d e\n      layer: 1\n      passages:\n        - "
    )
    assert run.text(*query, "--token-budget", 1) == "no hits\n"
    for wrong in (("--pattern", "deep"), ("--ratio", 2), ("--token-budget", 0)):
        assert run(*query, *wrong) == 2
    assert run("query", "x", "--store", store, "--ratio", "0.5", "--token-budget", "9") == 2
    assert "--ratio, --token-budget: fused does not accept that; add --method lsh_tree" in run.err


def test_the_tree_is_drawn_from_the_roots_down(store: Path, run: Run) -> None:
    drawn = run.text("show", "--tree", "--store", store).splitlines()
    assert drawn[:4] == [
        "version 1  9 passages under 6 summaries, 2 roots",
        "  layer 2  2 summaries",
        "  layer 1  4 summaries",
        "",
    ]
    assert drawn[4:] == [
        "5 passages in 2: all of a to e",
        "├─ 3 passages: stone a b c",
        "└─ 2 passages: stone d e",
        "4 passages in 2: all of f to i",
        *sorted(drawn[8:], key=lambda line: "└" in line),
    ]
    assert {line[3:] for line in drawn[8:]} == {"2 passages: stone f g", "2 passages: stone h i lamp"}
    narrow = run.text("show", "--tree", "--store", store, "--depth", 3, "--width", 1).splitlines()
    assert narrow[4:] == [
        "5 passages in 2: all of a to e",
        "├─ 3 passages: stone a b c",
        "│  ├─ Title 0: stone a water",
        "│  └─ 2 more, 2 passages",
        "└─ 1 more, 2 passages",
        "1 more",
    ]


def test_the_tree_as_json_counts_what_it_leaves_out(store: Path, run: Run) -> None:
    told = run.json("show", "--tree", "--store", store, "--depth", 3)
    assert told["layers"] == [{"layer": 0, "nodes": 9}, {"layer": 1, "nodes": 4}, {"layer": 2, "nodes": 2}]
    root = told["tree"][0]
    assert {key: root[key] for key in ("kind", "layer", "passages", "text", "below")} == {
        "kind": "summary",
        "layer": 2,
        "passages": 5,
        "text": "all of a to e",
        "below": 2,
    }
    leaf = root["children"][0]["children"][0]
    assert set(leaf) == {"id", "kind", "layer", "passages", "text"}
    assert leaf["text"] == "Title 0: stone a water"
    flat = run.json("show", "--tree", "--store", store, "--depth", 1)
    assert [node["children"] for node in flat["tree"]] == [[], []]
    assert run.json("show", "--store", store)["families"]["lsh_tree"]["counts"]["layers"] == 2


def test_a_large_tree_is_drawn_in_part(store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexmill.text.outline.MOST", 3)
    drawn = run.text("show", "--tree", "--store", store, "--depth", 9).splitlines()
    assert drawn[4:] == [
        "5 passages in 2: all of a to e",
        "├─ 3 passages: stone a b c",
        "└─ 1 more, 2 passages",
        "4 passages in 2: all of f to i",
    ]


def test_a_tree_without_summaries_is_its_passages(tmp_path: Path, run: Run) -> None:
    written(tmp_path / "s", layers=[])
    drawn = run.text("show", "--tree", "--store", tmp_path / "s", "--width", 2).splitlines()
    assert drawn == [
        "version 1  9 passages under 0 summaries, 9 roots",
        "  no summaries: all passages fit in one segment",
        "",
        "Title 0: stone a water",
        "Title 1: stone b water",
        "7 more",
    ]


def test_a_text_cannot_command_the_terminal_from_the_tree(tmp_path: Path, run: Run) -> None:
    written(tmp_path / "s", layers=[[("one \x1b[2J\ntwo " + "long " * 60, list(range(9)))]])
    *_, line = run.text("show", "--tree", "--store", tmp_path / "s", "--depth", 1).splitlines()
    assert line.startswith("9 passages: one \N{REPLACEMENT CHARACTER}[2J two long")
    assert len(line) <= 120
    assert line.endswith("…")


def test_diff_counts_the_summaries_that_came_and_went(store: Path, tmp_path: Path) -> None:
    written(tmp_path / "s", layers=[[*SUMMARIES[0][:3], ("another", [7, 8])], SUMMARIES[1]])
    with indexmill.open(store) as a, indexmill.open(tmp_path / "s") as b:
        found = compare(a, b)
        assert found.rows["summaries"] == (1, 1)
        assert found.to_json()["summaries"] == {"added": 1, "removed": 1}
        assert compare(a, a).rows["summaries"] == (0, 0)
