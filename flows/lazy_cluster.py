"""An executor for runs that are expected to find nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from tasks.core.executor import Call, Executor, InlineExecutor, StoppedError
from tasks.llm.quota import Limits, RunQuota

__all__ = ["LazyClusterExecutor"]


class LazyClusterExecutor:
    """Runs light calls in this process, and starts workers for the first other one, or the first quota.

    start: gives the executor of the workers; called at most once.
    """

    def __init__(self, start: Callable[[], Executor]) -> None:
        self._start = start
        self._here = InlineExecutor()
        self._there: Executor | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
        """Run the calls where they belong; see `tasks.core.executor.Executor`."""
        listed = list(calls)
        here = self._there is None and all(call.light for call in listed)
        yield from (self._here if here else self._workers()).run(listed, **options)

    def stop(self, *, at_once: bool = True) -> None:
        """Start nothing more, no workers either."""
        self._stopped = True
        self._here.stop()
        if self._there is not None:
            self._there.stop(at_once=at_once)

    def wait(self, seconds: float) -> None:
        """Wait until the time is up or `stop` is called."""
        self._here.wait(seconds)

    def quota(self, run: str, limits: Limits) -> RunQuota:
        """The quota of a run, its state where the workers find it."""
        return self._workers().quota(run, limits)

    def _workers(self) -> Executor:
        with self._lock:
            if self._stopped:
                raise StoppedError
            if self._there is None:
                self._there = self._start()
        if self._stopped:
            self._there.stop()
        return self._there
