"""An executor for workers on other machines, which can access neither the corpus nor the scratch folder of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tasks.core.executor import Call, Executor
from tasks.llm.account import CallLimits
from tasks.llm.quota import RunQuota


class LocalFilesExecutor:
    """Runs calls that use files of this machine with `here`, and all others with `there`."""

    def __init__(self, there: Executor, here: Executor) -> None:
        self._there, self._here = there, here

    def run(self, calls: Iterable[Call], **options: Any) -> Iterator[tuple[Call, Any]]:
        """Run each call here or there; see `tasks.core.executor.Executor`."""
        listed = list(calls)
        yield from self._here.run([call for call in listed if call.local], **options)
        yield from self._there.run([call for call in listed if not call.local], **options)

    def stop(self, *, at_once: bool = True) -> None:
        self._here.stop(at_once=at_once)
        self._there.stop(at_once=at_once)

    def wait(self, seconds: float) -> None:
        self._there.wait(seconds)

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        return self._there.quota(run, limits)
