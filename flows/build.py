"""The Prefect flows of a build and of a backfill: they show people what the stages do, and what waits for what.

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
    PREFECT_API_AUTH_STRING,
    PREFECT_API_REQUEST_TIMEOUT,
    PREFECT_CLIENT_MAX_RETRIES,
    PREFECT_FLOWS_HEARTBEAT_FREQUENCY,
    temporary_settings,
)

from tasks.registry import STEPS

__all__ = ["show_flow"]

_AT_WORK: dict[str, Mapping[str, Future[None]]] = {}
"""Stages at work by the name of their flow run: a flow's parameters are only names, fit to be shown and kept."""


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{stage}")
def _stage(stage: str, run: str) -> None:
    _AT_WORK[run][stage].result()


def _flow(run: str) -> None:
    shown: dict[str, PrefectFuture[None]] = {}
    needs = {step.name: step.needs for step in STEPS}
    for stage in _AT_WORK[run]:
        waits = [shown[need] for need in needs[stage] if need in shown]
        shown[stage] = _stage.submit(stage, run, wait_for=waits, return_state=False)
    for future in shown.values():
        future.result()


def show_flow(name: str, run: str, stages: Mapping[str, Future[None]], *, password: str | None) -> None:
    """Show stages at work on the Prefect server until they have ended; raises what a stage or the server raised.

    name, run: those of the flow and of its run. password: of a private server, which ends with this process, is asked
    for little and never twice.
    """
    _AT_WORK[run] = stages
    shown = flow(name=name, flow_run_name="{run}", persist_result=False, validate_parameters=False)(_flow)
    try:
        with contextlib.nullcontext() if password is None else _unobserved(password):
            shown(run)
    finally:
        del _AT_WORK[run]


@contextlib.contextmanager
def _unobserved(password: str) -> Iterator[None]:
    """No signs of life and no events for a server that nobody but this process looks at.

    Events are sent behind the flow's back: those of a flow that ends early would be tried, for most of a minute, on a
    server that is gone.
    """
    EventsWorker.set_client_override(NullEventsClient)
    try:
        with temporary_settings(
            {
                PREFECT_API_AUTH_STRING: password,
                PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None,
                PREFECT_CLIENT_MAX_RETRIES: 0,
                PREFECT_API_REQUEST_TIMEOUT: 20.0,
            }
        ):
            yield
    finally:
        EventsWorker.set_client_override(None)
