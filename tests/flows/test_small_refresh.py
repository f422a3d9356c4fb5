"""A small refresh by a plain command: in one process, without a server and workers, until there is more to do."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("prefect")

from flows.build_run import BuildOutcome, Order
from flows.lazy_cluster import LazyClusterExecutor
from flows.local import build_under_prefect
from flows.workers import workers
from schemas.config import Configuration
from storage import runs
from storage.folder import open_folder
from tasks.core.executor import Call, InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.backfill import Waves
from tests.corpora import Documents, documents, write_corpus
from tests.flows import children
from tests.flows.built import Built
from tests.flows.children import collect
from tests.flows.commands import command, write_settings


class WorkersNeeded(Exception):
    """A server or workers were started."""


@contextlib.contextmanager
def refuse(*_: object) -> Iterator[None]:
    raise WorkersNeeded
    yield


@pytest.fixture(scope="module")
def first(memory: Path) -> Path:
    """A store of eight documents."""
    children.build(children.settings(memory / "store", write_corpus(memory / "corpus.jsonl", documents(8))))
    return memory / "store"


@pytest.fixture
def chosen(first: Path, quick: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a copy whose corpus has changed by a document; neither a server nor workers can start."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr("flows.local.private_prefect", refuse)
    monkeypatch.setattr("flows.cluster.private_cluster", refuse)
    shutil.copytree(first, quick / "store")
    return children.settings(quick / "store", write_corpus(quick / "corpus.jsonl", edited(documents(8))))


def edited(rows: Documents) -> Documents:
    """The same with another text of a document."""
    return rows | {"doc-0007": (rows["doc-0007"][0], "Falk Orso left Quillon. Nobody saw it.")}


def build(settings: dict[str, Any], **options: Any) -> BuildOutcome:
    return build_under_prefect(Configuration.model_validate(settings), progress=Silent(), **options)


def test_a_small_refresh_starts_nothing_and_equals_a_first_build(chosen: dict[str, Any], quick: Path) -> None:
    outcome = build(chosen)
    assert outcome.published
    assert outcome.manifest == children.build(chosen | {"store": str(quick / "fresh")}).manifest
    assert not build(chosen).published


def test_what_takes_longer_than_workers_take_to_start_starts_them(
    chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.local._HERE_SECONDS", 1e-9)
    with pytest.raises(WorkersNeeded):
        build(chosen)


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"store": "another"}, {}),
        ({"split": {"tokens": 64}}, {}),
        ({"run": {"dask": {"cluster": "distributed.LocalCluster"}}}, {}),
        ({}, {"cold": True}),
        ({}, {"full": True}),
        ({}, {"waves": Waves()}),
    ],
)
def test_anything_larger_is_a_flow(
    chosen: dict[str, Any], changes: dict[str, Any], options: dict[str, Any], quick: Path
) -> None:
    changes |= {"store": str(quick / changes["store"])} if "store" in changes else {}
    with pytest.raises(WorkersNeeded):
        build(chosen | changes, **options)


@pytest.mark.parametrize(
    "limit", ["run_corpus.FEW_BYTES", "run_corpus.FEW_FILES", "corpus_run.LARGE_INDEX", "corpus_run.code_digest"]
)
def test_large_changes_and_large_indexes_are_a_flow(
    chosen: dict[str, Any], limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"tasks.pipeline.{limit}", (lambda: "another") if limit.endswith("digest") else 0)
    with pytest.raises(WorkersNeeded):
        build(chosen)


def test_after_a_run_that_did_not_end_well_a_refresh_is_a_flow(chosen: dict[str, Any]) -> None:
    with pytest.raises(WorkersNeeded):
        build(chosen, cold=True)
    collect(chosen["store"])  # a run of another command that ends well
    with pytest.raises(WorkersNeeded):
        build(chosen)


def test_heavy_calls_run_here_for_so_long_and_then_on_workers() -> None:
    there: list[InlineExecutor] = []

    def start() -> InlineExecutor:
        there.append(InlineExecutor())
        return there[-1]

    heavy = [Call(str(number), sum, ([number, 1],)) for number in range(3)]
    executor = LazyClusterExecutor(start, 60.0)
    assert [result for _, result in executor.run(heavy)] == [1, 2, 3]
    assert not there
    assert [result for _, result in executor.run([*heavy, Call("asking", sum, ([1],), asks=True)])] == [1, 2, 3, 1]
    assert len(there) == 1
    executor = LazyClusterExecutor(start, 1e-9)
    assert [result for _, result in executor.run(heavy)] == [1, 2, 3]
    assert len(there) == 2


def test_steps_that_begin_again_share_the_workers(
    chosen: dict[str, Any], quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts: list[object] = []

    @contextlib.contextmanager
    def cluster(*_: object) -> Iterator[object]:
        starts.append(object())
        yield starts[-1]

    monkeypatch.setattr("flows.cluster.private_cluster", cluster)
    monkeypatch.setattr("flows.cluster.send_spans", lambda client: None)
    monkeypatch.setattr("flows.dask_executor.DaskExecutor", lambda client, seconds: InlineExecutor())
    order = Order(Configuration.model_validate(chosen), Silent())
    with order.open() as run, workers(order, run.build, 1e-9) as executor:
        heavy = [Call(str(number), sum, ([number, 1],)) for number in range(3)]
        for _ in range(2):
            assert [result for _, result in executor().run(heavy)] == [1, 2, 3]
    assert len(starts) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_small_refresh_that_is_ended_goes_on_with_workers(built: Built, tmp_path: Path, number: int) -> None:
    shutil.copytree(built.store, tmp_path / "store")
    chosen = children.settings(
        tmp_path / "store", write_corpus(tmp_path / "corpus.jsonl", edited(documents(24, words=110)))
    )
    argv = ["build", "-c", write_settings(tmp_path / "i.yaml", chosen), "--json"]
    with command(tmp_path, *argv) as ended:
        ended.wait_for("ingest:")
        assert ended.processes() == {}  # but for its own
        ended.signal(number)
        assert ended.wait(60) == (130 if number == signal.SIGTERM else -number), ended.err
        assert ended.left_behind() == {}
    last = runs.list_runs(open_folder(tmp_path / "store"))[-1].state
    assert last == ("interrupted" if number == signal.SIGTERM else "killed")
    with command(tmp_path, *argv) as going_on:
        going_on.wait_for("split:")
        assert any("flows.prefect_server" in words for words in going_on.processes().values())
        assert going_on.wait(300) == 0, going_on.err
    fresh = children.settings(tmp_path / "fresh", tmp_path / "corpus.jsonl")
    assert going_on.json()["manifest"] == children.build(fresh).manifest
