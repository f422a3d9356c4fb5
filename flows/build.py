"""The Prefect flow of a build: a dozen coarse tasks, each driving the executor of the run.

The flow says what waits for what, and shows it to people; receipts in the store are the truth about progress. Results
are never cached or kept by Prefect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.events.clients import NullEventsClient
from prefect.events.worker import EventsWorker
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

from indexmill.manifest import Manifest
from tasks.build import NEEDS, Build

__all__ = ["build_flow"]


@dataclass
class _Work:
    """A build at work, the stages of it that were begun before the flow, and the first failure."""

    build: Build
    ahead: Mapping[str, Future[None]]
    failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.build.executor.stop()


_AT_WORK: dict[str, _Work] = {}
"""The builds of this process by run id: a flow's parameters are only names, fit to be shown and kept."""


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{stage}")
def _stage(stage: str, run_id: str) -> None:
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


@flow(name="indexmill-build", flow_run_name="{run_id}", persist_result=False, validate_parameters=False)
def _flow(run_id: str) -> None:
    running: dict[str, PrefectFuture[None]] = {}
    try:
        for stage, needs in NEEDS.items():
            waits = [running[need] for need in needs]
            running[stage] = _stage.submit(stage, run_id, wait_for=waits, return_state=False)
        for future in running.values():
            future.result()
    except BaseException as error:  # an interrupt too: without this, stages at work would be waited for to their end
        _AT_WORK[run_id].fail(error)
        raise


def build_flow(build: Build, ahead: Mapping[str, Future[None]], *, private: bool) -> Manifest:
    """Run all stages of a build under Prefect and return the manifest they add up to.

    `ahead` are stages that were begun already, by name: their tasks wait for them. The first failure stops the other
    stages, and is what is raised. `private`: the server ends with this process.
    """
    work = _AT_WORK[build.run_id] = _Work(build, ahead)
    try:
        with _unobserved() if private else contextlib.nullcontext():
            _flow(build.run_id)
    except Exception:
        if work.failure is not None:
            raise work.failure from None
        raise
    finally:
        del _AT_WORK[build.run_id]
    return build.manifest()


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
