"""The Prefect flow of a build: it shows people what the stages do, and what waits for what.

The stages run beside it, in threads of the run, and a task of the flow only waits for its stage. So a server that dies
or hangs takes nothing with it: receipts in the store are the truth about progress. Results are never cached or kept by
Prefect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.events.clients import NullEventsClient
from prefect.events.worker import EventsWorker
from prefect.futures import PrefectFuture
from prefect.settings import (
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    temporary_settings,
)

from tasks.build import NEEDS

__all__ = ["show_flow"]

_AT_WORK: dict[str, Mapping[str, Future[None]]] = {}
"""The stages of this process's builds by run id: a flow's parameters are only names, fit to be shown and kept."""


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{stage}")
def _stage(stage: str, run_id: str) -> None:
    _AT_WORK[run_id][stage].result()


@flow(name="indexmill-build", flow_run_name="{run_id}", persist_result=False, validate_parameters=False)
def _flow(run_id: str) -> None:
    shown: dict[str, PrefectFuture[None]] = {}
    for stage, needs in NEEDS.items():
        shown[stage] = _stage.submit(stage, run_id, wait_for=[shown[need] for need in needs], return_state=False)
    for future in shown.values():
        future.result()


def show_flow(run_id: str, stages: Mapping[str, Future[None]], *, private: bool) -> None:
    """Show stages at work on the Prefect server until they have ended; raises what a stage or the server raised.

    `private`: the server ends with this process, is asked for little and never twice.
    """
    _AT_WORK[run_id] = stages
    try:
        with _unobserved() if private else contextlib.nullcontext():
            _flow(run_id)
    finally:
        del _AT_WORK[run_id]


@contextlib.contextmanager
def _unobserved() -> Iterator[None]:
    """No signs of life and no events for a server that nobody but this process looks at.

    Events are sent behind the flow's back: those of a flow that ends early would be tried, for most of a minute, on a
    server that is gone.
    """
    EventsWorker.set_client_override(NullEventsClient)
    try:
        with temporary_settings(
            {
                PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
                PREFECT_CLIENT_MAX_RETRIES: 0,
                PREFECT_API_REQUEST_TIMEOUT: 20.0,
            }
        ):
            yield
    finally:
        EventsWorker.set_client_override(None)
