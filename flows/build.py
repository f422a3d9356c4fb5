"""The Prefect flows of a build and a backfill: coarse tasks, each driving the executor of the run.

The flow says what waits for what, and shows it to people; receipts in the store are the truth about progress. Results
are never cached or kept by Prefect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.events.clients import NullEventsClient
from prefect.events.worker import EventsWorker
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from indexmill.manifest import Manifest
from tasks.backfill import Waves, backfill
from tasks.build import NEEDS, Build

__all__ = ["backfill_flow", "build_flow"]


@dataclass
class _Work:
    """A build at work, the stages of it that were begun before the flow, and the first failure.

    run: what the flow does, and returns the manifest of.
    """

    build: Build
    ahead: Mapping[str, Future[None]]
    run: Callable[[], Manifest]
    manifest: Manifest | None = None
    failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.build.executor.stop()


_AT_WORK: dict[str, _Work] = {}
"""The builds of this process by run id: a flow's parameters are only names, fit to be shown and kept."""


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{title}{stage}")
def _stage(stage: str, run_id: str, title: str) -> None:
    work = _AT_WORK[run_id]
    try:
        begun = work.ahead.get(stage)
        if begun is None:
            getattr(work.build, stage)()
        else:
            begun.result()
    except BaseException as error:
        work.fail(error)
        raise


def _flow(run_id: str) -> None:
    work = _AT_WORK[run_id]
    try:
        work.manifest = work.run()
    except BaseException as error:  # an interrupt too: without this, stages at work would be waited for to their end
        work.fail(error)
        raise


def _together(run_id: str, title: str, stages: Sequence[str]) -> None:
    """Run some stages, each after those of them that it needs."""
    running: dict[str, PrefectFuture[None]] = {}
    for stage in stages:
        waits = [running[need] for need in NEEDS.get(stage, ()) if need in running]
        running[stage] = _stage.submit(stage, run_id, title, wait_for=waits, return_state=False)
    for future in running.values():
        future.result()


def build_flow(build: Build, ahead: Mapping[str, Future[None]], *, private: bool) -> Manifest:
    """Run all stages of a build under Prefect and return the manifest they add up to.

    `ahead` are stages that were begun already, by name: their tasks wait for them. The first failure stops the other
    stages, and is what is raised. `private`: the server ends with this process.
    """

    def run() -> Manifest:
        _together(build.run_id, "", tuple(NEEDS))
        return build.manifest()

    return _run("indexmill-build", _Work(build, ahead, run), private)


def backfill_flow(
    build: Build,
    ahead: Mapping[str, Future[None]],
    waves: Waves,
    publish: Callable[[Manifest], None],
    *,
    private: bool,
) -> Manifest:
    """As `build_flow`, in waves: a task for each stage of a wave."""

    def run() -> Manifest:
        return backfill(build, waves, lambda title, stages: _together(build.run_id, title, stages), publish)

    return _run("indexmill-backfill", _Work(build, ahead, run), private)


def _run(name: str, work: _Work, private: bool) -> Manifest:
    run_id = work.build.run_id
    _AT_WORK[run_id] = work
    named = flow(name=name, flow_run_name="{run_id}", persist_result=False, validate_parameters=False)(_flow)
    try:
        with _unobserved() if private else contextlib.nullcontext():
            named(run_id)
    except Exception:
        if work.failure is not None:
            raise work.failure from None
        raise
    finally:
        del _AT_WORK[run_id]
    if work.manifest is None:
        raise RuntimeError(f"the flow {name} of run {run_id} ended without a manifest")
    return work.manifest


@contextlib.contextmanager
def _unobserved() -> Iterator[None]:
    """No signs of life and no events for a server that nobody but this process looks at.

    Events are sent behind the flow's back: those of a flow that ends early would be tried, for most of a minute, on a
    server that is gone.
    """
    EventsWorker.set_client_override(NullEventsClient)
    try:
        with temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
            yield
    finally:
        EventsWorker.set_client_override(None)
