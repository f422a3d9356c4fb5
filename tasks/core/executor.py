"""How a stage hands out its work: a small protocol, so that no stage knows about Dask."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from indexmill.errors import IndexmillError
from indexmill.models.headway import Listener, listening
from tasks.llm.quota import Limits, LocalQuota, RunQuota

__all__ = ["Call", "Executor", "Failed", "InlineExecutor", "StoppedError", "WorkerDied", "stopped", "timed"]


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of work: a module-level function, its picklable arguments, and the key of what it makes."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    light: bool = False  # quick, and safe enough for the process that hands it out: not worth starting a worker for
    asks: bool = False  # asks a language model: what it has under way is paid for
    heard: Listener | None = None  # told now and then, in any thread, how far the call is


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """What a function returns, and the seconds it took where it ran."""
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Failed:
    """What stands in the place of a result where `run` keeps going: what the call raised, or WorkerDied."""

    error: Exception


class StoppedError(Exception):
    """The executor was told to stop before this work was done; whoever told it knows why."""


_STOPPED: ContextVar[threading.Event | None] = ContextVar("stopped", default=None)


def stopped() -> bool:
    """Whether the executor that runs the call at hand in its own process was told to stop.

    Calls that wait for long look, and raise StoppedError.
    """
    told = _STOPPED.get()
    return told is not None and told.is_set()


@contextlib.contextmanager
def _stopped_by(event: threading.Event) -> Iterator[None]:
    before = _STOPPED.set(event)
    try:
        yield
    finally:
        _STOPPED.reset(before)


class WorkerDied(IndexmillError):
    """The processes that were at a call died, or at what they had to do before it: it may be innocent."""


class Executor(Protocol):
    """Runs calls somewhere and yields each result as it comes, in any order, with the call it belongs to."""

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        """Higher priorities start first. StoppedError after `stop`.

        The first exception of a call is raised; with `keep_going` it is yielded as Failed and the others go on.
        """
        ...

    def stop(self, *, at_once: bool = True) -> None:
        """Start nothing more, from any thread; `run` raises StoppedError where something was left to do.

        Not at once: calls that ask a language model may start no further question, and are waited for.
        """
        ...

    def wait(self, seconds: float) -> None:
        """Do nothing for so long, in the thread that calls; StoppedError once it is told to stop."""
        ...

    def quota(self, run: str, limits: Limits) -> RunQuota:
        """What the calls of a run may ask of language models, wherever they are: one for all executors of the run.

        A quota that was ended by `stop` goes on.
        """
        ...


class InlineExecutor:
    """Runs each call in this process, in order: what unit tests use, and what a debugger wants."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._quotas: dict[str, LocalQuota] = {}

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        """The results in the order of the calls."""
        for call in calls:
            if self._stopped.is_set():
                raise StoppedError
            try:
                with listening(call.heard), _stopped_by(self._stopped):
                    result = call.function(*call.arguments)
            except Exception as error:
                if not keep_going:
                    raise
                result = Failed(error)
            yield call, result

    def stop(self, *, at_once: bool = True) -> None:
        """Start no further call."""
        self._stopped.set()

    def wait(self, seconds: float) -> None:
        """Wait until the time is up or `stop` is called."""
        if self._stopped.wait(seconds):
            raise StoppedError

    def quota(self, run: str, limits: Limits) -> RunQuota:
        """The quota of a run, of this process."""
        return self._quotas.setdefault(run, LocalQuota(limits))
