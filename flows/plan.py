"""Making a plan: the stages over an overlay of the store, in a temporary folder that is gone afterwards.

No lease is taken and nothing in the store changes, so a plan may be made while a build is running, of a store that may
not be written to, and of one that is not there yet.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from flows.interrupt import Interrupt
from flows.processes import ProcessExecutor
from flows.run import parent_of
from flows.scratch import scratch_folder
from indexmill.errors import BadInput, CorruptBlob, DiskFull, StoreNotWritable
from indexmill.store.canonical import canonical_json
from schemas.config import Configuration
from storage import runs
from storage.overlay import OverlayStore, overlay_of
from tasks.core.report import Progress
from tasks.pipeline.plan.plan import Plan
from tasks.pipeline.plan.planner import Planner

__all__ = ["make_plan", "read_plan", "write_plan"]


def make_plan(
    configuration: Configuration,
    *,
    progress: Progress,
    cold: bool = False,
    allow_shrink: bool = False,
    retry_refused: bool = False,
) -> Plan:
    """What `indexmill build` would do now.

    Raises what that would raise before it makes anything: no corpus, a refused corpus, a model that is not there.
    """
    with (
        Interrupt().installed(),
        scratch_folder() as folder,
        ProcessExecutor(configuration.run.workers) as executor,
    ):
        store = overlay_of(configuration.store, folder)
        planner = Planner(
            store,
            configuration,
            executor,
            "plan",
            parent=parent_of(store, progress),
            progress=progress,
            cold=cold,
            allow_shrink=allow_shrink,
            retry_refused=retry_refused,
        )
        planner.preflight()
        return planner.plan(_history(store), configuration.run.workers or os.cpu_count() or 1)


def _history(store: OverlayStore) -> list[runs.Run]:
    with contextlib.suppress(CorruptBlob):  # a damaged record of a run only takes the estimate of the time away
        return runs.list_runs(store)
    return []


def write_plan(path: Path, plan: Plan) -> None:
    """Write a plan to a file, as canonical JSON."""
    try:
        path.write_bytes(canonical_json(plan.to_json()))
    except OSError as error:
        if (full := DiskFull.of(error, path)) is not None:
            raise full from error
        raise StoreNotWritable(f"{path}: the plan cannot be written: {error.strerror}") from error


def read_plan(path: Path) -> Plan:
    """The plan of a file; BadInput where it is none."""
    try:
        return Plan.from_bytes(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"{path}: the plan cannot be read: {error.strerror}") from error
    except CorruptBlob as error:
        raise BadInput(f"{path} is no plan of this indexmill: write one with `indexmill plan -o FILE`") from error
