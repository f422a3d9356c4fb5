"""A build from its parent to its commit, its stages run by hand or under Prefect."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import JsonValue

from flows.interrupt import Interrupt, stoppable
from flows.on_demand import OnDemand
from flows.operation import Operation, operation
from flows.shown import Shown
from flows.stages import Stages
from indexmill.errors import CorruptBlob, GateRefused
from indexmill.models.openai_llm import open_llm
from indexmill.store.canonical import digest_of
from indexmill.store.manifest import Manifest, Ref
from schemas.config import Configuration
from storage import holds, lineage, refs, runs
from storage.clock import Clock, timestamp
from storage.folder import FolderStore, init_store
from storage.lease import Lease
from storage.lineage import Lineage
from storage.protocol import Store
from storage.publish import publish
from tasks.core.executor import Executor, InlineExecutor
from tasks.core.isolate import DocumentsFailed
from tasks.core.part_runner import Parent
from tasks.core.report import Progress
from tasks.core.step import Step
from tasks.pipeline.backfill import Waves, backfill
from tasks.pipeline.build import Build
from tasks.pipeline.gates import refuse_quality
from tasks.pipeline.plan.plan import Approved

__all__ = [
    "Outcome",
    "Publish",
    "backfill_inline",
    "build_inline",
    "build_under_prefect",
    "parent_of",
    "run_build",
    "run_stages",
]

Publish = Callable[[Manifest], None]
"""Publishes a manifest on the way, and lets the build go on from it."""


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
    llm_ledger: int  # answers that were there
    cost: float  # of the calls, in the currency of the configured prices
    quarantined: int
    stand_ins: int  # texts of the version that a language model was to write and did not
    forgotten: int
    seconds: float
    bytes_made: int
    quality: Mapping[str, Any] | None


def run_build(
    configuration: Configuration,
    executor: Executor,
    stages: Callable[[Build], Manifest],
    *,
    progress: Progress,
    cold: bool = False,
    allow_shrink: bool = False,
    retry_refused: bool = False,
    note: str = "",
    clock: Clock = time.time,
    approved: Approved | None = None,
) -> Outcome:
    """Bring the store of a configuration up to date with its corpus.

    retry_refused: ask language models again what they refused or answered badly. `stages` runs a build's stages in
    their order, by hand or under Prefect. Raises LeaseLost where another run is at work or committed first, GateRefused
    where the store is on hold, what an approved plan refuses, and whatever a stage raised; the run's record then says
    so.
    """
    return run_stages(
        "build",
        configuration,
        executor,
        lambda build, _: stages(build),
        progress=progress,
        cold=cold,
        allow_shrink=allow_shrink,
        retry_refused=retry_refused,
        note=note,
        clock=clock,
        approved=approved,
    )


def run_stages(
    command: str,
    configuration: Configuration,
    executor: Executor,
    stages: Callable[[Build, Publish], Manifest],
    *,
    progress: Progress,
    cold: bool = False,
    allow_shrink: bool = False,
    retry_refused: bool = False,
    note: str = "",
    clock: Clock = time.time,
    approved: Approved | None = None,
) -> Outcome:
    """As `run_build`, for stages that may publish versions on the way to the last."""
    began = time.monotonic()
    store = init_store(configuration.store)
    details: dict[str, JsonValue] = {
        "configuration": configuration.model_dump(mode="json"),
        "cold": cold,
        "note": note,
    }
    seconds = float(configuration.run.lease_seconds)
    with operation(store, command, details=details, clock=clock, lease_seconds=seconds) as run:
        holds.check(store)
        for caution in open_llm(configuration.llm).cautions() if configuration.llm.backend == "openai" else ():
            progress.warn(caution)
        build = Build(
            store,
            configuration,
            executor,
            run.run_id,
            parent=parent_of(store, progress),
            progress=progress,
            cold=cold,
            allow_shrink=allow_shrink,
            retry_refused=retry_refused,
            approve=approved.check if approved is not None else None,
            batch=configuration.llm.batch and command == "backfill",
        )
        if approved is not None:
            approved.check_cost()
            approved.check(build)
        run.lease.start(on_lost=lambda: build.executor.stop())

        spent: Counter[str] = Counter()

        def commit(manifest: Manifest) -> Ref:
            build.update_costs()
            ref = _commit(store, run.lease, build, manifest, clock, note, spent)
            run.version, run.manifest = ref.version, ref.manifest
            run.published = run.published or ref.run_id == run.run_id
            return ref

        def on_the_way(manifest: Manifest) -> None:
            ref = commit(manifest)
            build.follow(Parent(ref.version, ref.manifest, manifest, lineage.read(store, manifest.lineage)))

        try:
            manifest = stages(build, on_the_way)
        finally:
            build.update_costs()
            run.report = build.report.to_json()
            if approved is not None:
                run.plan = approved.beside(build.report, time.monotonic() - began)
        for file in build.report.changed_files:
            progress.warn(
                f"{file} changed while it was read; what was read is in the index, the next run reads it again"
            )
        for stand_ins in build.report.stand_ins.values():
            progress.warn(
                f"the language model gave no usable answer for {stand_ins}, and something else stands in for these: "
                "`indexmill quarantine` says why, `indexmill build --retry-refused` asks again"
            )
        _refuse_candidate(run, build, manifest)
        ref = commit(manifest)
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
        llm_ledger=report.total("llm_ledger"),
        cost=report.cost,
        quarantined=report.total("quarantined"),
        stand_ins=sum(found.stand_ins for found in report.stand_ins.values()),
        forgotten=report.total("forgotten"),
        seconds=round(time.monotonic() - began, 3),
        bytes_made=sum(stage.bytes_made for stage in report.stages.values()),
        quality=report.quality,
    )


def build_inline(
    configuration: Configuration,
    *,
    progress: Progress,
    cold: bool = False,
    approved: Approved | None = None,
) -> Outcome:
    """A build in this process alone, stage after stage, without Prefect or Dask: for tests and debugging."""
    return run_build(configuration, InlineExecutor(), Build.run, progress=progress, cold=cold, approved=approved)


def backfill_inline(configuration: Configuration, waves: Waves, *, progress: Progress, cold: bool = False) -> Outcome:
    """A backfill in this process alone, as `build_inline`."""

    def stages(build: Build, publish: Publish) -> Manifest:
        return backfill(build, waves, lambda _, steps: _in_order(build, steps), publish)

    return run_stages("backfill", configuration, InlineExecutor(), stages, progress=progress, cold=cold)


def _in_order(build: Build, steps: Sequence[Step]) -> None:
    for step in steps:
        step.drive(build)


def build_under_prefect(
    configuration: Configuration,
    *,
    progress: Progress,
    cold: bool = False,
    allow_shrink: bool = False,
    retry_refused: bool = False,
    dask: str | None = None,
    note: str = "",
    approved: Approved | None = None,
    waves: Waves | None = None,
) -> Outcome:
    """A build as the command runs it: its stages on Dask worker processes, shown as a flow on a private Prefect server.

    waves: for a backfill, each group of whose stages is shown as a run of its own.

    What can be refused without them is refused first. Then the server and the workers start at the same time; the
    stages wait for the workers alone. A refresh starts workers when there is work for them, and a server never: its
    flow is shown where `PREFECT_API_URL` names one.
    """
    with stoppable(progress.note) as interrupt, contextlib.ExitStack() as stack:

        def stages(build: Build, publish: Publish) -> Manifest:
            build.look()
            small = build.parent is not None and not cold and waves is None
            if small and dask is None and not os.environ.get("PREFECT_API_URL"):
                expected = build.expects_work()

                def on_demand() -> OnDemand:
                    opened = stack.enter_context(_on_demand(configuration))
                    if expected:
                        opened.expect(build.opening_ahead)
                    return opened

                return _try(build, interrupt, on_demand, _refresh)
            from flows.cluster import DaskExecutor, open_cluster
            from flows.server import private_prefect

            progress.doing("starting workers")
            server = stack.enter_context(private_prefect(configuration.llm))
            client = stack.enter_context(
                open_cluster(dask, configuration.run.workers, configuration.store, configuration.llm)
            )

            def together(title: str, steps: Sequence[Step]) -> None:
                at_work = Stages(build, steps)
                flow = "indexmill-waves" if waves else "indexmill-build"
                with Shown(flow, f"{build.run_id} {title}".strip(" :"), at_work.running, server, progress):
                    at_work.wait()

            def all_of_them(build: Build) -> Manifest:
                if waves is not None:
                    return backfill(build, waves, together, publish)
                together("", build.steps)
                return build.manifest()

            return _try(build, interrupt, lambda: DaskExecutor(client), all_of_them)

        return run_stages(
            "backfill" if waves else "build",
            configuration,
            InlineExecutor(),
            stages,
            progress=progress,
            cold=cold,
            allow_shrink=allow_shrink,
            retry_refused=retry_refused,
            note=note,
            approved=approved,
        )


def _refresh(build: Build) -> Manifest:
    """All stages, each as soon as those that it needs have ended, and none before `ingest`.

    It finds out whether there is anything to do. Where there is, `split` waits for it, which takes a moment, and is
    done beside the encoder's opening, which takes a second of a worker.
    """
    others = [step for step in build.steps if step.name != "encoder"]
    first = 1 + next(place for place, step in enumerate(others) if step.name == "ingest")
    waiting = [replace(step, needs=("ingest",)) for step in build.steps if step.name == "encoder"]
    Stages(build, [*others[:first], *waiting, *others[first:]]).wait()
    return build.manifest()


def _on_demand(configuration: Configuration) -> contextlib.closing[OnDemand]:
    return contextlib.closing(OnDemand(configuration.store, configuration.run.workers, configuration.llm))


def _try(
    build: Build,
    interrupt: Interrupt,
    executor: Callable[[], Executor],
    stages: Callable[[Build], Manifest],
) -> Manifest:
    """Run the stages, again without the documents that one of them cannot take; the manifest of the rest."""
    while True:
        build.executor = executor()
        try:
            with interrupt.stops(build):
                return stages(build)
        except DocumentsFailed as failed:
            build.begin_again(failed)


def parent_of(store: Store, progress: Progress) -> Parent | None:
    """The version that a build starts from, None before the first; warns where it is damaged.

    Where the newest was withdrawn as it was published: with the content of the one before, which readers have.
    """
    newest = refs.newest(store)
    if newest is None:
        return None
    ref = refs.standing(store) or newest
    try:
        manifest = Manifest.from_bytes(store.get_blob(ref.manifest), f"{store.url}, version {ref.version}")
        return Parent(newest.version, ref.manifest, manifest, lineage.read(store, manifest.lineage))
    except CorruptBlob as error:
        # Nothing of it can be reused; what is made again restores the blobs that are the same.
        progress.warn(f"version {ref.version} is damaged, its parts are made again: {error}")
        return Parent(newest.version, ref.manifest, None, Lineage())


def _refuse_candidate(run: Operation, build: Build, manifest: Manifest) -> None:
    """Raise GateRefused where the candidate finds too little; it is kept, and the run's record names it."""
    digest = digest_of(manifest.to_bytes())
    if build.measured is None or (build.parent is not None and build.parent.digest == digest):
        return
    why = refuse_quality(build.measured, build.configuration.gates)
    if why is None:
        return
    earlier = [one.run_id for one in runs.list_runs(run.store) if one.candidate == digest]
    again = f" It is the candidate of run {earlier[-1]}, unchanged." if earlier else ""
    run.manifest = run.store.put_blob(manifest.to_bytes())
    raise GateRefused(
        f"{why}. Nothing was published.{again} The candidate is kept: look at it with `indexmill query --run "
        f"{run.run_id}`, publish it all the same with `indexmill publish {run.run_id}`"
    )


def _commit(
    store: FolderStore, lease: Lease, build: Build, manifest: Manifest, clock: Clock, note: str, spent: Counter[str]
) -> Ref:
    """Publish the manifest, unless it is the parent's own: then there was nothing to do.

    `spent` is the cost of the versions that this run has published.
    """
    parent = build.parent
    served = refs.standing(store)
    if parent is not None and served is not None and digest_of(manifest.to_bytes()) == parent.digest == served.manifest:
        if parent.manifest is None:
            store.put_blob(manifest.to_bytes())  # what was damaged is whole again
        return served
    cost = {name: build.report.total(name) - spent[name] for name in ("vectors_made", "llm_calls", "llm_tokens")}
    version = parent.version if parent else None
    ref = publish(store, lease, manifest, version, created=timestamp(clock()), cost=dict(cost), note=note)
    spent.update(cost)
    return ref
