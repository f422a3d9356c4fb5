"""What was found for every question: ranks and misses by hand, and the lines of ``evaluate --output``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import indexmill
from indexmill import BadInput
from indexmill.command.misses import misses_of, shown_misses
from indexmill.evaluate.recall import Question, evaluate
from indexmill.results import HitReference, QuestionResult, evidence_documents, ranks_of, read_results, write_results
from tests.indexmill.small_snapshot import Text, publish


def hit(kind: str, *documents: str, tokens: int | None = 10) -> HitReference:
    return HitReference(kind, f"{kind} {documents}", documents, 0.5, tokens)


def result(name: str, gold: tuple[str, ...], *hits: HitReference, kind: str | None = None) -> QuestionResult:
    ranks = ranks_of(gold, evidence_documents(hits))
    return QuestionResult("dense", name, f"What of {name}?", kind, gold, ranks, {2: 0.5}, hits, 1.25)


def test_documents_are_those_of_evidence_in_the_order_they_are_met() -> None:
    hits = [hit("summary", "a", "b"), hit("passage", "c"), hit("text", "a"), hit("passage", "c"), hit("unit", "d")]
    assert evidence_documents(hits) == ["c", "a", "d"]
    assert ranks_of(("d", "b", "c"), ["c", "a", "d"]) == (3, None, 1)


def test_what_is_missed_has_its_rank() -> None:
    one = result("it", ("a", "b", "c"), hit("passage", "a"), hit("passage", "x"), hit("passage", "b"))
    assert one.missed(2) == [("b", 3), ("c", None)]
    assert one.missed(3) == [("c", None)]


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = [
        result("é", ("a",), hit("passage", "a"), kind="bridge"),
        result("none", ("b",), hit("summary", "b", "c", tokens=None)),
    ]
    write_results(path, results)
    assert read_results(path) == results
    assert json.loads(path.read_text(encoding="utf-8").splitlines()[1]) == {
        "method": "dense",
        "id": "none",
        "question": "What of none?",
        "type": None,
        "gold_ids": ["b"],
        "ranks": [None],
        "recall@2": 0.5,
        "hits": [
            {
                "kind": "summary",
                "id": "summary ('b', 'c')",
                "document_ids": ["b", "c"],
                "score": 0.5,
                "tokens": None,
            }
        ],
        "milliseconds": 1.25,
    }


def test_a_file_of_results_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write_results(path, [result("one", ("a",))])
    before = path.read_bytes()

    def broken():  # type: ignore[no-untyped-def]
        yield result("two", ("a",))
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        write_results(path, broken())
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["results.jsonl"]
    with pytest.raises(BadInput, match="cannot write"):
        write_results(tmp_path / "none" / "results.jsonl", [])


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    write_results(path, [result("one", ("a",))])
    for line in ("{", "[]", '{"method": "dense"}'):
        path.write_text(path.read_text().splitlines()[0] + "\n" + line + "\n")
        with pytest.raises(BadInput, match=r"results\.jsonl:2: not a line of"):
            read_results(path)
    with pytest.raises(BadInput, match="cannot read"):
        read_results(tmp_path / "none.jsonl")


def test_the_worst_questions_are_shown_first_with_what_was_found_instead() -> None:
    results = [
        result("half", ("a", "b"), hit("passage", "a"), hit("passage", "x"), hit("passage", "b")),
        result("found", ("a",), hit("passage", "a")),
        result("all", ("a", "gone"), kind="bridge"),
    ]
    titles = {"a": "Ada", "b": "Bay", "x": ""}
    found = misses_of(results, 2, 10, titles)
    assert (found["questions"], found["documents"]) == (2, 3)
    assert [one["id"] for one in found["first"]] == ["all", "half"]
    assert found["first"][1] == {
        "id": "half",
        "question": "What of half?",
        "type": None,
        "missed": [{"document_id": "b", "title": "Bay", "rank": 3}],
        "found": [
            {"document_id": "a", "title": "Ada", "gold": True},
            {"document_id": "x", "title": "", "gold": False},
        ],
    }
    shown = shown_misses("dense", found, 3, 10).splitlines()
    assert shown == [
        "What of all? (bridge)",
        "    missed: Ada [a], not among 10 documents",
        "    missed: gone, not in the snapshot",
        "    found nothing",
        "",
        "What of half?",
        "    missed: Bay [b], rank 3",
        "    found  1: * Ada [a]",
        "    found  2: x",
        "",
        "dense: 2 of 3 questions miss evidence among the first 2 documents, 3 documents together",
    ]
    assert len(misses_of(results, 2, 1, titles)["first"]) == 1


def test_an_evaluation_keeps_hits_until_they_hold_so_many_tokens(tmp_path: Path) -> None:
    publish(
        tmp_path / "store", {"p": tuple(Text(f"d{i}", "T", f"lamp lamp {word}") for i, word in enumerate("abcdef"))}
    )
    asked = [Question("1", "lamp lamp lamp", ("d1", "gone"), "bridge")]
    with indexmill.open(tmp_path / "store") as snapshot:
        (short,) = evaluate(snapshot, asked, ["dense"], (1, 2)).methods["dense"].each
        long = evaluate(snapshot, asked, ["dense"], (1, 2), tokens=10).methods["dense"]
        everything = evaluate(snapshot, asked, ["dense"], (1, 2), tokens=10_000).methods["dense"]
    assert [len(short.hits), len(long.each[0].hits), len(everything.each[0].hits)] == [2, 4, 6]
    assert long.each[0].hits[:2] == short.hits
    assert long.recall == {k: short.recall[k] for k in (1, 2)}
    assert long.tokens_per_question == 2 * 3
    assert short.recall[1] == len([rank for rank in short.ranks if rank == 1]) / 2
    assert (short.method, short.id, short.type) == ("dense", "1", "bridge")
