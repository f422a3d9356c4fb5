"""The bundled sample, with the real encoder: what `make demo` shows, and how well its questions are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from flows.build_run import build_inline
from indexmill.evaluate.recall import evaluate, read_questions
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.llm_rules import rules_answer
from tests.llm_server import CANARY, LlmServer
from tests.paths import SAMPLE


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("sample") / "store"
    configuration = Configuration.model_validate({"store": store, "corpus": {"paths": [str(SAMPLE / "corpus.jsonl")]}})
    assert build_inline(configuration, progress=Silent()).quarantined == 0
    return store


def test_the_evidence_of_the_demo_question_is_among_the_first_hits(store: Path) -> None:
    question = "Who is the paternal grandfather of the person who photographed the Kelvergate Dock Strike?"
    with indexmill.open(store) as snapshot:
        found = {document for hit in snapshot.retrieve(question, k=3) for document in hit.document_ids}
    assert found == {"kelvergate-dock-strike", "ottilie-vantreux", "edric-vantreux"}


def test_the_graph_finds_the_evidence_that_nearness_alone_misses(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        result = evaluate(snapshot, read_questions(SAMPLE / "questions.jsonl"), ["dense", "tri_graph"]).to_dict()
    dense, graph = (result["methods"][method]["recall@5"] for method in ("dense", "tri_graph"))
    assert result["unknown_gold_ids"] == 0
    assert graph > max(dense + 0.05, 0.87)


@pytest.mark.slow
def test_the_names_that_a_model_gives_in_the_place_of_the_rules_are_as_good(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is a double that answers what the rules find, without dates and numbers; questions ask no model."""
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with LlmServer(answer=rules_answer) as server:
        settings = {
            "store": tmp_path / "store",
            "corpus": {"paths": [str(SAMPLE / "corpus.jsonl")]},
            "families": {"lsh_tree": {"enabled": False}, "zoom_graph": {"enabled": False}},
            "recognise": {"recogniser": "llm"},
            "llm": {"backend": "openai", "model": "m", "base_url": server.base_url},
        }
        build_inline(Configuration.model_validate(settings), progress=Silent())
    questions = read_questions(SAMPLE / "questions.jsonl")
    found = []
    for path in (store, tmp_path / "store"):
        with indexmill.open(path) as snapshot:
            found.append(evaluate(snapshot, questions, ["tri_graph"]).to_dict()["methods"]["tri_graph"])
    rules, model = found
    assert model["recall@5"] > rules["recall@5"] - 0.02
    assert model["recall@10"] > rules["recall@10"] - 0.02
