"""An executor for runs that probably have little to do."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from tasks.core.executor import Call, Executor, InlineExecutor, StoppedError
from tasks.llm.account import CallLimits, Spent
from tasks.llm.quota import Quota, RunQuota


class LazyClusterExecutor:
    """Runs light calls in this process, and heavy ones for `seconds`; then starts the workers' executor for the rest.

    Calls to a language model start the workers at once, which send requests in parallel.
    """

    def __init__(self, start: Callable[[], Executor], seconds: float = 0.0) -> None:
        self._start, self._seconds = start, seconds
        self._here = InlineExecutor()
        self._there: Executor | None = None
        self._limits: dict[str, CallLimits] = {}  # by run: limits of quotas requested before there were workers
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
        """Run each call here or on workers; see `tasks.core.executor.Executor`."""
        queue = deque(calls)
        heavy = sum(not call.light for call in queue)
        asks = any(call.asks for call in queue)
        while queue and self._there is None and (not heavy or (self._seconds > 0 and not asks)):
            call, began = queue.popleft(), time.monotonic()
            heavy -= not call.light
            results = list(self._here.run([call], **options))
            if not call.light:
                self._seconds -= time.monotonic() - began
            yield from results
        if queue:
            yield from self._workers().run(queue, **options)

    def stop(self, *, at_once: bool = True) -> None:
        self._stopped = True
        self._here.stop()
        if self._there is not None:
            self._there.stop(at_once=at_once)

    def wait(self, seconds: float) -> None:
        self._here.wait(seconds)

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        """Return the quota of a run. Its state is created when workers start, in a place that they can reach."""
        with self._lock:
            if self._there is None:
                self._limits[run] = limits
                return _LazyQuota(self, run)
        return self._there.quota(run, limits)

    def quota_of(self, run: str, *, start: bool) -> RunQuota | None:
        """Return the quota of a run; None before there are workers. start: True to start workers first."""
        there = self._workers() if start else self._there
        return None if there is None else there.quota(run, self._limits[run])

    def _workers(self) -> Executor:
        with self._lock:
            if self._stopped:
                raise StoppedError
            if self._there is None:
                there = self._start()
                for run, limits in self._limits.items():
                    there.quota(run, limits)
                self._there = there
        if self._stopped:
            self._there.stop()
        return self._there


class _LazyQuota:
    """The quota of a run whose workers may never start; until they do, nothing is spent."""

    def __init__(self, executor: LazyClusterExecutor, run: str) -> None:
        self._executor, self._run = executor, run

    def of(self, stage: str) -> Quota:
        return cast(Quota, _OfStage(self._executor, self._run, stage))

    def spent(self) -> Mapping[str, Spent]:
        quota = self._executor.quota_of(self._run, start=False)
        return {} if quota is None else quota.spent()

    def end(self) -> None:
        quota = self._executor.quota_of(self._run, start=False)
        if quota is not None:
            quota.end()


@dataclass(frozen=True)
class _OfStage:
    """A stage's handle for a lazy quota, resolved to the workers' handle on first use or on pickling."""

    executor: LazyClusterExecutor
    run: str
    stage: str

    def _handle(self) -> Quota:
        quota = self.executor.quota_of(self.run, start=True)
        assert quota is not None  # noqa: S101 - there are workers now
        return quota.of(self.stage)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._handle(), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self._handle(),)


def _itself(quota: Quota) -> Quota:
    return quota
