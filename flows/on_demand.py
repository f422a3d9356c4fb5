"""Workers that start when there is work for them: a night without a change needs none, a small one needs few."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows.quota import HereQuota, begin, forget
from schemas.config import LlmSettings
from tasks.core.executor import Call, InlineExecutor, StoppedError
from tasks.llm.quota import Limits, RunQuota

if TYPE_CHECKING:
    from distributed import Client

    from flows.cluster import DaskExecutor

__all__ = ["OnDemand"]

_CALLS_PER_WORKER = 8
"""A worker costs some seconds of a core to start: there is another one for every so many calls handed out at once."""

_EXPECTED_WORKERS = 2
"""One for the layers of a tree, which wait for each other, and one for what is made beside them."""


class OnDemand:
    """An executor that runs light calls in this process until the first other one starts a local cluster.

    `workers` is the most that it starts; default: the cores. llm: see `flows.cluster.open_cluster`. Where work is
    expected the cluster is started beside what this process does. Close it to end the cluster.
    """

    def __init__(self, store: Path, workers: int | None, llm: LlmSettings | None = None) -> None:
        self._store = store
        self._llm = llm
        self._most = workers or os.cpu_count() or 1
        self._here = InlineExecutor()
        self._lock = threading.Lock()
        self._opened = contextlib.ExitStack()
        self._client: Client | None = None
        self._there: DaskExecutor | None = None
        self._workers = 0
        self._stopped = False
        self._expecting: threading.Thread | None = None
        self._failure: Exception | None = None  # why there is no cluster
        self._limits: dict[str, Limits] = {}  # of quotas, by run

    def expect(self, ahead: Callable[[], Call | None] = lambda: None) -> None:
        """Start some workers now, and return at once: there will be work for them.

        Where they do not start, whoever hands out the first call is told why. `ahead` gives what each is to do at its
        start, beside what work there is.
        """

        def start() -> None:
            with contextlib.suppress(Exception):
                started = self._cluster(_CALLS_PER_WORKER * (_EXPECTED_WORKERS - 1))
                if (call := ahead()) is not None:
                    started.everywhere(call)

        self._expecting = threading.Thread(target=start, name="expected-workers", daemon=True)
        self._expecting.start()

    def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
        """Run the calls where they belong; see `tasks.core.executor.Executor`."""
        wanted = list(calls)
        if not wanted:
            return
        expecting = self._expecting is not None
        here = self._there is None and all(call.light and not (call.warms and expecting) for call in wanted)
        yield from (self._here if here else self._cluster(len(wanted))).run(wanted, **options)

    def stop(self, *, at_once: bool = True) -> None:
        """Start nothing more, no cluster either."""
        self._stopped = True
        self._here.stop()
        if self._there is not None:
            self._there.stop(at_once=at_once)

    def wait(self, seconds: float) -> None:
        """Wait until the time is up or `stop` is called."""
        self._here.wait(seconds)

    def quota(self, run: str, limits: Limits) -> RunQuota:
        """The quota of a run, its state in this process, where the scheduler will be."""
        with self._lock:
            if run not in self._limits:
                begin(run, limits)
                self._opened.callback(forget, run)
                self._limits[run] = limits
                if self._there is not None:
                    self._there.quota(run, limits)
        return HereQuota(run)

    def close(self) -> None:
        """End the cluster, if one was started."""
        if self._expecting is not None:
            self._expecting.join()
        self._opened.close()

    def _start(self, workers: int) -> DaskExecutor:
        from flows.cluster import DaskExecutor, open_cluster

        self._client = self._opened.enter_context(open_cluster(None, workers, self._store, self._llm))
        self._workers = workers
        started = DaskExecutor(self._client)
        for run, limits in self._limits.items():
            started.quota(run, limits)
        return started

    def _cluster(self, calls: int) -> DaskExecutor:
        wanted = min(self._most, max(self._workers, 1 + calls // _CALLS_PER_WORKER))
        with self._lock:
            if self._stopped:
                raise StoppedError
            if self._failure is not None:
                raise self._failure
            if self._there is None:
                try:
                    self._there = self._start(wanted)
                except Exception as error:
                    self._failure = error
                    raise
            elif wanted > self._workers and self._client is not None and self._client.cluster is not None:
                self._client.cluster.scale(wanted)
                self._workers = wanted
        if self._stopped:
            raise StoppedError
        return self._there
