"""The stages of a build at work, each in a thread of its own, which waits for the stages that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import MappingProxyType

from tasks.core.executor import StoppedError
from tasks.core.step import Step
from tasks.pipeline.build import Build
from tasks.registry import needs_among

__all__ = ["Stages"]


class Stages:
    """Runs a build's stages from now on. The first failure stops the others, and is what `wait` raises.

    What they have asked a language model is waited for: it is paid for.

    The steps stand in an order in which each follows those that it needs; it waits for those among them.
    """

    def __init__(self, build: Build, steps: Sequence[Step]) -> None:
        self._build = build
        self._failure: BaseException | None = None
        self._pool = ThreadPoolExecutor(len(steps), thread_name_prefix="stage")
        running: dict[str, Future[None]] = {}
        needs = needs_among(steps)
        for step in steps:
            running[step.name] = self._pool.submit(self._run, step, [running[other] for other in needs[step.name]])
        self.running: Mapping[str, Future[None]] = MappingProxyType(running)

    def wait(self) -> None:
        """Wait until every stage has ended; raises what the first that failed raised."""
        try:
            wait(self.running.values())
        except BaseException:  # a second signal
            self._build.executor.stop()
            raise
        finally:
            self._pool.shutdown(wait=False)
        if self._failure is not None:
            raise self._failure

    def _run(self, step: Step, needs: Sequence[Future[None]]) -> None:
        for need in needs:
            need.result()
        try:
            step.drive(self._build)
        except BaseException as error:
            if self._failure is None or isinstance(self._failure, StoppedError):
                self._failure = error
            self._build.executor.stop(at_once=False)
            raise
