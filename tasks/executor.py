"""How a stage hands out its work: a small protocol, so that no stage knows about Dask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Call", "Executor", "InlineExecutor"]


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of work: a module-level function, its picklable arguments, and the key of what it makes."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Executor(Protocol):
    """Runs calls somewhere and yields each result as it comes, in any order, with the call it belongs to."""

    def run(self, calls: Iterable[Call], *, priority: int = 0) -> Iterator[tuple[Call, Any]]:
        """Higher priorities start first. The first exception of a call is raised to the caller."""
        ...


class InlineExecutor:
    """Runs each call in this process, in order: what unit tests use, and what a debugger wants."""

    def run(self, calls: Iterable[Call], *, priority: int = 0) -> Iterator[tuple[Call, Any]]:
        for call in calls:
            yield call, call.function(*call.arguments)
