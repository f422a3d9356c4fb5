"""An executor of plain processes, for work that needs neither Prefect nor Dask but more than one core."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any, Self

from tasks.core.executor import Call, Failed, InlineExecutor, StoppedError, WorkerDied
from tasks.llm.account import CallLimits
from tasks.llm.quota import RunQuota

FEW = 8
"""Up to this many calls run in this process, since worker processes take more than a second to start."""


class ProcessExecutor:
    """Runs many calls in worker processes, a few in this one. A context manager; the processes end with it."""

    def __init__(self, workers: int | None = None) -> None:
        self._workers = workers or os.cpu_count() or 1
        self._inline = InlineExecutor()
        self._stopped = threading.Event()
        self._pool: ProcessPoolExecutor | None = None

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        """Yield the results as they arrive. Raises StoppedError after `stop`.

        Raises a call's error, and WorkerDied for all calls if a process died; with `keep_going`, yields them as Failed.
        """
        listed = list(calls)
        if len(listed) <= FEW or self._workers == 1:
            yield from self._inline.run(listed, keep_going=keep_going)
            return
        if self._pool is None:
            os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by the workers
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context)
        futures = {self._pool.submit(*call.called): call for call in listed}
        try:
            for future in as_completed(futures):
                if self._stopped.is_set():
                    raise StoppedError
                yield futures[future], self._result(futures[future], future, keep_going)
        finally:
            for future in futures:
                future.cancel()

    def _result(self, call: Call, future: Future[Any], keep_going: bool) -> Any:
        try:
            return future.result()
        except BrokenProcessPool as error:
            self._pool = None  # another attempt needs new processes
            failure: Exception = WorkerDied(f"a process died while the work {call.key} was under way")
            failure.__cause__ = error
        except Exception as error:
            failure = error
        if not keep_going:
            raise failure
        return Failed(failure)

    def stop(self, *, at_once: bool = True) -> None:
        self._stopped.set()
        self._inline.stop()

    def wait(self, seconds: float) -> None:
        self._inline.wait(seconds)

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        """Return the quota of this process; its worker processes may make no calls to language models."""
        return self._inline.quota(run, limits)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
