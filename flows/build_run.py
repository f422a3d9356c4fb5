"""The frame of a build, from the lease to the commit. Its caller decides how the steps are run."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pydantic import JsonValue

import indexmill
from flows.interrupt import Interrupt
from flows.observe import observed
from flows.operation import Operation, operation
from flows.sign import read_key, sign_unsigned
from indexmill.errors import CorruptBlob, GateRefused
from indexmill.models.openai_embeddings import open_embeddings
from indexmill.models.openai_llm import open_llm
from indexmill.models.secrets import without_secrets
from indexmill.retrieve.legibility import illegible_line
from indexmill.store.canonical import digest_of
from indexmill.store.manifest import Manifest, Ref
from indexmill.text.printable import one_line
from schemas.config import Configuration
from storage import holds, lineage, refs, runs
from storage.clock import Clock, timestamp
from storage.lineage import Lineage
from storage.protocol import Store
from storage.publish import publish, read_manifest
from storage.stores import init_store
from tasks.core.environment import code_digest
from tasks.core.executor import Executor, InlineExecutor
from tasks.core.part_runner import Parent
from tasks.core.report import Progress, RecordedWarnings
from tasks.core.step import Step
from tasks.pipeline.backfill import Together, Waves, backfill
from tasks.pipeline.build import Build
from tasks.pipeline.context import with_context
from tasks.pipeline.gates import refuse_quality
from tasks.pipeline.plan.plan import Approved
from tasks.pipeline.run_setup import RunSetup

COSTS = ("vectors_made", "llm_calls", "llm_tokens")
"""The cost figures of a version that its ref records."""

TOTALS: tuple[str, ...] = ("files_read", "files_unchanged", "files_passed_over", "vectors_made", "vectors_reused")
TOTALS += (
    "quarantined",
    "forgotten",
    "llm_calls",
    "llm_tokens",
    "llm_ledger",
    "embed_calls",
    "embed_tokens",
    "embed_ledger",
)
"""The counts that a run's report and its outcome have under the same names."""

Publish = Callable[[Manifest], None]
"""A function that publishes an intermediate manifest, from which the build continues."""


class PlanOptions(TypedDict, total=False):
    """The options that a build or a plan has in addition to its configuration.

    cold: make every part again. full: read every file and row again. allow_shrink: publish although too many documents
    are missing. allow_rights_change: publish although the readers of documents change. retry_refused: repeat calls to
    language models that were refused or answered badly.
    """

    cold: bool
    full: bool
    allow_shrink: bool
    allow_rights_change: bool
    retry_refused: bool


class BuildOptions(PlanOptions, total=False):
    """Additional options of a build. note: stored with the version. approved: the plan that the build must match."""

    note: str
    clock: Clock
    approved: Approved | None


@dataclass(frozen=True, slots=True)
class BuildOutcome:
    """The result of a successful build, printed by `build --json`."""

    published: bool
    version: int
    manifest: str
    run: str
    documents: int
    passages: int
    files_read: int
    files_unchanged: int  # unchanged since the previous version, and not opened
    files_passed_over: int  # not read, since no reader takes their suffix
    parts_made: int
    parts_reused: int
    parts_differing: int
    vectors_made: int
    vectors_reused: int
    llm_calls: int
    llm_tokens: int
    llm_ledger: int  # answers found in the ledger
    embed_calls: int  # calls to an encoder behind an endpoint
    embed_tokens: int
    embed_ledger: int  # texts whose vectors were found in the ledger
    cost: float  # cost of the calls, in the currency of the configured prices
    quarantined: int
    stand_ins: int  # texts of the version for which a language model failed and a fallback is used
    forgotten: int
    seconds: float
    bytes_made: int
    quality: Mapping[str, Any] | None


@dataclass
class OpenRun:
    """A run that holds the lease, and the build that it drives."""

    build: Build
    record: Operation
    _clock: Clock
    _note: str
    _began: float
    _signing_key: str | None = field(default=None, repr=False)
    _spent: Counter[str] = field(default_factory=Counter)
    """The cost of the versions that this run has published."""

    def watch(self, progress: Progress) -> None:
        """Report the build's progress to `progress`, and its warnings also to the run's record."""
        self.build.progress = RecordedWarnings(progress, self.build.report.warnings)

    def publish(self, manifest: Manifest) -> None:
        """Commit an intermediate version and continue the build from it."""
        ref = self._commit(manifest)
        parent = lineage.read(self.record.store, manifest.lineage)
        self.build.follow(Parent(ref.version, ref.manifest, manifest, parent))

    def finish(self, manifest: Manifest) -> BuildOutcome:
        """Check the manifest of all steps against the gates, and commit it. Raises GateRefused."""
        build, report = self.build, self.build.report
        for file in report.changed_files:
            build.progress.warn(
                f"{file} changed while it was read; the index has its content as read, the next run reads it again"
            )
        for counts in report.stand_ins.values():
            build.progress.warn(
                f"the language model gave no usable answer for {counts}; fallbacks are used for these: `indexmill "
                "quarantine` lists refused prompts, `indexmill build --retry-refused` calls the model for them again"
            )
        if line := illegible_line(manifest):
            build.progress.warn(line)
        _refuse_candidate(self.record, build, manifest)
        ref = self._commit(manifest)
        return BuildOutcome(
            published=self.record.published,
            version=ref.version,
            manifest=ref.manifest,
            run=self.record.run_id,
            documents=manifest.corpus.documents,
            passages=manifest.corpus.passages,
            parts_made=report.parts_made,
            parts_reused=report.parts_reused,
            parts_differing=sum(stage.parts_differing for stage in report.stages.values()),
            cost=report.cost,
            stand_ins=sum(count.stand_ins for count in report.stand_ins.values()),
            seconds=round(time.monotonic() - self._began, 3),
            bytes_made=sum(stage.bytes_made for stage in report.stages.values()),
            quality=report.quality,
            **{name: report.total(name) for name in TOTALS},
        )

    def _commit(self, manifest: Manifest) -> Ref:
        build, record = self.build, self.record
        build.update_costs()
        parent, served = build.parent, refs.standing(record.store)
        if parent and served and digest_of(manifest.to_bytes()) == parent.digest == served.manifest:
            if parent.manifest is None:
                record.store.put_blob(manifest.to_bytes())  # restores the manifest if it was damaged
            ref = served
        else:
            cost = {name: build.report.total(name) - self._spent[name] for name in COSTS}
            version, created = parent.version if parent else None, timestamp(self._clock())
            ref = publish(record.store, record.lease, manifest, version, created=created, cost=cost, note=self._note)
            self._spent.update(cost)
        if self._signing_key is not None:
            sign_unsigned(record.store, ref, manifest, self._signing_key, timestamp(self._clock()))
        record.version, record.manifest = ref.version, ref.manifest
        record.published = record.published or ref.run_id == record.run_id
        return ref


@contextlib.contextmanager
def open_run(
    command: str,
    configuration: Configuration,
    executor: Executor,
    *,
    progress: Progress,
    **options: Unpack[BuildOptions],
) -> Iterator[OpenRun]:
    """Hold the lease of a configuration's store and keep the run's record during the block.

    Raises LeaseLost if another run is at work or committed first, GateRefused if the store is on hold or an approved
    plan does not match. Errors of the block are written to the run's record and raised.
    """
    began = time.monotonic()
    key_file = configuration.run.signing_key_file
    key = None if key_file is None else read_key(key_file)
    store = init_store(configuration.store)
    clock, approved = options.get("clock", time.time), options.get("approved")
    cold, note = options.get("cold", False), options.get("note", "")
    details: dict[str, JsonValue] = {
        "configuration": without_secrets(configuration.model_dump(mode="json")),
        "cold": cold,
        "note": note,
        "allowed": [name for name in ("shrink", "rights_change") if options.get(f"allow_{name}")],
        "code": {"version": indexmill.__version__, "digest": code_digest()},
    }
    seconds = float(configuration.run.lease_seconds)
    warnings: list[str] = []
    progress = RecordedWarnings(progress, warnings)
    with (
        contextlib.ExitStack() as ended,
        observed(command, configuration, progress.warn) as telemetry,
        operation(store, command, details=details, clock=clock, lease_seconds=seconds) as record,
    ):
        ended.callback(_report_published, configuration, record, progress)
        holds.check(store)
        cautions = open_llm(configuration.llm).cautions() if configuration.llm.asks else []
        cautions += open_embeddings(configuration.embed).cautions() if configuration.embed.asks else []
        for caution in cautions:  # before any model is called
            progress.warn(caution)
        parent = parent_of(store, progress)
        configuration = with_context(configuration, parent.manifest if parent else None, progress.note)
        setup = RunSetup(
            store=store,
            configuration=configuration,
            executor=executor,
            run_id=record.run_id,
            parent=parent,
            progress=progress,
            cold=cold,
            full=options.get("full", False),
            allow_shrink=options.get("allow_shrink", False),
            allow_rights_change=options.get("allow_rights_change", False),
            retry_refused=options.get("retry_refused", False),
        )
        build = Build(
            setup,
            approve=approved.check if approved is not None else None,
            batch=configuration.llm.batch and command == "backfill",
        )
        build.report.warnings = warnings
        telemetry.began(record, build)
        if approved is not None:
            approved.check_cost()
            approved.check(build)
        record.lease.start(on_lost=lambda: build.executor.stop())
        try:
            yield OpenRun(build, record, clock, note, began, key)
        finally:
            build.update_costs()
            build.report.requests.update(store.requests())
            record.report = build.report.to_json()
            if approved is not None:
                record.plan = approved.beside(build.report, time.monotonic() - began)


def _report_published(configuration: Configuration, run: Operation, progress: Progress) -> None:
    """Write the configured report of the last version that a run published, even if the run has failed since."""
    if configuration.run.report is not None and run.published and run.version is not None:
        _write_report(configuration.run.report, run.store, run.version, progress.warn)


@dataclass
class Order:
    """A requested build and its result. waves: the waves of a backfill. private: True for a server without users."""

    configuration: Configuration
    progress: Progress
    waves: Waves | None = None
    options: BuildOptions = field(default_factory=BuildOptions)
    interrupt: Interrupt = field(default_factory=Interrupt)
    outcome: BuildOutcome | None = None
    failure: BaseException | None = None
    run: OpenRun | None = None
    private: bool = False

    @property
    def name(self) -> str:
        """The id of the run, or its store before the run begins."""
        return self.run.record.run_id if self.run is not None else str(self.configuration.store)

    @contextlib.contextmanager
    def open(self) -> Iterator[OpenRun]:
        """Open the run and do its preflight checks; nested blocks share it. Raises as `open_run` and `preflight` do."""
        if self.run is not None:
            yield self.run
            return
        command = "backfill" if self.waves else "build"
        opened = open_run(command, self.configuration, InlineExecutor(), progress=self.progress, **self.options)
        with opened as run, self.interrupt.restored():
            run.build.preflight()
            self.run = run
            yield run


def run_stages(
    command: str,
    configuration: Configuration,
    executor: Executor,
    stages: Callable[[Build, Publish], Manifest],
    *,
    progress: Progress,
    **options: Unpack[BuildOptions],
) -> BuildOutcome:
    """Bring a store up to date with its corpus; `stages` runs the steps, and may publish intermediate versions."""
    with open_run(command, configuration, executor, progress=progress, **options) as run:
        return run.finish(stages(run.build, run.publish))


def run_build(
    configuration: Configuration,
    executor: Executor,
    stages: Callable[[Build], Manifest],
    *,
    progress: Progress,
    **options: Unpack[BuildOptions],
) -> BuildOutcome:
    """Like `run_stages`, for steps that publish no intermediate versions."""
    return run_stages("build", configuration, executor, lambda build, _: stages(build), progress=progress, **options)


def build_inline(configuration: Configuration, *, progress: Progress, **options: Unpack[BuildOptions]) -> BuildOutcome:
    """Build in this process alone, stage after stage, without Prefect or Dask: for tests and debugging."""
    return run_build(configuration, InlineExecutor(), Build.run, progress=progress, **options)


def backfill_inline(
    configuration: Configuration, waves: Waves, *, progress: Progress, **options: Unpack[BuildOptions]
) -> BuildOutcome:
    """Backfill in this process alone, like `build_inline`."""

    def stages(build: Build, publish: Publish) -> Manifest:
        return backfill(build, waves, one_by_one(build), publish)

    return run_stages("backfill", configuration, InlineExecutor(), stages, progress=progress, **options)


def one_by_one(build: Build) -> Together:
    """Return a function that runs steps of a build in their order."""

    def together(_: str, steps: Sequence[Step]) -> None:
        for step in steps:
            step.run(build)

    return together


def parent_of(store: Store, progress: Progress) -> Parent | None:
    """Return the version that a build starts from, None before the first; warns if it is damaged.

    If the newest version was withdrawn on publication, the parent has the content of the version that readers see.
    """
    newest = refs.newest(store)
    if newest is None:
        return None
    ref = refs.standing(store) or newest
    try:
        manifest = read_manifest(store, ref.manifest)
        as_receipts = not runs.may_have_replaced(store, ref)
        return Parent(newest.version, ref.manifest, manifest, lineage.read(store, manifest.lineage), as_receipts)
    except CorruptBlob as error:
        # None of its parts can be reused; making them again restores identical blobs.
        progress.warn(f"version {ref.version} is damaged, its parts are made again: {error}")
        return Parent(newest.version, ref.manifest, None, Lineage())


def _refuse_candidate(run: Operation, build: Build, manifest: Manifest) -> None:
    """Raise GateRefused if the candidate's recall is too low. The candidate is kept, and the run's record names it."""
    digest = digest_of(manifest.to_bytes())
    if build.measured is None or (build.parent is not None and build.parent.digest == digest):
        return
    why = refuse_quality(build.measured, build.configuration.gates)
    if why is None:
        return
    earlier = [record.run_id for record in runs.list_runs(run.store) if record.candidate == digest]
    again = f" It is the candidate of run {earlier[-1]}, unchanged." if earlier else ""
    run.manifest = run.store.put_blob(manifest.to_bytes())
    raise GateRefused(
        f"{why}. Nothing was published.{again} The candidate is kept: inspect it with `indexmill query --run "
        f"{run.run_id}`, or publish it with `indexmill publish {run.run_id}`"
    )


def _write_report(path: Path, store: Store, version: int, warn: Callable[[str], None]) -> None:
    """Write the report file of `run.report`. The version is already published, so any failure is a warning."""
    from indexmill.report import render_report
    from indexmill.report.report_page import GENERATOR
    from indexmill.store.pages import write_page

    try:
        write_page(path, render_report(store.url, version), GENERATOR)
    except Exception as error:
        warn(
            f"the report of version {version} was not written to {path}: {type(error).__name__}: "
            f"{one_line(str(error))}; `indexmill report {version}` writes it by hand"
        )
