"""A build as commands run it: as a flow on the Prefect server of `PREFECT_API_URL`.

Without it, a small refresh runs its steps in this process, one after the other; anything larger is a flow on a private
server, which no other user can access.
"""

from __future__ import annotations

import os
from typing import Unpack

from flows.build_run import BuildOptions, BuildOutcome, OpenRun, Order, one_by_one
from flows.interrupt import Interrupt
from flows.prefect_server import answers, private_prefect
from flows.run_log import logged
from flows.workers import carry_out
from schemas.config import Configuration
from tasks.core.process_environment import ONE_THREAD, variables_set
from tasks.core.report import Progress
from tasks.pipeline.backfill import Waves

_CONSOLE = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"

_HERE_SECONDS = 10.0
"""Seconds of work after which a small refresh starts workers: about the processor time that starting them takes."""


def build_under_prefect(
    configuration: Configuration,
    *,
    progress: Progress,
    waves: Waves | None = None,
    **options: Unpack[BuildOptions],
) -> BuildOutcome:
    """Bring the store of a configuration up to date with its corpus; raises the error of a build that does not commit.

    waves: the waves of a backfill. Without `PREFECT_API_URL`, preflight checks run before a server or workers start.
    """
    command = "build" if waves is None else "backfill"
    with logged(command, configuration, progress) as log:
        outcome = _build(Order(configuration, log.progress, waves, options, Interrupt(log.progress.note)))
        log.ended(outcome)
        return outcome


def _build(order: Order) -> BuildOutcome:
    progress = order.progress
    if (dask := order.configuration.run.dask).address is not None:
        from flows.remote_cluster import check_address  # Dask takes a second to load

        check_address(dask)
    with order.interrupt.installed():
        if url := os.environ.get("PREFECT_API_URL"):
            progress.doing("connecting to the Prefect server of PREFECT_API_URL")
            if answers(url):
                progress.doing("loading Prefect and Dask")
                os.environ.setdefault(_CONSOLE, "CRITICAL")  # the command prints the content of the logs itself
                from flows.build import run_in_flow  # Prefect reads its environment as it is imported

                return run_in_flow(order)
            progress.warn(f"the Prefect server at {url} does not answer: it does not show this run")
        order.private = True
        progress.doing("checking the store and the corpus")
        with order.open() as run:
            own_workers = dask.address is None and dask.cluster is None
            if order.waves is None and own_workers and run.build.expects_small_refresh():
                return _run_here(order, run)
            return _run_with_private_server(order)


def _run_here(order: Order, run: OpenRun) -> BuildOutcome:
    """Run the steps one after the other, with one thread for native code, as workers have."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), variables_set(ONE_THREAD):  # libraries that are loaded, and those to come
        return carry_out(order, run, one_by_one, here_seconds=_HERE_SECONDS)


def _run_with_private_server(order: Order) -> BuildOutcome:
    progress = order.progress
    with private_prefect(order.configuration.endpoints, progress.warn) as server:
        progress.doing("loading Prefect and Dask")
        from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

        from flows.build import run_in_flow  # while the server starts

        progress.doing("waiting for the Prefect server of this run to start")
        server.wait()
        progress.doing("beginning the flow run")
        with temporary_settings({PREFECT_API_URL: server.url, PREFECT_API_AUTH_STRING: server.password}):
            return run_in_flow(order)
