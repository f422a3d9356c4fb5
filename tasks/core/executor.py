"""The protocol by which stages hand out work, so that no stage depends on Dask."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol

from indexmill.errors import IndexmillError
from indexmill.models.progress import Listener, listening
from tasks.core.call_traces import CallTrace, run_traced, traced_here
from tasks.llm.account import CallLimits
from tasks.llm.quota import LocalQuota, RunQuota


@dataclass(frozen=True, slots=True)
class Call:
    """One piece of work: a module-level function, its picklable arguments, and the key of its result."""

    key: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    light: bool = False  # quick and safe enough to run in this process, without a worker
    local: bool = False  # uses files of this machine: the corpus, or the scratch folder of the run
    asks: bool = False  # asks a language model: requests in flight are paid for
    on_progress: Listener | None = None  # called now and then, in any thread, with the progress of the call
    trace: CallTrace | None = None  # the span of the call; None for a call that is left out of the run's trace

    @property
    def called(self) -> tuple[Any, ...]:
        """The function that another process calls, and its arguments."""
        if self.trace is None:
            return self.function, *self.arguments
        return run_traced, self.trace, self.function, *self.arguments


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """Call a function. Returns its result and the number of seconds it took."""
    started = time.perf_counter()
    result = function(*arguments)
    return result, time.perf_counter() - started


@dataclass(frozen=True, slots=True)
class Failed:
    """The result of a call that failed while `run` keeps going: the exception of the call, or WorkerDied."""

    error: Exception


class StoppedError(Exception):
    """The executor was stopped before this work was done; the caller of `stop` knows the reason."""


_STOPPED: ContextVar[threading.Event | None] = ContextVar("stopped", default=None)


def stopped() -> bool:
    """Return True if the executor that runs the current call in its own process was stopped.

    Calls that wait for a long time check this, and raise StoppedError.
    """
    event = _STOPPED.get()
    return event is not None and event.is_set()


@contextlib.contextmanager
def _stopped_by(event: threading.Event) -> Iterator[None]:
    before = _STOPPED.set(event)
    try:
        yield
    finally:
        _STOPPED.reset(before)


class WorkerDied(IndexmillError):
    """The processes that ran a call died, during the call or while preparing it: the call may not be the cause."""


class Executor(Protocol):
    """Runs calls somewhere and yields each call with its result, in the order in which they finish."""

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        """Run calls, those with a higher priority first. Raises StoppedError after `stop`.

        The first exception of a call is raised; with `keep_going`, exceptions are yielded as Failed instead.
        """
        ...

    def stop(self, *, at_once: bool = True) -> None:
        """Start no more calls; `run` raises StoppedError if work remains. May be called from any thread.

        at_once: False to wait for running calls to a language model, which send no further request.
        """
        ...

    def wait(self, seconds: float) -> None:
        """Block the calling thread for `seconds`; raises StoppedError once the executor is stopped."""
        ...

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        """Return the quota of a run's model calls, shared by its executors; resumes a quota that `stop` has ended."""
        ...


class InlineExecutor:
    """Runs each call in this process, in order: for unit tests and debuggers."""

    def __init__(self) -> None:
        self._stopped = threading.Event()
        self._quotas: dict[str, LocalQuota] = {}

    def run(self, calls: Iterable[Call], *, priority: int = 0, keep_going: bool = False) -> Iterator[tuple[Call, Any]]:
        for call in calls:
            if self._stopped.is_set():
                raise StoppedError
            if call.on_progress is not None:
                call.on_progress(0, 1, None)
            try:
                with listening(call.on_progress), _stopped_by(self._stopped), traced_here(call.trace) as record:
                    result = call.function(*call.arguments)
                    record(result)
            except Exception as error:
                if not keep_going:
                    raise
                result = Failed(error)
            yield call, result

    def stop(self, *, at_once: bool = True) -> None:
        self._stopped.set()

    def wait(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise StoppedError

    def quota(self, run: str, limits: CallLimits) -> RunQuota:
        return self._quotas.setdefault(run, LocalQuota(limits))
