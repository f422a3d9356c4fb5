"""The Prefect flow of a build: a dozen coarse tasks, each driving the executor of the run.

The flow says what waits for what, and shows it to people; receipts in the store are the truth about progress. Results
are never cached or kept by Prefect.
"""

from __future__ import annotations

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture

from indexmill.manifest import Manifest
from tasks.build import Build

__all__ = ["build_flow"]

_NEEDS: dict[str, tuple[str, ...]] = {
    "encoder": (),
    "ingest": (),
    "split": ("encoder", "ingest"),
    "recognise": ("split",),
    "embed": ("split",),
    "resolve": ("recognise",),
    "embed_names": ("resolve",),
    "tri_graph": ("resolve",),
    "check": ("embed", "embed_names", "tri_graph"),
}
"""What each stage waits for; what waits for nothing of another runs beside it."""

_AT_WORK: dict[str, Build] = {}
"""The builds of this process by run id: a flow's parameters are only names, fit to be shown and kept."""


@task(persist_result=False, cache_policy=NO_CACHE, task_run_name="{stage}")
def _stage(stage: str, run_id: str) -> None:
    getattr(_AT_WORK[run_id], stage)()


@flow(name="indexmill-build", flow_run_name="{run_id}", persist_result=False, validate_parameters=False)
def _flow(run_id: str) -> None:
    running: dict[str, PrefectFuture[None]] = {}
    for stage, needs in _NEEDS.items():
        waits = [running[need] for need in needs]
        running[stage] = _stage.submit(stage, run_id, wait_for=waits, return_state=False)
    for future in running.values():
        future.result()


def build_flow(build: Build) -> Manifest:
    """Run all stages of a build under Prefect and return the manifest they add up to."""
    _AT_WORK[build.run_id] = build
    try:
        _flow(build.run_id)
    finally:
        del _AT_WORK[build.run_id]
    return build.manifest()
