"""Fused retrieval: the order is the one that weights and strengths say, and stays a function of the question."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.command import main
from indexmill.errors import BadInput
from indexmill.evaluate.fit import fit
from indexmill.evaluate.recall import Question
from indexmill.retrieve.fused import FusedParameters, agreement, combine, strength, with_second
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Ranking
from indexmill.store.manifest import FamilyRecord
from schemas.config import load_configuration
from tests.indexmill.small_snapshot import writer_of

QUESTION = "Where was the woman born who paid for the Marrow Bridge?"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store")
    writer = writer_of(path)
    writer.tri_graph(activation_threshold=0.05)
    writer.bm25()
    writer.publish()
    return path


def listed(*pairs: tuple[int, float]) -> Ranking:
    return Ranking(np.array([row for row, _ in pairs], np.int64), np.array([score for _, score in pairs]))


def test_a_walk_is_strong_by_ratio_and_words_by_difference_and_both_by_rank() -> None:
    # By hand: 0.4 by rank (3 / 3, 3 / 4, 3 / 5) and 0.6 by ratio; of words 0.6 and 0.4.
    relative = 1 - math.log(0.25) / math.log(1e-3)
    walked = strength("tri_graph", np.array([4.0, 1.0, -0.5]))
    assert walked.tolist() == pytest.approx([1.0, 0.4 * 0.75 + 0.6 * relative, 0.4 * 0.6])
    assert strength("bm25", np.array([9.0, 5.0, 1.0])).tolist() == pytest.approx([1.0, 0.6 * 0.75 + 0.2, 0.6 * 0.6])
    assert strength("bm25", np.array([3.0, 3.0])).tolist() == pytest.approx([1.0, 0.85])
    assert strength("dense", np.array([])).tolist() == []


def test_the_order_is_that_of_the_weighted_strengths() -> None:
    lists = {"tri_graph": listed((1, 0.8), (2, 0.4), (3, 0.2)), "bm25": listed((3, 9.0), (2, 3.0), (7, 1.0))}
    found = combine(lists, {"tri_graph": 1.0, "bm25": 2.0}, 50, 10)
    walk = strength("tri_graph", lists["tri_graph"].scores)
    words = 2 * strength("bm25", lists["bm25"].scores)
    expected = {1: walk[0] / 3, 2: (walk[1] + words[1]) / 3, 3: (walk[2] + words[0]) / 3, 7: words[2] / 3}
    assert found.rows.tolist() == sorted(expected, key=lambda row: -expected[row])
    assert found.scores.tolist() == pytest.approx([expected[row] for row in found.rows.tolist()])
    assert found.places.tolist() == [[2, 1, 0, -1], [0, 1, -1, 2]]


def test_walks_agree_with_words_as_soon_as_they_come_to_what_these_find_first() -> None:
    walk, other, none = np.array([4, 7, 9]), np.array([9, 4]), np.empty(0, np.int64)
    assert agreement([walk], [np.array([4, 1])]) == 1.0
    assert agreement([walk], [np.array([9, 4])]) == pytest.approx(3 / 5)
    assert agreement([walk, other], [np.array([9]), np.array([4])]) == pytest.approx((3 / 5 + 1 + 1 + 3 / 4) / 4)
    assert agreement([walk], [np.array([5])]) == 0.0
    assert agreement([walk, none], [np.array([4]), none]) == 0.5
    assert agreement([walk], []) == agreement([walk], [none]) == 0.5


def test_walks_count_by_what_they_know_of_the_question_and_by_their_agreement() -> None:
    setting = FusedParameters(known=4.0, agreed=2.0, doubt=1.0)
    one, other = listed(*((row, 1.0 / (1 + row)) for row in range(10))), listed(*((row, 1.0) for row in range(5, 15)))
    lists = {"tri_graph": one, "zoom_graph": other, "bm25": one, "dense": one}
    certainty = math.exp(4.0 * 0.5 + 2.0 * (1 + 0) / 2 - 1.0)
    assert setting.counted(lists, 0.5) == pytest.approx(
        {"tri_graph": certainty, "zoom_graph": certainty, "bm25": 1.0, "dense": 1 / (1 + certainty)}
    )
    led = setting.counted(lists | {"community_tree": one}, 0.5)
    assert led["community_tree"] == pytest.approx(certainty / (1 + certainty))
    unknown = setting.counted(lists, 0.0)
    assert unknown["tri_graph"] < 1e-5
    assert unknown["dense"] == pytest.approx(1.0, abs=1e-5)
    assert setting.counted({"bm25": one, "dense": one}, None) == {"bm25": 1.0, "dense": 1.0}


def test_what_begins_at_vectors_counts_as_much_as_the_encoder_reads_the_question() -> None:
    setting = FusedParameters()
    one = listed((1, 1.0), (2, 0.5))
    lists = dict.fromkeys(("tri_graph", "zoom_graph", "lsh_tree", "dense", "bm25", "community_tree"), one)
    whole, half, none = (setting.counted(lists, 0.5, legibility) for legibility in (1.0, 0.5, 1e-6))
    assert whole == setting.counted(lists, 0.5)
    for name in ("lsh_tree", "bm25"):
        assert whole[name] == half[name] == none[name]
    for name in ("tri_graph", "zoom_graph", "dense", "community_tree"):
        assert half[name] == pytest.approx(whole[name] / 2)
        assert 0 < none[name] < 1e-3


def test_a_question_that_names_nothing_is_answered_by_words_and_vectors(store: Path) -> None:
    question = "who wrote of what was cold"
    with indexmill.open(store) as snapshot:
        without = {"tri_graph": 0.0}
        found = snapshot.retrieve(question, k=4)
        assert [hit.id for hit in found] == [hit.id for hit in snapshot.retrieve(question, k=4, parameters=without)]


@given(st.data())
def test_fewer_hits_are_the_first_of_more(data: st.DataObject) -> None:
    def found(name: str) -> Ranking:
        rows = data.draw(st.lists(st.integers(0, 30), unique=True, max_size=20), label=name)
        scores = sorted((data.draw(st.floats(-1, 9)) for _ in rows), reverse=True)
        return listed(*zip(rows, scores, strict=True))

    lists = {name: found(name) for name in ("tri_graph", "bm25", "dense")}
    weights = {"tri_graph": 1.0, "bm25": 0.2, "dense": 0.5}
    pool = data.draw(st.integers(1, 8))
    whole = combine(lists, weights, pool, 100)
    assert sorted(whole.rows.tolist()) == sorted({row for one in lists.values() for row in one.rows.tolist()})
    assert (np.diff(whole.scores) <= 0).all()
    k = data.draw(st.integers(1, 12))
    # A method that is asked for k passages has its pool, or as many as are wanted.
    cut = {name: Ranking(one.rows[: max(k, pool)], one.scores[: max(k, pool)]) for name, one in lists.items()}
    first = combine(cut, weights, pool, k)
    assert first.rows.tolist() == whole.rows[:k].tolist()
    assert first.scores.tolist() == whole.scores[:k].tolist()


def test_it_is_the_default_and_says_which_methods_led_to_a_hit(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        assert snapshot.default_method == "fused"
        hits = snapshot.retrieve(QUESTION, k=3)
        assert hits == snapshot.retrieve(QUESTION, method="fused", k=3)
        ranks = {hit.id: i for i, hit in enumerate(snapshot.retrieve(QUESTION, method="bm25", k=9), start=1)}
    for hit in hits:
        assert hit.explanation is not None
        told = {one["name"]: one for one in hit.explanation["methods"]}
        assert set(told) <= {"tri_graph", "bm25", "dense"}
        assert ("bm25" in told) == (hit.id in ranks)
        if hit.id in ranks:
            assert told["bm25"]["rank"] == ranks[hit.id]
            assert hit.explanation["bm25"]["terms"]
    assert hits[0].explanation is not None
    assert hits[0].explanation["tri_graph"]["entities"]


def test_the_command_tells_what_every_method_says(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", QUESTION, "--store", str(store), "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "- tri_graph, rank 1" in shown
    assert "bm25, terms:" in shown
    assert "tri_graph, entities:" in shown


def asked(count: int) -> list[Question]:
    texts = [("Ada Venn paid for the bridge", "bridge"), ("a town of lamps", "tallow"), ("a cold river", "ilse")]
    return [Question(str(i), *texts[i % len(texts)][:1], (texts[i % len(texts)][1],)) for i in range(count)]


def test_fitting_finds_weights_that_do_no_worse_on_questions_they_were_not_chosen_on(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        found = fit(snapshot, asked(24), (1, 2))
        assert set(found.weights) == {"tri_graph", "bm25", "dense"}
        assert found.before == FusedParameters().weights(snapshot.methods)
        assert found.chosen_on[1] >= found.chosen_on[0]
        assert found.proven_on[1] >= found.proven_on[0] or found.weights == found.before
        with pytest.raises(BadInput, match="19 questions are too few"):
            fit(snapshot, asked(19), (1, 2))


def test_wrong_weights_are_mended_and_recorded_beside_the_comments(tmp_path: Path) -> None:
    writer = writer_of(tmp_path / "store")
    writer.bm25()
    writer.families["fused"] = FamilyRecord(parameters={"bm25": 0.0, "dense": 1.0}, counts={})
    writer.publish()
    asked = [{"id": str(i), "question": "river lamps", "gold_ids": ["tallow"]} for i in range(20)]
    questions = tmp_path / "questions.jsonl"
    questions.write_text("\n".join(map(json.dumps, asked)))
    configuration = tmp_path / "indexmill.yaml"
    configuration.write_text("# ours\nstore: store  # here\nfamilies: {tri_graph: {enabled: false}}\n")
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.retrieve("river lamps", k=1)[0].document_ids == ("bridge",)
    assert main(["evaluate", str(questions), "-c", str(configuration), "--fit", "-k", "1"]) == 0
    written = configuration.read_text()
    assert "# ours" in written
    assert "store: store  # here" in written
    families = load_configuration(configuration).families
    assert families.tri_graph.enabled is False
    weights = families.fused.parameters
    assert weights["bm25"] > 0
    writer.families["fused"] = FamilyRecord(parameters=weights, counts={})
    writer.publish(version=2)
    with indexmill.open(tmp_path / "store") as snapshot:
        assert snapshot.retrieve("river lamps", k=1)[0].document_ids == ("tallow",)


def test_weights_without_a_configuration_file_are_told_and_not_written(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.jsonl").write_text(
        "".join(json.dumps({"question": "a cold river", "gold_ids": ["ilse"]}) + "\n" for _ in range(20))
    )
    assert main(["evaluate", "questions.jsonl", "--store", str(store), "--fit", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["recorded"] is None
    assert told["better"] is False
    assert told["weights"] == told["before"]
    assert [path.name for path in tmp_path.iterdir()] == ["questions.jsonl"]


# A document that several passages speak for


def test_the_best_passage_of_a_document_gains_by_the_next_best() -> None:
    scores, documents = np.array([0.5, 0.6, 0.4, 0.2, 0.1]), np.array([7, 3, 7, 7, 1])
    assert with_second(scores, documents, 0.5).tolist() == [0.7, 0.6, 0.4, 0.2, 0.1]
    assert with_second(scores, documents, 0.0).tolist() == scores.tolist()
    assert with_second(np.empty(0), np.empty(0, np.int64), 0.5).tolist() == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1, allow_subnormal=False)), max_size=12),
    st.floats(0, 1),
)
def test_each_document_gains_once_and_in_its_best_passage(passages: list[tuple[int, float]], second: float) -> None:
    documents = np.array([document for document, _ in passages], np.int64)
    scores = np.array([score for _, score in passages])
    gained = with_second(scores, documents, second)
    for document in set(documents.tolist()):
        own = np.flatnonzero(documents == document)
        (changed,) = (gained[own] != scores[own]).nonzero()
        assert len(changed) <= 1
        ordered = sorted(scores[own].tolist(), reverse=True)
        assert gained[own].max() == ordered[0] + (second * ordered[1] if len(own) > 1 else 0)
        assert sorted(gained[own].tolist(), reverse=True)[1:] == ordered[1:]


def test_passages_of_one_document_have_one_number(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        ids, numbers = passages_of(snapshot).document_ids(), passages_of(snapshot).documents.tolist()
        assert len(set(zip(ids, numbers, strict=True))) == len(set(ids)) == len(set(numbers)) > 1
