"""The Dask side: a local cluster of processes or a running one, and the executor that stages hand their calls to.

Keys, jobs and receipts travel; tables do not. One thread per worker process, so that native code has a core to itself.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import os
import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Future, LocalCluster
from distributed.deploy.spec import close_clusters
from distributed.scheduler import KilledWorker

from indexmill.errors import BadInput, IndexmillError
from tasks.environment import code_digest, environment_fingerprint
from tasks.executor import Call, StoppedError

__all__ = ["DaskExecutor", "open_cluster"]

_CONNECT = "30s"
_SETTINGS = {
    "distributed.worker.daemon": True,  # workers die with the process that started them
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.work-stealing-interval": "100ms",  # an idle worker waits for no other's queue
    "distributed.comm.timeouts.connect": _CONNECT,
    "distributed.worker.memory.target": False,  # parts live in the store; nothing is worth spilling
    "distributed.worker.memory.spill": False,
    # Native code holds a worker's loop for longer than the defaults, and what looks at it takes part of its core.
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.worker.preload": ["flows.worker"],
}


_WINDOW = 64
"""Calls of a stage that the scheduler knows of at a time, unless there are more than a quarter as many threads."""


class DaskExecutor:
    """Runs calls on a Dask client, yielding results as they come."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()

    def run(self, calls: Iterable[Call], *, priority: int = 0) -> Iterator[tuple[Call, Any]]:
        """Submit calls a window ahead of their results. Raises what a call raised; one that kills workers is named."""
        window = max(_WINDOW, 4 * sum(self._client.nthreads().values()))
        done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        seen: set[str] = set()
        begun: dict[str, tuple[Call, Future[Any]]] = {}
        waiting = iter(calls)

        def submit(most: int) -> None:
            for call in itertools.islice((call for call in waiting if call.key not in seen), most):
                seen.add(call.key)
                future = self._client.submit(
                    call.function, *call.arguments, key=call.key, priority=priority, pure=True, retries=0
                )
                begun[call.key] = call, future
                future.add_done_callback(done.put)

        try:
            submit(window)
            while begun:
                future = self._next(done)
                try:
                    result = future.result()
                except KilledWorker as error:
                    raise IndexmillError(
                        f"the work {future.key} ended {error.allowed_failures + 1} worker processes (out of memory, or "
                        "a crash in native code); what was finished is kept: run the build again, with fewer workers "
                        "if memory is short"
                    ) from error
                call, _ = begun.pop(str(future.key))
                future.release()
                submit(1)
                yield call, result
        finally:
            for _, future in begun.values():
                future.release()  # what nobody waits for is not started

    def stop(self) -> None:
        """Start no further call; what a worker is at is left to it."""
        self._stopped.set()

    def _next(self, done: queue.SimpleQueue[Future[Any]]) -> Future[Any]:
        while not self._stopped.is_set():
            with contextlib.suppress(queue.Empty):
                return done.get(timeout=0.2)
        raise StoppedError


@contextmanager
def open_cluster(address: str | None, workers: int | None, store: Path) -> Iterator[Client]:
    """A client of a running scheduler, or of a private local cluster that ends with the block.

    Raises BadInput where a worker does not see the store, or runs other code or libraries than this process.
    """
    if address is None:
        count = workers or os.cpu_count() or 1
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by the workers
        with (
            tempfile.TemporaryDirectory(prefix="indexmill-dask-") as scratch,
            dask.config.set(_SETTINGS | {"temporary-directory": scratch}),
            _local_cluster(count) as cluster,
            Client(cluster) as client,
        ):
            yield client
        return
    try:
        client = Client(address, timeout=_CONNECT)
    except (OSError, ValueError) as error:
        raise BadInput(f"--dask {address}: no scheduler answers there: {error}") from error
    with client:
        _prove_workers(client, store)
        yield client


@contextmanager
def _local_cluster(count: int) -> Iterator[LocalCluster]:
    try:
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            # Without a dashboard the scheduler still listens on port 8787, and warns where that is taken.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            memory_limit=0,
            silence_logs=50,
        )
    except BaseException:
        # Interrupted half-way it cannot be closed, and the attempt at exit would say so; its processes die with us.
        atexit.unregister(close_clusters)
        raise
    with cluster:
        yield cluster


def _prove_workers(client: Client, store: Path) -> None:
    """Every worker sees this store and runs this code on these libraries, or the run does not start."""
    here = (True, code_digest(), environment_fingerprint())
    answers = client.run(_describe_worker, str(store.resolve()))
    if not answers:
        raise BadInput("the Dask scheduler has no workers; start some, then run the build again")
    for worker, answer in sorted(answers.items()):
        for what, found, expected in zip(("sees the store", "code", "environment"), answer, here, strict=True):
            if found != expected:
                raise BadInput(
                    f"worker {worker} is not fit for this run: {what}: found {found!r}, expected {expected!r}"
                )


def _describe_worker(store: str) -> tuple[bool, str, dict[str, str]]:
    return (Path(store) / "store.json").is_file(), code_digest(), environment_fingerprint()
