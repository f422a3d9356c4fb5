"""Workers of a run that is expected to find nothing to do start when there is work for them."""

from __future__ import annotations

import asyncio
import copy
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("prefect")

from flows.build import run_in_flow
from flows.build_run import Order
from flows.lazy_cluster import LazyClusterExecutor
from schemas.config import Configuration
from storage import runs
from storage.folder import open_folder
from tasks.core.executor import Call, InlineExecutor, StoppedError
from tasks.core.report import Silent
from tasks.llm.account import CallLimits
from tests.corpora import documents, write_corpus
from tests.flows import children
from tests.flows.built import Built
from tests.flows.commands import command, write_settings
from tests.llm_server import CANARY, LlmServer


def fail(*_: object) -> None:
    raise AssertionError("this was not to be started")


@pytest.fixture
def chosen(tmp_path: Path) -> Iterator[dict[str, object]]:
    """Settings of a store that holds 24 documents."""
    settings = children.settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", documents(24)))
    children.build(settings)
    return settings


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
@pytest.mark.parametrize("touched", [False, True])
def test_a_night_without_a_change_starts_no_worker(
    chosen: dict[str, object], touched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cluster.private_cluster", fail)
    if touched:
        write_corpus(tmp_path / "corpus.jsonl", documents(24))
    outcome = run_in_flow(Order(Configuration.model_validate(chosen), Silent()))
    assert (outcome.published, outcome.parts_made) == (False, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_a_night_without_a_question_to_a_language_model_starts_no_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    with LlmServer() as server:
        llm = {"backend": "openai", "model": "m", "base_url": server.base_url}
        corpus = write_corpus(tmp_path / "corpus.jsonl", documents(14))
        asking = children.settings(tmp_path / "store", corpus, llm=llm)
        children.build(asking)
        asked = len(server.chats)
        monkeypatch.setattr("flows.cluster.private_cluster", fail)
        outcome = run_in_flow(Order(Configuration.model_validate(asking), Silent()))
    assert (outcome.published, outcome.parts_made) == (False, 0)
    assert len(server.chats) == asked > 0


@pytest.mark.slow
@pytest.mark.usefixtures("prefect_server")
def test_other_settings_start_workers_though_no_file_has_changed(chosen: dict[str, object], tmp_path: Path) -> None:
    chosen |= {"split": {"tokens": 64}, "run": {"workers": 1}}
    outcome = run_in_flow(Order(Configuration.model_validate(chosen), Silent()))
    fresh = {**chosen, "store": str(tmp_path / "fresh")}
    assert (outcome.published, outcome.manifest) == (True, children.build(fresh).manifest)


@pytest.mark.slow
def test_sigterm_ends_a_refresh_and_its_workers(
    built: Built, prefect_environment: dict[str, str], tmp_path: Path
) -> None:
    rows = documents(24, words=110)
    rows["doc-0007"] = (rows["doc-0007"][0], "Falk Orso left Quillon. Nobody saw it.")
    shutil.copytree(built.store, tmp_path / "store")
    chosen = children.settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", rows))
    argv = ["build", "-c", write_settings(tmp_path / "i.yaml", chosen), "--json"]
    with command(tmp_path, *argv, environment=prefect_environment) as stopped:
        stopped.wait_for("ingest:")
        stopped.signal(signal.SIGTERM)
        assert stopped.wait(60) == 130, stopped.err
        assert stopped.left_behind() == {}
    assert [*stopped.temporary.rglob("*"), *stopped.current.rglob("*")] == []
    assert runs.list_runs(open_folder(tmp_path / "store"))[-1].state == "interrupted"
    fresh = children.settings(tmp_path / "fresh", tmp_path / "corpus.jsonl")
    assert children.build(chosen).manifest == children.build(fresh).manifest


def test_light_calls_run_here_and_none_after_a_stop() -> None:
    executor = LazyClusterExecutor(fail)
    light = Call("a", sum, ([1, 2],), light=True)
    assert [result for _, result in executor.run([light])] == [3]
    assert list(executor.run([])) == []
    executor.stop()
    for call in (light, Call("b", sum, ([1],))):
        with pytest.raises(StoppedError):
            list(executor.run([call]))


def test_workers_start_once_for_the_first_call_that_needs_them_and_the_quota_with_them() -> None:
    started: list[InlineExecutor] = []

    def start() -> InlineExecutor:
        started.append(InlineExecutor())
        return started[-1]

    executor = LazyClusterExecutor(start)
    early = executor.quota("run", CallLimits(budget_tokens=100))
    handle = early.of("describe")
    assert early.spent() == {}
    assert started == []
    assert [result for _, result in executor.run([Call("a", sum, ([1, 2],))])] == [3]
    quota = started[0].quota("run", CallLimits())
    asyncio.run(handle.settle(asyncio.run(handle.reserve("model", 20, 10)), 20, 5))
    assert early.spent() == quota.spent()
    assert early.spent()["describe"].input_tokens == 20
    assert copy.copy(handle) == quota.of("describe")  # as it is sent to a worker
    assert executor.quota("run", CallLimits()) is quota
    assert len(started) == 1
