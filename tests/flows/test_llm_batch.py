from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.build_run import BuildOutcome, backfill_inline, build_inline
from indexmill.errors import BudgetReached
from schemas.config import Configuration
from storage import batches, runs
from storage.folder import open_folder
from tasks.core.executor import InlineExecutor, StoppedError
from tasks.core.report import Silent
from tasks.pipeline.backfill import Waves
from tests.corpora import documents, write_corpus
from tests.flows.children import settings
from tests.flows.commands import command, write_settings
from tests.llm_batches import Plan
from tests.llm_server import CANARY, LlmServer
from tests.paths import ROOT

PRICES = {"some-model": {"input_per_million": 2.0, "output_per_million": 8.0, "batch_factor": 0.5}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LlmServer]:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setattr(InlineExecutor, "wait", lambda self, _: None)
    with LlmServer(keys={CANARY}) as running:
        yield running


def chosen(folder: Path, server: LlmServer, **llm: Any) -> dict[str, Any]:
    """Settings of a store whose tree is summarised by the endpoint, in batches of two questions at least."""
    corpus = folder / "corpus.jsonl"
    if not corpus.exists():
        write_corpus(corpus, documents(90, words=40))
    asked = {"backend": "openai", "model": "some-model", "base_url": server.base_url, "batch_smallest": 2}
    plain = settings(folder / "store", corpus, llm=asked | llm)
    return plain | {"prices": PRICES, "shards": {"document_tokens": 4_000}, "families": {"lsh_tree": {"group": 4}}}


def backfill(plain: dict[str, Any]) -> BuildOutcome:
    return backfill_inline(Configuration.model_validate(plain), Waves(2), progress=Silent())


def report(store: Path) -> dict[str, Any]:
    """What the last run told of the stage that asks."""
    last = runs.list_runs(open_folder(store))[-1]
    assert last.end is not None
    return last.end.report["stages"]["lsh_summaries"]  # type: ignore[index, return-value, call-overload]


@pytest.mark.slow
def test_a_backfill_by_batches_makes_the_index_of_direct_calls(tmp_path: Path, server: LlmServer) -> None:
    for name in ("direct", "batch"):
        (tmp_path / name).mkdir()
    direct = build_inline(Configuration.model_validate(chosen(tmp_path / "direct", server)), progress=Silent())
    calls, tokens = server.billed.calls, server.billed.tokens
    server.batches.plan = Plan(looks=2, fates={1: "expired"}, noise=True)
    outcome = backfill(chosen(tmp_path / "batch", server, batch=True))
    assert outcome.manifest == direct.manifest
    assert server.batches.wrong == []
    assert server.billed.calls == 2 * calls
    assert server.billed.tokens == 2 * tokens
    assert server.batches.files == {}
    told = report(tmp_path / "batch" / "store")
    assert told["llm_calls"] == outcome.llm_calls == calls
    assert told["llm_tokens"] == tokens
    assert told["llm_batches"] >= 2
    assert 0.5 * direct.cost <= outcome.cost < 0.7 * direct.cost  # a few are asked directly
    again = backfill(chosen(tmp_path / "batch", server, batch=True))
    assert (again.published, again.llm_calls) == (False, 0)


def test_a_stopped_backfill_is_gone_on_with_by_a_build(tmp_path: Path, server: LlmServer) -> None:
    server.batches.plan = Plan(looks=3)
    plain = chosen(tmp_path, server, batch=True)
    waits = iter(range(99))

    def stop_after_one(executor: InlineExecutor, _: float) -> None:
        if next(waits):
            raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InlineExecutor, "wait", stop_after_one)
        with pytest.raises(StoppedError):
            backfill(plain)
    store = open_folder(tmp_path / "store")
    (pending,) = batches.begun(store)
    assert pending.request.stage == "lsh_summaries"
    outcome = build_inline(Configuration.model_validate(plain), progress=Silent())
    assert outcome.published
    assert len(server.batches.batches) == 1  # a build starts none, and waits for those that are there
    assert server.billed.paid_twice() == {}
    assert batches.begun(store) == []


def test_a_backfill_by_batches_ends_with_its_budget(tmp_path: Path, server: LlmServer) -> None:
    plain = chosen(tmp_path, server, batch=True, budget={"tokens": 9_000})
    spent = []
    for _ in range(20):
        before = server.billed.tokens
        try:
            backfill(plain)
            break
        except BudgetReached:
            spent.append(server.billed.tokens - before)
    assert spent
    assert all(0 < tokens <= 9_000 for tokens in spent)
    assert server.billed.paid_twice() == {}
    assert server.batches.wrong == []


def test_the_key_is_nowhere_in_the_store(tmp_path: Path, server: LlmServer) -> None:
    backfill(chosen(tmp_path, server, batch=True))
    found = [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("receiver", ["main thread", "another thread"])
def test_sigterm_leaves_the_batch_at_the_endpoint_to_the_next_run(
    tmp_path: Path, server: LlmServer, receiver: str
) -> None:
    server.batches.plan = Plan(looks=10_000)
    plain = chosen(tmp_path, server, batch=True) | {"run": {"workers": 2}}
    arguments = ("backfill", "--json", "--config", write_settings(tmp_path / "indexmill.yaml", plain))
    with command(tmp_path, *arguments, environment={"PYTHONPATH": str(ROOT)}) as stopped:
        stopped.wait_for("batch ")
        (stopped.signal if receiver == "main thread" else stopped.signal_another_thread)(signal.SIGTERM)
        assert stopped.wait() == 130
        assert stopped.left_behind() == {}
    assert CANARY not in stopped.out + stopped.err
    (pending,) = server.batches.batches.values()
    pending.looks_left = 1
    with command(tmp_path, *arguments, environment={"PYTHONPATH": str(ROOT)}) as finished:
        assert finished.wait() == 0
    assert finished.json()["published"]
    assert len(server.batches.batches) == 1
    assert server.billed.paid_twice() == {}
