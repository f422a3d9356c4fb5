"""A build as a Prefect flow. `index` is the program, from top to bottom; each of its steps is a task run.

Receipts in the store record the finished work, so Prefect neither caches nor keeps results. Prefect shows a flow's
parameters, so the flow gets only a name; its tasks reach the open build by closure.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.futures import PrefectFuture
from prefect.settings import PREFECT_API_URL, PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY, temporary_settings
from prefect.states import Cancelled, Completed, Failed

from flows.build_run import BuildOutcome, Order
from flows.cancellation import cancelled_by_prefect
from flows.prefect_artifacts import leave_artifacts, shown_progress
from flows.task_logs import LoggingProgress
from flows.workers import carry_out
from indexmill.errors import DiskFull, IndexmillError
from indexmill.store.free_space import temporary_folder
from indexmill.text.counted import counted
from indexmill.text.printable import one_line
from tasks.core.executor import StoppedError
from tasks.core.isolate import DocumentsFailed
from tasks.core.step import Step
from tasks.pipeline.build import Build

_FAILED = {2: "BadInput", 3: "Refused", 4: "BudgetReached", 6: "DiskFull"}
"""The names of failed states, by the exit code of `indexmill build`."""

_SPANS = "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY"

_SIGNAL_SECONDS = 1.0
"""The maximum delay, in seconds, before a waiting run handles a signal."""


def index(order: Order) -> BuildOutcome:
    """Bring a store up to date with its corpus, in the current flow run. Raises the error of a failed build."""
    order.progress = LoggingProgress(order.progress)
    with (
        order.interrupt.installed(),
        order.open() as run,
        cancelled_by_prefect(order.interrupt),
        shown_progress(order, run.build) as order.progress,
    ):
        return carry_out(order, run, lambda build: TaskRuns(build).together)


def _wait(future: PrefectFuture[Any]) -> None:
    """Wait for a task run, waking up every second to handle signals.

    Python handles a signal in the main thread. If the kernel delivers it to a different thread, as it may while
    SIGCHLD is pending in the main thread, nothing interrupts a wait without a timeout.
    """
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    while not ended.wait(_SIGNAL_SECONDS):
        pass
    future.wait()


class TaskRuns:
    """The steps of a build as task runs, each started as soon as its inputs are finished."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._futures: dict[str, PrefectFuture[Any]] = {}
        self._failure: BaseException | None = None
        self._lock = threading.Lock()

    def together(self, title: str, steps: Sequence[Step]) -> None:
        """Run steps; raises the first failure, which stops the other steps but not their pending, paid model calls."""
        for step in steps:
            needs = [self._futures[need] for need in step.needs if need in self._futures]
            self._futures[step.name] = self._task(title, step).submit(wait_for=needs)
        try:
            for step in steps:
                _wait(self._futures[step.name])
        except BaseException:  # such as a second signal
            self._build.executor.stop()
            raise
        if self._failure is not None:
            raise self._failure

    def _task(self, title: str, step: Step) -> Any:
        @task(
            name=step.name,
            task_run_name=f"{title}{step.name}",
            persist_result=False,
            cache_policy=NO_CACHE,
            retries=1,
            retry_condition_fn=_never,  # for a state that cannot be retried, Prefect logs an empty traceback
        )
        def drive() -> State[Any] | None:
            try:
                step.run(self._build)
            except StoppedError as error:
                self._fail(error)
                return Cancelled(name="Stopped", message="cancelled by another step or by the user")
            except BaseException as error:
                self._fail(error)
                state = state_of(error, self._build)
                if state is None:
                    raise
                return state
            return None

        return drive

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            if self._failure is None or isinstance(self._failure, StoppedError):
                self._failure = error
        self._build.executor.stop(at_once=False)


def _never(*_: object) -> bool:
    return False


def state_of(error: BaseException, build: Build | None = None) -> State[Any] | None:
    """Return the state of a run or step that ended with an error; None for an unexpected error.

    build: the run's build, to tell whether an OSError is due to a full disk.
    """
    if isinstance(error, OSError) and build is not None:
        error = DiskFull.of_any(error, build.store.scratch(build.run_id), temporary_folder()) or error
    if isinstance(error, DocumentsFailed):
        return Failed(name="DocumentsFailed", message=str(error))
    if not isinstance(error, IndexmillError):
        return None
    if error.exit_code == 5:
        return Completed(name="Skipped", message=str(error))
    return Failed(name=_FAILED.get(error.exit_code, "Failed"), message=str(error))


def final_state(order: Order) -> State[Any]:
    """Carry out an order and return its final state. On a server with users, the run's pages become artifacts."""
    try:
        with _no_spans_of_prefect():
            order.outcome = outcome = index(order)
    except KeyboardInterrupt as error:
        order.failure = error
        if order.interrupt.cancelled:
            return Cancelled(message=f"interrupted by {error}: finished parts are kept, the next run continues")
        if str(error) == "SIGTERM":  # Prefect's worker cancels a run with it, and records the reason
            raise TerminationSignal(signal.SIGTERM) from None
        raise
    except BaseException as error:
        order.failure = error
        state = state_of(error)
        if state is None:
            raise
        return state
    finally:
        leave_artifacts(order)
    if not outcome.published:
        return Completed(name="Unchanged", message=f"version {outcome.version} is up to date")
    return Completed(
        name="Published",
        message=f"version {outcome.version}: {counted(outcome.documents, 'document')}, "
        f"{counted(outcome.passages, 'passage')}, "
        f"{counted(outcome.quarantined, 'row')} refused",
    )


@contextlib.contextmanager
def _no_spans_of_prefect() -> Iterator[None]:
    """Keep Prefect's spans, whose errors may quote texts, out of the trace, unless the user has enabled them."""
    if _SPANS in os.environ:
        yield
        return
    with temporary_settings({PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY: False}):
        yield


_ORDER: ContextVar[Order] = ContextVar("order")


@flow(name="indexmill-build", flow_run_name="{run}", persist_result=False)
def build_flow(run: str) -> State[Any]:
    """Run the build that a command requests. run: the id of the run, or its store before the run begins."""
    return final_state(_ORDER.get())


def run_in_flow(order: Order) -> BuildOutcome:
    """Carry out an order of a command in a flow run; raises the error of a run that fails.

    If the server is lost at the end, this only warns that the server does not show the outcome.
    """
    token = _ORDER.set(order)
    named = build_flow.with_options(name="indexmill-backfill") if order.waves else build_flow
    try:
        with _no_spans_of_prefect():
            named(order.name, return_state=True)
    except BaseException as error:
        if order.outcome is None and order.failure is None:
            if isinstance(error, TerminationSignal):
                raise KeyboardInterrupt("SIGTERM") from None
            if isinstance(error, Exception):
                raise IndexmillError(
                    f"the Prefect server at {PREFECT_API_URL.value()} did not accept the run: {one_line(str(error))}; "
                    "the run has not begun"
                ) from error
            raise
        if isinstance(error, Exception) and error is not order.failure:
            order.progress.warn(
                f"the Prefect server at {PREFECT_API_URL.value()} is lost and does not show the outcome of this run: "
                f"{type(error).__name__}: {one_line(str(error))}"
            )
    finally:
        _ORDER.reset(token)
    if order.outcome is None:
        raise order.failure or IndexmillError("the flow run was cancelled before it began")
    return order.outcome
