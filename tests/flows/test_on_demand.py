"""Workers start when there is work for them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest

from flows import on_demand
from flows.on_demand import OnDemand
from flows.run import build_under_prefect
from schemas.config import Configuration
from storage import runs
from storage.folder import init_store, open_store
from tasks.core.executor import Call, StoppedError
from tasks.core.report import Silent
from tasks.pipeline.build import Build
from tests.corpora import documents, write_corpus
from tests.flows import children
from tests.flows.built import Built
from tests.flows.commands import command, write_settings


def fail(*_: object) -> None:
    raise AssertionError("this was not to be started")


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Settings of a store that holds 24 documents; no server may be started."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr("flows.server.private_prefect", fail)
    settings = children.settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", documents(24)))
    children.build(settings)
    return settings


def test_a_night_without_a_change_starts_no_worker(chosen: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.cluster.open_cluster", fail)
    outcome = build_under_prefect(Configuration.model_validate(chosen), progress=Silent())
    assert (outcome.published, outcome.parts_made) == (False, 0)


def test_a_night_that_only_touches_a_file_starts_no_worker(
    chosen: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.cluster.open_cluster", fail)
    write_corpus(tmp_path / "corpus.jsonl", documents(24))
    assert not build_under_prefect(Configuration.model_validate(chosen), progress=Silent()).published


def test_a_small_night_is_made_by_two_workers_that_start_before_the_corpus_is_read(
    chosen: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    expected = threading.Event()
    scan, expect = Build.scan, OnDemand.expect
    monkeypatch.setattr(OnDemand, "expect", lambda self, ahead: (expect(self, ahead), expected.set()))
    monkeypatch.setattr(Build, "scan", lambda self: (scan(self), started.append(0 if expected.is_set() else -1)))
    monkeypatch.setattr(on_demand, "_CALLS_PER_WORKER", 1_000)
    opened = OnDemand._cluster

    def counted(self: OnDemand, calls: int) -> object:
        there = opened(self, calls)
        started.append(self._workers)
        return there

    monkeypatch.setattr(OnDemand, "_cluster", counted)
    rows = documents(24)
    rows["doc-0007"] = (rows["doc-0007"][0], "Falk Orso left Quillon. Nobody saw it.")
    write_corpus(tmp_path / "corpus.jsonl", rows)
    chosen["run"] = {"workers": 8}
    outcome = build_under_prefect(Configuration.model_validate(chosen), progress=Silent())
    assert (outcome.published, set(started)) == (True, {0, 2})
    fresh = children.settings(tmp_path / "fresh", tmp_path / "corpus.jsonl")
    assert outcome.manifest == children.build(fresh).manifest


def test_sigterm_ends_a_refresh_and_its_workers(built: Built, tmp_path: Path) -> None:
    rows = documents(24, words=110)
    rows["doc-0007"] = (rows["doc-0007"][0], "Falk Orso left Quillon. Nobody saw it.")
    shutil.copytree(built.store, tmp_path / "store")
    chosen = children.settings(tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", rows))
    with command(tmp_path, "build", "-c", write_settings(tmp_path / "i.yaml", chosen), "--json") as stopped:
        stopped.wait_for("ingest:")
        stopped.signal(signal.SIGTERM)
        assert stopped.wait(60) == 130, stopped.err
        assert stopped.left_behind() == {}
    assert [*stopped.temporary.rglob("*"), *stopped.current.rglob("*")] == []
    assert runs.list_runs(open_store(tmp_path / "store"))[-1].state == "interrupted"
    fresh = children.settings(tmp_path / "fresh", tmp_path / "corpus.jsonl")
    assert children.build(chosen).manifest == children.build(fresh).manifest


def test_light_calls_run_here_and_none_after_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flows.cluster.open_cluster", fail)
    executor = OnDemand(tmp_path, 2)
    light = Call("a", sum, ([1, 2],), light=True)
    assert [result for _, result in executor.run([light])] == [3]
    assert list(executor.run([])) == []
    executor.stop()
    for call in (light, Call("b", sum, ([1],))):
        with pytest.raises(StoppedError):
            list(executor.run([call]))
    executor.close()


def test_workers_that_do_not_start_are_tried_once_and_the_first_call_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def broken(*arguments: object) -> None:
        tries.append(arguments)
        raise OSError("no more processes")

    monkeypatch.setattr("flows.cluster.open_cluster", broken)
    executor = OnDemand(tmp_path, 2)
    executor.expect()
    for number in range(2):
        with pytest.raises(OSError, match="no more processes"):
            list(executor.run([Call(f"a{number}", sum, ([1],))]))
    executor.close()
    assert len(tries) == 1


def test_what_opens_a_model_waits_for_workers_that_are_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor = OnDemand(tmp_path, 2)
    opens = Call("a", sum, ([1, 2],), light=True, warms=True)
    assert [result for _, result in executor.run([opens])] == [3]
    monkeypatch.setattr("flows.cluster.open_cluster", fail)
    executor.expect()
    with pytest.raises(AssertionError, match="not to be started"):
        list(executor.run([opens]))
    executor.close()


def note_process(folder: str) -> None:
    (Path(folder) / str(os.getpid())).touch()


def test_each_expected_worker_does_what_is_to_be_done_ahead(tmp_path: Path) -> None:
    noted, store = tmp_path / "noted", tmp_path / "store"
    noted.mkdir()
    init_store(store)
    with contextlib.closing(OnDemand(store, 2)) as executor:
        executor.expect(lambda: Call("ahead", note_process, (str(noted),)))
        assert [result for _, result in executor.run([Call("a", sum, ([1, 2],))])] == [3]
    pids = {int(path.name) for path in noted.iterdir()}
    assert len(pids) == 2
    assert os.getpid() not in pids
