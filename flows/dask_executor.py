"""The executor that runs calls of stages on a Dask cluster. Keys, jobs and receipts are sent; tables are not."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import queue
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.client import ClosedClientError

from flows.cluster import in_thread
from flows.quota_server import ClusterQuota
from flows.worker_processes import PrivateCluster
from flows.worker_progress import report_worker_progress
from indexmill.errors import IndexmillError
from indexmill.models.progress import Items, Listener
from tasks.core.executor import Call, Failed, StoppedError, WorkerDied
from tasks.llm.account import CallLimits
from tasks.llm.quota import RunQuota

_ASK = 15.0
_ANSWER = 60.0
_PATIENCE = 300.0
"""In seconds: the interval between checks of the scheduler, its time to answer, and its time without workers."""

_WINDOW = 64
"""The minimum number of calls submitted at a time; four for each worker thread if that is more."""


_EXECUTORS = itertools.count(1)


class DaskExecutor:
    """Runs calls on a Dask client and yields results as they arrive. patience: seconds to wait without workers."""

    def __init__(self, client: Client, patience: float = _PATIENCE) -> None:
        self._client = client
        self._stopped = threading.Event()
        self._at_once = threading.Event()
        self._lock = threading.Lock()
        self._quotas: dict[str, ClusterQuota] = {}
        self._heard: dict[str, Listener] = {}  # by key of the call
        self._topic = f"indexmill-progress-{client.id}-{next(_EXECUTORS)}"
        client.subscribe_topic(self._topic, self._hear)
        self._pulse = _Pulse(client, patience)

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        """Run calls, submitted a window ahead, and yield each with its result, in the order of completion.

        Raises the error of a call, WorkerDied for a call whose workers died, and IndexmillError if the scheduler or all
        workers are lost; with `keep_going`, the first two are yielded as Failed.
        """
        done: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        seen: set[str] = set()
        begun: dict[str, tuple[Call, Future[Any]]] = {}
        waiting = iter(calls)

        def submit() -> None:
            """Fill the window, which grows and shrinks with the cluster."""
            if self._stopped.is_set():
                return
            most = max(0, max(_WINDOW, 4 * self._pulse.threads) - len(begun))
            for call in itertools.islice((call for call in waiting if call.key not in seen), most):
                seen.add(call.key)
                called = call.called
                if call.on_progress is not None:
                    self._heard[call.key] = call.on_progress
                    called = (report_worker_progress, self._topic, call.key, *called)
                future = self._client.submit(*called, key=call.key, priority=priority, pure=True, retries=0)
                begun[call.key] = call, future
                future.add_done_callback(done.put)

        try:
            submit()
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
                submit()
                yield call, result
            if self._stopped.is_set() and any(call.key not in seen for call in waiting):
                raise StoppedError
        except (ClosedClientError, _SchedulerLost) as error:
            if self._stopped.is_set():  # the reason for the stop is reported instead
                raise StoppedError from error
            if isinstance(error, ClosedClientError):
                raise self._pulse.lost() from error
            raise
        finally:
            for call, future in begun.values():
                self._heard.pop(call.key, None)
                future.release()  # unneeded calls are not started

    def stop(self, *, at_once: bool = True) -> None:
        """Start no more calls; running calls are not interrupted. at_once: False to await running model calls."""
        if at_once:
            self._at_once.set()
        self._stopped.set()
        if not at_once:
            for quota in list(self._quotas.values()):
                quota.end()

    def wait(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise StoppedError

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        """Return the quota of a run, whose state is in the scheduler's process."""
        with self._lock:
            if run not in self._quotas:
                self._quotas[run] = ClusterQuota(self._client, run, limits)
            return self._quotas[run]

    def _hear(self, event: tuple[float, Any]) -> None:
        key, done, total, items = event[1]
        listener = self._heard.get(key)
        if listener is not None:
            listener(done, total, None if items is None else Items(*items))

    def _next(self, done: queue.SimpleQueue[Future[Any]], asking: bool) -> Future[Any]:
        while True:
            with contextlib.suppress(queue.Empty):
                return done.get(timeout=0.2)
            self._check(asking)

    def _result(self, future: Future[Any], asking: bool) -> Any:
        """Fetch the result of a finished call. Raises the call's error, WorkerDied, or _SchedulerLost.

        A separate thread fetches it without a timeout: Dask cancels a fetch that times out, and if that fetch was still
        waiting for other fetches, every later fetch of the client may fail.
        """
        fetched: concurrent.futures.Future[Any] = concurrent.futures.Future()
        in_thread("fetch-result", future.result, fetched)
        while True:
            try:
                return fetched.result(timeout=1.0)
            except KilledWorker as error:
                raise WorkerDied(
                    f"the call {future.key} ended {error.allowed_failures + 1} worker processes (out of memory, or "
                    "a crash in native code); finished parts are kept: run the build again, with fewer workers if "
                    "memory is short"
                ) from error
            except concurrent.futures.CancelledError as error:
                raise self._pulse.lost() from error
            except TimeoutError as error:
                if fetched.done() and fetched.exception() is error:  # raised by the call
                    raise
            self._check(asking)

    def _check(self, asking: bool) -> None:
        if self._at_once.is_set() or (self._stopped.is_set() and not asking):
            raise StoppedError
        self._pulse.check()


class _SchedulerLost(IndexmillError):
    """The scheduler is lost, hangs, or has no workers left."""


class _Pulse:
    """Checks in a thread that the scheduler answers, since it may hang. A private cluster is also checked directly."""

    def __init__(self, client: Client, patience: float) -> None:
        self._client = weakref.ref(client)
        self._patience = patience
        information = client.scheduler_info(n_workers=0)
        # The address by which the run reaches the scheduler; its own may differ.
        self._address = str(client.scheduler.address if client.scheduler else information["address"])
        self.threads = int(information["total_threads"])
        """The threads of all workers, at the last check."""
        self._last_answer = self._had_workers = time.monotonic()
        self._failed = False
        threading.Thread(target=self._ask, name="scheduler-pulse", daemon=True).start()

    def check(self) -> None:
        """Raise _SchedulerLost if the scheduler was silent or without workers for too long, or can have none again."""
        now = time.monotonic()
        cluster = getattr(self._client(), "cluster", None)
        if isinstance(cluster, PrivateCluster) and not cluster.alive:
            raise _SchedulerLost(
                f"all worker processes have ended and cannot be restarted ({'; '.join(cluster.ends)}); finished parts "
                "are kept: run the build again"
            )
        if self._failed:
            raise self.lost()
        if now - self._last_answer > _ASK + _ANSWER:
            raise self.lost(f"has not answered for {_ANSWER:g} seconds")
        if self._last_answer - self._had_workers > self._patience:
            raise self.lost(
                f"has had no workers for {self._patience:g} seconds",
                "start workers, or check the logs of workers that ended",
            )

    def lost(self, how: str = "has gone away", advice: str = "check the cluster") -> IndexmillError:
        return _SchedulerLost(
            f"the Dask scheduler at {self._address} {how}; finished parts are kept: {advice}, then run the build again"
        )

    def _ask(self) -> None:
        while (client := self._client()) is not None and client.status in ("running", "connecting"):
            try:
                information = client.scheduler_info(n_workers=0)
                self.threads = int(information["total_threads"])  # fails while a client reconnects
            except Exception:  # any error that a closing connection may raise
                self._failed = True
                return
            self._last_answer = time.monotonic()
            if information["n_workers"]:
                self._had_workers = self._last_answer
            del client
            time.sleep(_ASK)
