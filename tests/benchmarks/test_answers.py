"""The table of answers: what stands in the hits, and what a model behind an endpoint makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sets
from benchmarks.answers import main
from benchmarks.sets import QuestionSet, SetFiles
from tests.indexmill.small_snapshot import publish
from tests.llm_server import LlmServer


def test_a_table_has_the_oracle_and_the_model_at_every_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path / "stores" / "cranfield")
    questions = tmp_path / "questions.jsonl"
    lines = [
        {"id": str(number), "question": "Tallow is a town of lamps.", "answer": answer}
        for number, answer in enumerate(["lamps", "Zanzibar", "yes"])
    ]
    questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = SetFiles(tmp_path / "corpus.jsonl", questions)
    monkeypatch.setitem(sets.SETS, "cranfield", QuestionSet(lambda data, out: files))
    command = [str(tmp_path), str(tmp_path / "work"), "--stores", str(tmp_path / "stores"), "--sets", "cranfield"]
    main([*command, "--budgets", "50,500"])
    table = capsys.readouterr().out
    assert "| set | method | in 50 tokens | in 500 tokens |" in table
    assert "| cranfield | dense | 0.500 ±0.980 | 0.500 ±0.980 |" in table
    reply = {"reasoning": "It is.", "found": True, "answer": "yes"}
    with LlmServer(lambda chat: reply) as server:
        model = ["--model", "small", "--base-url", server.base_url, "--budgets", "50", "--max-questions", "3"]
        main([*command, *model])
        calls = len(server.chats)
        main([*command, *model])
        assert len(server.chats) == calls > 0
    again = capsys.readouterr().out
    assert "| set | method | in 50 tokens | accuracy | exact match | F1 |" in again
    assert "| cranfield | dense | 0.500 ±0.980 | 0.333 ±0.653 | 0.333 ±0.653 | 0.333 ±0.653 |" in again
