"""A cut of 2WikiMultiHopQA and its night, of a corpus that is made up."""

from __future__ import annotations

from pathlib import Path

from benchmarks.acceptance.corpora import wiki
from benchmarks.sets import read_rows, write_rows


def test_a_night_edits_removes_and_adds_and_leaves_the_evidence(tmp_path: Path) -> None:
    source = tmp_path / "2wikimultihopqa"
    source.mkdir()
    write_rows(source / "corpus.jsonl", [{"id": f"d{i}", "title": "", "text": f"Text {i}."} for i in range(200)])
    questions = [{"id": str(i), "question": "Who?", "gold_ids": [f"d{i}"]} for i in range(100)]
    write_rows(source / "questions.jsonl", questions)
    files = wiki(tmp_path, tmp_path, 60)
    first, night = ({row["id"]: row["text"] for row in read_rows(path)} for path in (files.first, files.night))
    gold = {name for question in read_rows(files.questions) for name in question["gold_ids"]}
    assert len(first) == 60
    assert gold <= first.keys() & night.keys()
    assert len(first.keys() - night.keys()) == 10
    assert len(night.keys() - first.keys()) == 20
    edited = [name for name in first.keys() & night.keys() if first[name] != night[name]]
    assert len(edited) == 15
    assert all(night[name].startswith(f"{first[name]} Text ") for name in edited)
