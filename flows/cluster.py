"""The Dask side: a local cluster of processes or a running one, and the executor that stages hand their calls to.

Keys, jobs and receipts travel; tables do not. One thread per worker process, so that native code has a core to itself.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import itertools
import logging
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import distributed.utils
from distributed import Client, Future
from distributed.client import ClosedClientError
from distributed.deploy.spec import close_clusters
from distributed.scheduler import KilledWorker
from distributed.security import Security

from flows import fork_server
from flows.credentials import dask_settings, write_credentials
from flows.headway import telling
from flows.local_cluster import LocalCluster
from flows.quota_desk import ClusterQuota
from flows.scratch import scratch_folder
from indexmill.errors import BadInput, IndexmillError
from indexmill.models.headway import Listener
from schemas.config import LlmSettings
from tasks.core.environment import code_digest, environment_fingerprint
from tasks.core.executor import Call, Failed, StoppedError, WorkerDied
from tasks.core.process_environment import worker_environment
from tasks.llm.quota import Limits, RunQuota

__all__ = ["DaskExecutor", "open_cluster"]

_CONNECT = "30s"
_ASK = 15.0
_ANSWER = 60.0
_NO_WORKERS = 300.0
"""Seconds between two questions to the scheduler, for its answer, and that it may be without workers."""
_CLOSE = 10.0
_START = 60.0
"""Seconds for a client to close, and for a cluster that is not wanted any more to start."""
_AHEAD = 5.0
"""Seconds for all workers to begin what is to be done ahead."""
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
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.scheduler.http.routes": [],  # nobody listens, see flows.local_cluster
    "distributed.worker.http.routes": [],
}


_WINDOW = 64
"""Calls of a stage that the scheduler knows of at a time, unless there are more than a quarter as many threads."""


_EXECUTORS = itertools.count(1)


class DaskExecutor:
    """Runs calls on a Dask client, yielding results as they come."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._at_once = threading.Event()
        self._lock = threading.Lock()
        self._quotas: dict[str, ClusterQuota] = {}
        self._heard: dict[str, Listener] = {}  # by the key of a call
        self._topic = f"indexmill-headway-{client.id}-{next(_EXECUTORS)}"
        client.subscribe_topic(self._topic, self._hear)
        self._pulse = _Pulse(client)
        self._window = max(_WINDOW, 4 * sum(client.nthreads().values()))

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        """Submit calls a window ahead of their results.

        Raises what a call raised, WorkerDied for one whose workers died, and IndexmillError where the scheduler or all
        workers are gone; with `keep_going` the first two are yielded as Failed.
        """
        done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        seen: set[str] = set()
        begun: dict[str, tuple[Call, Future[Any]]] = {}
        waiting = iter(calls)

        def submit(most: int) -> None:
            if self._stopped.is_set():
                return
            for call in itertools.islice((call for call in waiting if call.key not in seen), most):
                seen.add(call.key)
                called = (call.function, *call.arguments)
                if call.heard is not None:
                    self._heard[call.key] = call.heard
                    called = (telling, self._topic, call.key, *called)
                future = self._client.submit(*called, key=call.key, priority=priority, pure=True, retries=0)
                begun[call.key] = call, future
                future.add_done_callback(done.put)

        try:
            submit(self._window)
            while begun:
                asking = any(call.asks for call, _ in begun.values())
                future = self._next(done, asking)
                try:
                    result = self._result(future, asking)
                except Exception as error:
                    if not keep_going or isinstance(error, (StoppedError, _SchedulerLost)):
                        raise
                    result = Failed(error)
                call, _ = begun.pop(str(future.key))
                self._heard.pop(call.key, None)
                future.release()
                submit(1)
                yield call, result
            if self._stopped.is_set() and any(call.key not in seen for call in waiting):
                raise StoppedError
        except ClosedClientError as error:
            raise self._pulse.lost() from error
        finally:
            for call, future in begun.values():
                self._heard.pop(call.key, None)
                future.release()  # what nobody waits for is not started

    def everywhere(self, call: Call) -> None:
        """Have each worker that is there make a short call at once, whatever it is at."""
        self._client.sync(self._client._run, call.function, *call.arguments, callback_timeout=_AHEAD)

    def stop(self, *, at_once: bool = True) -> None:
        """Start no further call; what a worker is at is left to it."""
        if at_once:
            self._at_once.set()
        self._stopped.set()
        if not at_once:
            for quota in list(self._quotas.values()):
                quota.end()

    def wait(self, seconds: float) -> None:
        """Wait until the time is up or `stop` is called."""
        if self._stopped.wait(seconds):
            raise StoppedError

    def quota(self, run: str, limits: Limits) -> RunQuota:
        """The quota of a run, its state where the scheduler is."""
        with self._lock:
            if run not in self._quotas:
                self._quotas[run] = ClusterQuota(self._client, run, limits)
            return self._quotas[run]

    def _hear(self, event: tuple[float, Any]) -> None:
        """A worker tells how far a call is."""
        key, done, total = event[1]
        listener = self._heard.get(key)
        if listener is not None:
            listener(done, total)

    def _next(self, done: queue.SimpleQueue[Future[Any]], asking: bool) -> Future[Any]:
        while True:
            with contextlib.suppress(queue.Empty):
                return done.get(timeout=0.2)
            self._check(asking)

    def _result(self, future: Future[Any], asking: bool) -> Any:
        while True:
            try:
                return future.result(timeout=1.0)
            except KilledWorker as error:
                raise WorkerDied(
                    f"the work {future.key} ended {error.allowed_failures + 1} worker processes (out of memory, or "
                    "a crash in native code); what was finished is kept: run the build again, with fewer workers "
                    "if memory is short"
                ) from error
            except concurrent.futures.CancelledError as error:
                raise self._pulse.lost() from error
            except TimeoutError:
                if future.status == "error":  # the call's own
                    raise
            self._check(asking)

    def _check(self, asking: bool) -> None:
        if self._at_once.is_set() or (self._stopped.is_set() and not asking):
            raise StoppedError
        self._pulse.check()


class _SchedulerLost(IndexmillError):
    """The scheduler is gone, hangs, or has no workers left."""


class _Pulse:
    """Asks a scheduler now and then whether it is there, without waiting for the answer."""

    def __init__(self, client: Client) -> None:
        self._scheduler: Any = client.scheduler
        self._loop: Any = client.loop
        self._address = str(getattr(self._scheduler, "address", "its address"))
        self._lock = threading.Lock()
        self._at = time.monotonic()
        self._asked: concurrent.futures.Future[int] | None = None
        self._had_workers = time.monotonic()

    def check(self) -> None:
        """Raise where the scheduler has not answered for long, or has been without workers for long."""
        with self._lock:
            now = time.monotonic()
            if self._asked is None:
                if now - self._at >= _ASK:
                    self._at = now
                    self._asked = asyncio.run_coroutine_threadsafe(self._workers(), self._loop.asyncio_loop)
                return
            if not self._asked.done():
                if now - self._at > _ANSWER:
                    raise self.lost(f"has not answered for {_ANSWER:g} seconds")
                return
            try:
                workers = self._asked.result()
            except Exception as error:  # whatever a connection that ends may raise
                raise self.lost() from error
            self._asked = None
            if workers:
                self._had_workers = now
            elif now - self._had_workers > _NO_WORKERS:
                raise self.lost(f"has had no workers for {_NO_WORKERS:g} seconds")

    def lost(self, how: str = "has gone away") -> IndexmillError:
        """What ends the run."""
        return _SchedulerLost(
            f"the Dask scheduler at {self._address} {how}; what was finished is kept: see to the cluster, then run the "
            "build again"
        )

    async def _workers(self) -> int:
        return int((await self._scheduler.identity(n_workers=0))["n_workers"])


@contextmanager
def open_cluster(
    address: str | None, workers: int | None, store: Path, llm: LlmSettings | None = None
) -> Iterator[Client]:
    """A client of a running scheduler, or of a private local cluster that ends with the block.

    A private one talks by keys of its own. With a running one it is Dask's settings that say how to talk to it.
    llm: the language model that stages may ask, whose key workers of a private cluster are then given.

    Raises BadInput where a worker does not see the store, or runs other code or libraries than this process.
    """
    if address is None:
        count = workers or os.cpu_count() or 1
        distributed.utils._forkserver_preload_set = True  # or all that it knows of would be imported here
        with (
            scratch_folder() as scratch,
            _with_credentials(scratch),
            fork_server.running(llm),
            _local_cluster(count, llm) as cluster,
            _closed_at_the_end(Client(cluster)) as client,  # `with` alone would have to end in the thread it began in
        ):
            yield client
        return
    _check_security(address)
    try:
        client = Client(address, timeout=_CONNECT)
    except (OSError, ValueError) as error:
        raise BadInput(f"--dask {address}: no scheduler answers there: {error}") from error
    with _closed_at_the_end(client):
        _prove_workers(client, store)
        yield client


@contextmanager
def _with_credentials(scratch: Path) -> Iterator[None]:
    """Dask's settings of a private cluster, whose files are in a folder of this process."""
    write_credentials(scratch)
    with dask.config.set(_SETTINGS | dask_settings(scratch) | {"temporary-directory": str(scratch)}):
        yield


@contextmanager
def _closed_at_the_end(client: Client) -> Iterator[Client]:
    """A client that is closed, in a bounded time, also where its scheduler no longer answers."""
    try:
        yield client
    finally:
        with contextlib.suppress(OSError):  # TimeoutError is one
            client.close(timeout=_CLOSE)


@contextmanager
def _local_cluster(count: int, llm: LlmSettings | None) -> Iterator[LocalCluster]:
    try:
        cluster = _started(count, llm)
    except BaseException:
        # Left half-way it cannot be closed, and the attempt at exit would say so; its processes die with us. Its
        # half-started tasks would each print why they did not start, and its scheduler that its folder is gone.
        atexit.unregister(close_clusters)
        for logger in ("asyncio", "distributed"):
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        raise
    with cluster:
        yield cluster


def _started(count: int, llm: LlmSettings | None = None) -> LocalCluster:
    """A cluster that has started.

    It starts in a thread of its own, which no signal interrupts: half a cluster goes on starting, in folders that
    nobody removes. Where this thread is interrupted meanwhile, the cluster is closed once it is there.
    """
    start: concurrent.futures.Future[LocalCluster] = concurrent.futures.Future()

    def run() -> None:
        if not start.set_running_or_notify_cancel():
            return
        try:
            # This process's environment may have changed since the fork server began.
            cluster = LocalCluster(workers=count, environment=worker_environment(llm))
        except BaseException as error:
            start.set_exception(error)
        else:
            start.set_result(cluster)

    try:
        threading.Thread(target=run, name="start-cluster", daemon=True).start()
        return start.result()
    except KeyboardInterrupt:
        if not start.cancel():  # it has begun
            with contextlib.suppress(Exception):  # it failed, or never ends: the run is interrupted all the same
                start.result(_START).close()
        raise


def _check_security(address: str) -> None:
    """Raise BadInput where Dask's settings do not fit the address of a scheduler."""
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


def _prove_workers(client: Client, store: Path) -> None:
    """Every worker sees this store and runs this code on these libraries, or the run does not start."""
    here = (True, code_digest(), environment_fingerprint())
    try:
        answers = client.sync(client._run, _describe_worker, str(store.resolve()), callback_timeout=_ANSWER)
    except TimeoutError as error:
        raise IndexmillError(
            f"not every worker of the Dask cluster answered within {_ANSWER:g} seconds: see to the cluster, then run "
            "the build again"
        ) from error
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
