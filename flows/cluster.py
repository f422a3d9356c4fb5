"""A Dask cluster for one run: worker processes of its own on this machine, or a cluster that goes on.

One thread per worker process, so that native code has a core to itself.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import dask
from distributed import Client, LocalCluster
from distributed.security import Security

from flows.credentials import dask_settings, write_credentials
from flows.scratch import scratch_folder
from flows.worker_check import WorkerCheck, describe_worker, misfit
from indexmill.errors import BadInput, IndexmillError
from schemas.config import LlmSettings
from tasks.core.environment import code_digest, environment_fingerprint
from tasks.core.process_environment import secret_variables, worker_environment

__all__ = ["open_cluster"]

_T = TypeVar("_T")

_CONNECT = "30s"
_ANSWER = 60.0
_CLOSE = 10.0
_START = 60.0
"""Seconds for workers to answer, for a client to close, and for a cluster to start that is not wanted any more."""
_LOG_LEVEL = 50
"""The level of Dask's own logs: what counts reaches the run as an exception."""
_PRELOAD = "flows.dask_preload"
_SETTINGS: dict[str, Any] = {
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
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.nanny.pre-spawn-environ": {
        "OMP_NUM_THREADS": "1",  # native code of each worker has one core
        "OPENBLAS_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONSAFEPATH": "1",  # a worker would import from the current folder first
    },
}


@contextmanager
def open_cluster(
    address: str | None, workers: int | None, store: Path | str, llm: LlmSettings | None = None
) -> Iterator[Client]:
    """A client of a running scheduler, or of a private local cluster that ends with the block.

    A private cluster uses its own TLS keys; connections to a running one follow Dask's settings.
    llm: the language model that stages may call; its key is passed to workers of a private cluster.

    Raises BadInput if a worker does not see the store, or runs other code or libraries than this process.
    """
    if address is None:
        with (
            scratch_folder() as scratch,
            _private_settings(scratch),
            _private_environment(llm, store),
            _start_cluster(workers or os.cpu_count() or 1, llm, store) as cluster,
            _closing(Client(cluster)) as client,  # a plain `with` would have to end in the thread where it began
        ):
            yield client
        return
    _check_security(address)
    try:
        client = Client(address, timeout=_CONNECT)
    except (OSError, ValueError) as error:
        raise BadInput(f"--dask {address}: no scheduler answers there: {error}") from error
    with _closing(client), _fit_workers(client, store):
        yield client


@contextmanager
def _private_settings(scratch: Path) -> Iterator[None]:
    """Dask's settings for a private cluster, whose files are in a folder of this process."""
    write_credentials(scratch)
    preloads = {
        name: [*(dask.config.get(name, None) or []), _PRELOAD]
        for name in ("distributed.scheduler.preload", "distributed.worker.preload")
    }
    logger = logging.getLogger("distributed")
    level = logger.level
    with dask.config.set(_SETTINGS | preloads | dask_settings(scratch) | {"temporary-directory": str(scratch)}):
        logger.setLevel(_LOG_LEVEL)
        try:
            yield
        finally:
            logger.setLevel(level)


@contextmanager
def _private_environment(llm: LlmSettings | None, store: Path | str) -> Iterator[None]:
    """Start processes without the secrets of `os.environ` during the block; a nanny may start a worker at any time.

    The store's own stay, which native code of this process reads, too.

    Dask leaves the variables for workers in `os.environ`, which is restored after the block.
    """
    before = dict(os.environ)
    secrets = {name: before[name] for name in secret_variables(llm, store)}
    try:
        for name in secrets:
            os.unsetenv(name)
        yield
    finally:
        for name, value in secrets.items():
            os.putenv(name, value)
        for name in os.environ.keys() - before.keys():
            del os.environ[name]


@contextmanager
def _closing(client: Client) -> Iterator[Client]:
    """A client that is closed at the end in bounded time, even if its scheduler no longer answers."""
    try:
        yield client
    finally:
        with contextlib.suppress(OSError):  # TimeoutError is one
            client.close(timeout=_CLOSE)


def _start_cluster(count: int, llm: LlmSettings | None = None, store: Path | str | None = None) -> LocalCluster:
    """A cluster that has started.

    It starts in a separate thread, which no signal interrupts: a half-started cluster would leave folders behind. If
    this thread is interrupted meanwhile, the cluster is closed once it has started.
    """
    start: concurrent.futures.Future[LocalCluster] = concurrent.futures.Future()

    def local_cluster() -> LocalCluster:
        return LocalCluster(
            n_workers=count,
            threads_per_worker=1,
            memory_limit=0,
            host="127.0.0.1",
            protocol="tls://",
            security=Security(),  # as Dask's settings say
            scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
            env=worker_environment(llm, store),
            silence_logs=_LOG_LEVEL,
        )

    try:
        _run_in_thread("start-cluster", local_cluster, start)
        return start.result()
    except KeyboardInterrupt:
        if not start.cancel():  # the start cannot be cancelled
            with contextlib.suppress(Exception):  # it failed, or never ends: the run is interrupted all the same
                start.result(_START).close()
        raise


def _run_in_thread(name: str, function: Callable[[], _T], future: concurrent.futures.Future[_T]) -> None:
    """Run a function in a daemon thread and set a future to its result or exception, unless cancelled before."""

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()


def _check_security(address: str) -> None:
    """Raise BadInput if Dask's settings do not fit the address of a scheduler."""
    if dask.config.get("distributed.client.security-loader"):
        return
    security = Security()
    credentials = security.get_tls_config_for_role("client")
    scheme = address.partition("://")[0] if "://" in address else dask.config.get("distributed.comm.default-scheme")
    if scheme == "tls" and not (credentials["ca_file"] and credentials["cert"]):
        raise BadInput(
            f"--dask {address}: Dask's settings name no certificates for a client: set "
            "DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
            "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY to their files"
        )
    if scheme in ("tcp", "ws") and security.require_encryption:
        raise BadInput(
            f"--dask {address}: Dask's settings want encryption (distributed.comm.require-encryption), and this "
            "address has none: give the scheduler's tls:// address"
        )


@contextmanager
def _fit_workers(client: Client, store: Path | str) -> Iterator[None]:
    """Raise BadInput unless every worker sees this store and runs this code on these libraries.

    During the block a worker that joins and does not is closed.
    """
    place = str(store.resolve()) if isinstance(store, Path) else store
    expected = (True, code_digest(), environment_fingerprint())
    _check_workers(client, place, expected)
    check = WorkerCheck(client.id, place, expected)
    client.register_plugin(check)
    try:
        yield
    finally:
        with contextlib.suppress(Exception):  # the scheduler is gone
            client.unregister_worker_plugin(check.name)


def _check_workers(client: Client, store: str, expected: tuple[bool, str, dict[str, str]]) -> None:
    described: concurrent.futures.Future[dict[str, Any]] = concurrent.futures.Future()
    ask = functools.partial(client.run, describe_worker, store)
    _run_in_thread("check-workers", ask, described)  # an answer may never come
    try:
        answers = described.result(_ANSWER)
    except TimeoutError as error:
        raise IndexmillError(
            f"not every worker of the Dask cluster answered within {_ANSWER:g} seconds: see to the cluster, then run "
            "the build again"
        ) from error
    if not answers:
        raise BadInput("the Dask scheduler has no workers; start some, then run the build again")
    for worker, answer in sorted(answers.items()):
        problem = misfit(answer, expected)
        if problem:
            raise BadInput(f"worker {worker} is not fit for this run: {problem}")
