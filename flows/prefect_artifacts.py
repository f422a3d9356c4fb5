"""The artifacts of a run on a Prefect server: pages of the run, its quality and cost, rejected rows, and its progress.

They never fail a run: an artifact that the server does not accept in time is left out.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from typing import cast
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from flows.build_run import Order
from flows.run_page import cost_page, quality_page, refused_rows, run_page
from indexmill.text.counted import counted
from tasks.core.report import Forwarding, Progress
from tasks.pipeline.build import Build

_EVERY = 5.0
"""Seconds between two updates of the progress, and the maximum seconds that a run waits for the last update."""

_PATIENCE = 30.0
"""The maximum seconds that the end of a flow run waits for its pages."""


def leave_artifacts(order: Order) -> None:
    """Create the pages and the table of a finished run on the server of its flow run."""
    if not order.private:
        _in_thread("artifacts", lambda: _leave(order)).join(_PATIENCE)


def _leave(order: Order) -> None:
    _page("indexmill-run", "What a run made and reused", lambda: run_page(order))
    _page("indexmill-quality", "Recall by method, now and before", lambda: quality_page(order))
    _page("indexmill-cost", "Calls of language models and what they cost", lambda: cost_page(order))
    with contextlib.suppress(Exception):
        rows, number = refused_rows(order)
        if rows:
            hidden = f", {number - len(rows):,} more are not shown" if number > len(rows) else ""
            description = (
                f"{counted(number, 'row was', 'rows were')} refused{hidden}: `indexmill quarantine` lists them in full"
            )
            create_table_artifact(rows, key="indexmill-refused", description=description)


def _page(key: str, description: str, make: Callable[[], str | None]) -> None:
    with contextlib.suppress(Exception):
        page = make()
        if page is not None:
            create_markdown_artifact(page, key=key, description=description)


@contextlib.contextmanager
def shown_progress(order: Order, build: Build) -> Iterator[Progress]:
    """Yield a progress that forwards to the order's, and show its percentage on the server during the block."""
    artifact: UUID | None = None
    if not order.private:
        with contextlib.suppress(Exception):
            created = create_progress_artifact(0.0, key="indexmill-progress", description="Stages of the run")
            artifact = cast(UUID, created)  # not a coroutine here
    if artifact is None:
        yield order.progress
        return
    shown = _Shown(order.progress, {stage.name for step in build.steps for stage in step.stages})
    ended = threading.Event()
    finished = False

    def tell() -> None:
        reported_percent = 0.0
        while not ended.wait(_EVERY):
            if shown.percent != reported_percent:
                reported_percent = shown.percent
                _update(artifact, reported_percent, shown.current)
        _update(artifact, 100.0 if finished else shown.percent, "ended" if finished else f"ended at {shown.current}")

    thread = _in_thread("progress-artifact", tell)
    try:
        yield shown
        finished = True
    finally:
        ended.set()
        thread.join(_EVERY)


def _in_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread


def _update(artifact: UUID, percent: float, what: str) -> None:
    with contextlib.suppress(Exception):
        update_progress_artifact(artifact, percent, description=what)


class _Shown(Forwarding):
    """A progress that also computes the finished percentage of a run's stages."""

    def __init__(self, progress: Progress, stages: set[str]) -> None:
        super().__init__(progress)
        self._stages = stages
        self._parts: dict[str, tuple[int, int]] = {}  # by stage: done and total
        self._lock = threading.Lock()
        self.percent = 0.0
        self.current = "starting"

    def begin(self, stage: str, parts: int) -> None:
        self._count(stage, 0, parts)
        super().begin(stage, parts)

    def advance(self, stage: str, parts: int = 1) -> None:
        self._count(stage, parts, 0)
        super().advance(stage, parts)

    def end(self, stage: str, summary: str, seconds: float | None = None) -> None:
        self._count(stage, 0, 0, ended=True)
        super().end(stage, summary, seconds)

    def abandon(self, stage: str) -> None:
        with self._lock:
            self._parts.pop(stage, None)
        super().abandon(stage)

    def _count(self, stage: str, done: int, total: int, *, ended: bool = False) -> None:
        """Count parts; the percentage never falls, even if a run begins stages again."""
        with self._lock:
            before = self._parts.get(stage, (0, 0))
            self._parts[stage] = before[0] + done, max(before[1] + total, 1)
            if ended:
                self._parts[stage] = (self._parts[stage][1],) * 2
            stages = self._stages | self._parts.keys()
            share = sum(min(done / total, 1.0) for done, total in self._parts.values()) / len(stages)
            self.percent = max(self.percent, round(min(100.0 * share, 99.0), 1))
            self.current = stage
