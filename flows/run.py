"""A build from its parent to its commit, its stages run by hand or under Prefect."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from pydantic import JsonValue

from flows.interrupt import stoppable
from flows.operation import operation
from indexmill.canonical import digest_of
from indexmill.errors import CorruptBlob
from indexmill.manifest import Manifest, Ref
from schemas.config import Configuration
from storage import lineage, refs
from storage.clock import Clock, timestamp
from storage.folder import FolderStore, init_store
from storage.lease import Lease
from storage.lineage import Lineage
from storage.publish import publish
from tasks.build import NEEDS, Build, Parent
from tasks.executor import Executor, InlineExecutor
from tasks.report import Progress

__all__ = ["Outcome", "build_inline", "build_under_prefect", "run_build"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a build ended well: what scripts read from `build --json`."""

    published: bool
    version: int
    manifest: str
    run: str
    documents: int
    passages: int
    parts_made: int
    parts_reused: int
    parts_differing: int
    vectors_made: int
    vectors_reused: int
    llm_calls: int
    llm_tokens: int
    quarantined: int
    forgotten: int
    seconds: float


def run_build(
    configuration: Configuration,
    executor: Executor,
    stages: Callable[[Build], Manifest],
    *,
    progress: Progress,
    cold: bool = False,
    allow_shrink: bool = False,
    note: str = "",
    clock: Clock = time.time,
) -> Outcome:
    """Bring the store of a configuration up to date with its corpus.

    `stages` runs a build's stages in their order, by hand or under Prefect. Raises LeaseLost where another run is at
    work or committed first, and whatever a stage raised; the run's record then says so.
    """
    began = time.monotonic()
    store = init_store(configuration.store)
    details: dict[str, JsonValue] = {
        "configuration": configuration.model_dump(mode="json"),
        "cold": cold,
        "note": note,
    }
    seconds = float(configuration.run.lease_seconds)
    with operation(store, "build", details=details, clock=clock, lease_seconds=seconds) as run:
        build = Build(
            store,
            configuration,
            executor,
            run.run_id,
            parent=_parent(store, progress),
            progress=progress,
            cold=cold,
            allow_shrink=allow_shrink,
        )
        run.lease.start(on_lost=lambda: build.executor.stop())
        try:
            manifest = stages(build)
        finally:
            run.report = {name: stage.to_json() for name, stage in build.report.stages.items()}
        for file in build.report.changed_files:
            progress.warn(
                f"{file} changed while it was read; what was read is in the index, the next run reads it again"
            )
        ref = _commit(store, run.lease, build, manifest, clock, note)
        run.version, run.manifest, run.published = ref.version, ref.manifest, ref.run_id == run.run_id
    report = build.report
    return Outcome(
        published=run.published,
        version=ref.version,
        manifest=ref.manifest,
        run=run.run_id,
        documents=manifest.corpus.documents,
        passages=manifest.corpus.passages,
        parts_made=report.parts_made,
        parts_reused=report.parts_reused,
        parts_differing=sum(stage.parts_differing for stage in report.stages.values()),
        vectors_made=report.total("vectors_made"),
        vectors_reused=report.total("vectors_reused"),
        llm_calls=report.total("llm_calls"),
        llm_tokens=report.total("llm_tokens"),
        quarantined=report.total("quarantined"),
        forgotten=report.total("forgotten"),
        seconds=round(time.monotonic() - began, 3),
    )


def build_inline(configuration: Configuration, *, progress: Progress, cold: bool = False) -> Outcome:
    """A build in this process alone, stage after stage, without Prefect or Dask: for tests and debugging."""
    return run_build(configuration, InlineExecutor(), Build.run, progress=progress, cold=cold)


def build_under_prefect(
    configuration: Configuration,
    *,
    progress: Progress,
    cold: bool = False,
    allow_shrink: bool = False,
    dask: str | None = None,
    note: str = "",
) -> Outcome:
    """A build as the command runs it: a flow on a private Prefect server, its tasks on Dask worker processes.

    What can be refused without them is refused first. Then the server and the workers start at the same time, and the
    run waits for both.
    """
    with stoppable() as interrupt, contextlib.ExitStack() as stack:

        def stages(build: Build) -> Manifest:
            build.look()
            from flows.cluster import DaskExecutor, open_cluster
            from flows.server import private_prefect

            server = stack.enter_context(private_prefect())
            client = stack.enter_context(open_cluster(dask, configuration.run.workers, configuration.store))
            build.executor = DaskExecutor(client)
            with interrupt.stops(build), ThreadPoolExecutor(len(_AHEAD) + 1) as pool:
                try:
                    ahead: dict[str, Future[None]] = {}
                    for stage in _AHEAD:
                        ahead[stage] = pool.submit(_after, [ahead[need] for need in NEEDS[stage]], build, stage)
                    from flows.build import build_flow

                    server.wait()
                    # In the main thread Prefect would take the signals.
                    return pool.submit(build_flow, build, ahead, private=server.process is not None).result()
                except BaseException:
                    build.executor.stop()
                    raise

        return run_build(
            configuration,
            InlineExecutor(),
            stages,
            progress=progress,
            cold=cold,
            allow_shrink=allow_shrink,
            note=note,
        )


_AHEAD = ("encoder", "ingest", "split", "recognise")
"""The first stages: they begin while the Prefect server starts, and their tasks wait for them."""


def _after(needs: Sequence[Future[None]], build: Build, stage: str) -> None:
    for need in needs:
        need.result()
    getattr(build, stage)()


def _parent(store: FolderStore, progress: Progress) -> Parent | None:
    ref = refs.newest(store)
    if ref is None:
        return None
    try:
        manifest = Manifest.from_bytes(store.get_blob(ref.manifest), f"{store.url}, version {ref.version}")
        return Parent(ref.version, ref.manifest, manifest, lineage.read(store, manifest.lineage))
    except CorruptBlob as error:
        # Nothing of it can be reused; what is made again restores the blobs that are the same.
        progress.warn(f"version {ref.version} is damaged, its parts are made again: {error}")
        return Parent(ref.version, ref.manifest, None, Lineage())


def _commit(store: FolderStore, lease: Lease, build: Build, manifest: Manifest, clock: Clock, note: str) -> Ref:
    """Publish the manifest, unless it is the parent's own: then there was nothing to do."""
    parent = build.parent
    if parent is not None and digest_of(manifest.to_bytes()) == parent.digest:
        if parent.manifest is None:
            store.put_blob(manifest.to_bytes())  # what was damaged is whole again
        return refs.read(store, parent.version)
    cost = {name: build.report.total(name) for name in ("vectors_made", "llm_calls", "llm_tokens")}
    version = parent.version if parent else None
    return publish(store, lease, manifest, version, created=timestamp(clock()), cost=dict(cost), note=note)
