"""How a stage hands out its work: a small protocol, so that no stage knows about Dask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Call", "Executor", "InlineExecutor", "StoppedError", "timed"]


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of work: a module-level function, its picklable arguments, and the key of what it makes."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    light: bool = False  # quick, and safe enough for the process that hands it out: not worth starting a worker for


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a function returns, and the seconds it took where it ran."""
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started


class StoppedError(Exception):
    """The executor was told to stop before this work was done; whoever told it knows why."""


class Executor(Protocol):
    """Runs calls somewhere and yields each result as it comes, in any order, with the call it belongs to."""

    def run(self, calls: Iterable[Call], *, priority: int = 0) -> Iterator[tuple[Call, Any]]:
        """Higher priorities start first. The first exception of a call is raised; StoppedError after `stop`."""
        ...

    def stop(self) -> None:
        """Start nothing more, from any thread; `run` raises StoppedError where something was left to do."""
        ...


class InlineExecutor:
    """Runs each call in this process, in order: what unit tests use, and what a debugger wants."""

    def __init__(self) -> None:
        self._stopped = threading.Event()

    def run(self, calls: Iterable[Call], *, priority: int = 0) -> Iterator[tuple[Call, Any]]:
        """The results in the order of the calls."""
        for call in calls:
            if self._stopped.is_set():
                raise StoppedError
            yield call, call.function(*call.arguments)

    def stop(self) -> None:
        """Start no further call."""
        self._stopped.set()
