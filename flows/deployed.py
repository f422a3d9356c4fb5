"""The flows as they are deployed: a refresh by night, a backfill by hand. Parameters are names, fit to be shown.

A run's exit code becomes the flow run's state, so that people and automations see at a glance what `indexmill build`
tells a script:

| exit | state | type |
| --- | --- | --- |
| 0 | `Published`, `Unchanged` | completed |
| 5 | `Skipped`: another run is at work | completed |
| 3 | `Refused`: by a gate, what was made is kept | failed |
| 4 | `BudgetReached`: the next run goes on | failed |
| 1, 2 | `Failed`, `BadInput` | failed |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from flows.progress import Lines
from flows.run import Outcome, build_under_prefect
from indexmill.errors import IndexmillError
from indexmill.text.counted import counted
from schemas.config import load_configuration
from tasks.pipeline.backfill import Waves

__all__ = ["backfill", "refresh"]

_FAILED = {2: "BadInput", 3: "Refused", 4: "BudgetReached", 6: "DiskFull"}


@flow(name="indexmill-refresh", persist_result=False)
def refresh(
    configuration: str = "indexmill.yaml", dask: str | None = None, allow_shrink: bool = False, note: str = ""
) -> State[Any]:
    """Bring the index of a configuration file up to date with its corpus, as `indexmill build` does."""

    def run() -> Outcome:
        chosen = load_configuration(Path(configuration))
        return build_under_prefect(
            chosen, progress=Lines(), dask=_scheduler(dask), allow_shrink=allow_shrink, note=note
        )

    return _state(run)


@flow(name="indexmill-backfill", persist_result=False)
def backfill(
    configuration: str = "indexmill.yaml",
    dask: str | None = None,
    allow_shrink: bool = False,
    publish_every: int | None = None,
    note: str = "",
) -> State[Any]:
    """Build a large corpus in waves, as `indexmill backfill` does. Cancel it as you like: started again it goes on."""

    def run() -> Outcome:
        chosen = load_configuration(Path(configuration))
        return build_under_prefect(
            chosen,
            progress=Lines(),
            dask=_scheduler(dask),
            allow_shrink=allow_shrink,
            note=note,
            waves=Waves(chosen.run.wave_shards, publish_every),
        )

    return _state(run)


def _scheduler(dask: str | None) -> str | None:
    """The Dask scheduler of a run: that of its parameter, else of INDEXMILL_DASK; None for workers of its own."""
    return dask or os.environ.get("INDEXMILL_DASK") or None


def _state(run: Callable[[], Outcome]) -> State[Any]:
    """The state that tells how a run ended."""
    try:
        outcome = run()
    except IndexmillError as error:
        if error.exit_code == 5:
            return Completed(name="Skipped", message=str(error))
        return Failed(name=_FAILED.get(error.exit_code, "Failed"), message=str(error))
    if not outcome.published:
        return Completed(name="Unchanged", message=f"version {outcome.version} is up to date")
    return Completed(
        name="Published",
        message=f"version {outcome.version}: {counted(outcome.documents, 'document')}, "
        f"{counted(outcome.passages, 'passage')}, "
        f"{counted(outcome.quarantined, 'row')} refused",
    )
