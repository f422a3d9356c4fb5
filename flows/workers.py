"""Carry out a run: its steps, whose calls are computed in its process, on its own workers or on a running cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from flows.build_run import BuildOutcome, OpenRun, Order
from flows.lazy_cluster import LazyClusterExecutor
from tasks.core.executor import Executor
from tasks.core.isolate import DocumentsFailed
from tasks.pipeline.backfill import Together, backfill
from tasks.pipeline.build import Build

if TYPE_CHECKING:
    from distributed import Client


def carry_out(
    order: Order, run: OpenRun, together: Callable[[Build], Together], *, here_seconds: float = 0.0
) -> BuildOutcome:
    """Run the steps of an open run and finish it. If a step cannot process documents, all run again without them.

    here_seconds: see `workers`. Raises GateRefused for the gates of `OpenRun.finish`, and the errors of the steps.
    """
    build = run.build
    run.watch(order.progress)
    with workers(order, build, here_seconds) as executor:
        try:
            while True:
                build.executor = executor()
                try:
                    with order.interrupt.stops(build):
                        if order.waves is not None:
                            manifest = backfill(build, order.waves, together(build), run.publish)
                        else:
                            together(build)("", build.steps)
                            manifest = build.manifest()
                        break
                except DocumentsFailed as failed:
                    build.begin_again(failed)
        finally:
            build.update_costs()  # while the scheduler that counts them exists
        order.progress.doing("closing the workers")
    order.progress.doing("publishing")
    return run.finish(manifest)  # checks the gates, then commits


@contextlib.contextmanager
def workers(order: Order, build: Build, here_seconds: float = 0.0) -> Iterator[Callable[[], Executor]]:
    """Yield a function that returns an executor for each attempt at the steps.

    here_seconds: how long this process works before workers start. If the corpus files are those of the previous run,
    there is probably nothing to do, so workers start only for the first call that needs one.
    """
    settings = order.configuration
    dask = settings.run.dask
    idle = dask.address is None and not (order.waves or build.parent is None or build.cold or build.expects_work())
    with contextlib.ExitStack() as stack:

        @cache
        def client() -> Client:
            order.progress.doing("starting workers")
            from flows.cluster import private_cluster, send_spans  # Dask takes a second to load

            if dask.address is None and dask.cluster is None:
                places = () if settings.corpus is None else settings.corpus.places
                cluster = private_cluster(settings.run.workers, settings.store, settings.endpoints, places)
            else:
                from flows.remote_cluster import remote_cluster

                cluster = remote_cluster(dask, settings.store, settings.run.workers, order.progress.warn)
            connected = stack.enter_context(cluster)
            stack.callback(send_spans, connected)
            return connected

        def executor() -> Executor:
            from dask.system import CPU_COUNT

            from flows.dask_executor import DaskExecutor
            from flows.process_executor import ProcessExecutor
            from flows.remote_cluster import LocalFilesExecutor

            there = DaskExecutor(client(), dask.patience_seconds)
            if isinstance(settings.store, Path) or (dask.address is None and dask.cluster is None):
                return there
            readers = min(4, CPU_COUNT)  # on a machine that may be a small container
            return LocalFilesExecutor(there, stack.enter_context(ProcessExecutor(readers)))

        if not (idle or here_seconds):
            client()
        yield lambda: executor() if client.cache_info().currsize else LazyClusterExecutor(executor, here_seconds)
