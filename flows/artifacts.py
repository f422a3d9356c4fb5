"""What a run leaves on a Prefect server: pages of the run, its quality and its cost, refused rows, and its progress.

None of it fails a run: what a server does not take, or not in time, is left out.
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

from flows.run import Order
from flows.run_page import cost_page, quality_page, refused_rows, run_page
from indexmill.text.counted import counted
from tasks.core.report import Forwarding, Progress
from tasks.pipeline.build import Build

_EVERY = 5.0
"""Seconds between two updates of the progress, and those that the end of a run waits for the last one."""

_PATIENCE = 30.0
"""Seconds that the end of a flow run waits for its pages."""


def leave_artifacts(order: Order) -> None:
    """Put the pages and the table of a run that has ended on the server of its flow run."""
    if not order.private:
        _in_thread("artifacts", lambda: _leave(order)).join(_PATIENCE)


def _leave(order: Order) -> None:
    _page("indexmill-run", "What a run made and reused", lambda: run_page(order))
    _page("indexmill-quality", "Recall by method, now and before", lambda: quality_page(order))
    _page("indexmill-cost", "Calls of language models and what they cost", lambda: cost_page(order))
    with contextlib.suppress(Exception):
        rows, number = refused_rows(order)
        if rows:
            left = f", {number - len(rows):,} more are not shown" if number > len(rows) else ""
            told = f"{counted(number, 'row was', 'rows were')} refused{left}: `indexmill quarantine` lists them in full"
            create_table_artifact(rows, key="indexmill-refused", description=told)


def _page(key: str, description: str, make: Callable[[], str | None]) -> None:
    with contextlib.suppress(Exception):
        page = make()
        if page is not None:
            create_markdown_artifact(page, key=key, description=description)


@contextlib.contextmanager
def shown_progress(order: Order, build: Build) -> Iterator[Progress]:
    """A progress that forwards to the order's, and that the server shows in per cent while the block runs."""
    artifact: UUID | None = None
    if not order.private:
        with contextlib.suppress(Exception):
            made = create_progress_artifact(0.0, key="indexmill-progress", description="Stages of the run")
            artifact = cast(UUID, made)  # here it is no coroutine
    if artifact is None:
        yield order.progress
        return
    shown = _Shown(order.progress, {stage.name for step in build.steps for stage in step.stages})
    ended = threading.Event()
    finished = False

    def tell() -> None:
        told = 0.0
        while not ended.wait(_EVERY):
            if shown.percent != told:
                told = shown.percent
                _update(artifact, told, shown.current)
        _update(artifact, 100.0 if finished else shown.percent, "ended" if finished else f"ended at {shown.current}")

    thread = _in_thread("progress-artifact", tell)
    try:
        yield shown
        finished = True
    finally:
        ended.set()
        thread.join(_EVERY)


def _in_thread(name: str, work: Callable[[], None]) -> threading.Thread:
    """A thread that works for the current flow run, and that nothing has to wait for."""
    thread = threading.Thread(target=copy_context().run, args=(work,), name=name, daemon=True)
    thread.start()
    return thread


def _update(artifact: UUID, percent: float, what: str) -> None:
    with contextlib.suppress(Exception):
        update_progress_artifact(artifact, percent, description=what)


class _Shown(Forwarding):
    """Also knows the share of a run's stages that is done."""

    def __init__(self, progress: Progress, stages: set[str]) -> None:
        super().__init__(progress)
        self._stages = stages
        self._parts: dict[str, tuple[int, int]] = {}  # of each stage: done, wanted
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

    def _count(self, stage: str, done: int, wanted: int, *, ended: bool = False) -> None:
        """Count parts; a run that begins some stages again stays where it was until it is further."""
        with self._lock:
            before = self._parts.get(stage, (0, 0))
            self._parts[stage] = before[0] + done, max(before[1] + wanted, 1)
            if ended:
                self._parts[stage] = (self._parts[stage][1],) * 2
            known = self._stages | self._parts.keys()
            share = sum(min(done / wanted, 1.0) for done, wanted in self._parts.values()) / len(known)
            self.percent = max(self.percent, round(min(100.0 * share, 99.0), 1))
            self.current = stage
