"""A plan runs the stages over an overlay of the store, in a temporary folder that is removed afterwards.

It takes no lease and changes nothing in the store, so it works while a build is running, for a read-only store, and for
a store that does not exist yet.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Unpack

from flows.build_run import PlanOptions, parent_of
from flows.interrupt import Interrupt
from flows.process_executor import ProcessExecutor
from flows.scratch import scratch_folder
from indexmill.errors import BadInput, CorruptBlob
from indexmill.store.canonical import canonical_json
from schemas.config import Configuration
from storage import runs
from storage.stores import overlay_of
from storage.write_errors import writing
from tasks.core.report import Progress
from tasks.pipeline.context import with_context
from tasks.pipeline.plan.plan import Plan
from tasks.pipeline.plan.planner import Planner
from tasks.pipeline.run_setup import RunSetup


def make_plan(configuration: Configuration, *, progress: Progress, **options: Unpack[PlanOptions]) -> Plan:
    """Plan the work that `indexmill build` would do now.

    Raises the errors that a build raises before it makes anything: no corpus, a refused corpus, a missing model.
    """
    with (
        Interrupt().installed(),
        scratch_folder() as folder,
        ProcessExecutor(configuration.run.workers) as executor,
    ):
        store = overlay_of(configuration.store, folder)
        parent = parent_of(store, progress)
        configuration = with_context(configuration, parent.manifest if parent else None, progress.note)
        planner = Planner(
            RunSetup(
                store=store,
                configuration=configuration,
                executor=executor,
                run_id="plan",
                parent=parent,
                progress=progress,
                **options,
            )
        )
        planner.preflight()
        history: list[runs.StoredRun] = []
        with contextlib.suppress(CorruptBlob):  # without readable records of runs, no time is estimated
            history = runs.list_runs(store)
        return planner.plan(history, configuration.run.workers or os.cpu_count() or 1)


def write_plan(path: Path, plan: Plan) -> None:
    with writing(path, full="free some space there", forbidden="choose a file that this user may write"):
        path.write_bytes(canonical_json(plan.to_json()))


def read_plan(path: Path) -> Plan:
    """Read a plan from a file; raises BadInput if there is none in it."""
    try:
        return Plan.from_bytes(path.read_bytes(), str(path))
    except OSError as error:
        raise BadInput(f"{path}: the plan cannot be read: {error.strerror}") from error
    except CorruptBlob as error:
        raise BadInput(
            f"{path} is not a plan of this release of indexmill: write one with `indexmill plan -o FILE`"
        ) from error
