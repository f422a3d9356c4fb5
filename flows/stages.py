"""The stages of a build at work, each in a thread of its own, which waits for the stages that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import MappingProxyType

from indexmill.manifest import Manifest
from tasks.build import NEEDS, Build

__all__ = ["BY_NEED", "Stages"]

BY_NEED: Mapping[str, tuple[str, ...]] = {"ingest": (), **NEEDS, "encoder": ("ingest",)}
"""What stages wait for where nothing is begun before `ingest` has found out whether there is anything to do."""


class Stages:
    """Runs a build's stages from now on. The first failure stops the others, and is what `result` raises.

    `needs` says what each stage waits for, in an order that satisfies each.
    """

    def __init__(self, build: Build, needs: Mapping[str, Sequence[str]] = NEEDS) -> None:
        self._build = build
        self._failure: BaseException | None = None
        self._pool = ThreadPoolExecutor(len(needs), thread_name_prefix="stage")
        running: dict[str, Future[None]] = {}
        for stage, others in needs.items():
            running[stage] = self._pool.submit(self._run, stage, [running[other] for other in others])
        self.running: Mapping[str, Future[None]] = MappingProxyType(running)

    def result(self) -> Manifest:
        """Wait until every stage has ended; the manifest that they add up to."""
        try:
            wait(self.running.values())
        except BaseException:  # a second signal
            self._build.executor.stop()
            raise
        finally:
            self._pool.shutdown(wait=False)
        if self._failure is not None:
            raise self._failure
        return self._build.manifest()

    def _run(self, stage: str, needs: Sequence[Future[None]]) -> None:
        for need in needs:
            need.result()
        try:
            getattr(self._build, stage)()
        except BaseException as error:
            if self._failure is None:
                self._failure = error
            self._build.executor.stop()
            raise
