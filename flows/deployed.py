"""The deployed flows: a scheduled refresh, and a backfill started by hand. Prefect shows their parameters.

The flow run's state corresponds to the exit code of `indexmill build`: docs/operations/nightly.md has the table.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

from prefect import flow
from prefect.client.schemas.objects import State

from flows.build import final_state, state_of
from flows.build_run import BuildOptions, Order
from flows.run_log import logged
from indexmill import telemetry_sdk
from indexmill.errors import IndexmillError
from schemas.config import load_configuration
from tasks.core.report import Silent
from tasks.pipeline.backfill import Waves


@flow(name="indexmill-refresh", persist_result=False)
def refresh(
    configuration: str = "indexmill.yaml",
    dask: str | None = None,
    allow_shrink: bool = False,
    allow_rights_change: bool = False,
    full: bool = False,
    note: str = "",
) -> State[Any]:
    """Bring the index of a configuration file up to date with its corpus, as `indexmill build` does."""
    options: BuildOptions = {
        "allow_shrink": allow_shrink,
        "allow_rights_change": allow_rights_change,
        "full": full,
        "note": note,
    }
    return _run(configuration, dask, **options)


@flow(name="indexmill-backfill", persist_result=False)
def backfill(
    configuration: str = "indexmill.yaml",
    dask: str | None = None,
    allow_shrink: bool = False,
    allow_rights_change: bool = False,
    publish_every: int | None = None,
    note: str = "",
) -> State[Any]:
    """Build a large corpus in waves, as `indexmill backfill` does. It can be cancelled: the next run continues."""
    waves = functools.partial(Waves, publish_every=publish_every)
    options: BuildOptions = {"allow_shrink": allow_shrink, "allow_rights_change": allow_rights_change, "note": note}
    return _run(configuration, dask, waves, **options)


def _run(
    path: str, dask: str | None, waves: Callable[[int | None], Waves] | None = None, **options: Unpack[BuildOptions]
) -> State[Any]:
    """Run a build; returns its final state. `dask`, else INDEXMILL_DASK, overrides the configuration's run.dask.

    waves: for a backfill, creates the waves; called with the configured number of shards per wave.
    """
    telemetry_sdk.configure()
    try:
        address = dask or os.environ.get("INDEXMILL_DASK")
        configuration = load_configuration(Path(path), {"run": {"dask": {"address": address}}} if address else None)
        cut = None if waves is None else waves(configuration.run.wave_shards)
        with logged("build" if cut is None else "backfill", configuration, Silent()) as log:
            order = Order(configuration, log.progress, cut, options)
            try:
                return final_state(order)
            finally:
                log.ended(order.outcome or order.failure)
    except IndexmillError as error:
        failed = state_of(error)
        assert failed is not None  # noqa: S101 - each IndexmillError has one
        return failed
