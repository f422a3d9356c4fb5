"""A build as a flow of Prefect: its task runs, what each waits for, their states and logs, and the run's page."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

pytest.importorskip("prefect")

from prefect import flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import (
    ArtifactFilter,
    ArtifactFilterFlowRunId,
    FlowRunFilter,
    FlowRunFilterId,
    LogFilter,
    LogFilterFlowRunId,
)
from prefect.logging.handlers import APILogHandler

from flows import cancellation, deployed
from flows.build import TaskRuns, run_in_flow
from flows.build_run import Order
from indexmill.errors import GateRefused
from schemas.config import Configuration
from storage import runs
from storage.folder import open_folder
from tasks.core.executor import InlineExecutor, StoppedError
from tasks.core.report import RunReport, Silent
from tasks.core.step import Step
from tasks.pipeline.build import Build
from tasks.pipeline.run_setup import RunSetup
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run, write_settings

pytestmark = [pytest.mark.usefixtures("prefect_server"), pytest.mark.filterwarnings("ignore::ResourceWarning")]


@dataclass
class Seen:
    """A flow run as its server shows it."""

    name: str
    type: str
    message: str
    flow: str
    tasks: dict[str, Any]
    logs: list[tuple[str, str]]  # the task of each, "" for the flow, and what it says
    artifacts: dict[str | None, Any]  # by key

    def needs(self, name: str) -> set[str]:
        """The task runs that one waits for."""
        names = {run.id: run.name for run in self.tasks.values()}
        return {names[need.id] for need in self.tasks[name].task_inputs.get("wait_for", [])}


def seen(since: int) -> Seen:
    """The newest flow run, the only one since so many."""
    APILogHandler().flush()
    with get_client(sync_client=True) as client:
        found = client.read_flow_runs()
        assert len(found) == since + 1
        run = max(found, key=lambda one: one.created)
        mine = FlowRunFilter(id=FlowRunFilterId(any_=[run.id]))
        deadline = time.monotonic() + 60
        while True:  # what happened to tasks is told behind the flow's back
            tasks = client.read_task_runs(flow_run_filter=mine)
            if tasks and all(
                (one.state is not None and one.state.is_final()) or one.state_name == "NotReady" for one in tasks
            ):
                break
            assert time.monotonic() < deadline, [(one.name, one.state_name) for one in tasks]
            time.sleep(0.2)
        names = {one.id: one.name for one in tasks}
        logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run.id])), limit=200)
        pages = client.read_artifacts(
            artifact_filter=ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[run.id]))
        )
        assert run.state is not None
        return Seen(
            run.state.name or "",
            run.state.type.value,
            run.state.message or "",
            client.read_flow(run.flow_id).name,
            {one.name: one for one in tasks},
            [(names.get(cast(UUID, log.task_run_id), ""), log.message) for log in logs],
            {one.key: one.data for one in pages},
        )


def flow_runs() -> int:
    with get_client(sync_client=True) as client:
        return len(client.read_flow_runs())


@pytest.fixture
def chosen(tmp_path: Path) -> dict[str, Any]:
    corpus = write_corpus(tmp_path / "corpus.jsonl", documents(12))
    return settings(tmp_path / "store", corpus, run={"workers": 1}, gates={"max_shrink": 0.5})


@pytest.mark.end_to_end
def test_a_first_build_a_night_and_a_refusal_are_flow_runs(chosen: dict[str, Any], tmp_path: Path) -> None:
    path = str(write_settings(tmp_path / "i.yaml", chosen))
    configuration = Configuration.model_validate(chosen)
    setup = RunSetup(
        store=cast(Any, None), configuration=configuration, executor=InlineExecutor(), run_id="run", progress=Silent()
    )
    steps = Build(setup).steps

    before = flow_runs()
    deployed.refresh(path, return_state=True)
    first = seen(before)
    assert (first.flow, first.name, first.type) == ("indexmill-refresh", "Published", "COMPLETED")
    assert first.message == "version 1: 12 documents, 12 passages, 0 rows refused"
    assert list(first.tasks.keys() - {step.name for step in steps}) == []
    assert "community_tree" not in first.tasks  # it is disabled
    for step in steps:
        assert first.tasks[step.name].state_name == "Completed"
        assert first.needs(step.name) == {need for need in step.needs if need in first.tasks}
    (said,) = [message for task, message in first.logs if task == "split" and message.startswith("split: ")]
    assert " made, 0 reused in " in said
    assert first.artifacts.keys() == {"indexmill-run", "indexmill-progress"}
    page = str(first.artifacts["indexmill-run"])
    assert "| split | " in page
    assert "Published: version 1, 12 documents" in page

    before = flow_runs()
    deployed.refresh(path, return_state=True)
    night = seen(before)
    assert (night.name, night.type, night.message) == ("Unchanged", "COMPLETED", "version 1 is up to date")
    assert night.tasks.keys() == first.tasks.keys()
    (said,) = [message for task, message in night.logs if task == "split" and message.startswith("split: ")]
    assert "split: 0 made, " in said

    before = flow_runs()
    write_corpus(tmp_path / "corpus.jsonl", documents(4))
    deployed.refresh(path, return_state=True)
    refused = seen(before)
    assert (refused.name, refused.type) == ("Refused", "FAILED")
    assert "Nothing was published" in refused.message
    states = {name: task.state_name for name, task in refused.tasks.items()}
    assert (states["scan"], states["ingest"], states["check"]) == ("Refused", "NotReady", "NotReady")
    assert refused.tasks["scan"].state.message == refused.message
    everything = "\n".join(message for _, message in refused.logs)
    assert refused.message.split(".")[0] in everything
    assert "Traceback" not in everything
    assert "NoneType" not in everything
    assert "GateRefused" in str(refused.artifacts["indexmill-run"])
    assert [run.state for run in runs.list_runs(open_folder(chosen["store"]))] == ["published", "unchanged", "refused"]


def test_a_cluster_without_tls_is_looked_for_where_it_is_allowed(
    run: Run, prefect_environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.remote_cluster._CONNECT", "100ms")
    for name, value in prefect_environment.items():
        monkeypatch.setenv(name, value)
    write_corpus(tmp_path / "c.jsonl", documents(1))
    build = ("build", "--corpus", "c.jsonl", "--store", "s", "--dask", "tcp://192.0.2.1:8786")
    assert run(*build, "--insecure-cluster") == 2
    assert "no Dask scheduler answers there" in run.err


@pytest.mark.slow
def test_bad_input_is_a_state_of_its_own(chosen: dict[str, Any], tmp_path: Path) -> None:
    path = str(write_settings(tmp_path / "i.yaml", {**chosen, "embed": {"model": "unheard-of"}}))
    state = deployed.refresh(path, return_state=True)
    assert (state.name, state.type.value) == ("BadInput", "FAILED")
    assert "unheard-of" in (state.message or "")


@pytest.mark.slow
def test_a_backfill_names_its_task_runs_after_their_waves(chosen: dict[str, Any], tmp_path: Path) -> None:
    expected = build(settings(tmp_path / "other", tmp_path / "corpus.jsonl")).manifest
    chosen["run"] = {"workers": 1, "wave_shards": 1}
    path = str(write_settings(tmp_path / "i.yaml", chosen))
    before = flow_runs()
    deployed.backfill(path, publish_every=1, return_state=True)
    waves = seen(before)
    assert (waves.flow, waves.name) == ("indexmill-backfill", "Published")
    last = max(int(name.split(" of ")[1].split(":")[0]) for name in waves.tasks if name.startswith("wave "))
    assert last > 1
    assert waves.needs(f"wave 1 of {last}: split") == {f"wave 1 of {last}: ingest"}
    assert f"wave {last} of {last}: recognise" in waves.needs("resolve")
    with_manifest = runs.list_runs(open_folder(chosen["store"]))[-1]
    assert with_manifest.end is not None
    assert with_manifest.end.manifest == expected


@pytest.mark.slow
def test_a_flow_run_that_is_cancelled_ends_the_run(chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancellation, "_POLL_SECONDS", 0.1)

    class Waiting(Silent):
        def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
            if stage == "ingest":
                from prefect.runtime import flow_run
                from prefect.states import Cancelled

                with get_client(sync_client=True) as client:
                    client.set_flow_run_state(UUID(flow_run.id), Cancelled(), force=True)
                time.sleep(2)

    before = flow_runs()
    order = Order(Configuration.model_validate(chosen), Waiting())
    with pytest.raises(KeyboardInterrupt, match="a cancellation in Prefect"):
        run_in_flow(order)
    cancelled = seen(before)
    assert cancelled.type == "CANCELLED"
    assert runs.list_runs(open_folder(chosen["store"]))[-1].state == "interrupted"
    assert build(chosen).published


class Failing:
    """A build of two steps: one is stopped by what has failed in the other, before that says so."""

    def __init__(self) -> None:
        self.executor: Any = self
        self.report = RunReport()
        self.stops: list[bool] = []
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self.store, self.run_id = self, "run"

    def scratch(self, run_id: str) -> Path:
        return Path(run_id)

    def stop(self, *, at_once: bool = True) -> None:
        self.stops.append(at_once)
        self._ended.set()

    def asks(self, _: Any) -> None:
        self._stopped.set()
        self._ended.wait(10)
        raise GateRefused("why it ended")

    def waits(self, _: Any) -> None:
        self._stopped.wait(10)
        raise StoppedError


def test_what_ended_the_asking_is_raised_and_not_that_others_were_stopped_by_it() -> None:
    failing = Failing()

    @flow(persist_result=False)
    def both() -> None:
        steps = [Step("asks", failing.asks), Step("waits", failing.waits)]
        with pytest.raises(GateRefused, match="why it ended"):
            TaskRuns(cast(Build, failing)).together("", steps)

    before = flow_runs()
    both()
    assert failing.stops == [False, False]
    shown = seen(before)
    assert {name: task.state_name for name, task in shown.tasks.items()} == {"asks": "Refused", "waits": "Stopped"}
