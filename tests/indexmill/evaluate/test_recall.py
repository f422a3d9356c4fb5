"""Evidence recall, by hand on small cases and over a snapshot."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from indexmill import BadInput, FamilyNotFound, Hit, Snapshot
from indexmill.evaluate.recall import Question, evaluate, found_documents, read_questions
from indexmill.results import recall
from indexmill.retrieve.retrieval_options import RetrievalOptions
from tests.indexmill.running import write_lines
from tests.indexmill.small_snapshot import Text, publish


def test_recall_is_the_part_of_the_gold_documents_among_the_first_k() -> None:
    assert recall(["a", "b"], ["a", "x", "b"], 1) == 0.5
    assert recall(["a", "b"], ["a", "x", "b"], 3) == 1.0
    assert recall(["a", "a", "b", "c"], ["c"], 5) == pytest.approx(1 / 3)


def test_a_question_file_is_read(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "questions.jsonl",
        {"id": "1", "question": "Who?", "gold_ids": ["b", "a", "b"], "type": "bridge", "answer": "Ada"},
        {"question": "Où ?", "gold_ids": ["c"]},
    )
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes() + b"\r\n\n")
    assert read_questions(path) == [Question("1", "Who?", ("b", "a"), "bridge", ("Ada",)), Question("", "Où ?", ("c",))]


def test_an_answer_is_a_text_a_number_or_a_list_of_those_that_are_right(tmp_path: Path) -> None:
    given: list[object] = ["Ada", " ", 1907, True, ["Ada Venn", "A. Venn", "Ada Venn", False], [], None]
    records = [{"question": "Who?", "gold_ids": ["b"], "answer": one} for one in given]
    read = read_questions(write_lines(tmp_path / "questions.jsonl", *records))
    assert [one.answers for one in read] == [
        *(("Ada",), (), ("1907",), ("yes",)),
        *(("Ada Venn", "A. Venn", "no"), (), ()),
    ]


def test_where_answers_are_evaluated_no_evidence_has_to_be_named(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "questions.jsonl", {"question": "Who?"}, {"question": "Why?", "gold_ids": ["a"]})
    assert [one.gold_ids for one in read_questions(path, evidence=False)] == [(), ("a",)]
    with pytest.raises(BadInput, match='"gold_ids" is None'):
        read_questions(path)
    with pytest.raises(BadInput, match='"gold_ids" is 3'):
        read_questions(write_lines(tmp_path / "wrong.jsonl", {"question": "Who?", "gold_ids": 3}), evidence=False)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "is not JSON"),
        (b"[1]", "is a JSON list"),
        (b'{"question": "a\xff", "gold_ids": ["b"]}', "is not UTF-8"),
        (b'{"gold_ids": ["b"]}', '"question" is None'),
        (b'{"question": "  ", "gold_ids": ["b"]}', '"question" is'),
        (b'{"question": "\\ud800", "gold_ids": ["b"]}', "surrogate"),
        (b'{"question": "a"}', '"gold_ids" is None'),
        (b'{"question": "a", "gold_ids": []}', "at least one"),
        (b'{"question": "a", "gold_ids": [1]}', '"gold_ids" is'),
        (b'{"question": "a", "gold_ids": ["b"], "type": 3}', '"type" is 3'),
        (b'{"question": "a", "gold_ids": ["b"], "answer": {"a": 1}}', '"answer" is {'),
        (b'{"question": "a", "gold_ids": ["b"], "answer": [["c"]]}', '"answer" is '),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(b'{"question": "a", "gold_ids": ["b"]}\n' + line + b"\n")
    with pytest.raises(BadInput, match=rf"questions\.jsonl:2: .*{message}"):
        read_questions(path)


def test_a_file_without_questions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        read_questions(tmp_path / "none.jsonl")
    with pytest.raises(BadInput, match="contains no questions"):
        read_questions(write_lines(tmp_path / "empty.jsonl"))


def test_a_snapshot_is_evaluated_at_every_k_and_by_type(snapshot: Snapshot) -> None:
    questions = [
        Question("1", "Ada Venn paid for the bridge.", ("bridge", "gone"), "bridge"),
        Question("2", "Tallow is a town of lamps.", ("tallow",), "single"),
    ]
    found = evaluate(snapshot, questions, ks=(4, 1))
    assert (found.version, found.gold_ids, found.unknown_gold_ids) == (1, 3, 1)
    result = found.methods["dense"].to_dict()
    assert result["recall@1"] == result["recall@4"] == 0.75
    assert result["questions"] == 2
    assert result["types"]["bridge"] == {"recall@1": 0.5, "recall@4": 0.5, "questions": 1}
    assert result["milliseconds_per_question"] > 0
    assert result["encode_milliseconds_per_question"] > 0
    assert list(found.to_dict()["methods"]["dense"])[:2] == ["recall@1", "recall@4"]


def test_passages_of_one_document_count_once_and_retrieval_goes_deeper_for_the_others(tmp_path: Path) -> None:
    long = Text("long", "Long", "\n\n".join(f"lamp lamp lamp {word}" for word in "abcdefgh"))
    short = Text("short", "Short", "quite another thing")
    publish(tmp_path / "store", {"p": (long, short)})
    with indexmill.open(tmp_path / "store") as snapshot:
        assert {hit.document_ids[0] for hit in snapshot.retrieve("lamp lamp lamp", k=5)} == {"long"}
        found = evaluate(snapshot, [Question("1", "lamp lamp lamp", ("short",))], ks=(1, 2)).methods["dense"]
    assert found.recall == {1: 0.0, 2: 1.0}
    assert found.tokens_per_question == 8 * 4 + 3  # all that was read until the second document came


def test_an_empty_snapshot_misses_every_gold_document(tmp_path: Path) -> None:
    publish(tmp_path / "store", {})
    with indexmill.open(tmp_path / "store") as snapshot:
        found = evaluate(snapshot, [Question("1", "Who?", ("a", "b"), "bridge"), Question("2", "Why?", ("b",))])
    assert (found.gold_ids, found.unknown_gold_ids) == (2, 2)
    result = found.methods["dense"]
    assert (result.recall, result.tokens_per_question) == ({5: 0.0, 10: 0.0}, 0)
    assert result.types == {"bridge": (1, {5: 0.0, 10: 0.0})}


def test_the_clock_is_read_around_retrieval_and_encoding_apart(snapshot: Snapshot) -> None:
    ticks = iter(range(100))
    found = evaluate(snapshot, [Question("1", "lamps", ("tallow",))], ["dense"], clock=lambda: float(next(ticks)))
    assert found.methods["dense"].milliseconds_per_question == 1000
    assert found.methods["dense"].encode_milliseconds_per_question == 1000
    assert next(ticks) == 4


def test_names_are_encoded_as_in_a_query(snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch) -> None:
    encodes_names = []

    def retrieve_batch(questions: list[str], *, options: RetrievalOptions, **changes: object) -> list[list[Hit]]:
        encodes_names.append(options.encode_names)
        return [[] for _ in questions]

    monkeypatch.setattr(snapshot, "retrieve_batch", retrieve_batch)
    questions = [Question("1", "Who paid for the bridge?", ("bridge",), "bridge")]
    evaluate(snapshot, questions)
    found_documents(snapshot, questions, "dense", 5, snapshot.encode(["Who paid for the bridge?"]))
    assert len(encodes_names) >= 2
    assert all(encodes_names)


def test_what_cannot_be_evaluated_is_refused(snapshot: Snapshot) -> None:
    question = Question("1", "lamps", ("tallow",))
    with pytest.raises(BadInput, match="no questions"):
        evaluate(snapshot, [])
    with pytest.raises(BadInput, match="k is 0"):
        evaluate(snapshot, [question], ks=(0,))
    with pytest.raises(FamilyNotFound, match="tri_graph"):
        evaluate(snapshot, [question], methods=["tri_graph"])
