"""A Dask cluster for one run: worker processes on this machine, each with one thread, so native code has a core."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import dask
from distributed import Client
from distributed.security import Security

from flows.credentials import dask_settings, write_credentials
from flows.scratch import scratch_folder
from flows.worker_processes import PrivateCluster, recorded_ends
from indexmill import telemetry, telemetry_sdk
from indexmill.errors import IndexmillError
from schemas.config import EndpointSettings
from schemas.sources import SourceSettings
from storage.write_errors import check_room
from tasks.core.process_environment import ONE_THREAD, secret_variables, worker_environment

_T = TypeVar("_T")

_CONNECT = "30s"
_CLOSE = 10.0
_START = 60.0
_SEND = 10.0
"""The maximum seconds for a client to close, for a cluster to start after the run was interrupted, and for workers to
send their spans."""
_LOG_LEVEL = logging.CRITICAL + 1
"""The level of Dask's own logs, above every message: failures reach the run as exceptions."""
_LOGGERS = ("distributed", "distributed.client", "distributed.gc")
"""Dask's loggers with their own level; its other loggers inherit the level of the first."""
_PRELOAD = "flows.dask_preload"
_SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": 1,
    "distributed.scheduler.work-stealing-interval": "100ms",  # an idle worker soon takes over others' queued tasks
    # Dask closes a nanny for good if its worker is away this long after it ended, even if it has ended again meanwhile.
    "distributed.deploy.lost-worker-timeout": "52w",
    "distributed.comm.timeouts.connect": _CONNECT,
    "distributed.worker.memory.target": False,  # parts live in the store; nothing is worth spilling
    "distributed.worker.memory.spill": False,
    # Native code blocks a worker's loop for longer than the defaults, and monitoring takes part of its core.
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.worker.profile.enabled": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.pre-spawn-environ": {
        **ONE_THREAD,  # native code of each worker has one core
        "PYTHONSAFEPATH": "1",  # a worker would import from the current folder first
    },
}


class _Closable(Protocol):
    def close(self) -> Any: ...


_C = TypeVar("_C", bound=_Closable)


@contextmanager
def private_cluster(
    workers: int | None,
    store: Path | str,
    endpoints: Sequence[EndpointSettings] = (),
    places: Sequence[SourceSettings] = (),
) -> Iterator[Client]:
    """Start worker processes on this machine, with their own TLS keys, and yield a client; they end with the block.

    workers: the number of processes; None for one per core. endpoints: the endpoints that stages may call; workers get
    their keys.

    Raises IndexmillError if the worker processes do not start.
    """
    count = workers or os.cpu_count() or 1
    with (
        scratch_folder() as scratch,
        _private_settings(scratch),
        _private_environment(endpoints, store, places),
        recorded_ends() as ends,
        _started(ends, count, worker_environment(endpoints, store, places)) as cluster,
        closing(Client(cluster)) as client,  # a plain `with` would have to end in the thread where it began
    ):
        yield client


@contextmanager
def _private_settings(scratch: Path) -> Iterator[None]:
    """Apply Dask's settings for a private cluster, whose files are in a folder of this process."""
    write_credentials(scratch)
    preloads = {
        name: [*(dask.config.get(name, None) or []), _PRELOAD]
        for name in ("distributed.scheduler.preload", "distributed.worker.preload")
    }
    settings = _SETTINGS | preloads | dask_settings(scratch) | {"temporary-directory": str(scratch)}
    with dask.config.set(settings), quiet_logs():
        yield


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keep Dask in this process from logging during the block."""
    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    for name in levels:
        logging.getLogger(name).setLevel(_LOG_LEVEL)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _private_environment(
    endpoints: Sequence[EndpointSettings], store: Path | str, places: Sequence[SourceSettings]
) -> Iterator[None]:
    """Keep the secrets of `os.environ` from processes started during the block: nannies may start workers at any time.

    The secrets of the store and of the sources are not withheld, since native code of this process reads them.

    Dask leaves the variables for workers in `os.environ`, which is restored after the block.
    """
    before = dict(os.environ)
    secrets = {name: before[name] for name in secret_variables(endpoints, store, places)}
    try:
        for name in secrets:
            os.unsetenv(name)
        yield
    finally:
        for name, value in secrets.items():
            os.putenv(name, value)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]


def _started(ends: deque[str], count: int, environment: Mapping[str, str]) -> PrivateCluster:
    """Start a private cluster; raises IndexmillError if a worker process does not start."""
    make = functools.partial(
        PrivateCluster,
        ends,
        n_workers=count,
        threads_per_worker=1,
        memory_limit=0,
        host="127.0.0.1",
        protocol="tls://",
        security=Security(),  # from Dask's settings
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
        env=environment,
        silence_logs=_LOG_LEVEL,
    )
    try:
        return started(make)
    except RuntimeError as error:
        check_room()  # Dask does not say why a worker does not start
        raise IndexmillError(f"the worker processes do not start: {'; '.join(ends) or error}") from error


@contextmanager
def closing(client: Client) -> Iterator[Client]:
    """Close a client after the block in bounded time, even if its scheduler no longer answers."""
    try:
        yield client
    finally:
        with contextlib.suppress(OSError):  # TimeoutError is an OSError
            client.close(timeout=_CLOSE)


def started(make: Callable[[], _C]) -> _C:
    """Start a cluster.

    It starts in a separate thread, which no signal interrupts: a half-started cluster would leave folders behind. If
    this thread is interrupted meanwhile, the cluster is closed once it has started.
    """
    start: concurrent.futures.Future[_C] = concurrent.futures.Future()
    try:
        in_thread("start-cluster", make, start)
        return start.result()
    except KeyboardInterrupt:
        if not start.cancel():  # the start cannot be cancelled
            with contextlib.suppress(Exception):  # it failed, or never ends: the run is interrupted anyway
                start.result(_START).close()
        raise


def in_thread(name: str, function: Callable[[], _T], future: concurrent.futures.Future[_T]) -> None:
    """Run a function in a daemon thread; store its result or exception in a future, unless that is cancelled first."""

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()


def within(seconds: float, name: str, function: Callable[[], _T]) -> _T:
    """Call a function that may never return; raises TimeoutError once the time is up."""
    result: concurrent.futures.Future[_T] = concurrent.futures.Future()
    in_thread(name, function, result)
    return result.result(seconds)


def send_spans(client: Client) -> None:
    """Have every worker send its spans before it is killed, if this run is traced; never raises."""
    if not telemetry.is_traced():
        return
    with contextlib.suppress(Exception):
        within(_SEND, "send-spans", functools.partial(client.run, telemetry_sdk.flush, on_error="ignore"))
