"""A build as commands run it: the flow of `flows.build`, in this process, with a Prefect server.

The server is that of `PREFECT_API_URL`, or a private one that no other user can access.
"""

from __future__ import annotations

import os
from typing import Unpack

from flows.build_run import BuildOptions, BuildOutcome, Order
from flows.interrupt import Interrupt
from flows.prefect_server import answers, private_prefect
from flows.run_log import logged
from schemas.config import Configuration
from tasks.core.report import Progress
from tasks.pipeline.backfill import Waves

_CONSOLE = "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL"


def build_under_prefect(
    configuration: Configuration,
    *,
    progress: Progress,
    waves: Waves | None = None,
    **options: Unpack[BuildOptions],
) -> BuildOutcome:
    """Bring the store of a configuration up to date with its corpus; raises the error of a build that does not commit.

    waves: the waves of a backfill. With a private server, preflight checks run before the server and the workers start.
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
        with order.open(), private_prefect(order.configuration.endpoints, progress.warn) as server:
            progress.doing("loading Prefect and Dask")
            from prefect.settings import PREFECT_API_AUTH_STRING, PREFECT_API_URL, temporary_settings

            from flows.build import run_in_flow  # while the server starts

            progress.doing("waiting for the Prefect server of this run to start")
            server.wait()
            progress.doing("beginning the flow run")
            with temporary_settings({PREFECT_API_URL: server.url, PREFECT_API_AUTH_STRING: server.password}):
                return run_in_flow(order)
