"""Make parts: find existing parts, copy rows from earlier parts, and handle failures.

A `PartRunner` finds parts of the previous version and parts with receipts, passes the missing parts to an executor,
retries after workers died, and searches for the documents that make a stage fail. It treats all stages alike.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from indexmill.errors import BudgetReached
from indexmill.models.progress import Items
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.manifest import Manifest
from indexmill.text.counted import counted
from indexmill.text.printable import escaped
from schemas.config import EndpointSettings
from schemas.tables import DOCUMENTS
from storage import poison, refs, runs
from storage.lineage import Lineage, LineageEntry
from storage.protocol import Store
from storage.receipts import Receipt, candidates, find, find_incomplete, has_outputs, overlap, scan
from storage.table_blobs import read_table
from tasks.core.environment import library_versions
from tasks.core.executor import Call, Executor, Failed, StoppedError, WorkerDied
from tasks.core.isolate import DocumentsFailed, DocumentsRefused, blames_documents, failing_documents
from tasks.core.report import Progress, RunReport, StageReport
from tasks.core.stage import Job, Part, PartFailed, PartResult, Stage, StageSettings, make_part, part_key
from tasks.core.stage_trace import StageTrace
from tasks.llm.account import AskingEnded
from tasks.llm.ask import LlmAccess
from tasks.llm.batch import PromptBatcher
from tasks.llm.vectors import EncoderAccess

Parts = dict[str, Receipt]  # by shard label

SEARCH_PRIORITY = 50
"""The priority of reading the corpus and of searching for failing documents, for which all parts of shards wait."""

_ATTEMPTS = 3
"""The number of times that workers may die while making a part before the part is blamed."""
_READERS = 16
"""The number of receipts read at the same time: a read from a bucket takes tens of milliseconds."""
_PARENT = "parent"
"""The run id of receipts that are derived from the parent's lineage."""
_FAILED_TOGETHER = 16
"""The number of failed parts after which the search for failing documents starts, before other parts are tried."""


@dataclass(frozen=True)
class Parent:
    """The version that a run starts from, and its parts.

    as_receipts: True if the receipts of these parts are known to have the same outputs as the lineage.
    """

    version: int
    digest: str  # of the manifest
    manifest: Manifest | None  # None if it is damaged
    lineage: Lineage
    as_receipts: bool = False


@dataclass(frozen=True)
class PartSpec:
    """A part that a stage needs: its shard, inputs and settings."""

    shard: str
    inputs: Mapping[str, str]
    settings: StageSettings

    @property
    def asking(self) -> LlmAccess | None:
        """The part's access to a language model; None if it asks none."""
        access = getattr(self.settings, "asking", None)
        return access if isinstance(access, LlmAccess) and access.settings.backend != "extractive" else None

    def with_access(self, access: EncoderAccess) -> PartSpec:
        """Return a copy of the specification, with access for its workers to an encoder behind an endpoint."""
        settings: Any = self.settings
        opening = {**settings.opening, "access": access}
        return dataclasses.replace(self, settings=dataclasses.replace(settings, opening=opening))

    @property
    def asks(self) -> bool:
        """True if the part may ask a language model, or an encoder behind an endpoint."""
        return self.asking is not None or self.encodes

    @property
    def encodes(self) -> bool:
        """True if the part may ask an encoder behind an endpoint."""
        return "access" in getattr(self.settings, "opening", ())


class PartRunner:
    """Makes the parts of a run.

    retry_refused: make published parts with failed rows again. endpoints: the endpoints of the run's models.
    """

    retry_refused = False
    endpoints: Sequence[EndpointSettings] = ()

    def __init__(
        self, store: Store, executor: Executor, run_id: str, *, parent: Parent | None, progress: Progress, cold: bool
    ) -> None:
        self.store = store
        self.executor = executor
        self.run_id = run_id
        self.parent = parent
        self.progress = progress
        self.cold = cold
        self.report = RunReport()
        self.parts: dict[str, Parts] = {}
        self._receipts: dict[str, Receipt] = {}  # by key: receipts that this run has found or made
        self._scanned: dict[str, list[Receipt]] = {}
        self._alike: dict[str, frozenset[str]] = {}  # shards by stage: see `_alike_shards`
        self.stages: dict[str, Stage[Any]] = {}  # by name: stages that this run has reached
        self._lock = threading.Lock()
        self._reported_seconds: dict[str, float] = {}  # seconds of work reported to the progress, by stage

    def poison_scope(self, stage: str) -> str:
        """Return the scope of a poison record: with other settings, code or libraries, the document is tried again."""
        raise NotImplementedError

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        """Return the parent's part of a stage for a shard, if it has one; its blobs or receipt may be missing."""
        return self._parents_parts.get((stage, shard))

    def forget_receipts(self) -> None:
        """Drop the cached receipts of unpublished runs, so that they are listed again."""
        self._scanned.clear()

    def forget_parent(self) -> None:
        """Drop the values cached from the parent, after the parent has changed."""
        cached = ("_parents_keys", "_parents_outputs", "_parents_parts", "_parents_shards", "_shard_of_content")
        for name in (*cached, "_receipts_of_parent"):
            self.__dict__.pop(name, None)

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        """Find or make the parts that a stage needs; returns the receipts as `record_receipts` does."""
        report = self.report.stage(stage.name)
        self.stages[stage.name] = stage
        try:
            with StageTrace(stage.name) as trace:
                return self._make_parts(stage, specs, report, trace)
        except BaseException as error:
            self.progress.abandon(stage.name)
            if isinstance(error, Exception) and not isinstance(error, (StoppedError, BudgetReached)):
                report.parts_failed += 1
            raise

    def _make_parts(
        self, stage: Stage[Any], specs: Iterable[PartSpec], report: StageReport, trace: StageTrace
    ) -> Parts:
        receipts: Parts = {}
        by_key: dict[str, list[PartSpec]] = {}  # shards with equal inputs share one part
        with self.report.at_work(stage.name):
            requested = list(specs)
            self.progress.begin(stage.name, len(requested))
            calls = self._calls(stage, requested, by_key, receipts, report, trace)
            trace.begin(len(by_key))
        try:
            if any(call.asks for call in calls):
                with self.report.at_work(stage.name):
                    self._answer_ahead(stage, [call.arguments[0] for call in calls if call.asks], report)
            for key, result in self._results(stage, calls):
                same = by_key[key]
                trace.add(result)
                self._receipts[key] = self._count(stage, report, result)
                receipts |= dict.fromkeys((spec.shard for spec in same), self._receipts[key])
                self.progress.within(stage.name, key, None)
                self.progress.advance(stage.name, len(same))
        except BudgetReached as error:
            raise BudgetReached(
                f"{error}. {stage.name} has {len(receipts):,} of {counted(len(requested), 'part')}; parts and answers "
                "are kept. Run the command again to continue with a new budget of the same size; set it with "
                "--budget-tokens, --budget-cost or llm.budget"
            ) from error
        with self._lock:  # two methods may make parts of one stage
            receipts = self.record_receipts(stage, receipts)
            seconds = report.wall_seconds - self._reported_seconds.get(stage.name, 0.0)
            self._reported_seconds[stage.name] = report.wall_seconds
        self.progress.end(stage.name, f"{report.parts_made} made, {report.parts_reused} reused", seconds)
        return receipts

    def record_receipts(self, stage: Stage[Any], receipts: Parts) -> Parts:
        """Return receipts by shard; if versions list the stage, add them to `parts`, and return all of the stage's."""
        if stage.listed:
            receipts = dict(sorted({**self.parts.get(stage.name, {}), **receipts}.items()))
            self.parts[stage.name] = receipts
        return receipts

    def _calls(
        self,
        stage: Stage[Any],
        requested: Sequence[PartSpec],
        by_key: dict[str, list[PartSpec]],
        receipts: Parts,
        report: StageReport,
        trace: StageTrace,
    ) -> list[Call]:
        """Return calls that make the missing parts; adds all specs to `by_key`, and existing parts to `receipts`."""
        for spec in requested:
            by_key.setdefault(part_key(stage, spec.shard, spec.settings, spec.inputs), []).append(spec)
        if requested:
            self._compare_parts(stage, requested[0])
        unknown = [] if self.cold else [key for key in by_key if key not in self._receipts]
        with ThreadPoolExecutor(_READERS) as pool:
            existing = dict(zip(unknown, pool.map(partial(self.find, stage), unknown), strict=True))
        calls: list[Call] = []
        for key, (spec, *_) in by_key.items():
            before = self._receipts.get(key)
            receipt = before or existing.get(key)
            if receipt is not None:
                self._receipts[key] = receipt
                receipts |= {same.shard: receipt for same in by_key[key]}
                report.parts_reused += before is None
                self.progress.advance(stage.name, len(by_key[key]))
                continue
            job = self._job(stage, spec, key)
            on_progress = partial(self.within, stage.name, key)
            calls.append(
                Call(
                    f"{self.run_id}-{stage.name}-{key}",
                    make_part,
                    (job,),
                    local=stage.local,
                    asks=spec.asks,
                    on_progress=on_progress,
                    trace=trace.of_call(len(calls), key, spec.shard),
                )
            )
        return calls

    def within(self, stage: str, key: str, done: int, total: int, items: Items | None) -> None:
        """Forward the progress of a part from its worker."""
        self.progress.within(stage, key, done / max(total, 1), items)

    def _answer_ahead(self, stage: Stage[Any], jobs: Sequence[Job], report: StageReport) -> None:
        """Have the parts' questions answered in batches before the parts are made, if batches are enabled."""
        batcher, requests = self.batcher, stage.requests
        if batcher is None or requests is None or not jobs:
            return
        asking: LlmAccess = jobs[0].settings.asking
        try:
            batcher.fill(
                stage.name,
                asking,
                lambda: (request for job in jobs for request in requests(Part(self.store, job))),
                report.counts,
            )
        except AskingEnded as error:
            raise StoppedError from error

    @property
    def batcher(self) -> PromptBatcher | None:
        """The batcher of prompts to language models; None if batches are not used."""
        return None

    def find(self, stage: Stage[Any], key: str) -> Receipt | None:
        """Return the receipt of a part that is complete, or that the parent published incomplete; None to make it."""
        # The parent's lineage does not say whether rows failed; only stages that ask a language model have such rows.
        receipt = self._receipts_of_parent.get((stage.name, key)) if stage.requests is None else None
        if receipt is None or not has_outputs(self.store, receipt):
            receipt = find(self.store, stage.name, key)
        if receipt is not None or self.retry_refused or (stage.name, key) not in self._parents_outputs:
            return receipt
        return find_incomplete(self.store, stage.name, key, self._parents_outputs[stage.name, key])

    def _job(self, stage: Stage[Any], spec: PartSpec, key: str) -> Job:
        """Return the job of a worker that makes a part of a stage."""
        row_space = row_space_of(stage, spec.settings)
        return Job(
            stage=stage.module,
            key=key,
            shard=spec.shard,
            store_url=self.store.url,
            run_id=self.run_id,
            inputs=spec.inputs,
            settings=spec.settings,
            row_space=row_space,
            # A cold run also reuses vectors of an endpoint, as it reuses answers of a language model.
            reuse=self._reuse(stage, row_space, spec.shard) if row_space and (not self.cold or spec.encodes) else (),
            earlier=self._earlier(stage, spec.shard),
            cold=self.cold,
        )

    def _results(self, stage: Stage[Any], calls: Iterable[Call]) -> Iterator[tuple[str, PartResult]]:
        """Yield the results of some calls, with the keys of their parts.

        If workers died, or a document may have caused an exception, searches for the failing documents. Raises
        DocumentsFailed if it finds any; otherwise retries, since another call on the same worker may have killed it.
        """
        remaining = {call.arguments[0].key: call for call in calls}
        for attempt in range(_ATTEMPTS):
            failed: dict[str, Exception] = {}
            again = [dataclasses.replace(call, key=f"{call.key}-{attempt}") for call in remaining.values()]
            for call, result in self._run(stage, again):
                key = call.arguments[0].key
                if not isinstance(result, Failed):
                    del remaining[key]
                    yield key, result
                elif _may_recover(stage, result.error):
                    failed[key] = result.error
                else:
                    raise result.error
                if len(failed) == _FAILED_TOGETHER:
                    break
            if failed and stage.per_document:
                self._isolate(stage, [(remaining[key], error) for key, error in failed.items()])
            for error in failed.values():
                if attempt + 1 == _ATTEMPTS or not isinstance(error, WorkerDied):
                    raise error
            if not remaining:
                return

    def _run(self, stage: Stage[Any], calls: Iterable[Call]) -> Iterator[tuple[Call, Any]]:
        """Yield the results of calls, or Failed.

        If a call to a language model fails permanently, the other calls send no more requests. Their requests in flight
        are paid for, so the failure is raised after these calls have ended.
        """
        failure: Exception | None = None
        try:
            for call, result in self.executor.run(calls, priority=stage.priority, keep_going=True):
                if isinstance(result, Failed) and isinstance(result.error, PartFailed):
                    failed = result.error
                    self.report.stage(stage.name).counts.update(failed.counts)
                    result = Failed(failed.error.with_traceback(failed.__traceback__))
                if not (isinstance(result, Failed) and call.asks) or _may_recover(stage, result.error):
                    yield call, result
                    continue
                if failure is None:
                    failure = StoppedError() if isinstance(result.error, AskingEnded) else result.error
                    self.executor.stop(at_once=False)
        except StoppedError:
            if failure is None:
                raise
        if failure is not None:
            raise failure

    def run_patiently(self, calls: Iterable[Call], priority: int) -> Iterator[tuple[Call, Any]]:
        """Yield the results of calls; a call whose workers died is retried, since another call may be the cause."""
        remaining = {call.key: call for call in calls}
        for attempt in range(_ATTEMPTS):
            died: WorkerDied | None = None
            tries = {f"{key}-{attempt}": call for key, call in remaining.items()}
            again = [dataclasses.replace(call, key=key) for key, call in tries.items()]
            for tried, result in self.executor.run(again, priority=priority, keep_going=True):
                if not isinstance(result, Failed):
                    call = tries[tried.key]
                    del remaining[call.key]
                    yield call, result
                elif isinstance(result.error, WorkerDied):
                    died = result.error
                else:
                    raise result.error
            if died is None:
                return
        raise died or RuntimeError("no attempt was made")

    def _isolate(self, stage: Stage[Any], failed: Sequence[tuple[Call, Exception]]) -> None:
        """Find the documents that make calls fail; record them and raise DocumentsFailed if there are any."""
        failing = [one for _, error in failed if isinstance(error, DocumentsRefused) for one in error.failing]
        unknown = [call for call, error in failed if not isinstance(error, DocumentsRefused)]
        if unknown:
            self.progress.warn(f"{stage.name}: work failed; searching for the documents that make it fail")
        tries = [Call(f"{call.key}-isolate", failing_documents, (*call.arguments, self.endpoints)) for call in unknown]
        failing += [one for _, listed in self.run_patiently(tries, SEARCH_PRIORITY) for one in listed]
        for document in failing:
            poison.record(
                self.store,
                poison.Poison(
                    content_hash=document.content_hash,
                    stage=stage.name,
                    maker=self.poison_scope(stage.name),
                    kills=document.kills,
                    detail=document.detail,
                    run_id=self.run_id,
                ),
            )
        names = [one.document_id for one in failing]
        if names:
            listed = ", ".join(map(escaped, sorted(names)[:5])) + (f" and {len(names) - 5} more" if names[5:] else "")
            raise DocumentsFailed(f"{stage.name} cannot process {listed}: see `indexmill quarantine`")

    def _count(self, stage: Stage[Any], report: StageReport, result: PartResult) -> Receipt:
        if result.reused:
            self.report.count_work(stage.name, result.seconds)
        else:
            self.report.count_part(stage.name, result.worker, result.seconds)
        with self._lock:
            if result.reused:
                report.parts_reused += 1
            else:
                report.parts_made += 1
                report.parts_differing += result.differs
                report.parts_failed += not result.receipt.complete
                report.bytes_made += sum(result.receipt.bytes.values())
            report.seconds += result.seconds
            report.counts.update(result.counts)
            self.report.requests.update(result.requests)
        return result.receipt

    def _reuse(self, stage: Stage[Any], row_space: str, shard: str) -> tuple[str, ...]:
        """Return the packs whose rows may be copied: the parent's packs first, then the packs of unpublished runs."""
        parent = self.parent.lineage.candidates(stage.name, row_space, shard) if self.parent else []
        if self.parent and stage.moves_with_documents:
            for label in self._elsewhere(shard):
                parent += self.parent.lineage.candidates(stage.name, row_space, label)
        exclude = {part.key for part in parent}
        unpublished = self._unpublished(stage.name)
        others = candidates(self.store, stage.name, row_space, shard, exclude=exclude, receipts=unpublished)
        outputs = [*(part.outputs for part in parent), *(receipt.outputs for receipt in others)]
        digests = dict.fromkeys(digest for part in outputs for digest in part.values())
        # A blob may be lost, or deleted because it was damaged: do not reuse it.
        return tuple(digest for digest in digests if self.store.blob_size(digest) is not None)

    def _earlier(self, stage: Stage[Any], shard: str) -> tuple[dict[str, str], ...]:
        """Return inputs and outputs of the parent's parts from which documents may be copied, nearest part first."""
        ranked = sorted(
            (distance, label)
            for label in self._alike.get(stage.name, ())
            if (distance := overlap(shard, label)) is not None
        )
        names = {*(one.name for one in stage.inputs), *(one.name for one in stage.outputs)}
        shards = (self._parents_shards[label] for _, label in ranked)
        earlier_parts = [
            {name: digest for name, digest in outputs.items() if name.partition("/")[0] in names} for outputs in shards
        ]
        return tuple(
            one for one in earlier_parts if all(self.store.blob_size(digest) is not None for digest in one.values())
        )

    def _compare_parts(self, stage: Stage[Any], spec: PartSpec) -> None:
        self._alike[stage.name] = self._alike_shards(stage, spec)

    def _alike_shards(self, stage: Stage[Any], spec: PartSpec) -> frozenset[str]:
        """Return the parent's shards whose parts of a stage have the keys that this run's code and settings yield."""
        if not stage.per_document or self.cold:
            return frozenset()
        alike = frozenset(
            label
            for label, outputs in self._parents_shards.items()
            if spec.inputs.keys() <= outputs.keys()
            and (
                stage.name,
                label,
                part_key(stage, label, spec.settings, {name: outputs[name] for name in spec.inputs}),
            )
            in self._parents_keys
        )
        read = {one.source for one in stage.inputs}
        for before in list(self.stages.values()):  # other steps may be adding their stages
            if (
                before.per_document
                and before.name != stage.name
                and not read.isdisjoint(one.name for one in before.outputs)
            ):
                alike &= self._alike.get(before.name, frozenset())
        return alike

    @cached_property
    def _parents_outputs(self) -> dict[tuple[str, str], dict[str, str]]:
        """The outputs of the parent's parts, by stage and key; their blobs or receipts may be missing."""
        return {(entry.stage, entry.key): entry.outputs for entry in self.parent.lineage.entries} if self.parent else {}

    @cached_property
    def _receipts_of_parent(self) -> dict[tuple[str, str], Receipt]:
        """The receipts of the parent's parts, by stage and key, derived from its lineage instead of read.

        Covers only parts whose outputs are all artifacts, since the manifest has their lengths. Leaves out the rows of
        packs, which are needed only for stages without artifacts. This saves an incremental build thousands of reads.
        """
        if self.parent is None or self.parent.manifest is None or not self.parent.as_receipts:
            return {}
        artifacts = {artifact.digest: artifact for artifact in self.parent.manifest.artifacts}
        receipts: dict[tuple[str, str], Receipt] = {}
        for part in self.parent.lineage.entries:
            if part.outputs and all(digest in artifacts for digest in part.outputs.values()):
                outputs = {output: artifacts[digest] for output, digest in part.outputs.items()}
                receipts[part.stage, part.key] = Receipt(
                    **dict(part),
                    rows={output: artifact.rows for output, artifact in outputs.items() if artifact.rows is not None},
                    bytes={output: artifact.bytes for output, artifact in outputs.items()},
                    run_id=_PARENT,
                )
        return receipts

    @cached_property
    def _parents_parts(self) -> dict[tuple[str, str], LineageEntry]:
        entries = self.parent.lineage.entries if self.parent else ()
        return {(entry.stage, entry.shard): entry for entry in entries}

    @cached_property
    def _parents_keys(self) -> frozenset[tuple[str, str, str]]:
        entries = self.parent.lineage.entries if self.parent else ()
        return frozenset((entry.stage, entry.shard, entry.key) for entry in entries)

    @cached_property
    def _parents_shards(self) -> dict[str, dict[str, str]]:
        """All outputs of the parent's stages for each shard, by label."""
        entries = self.parent.lineage.entries if self.parent else ()
        outputs_by_shard: dict[str, dict[str, str]] = {entry.shard: {} for entry in entries if entry.stage == "ingest"}
        for entry in entries:
            if entry.shard in outputs_by_shard:
                outputs_by_shard[entry.shard].update(entry.outputs)
        return outputs_by_shard

    def _elsewhere(self, shard: str) -> list[str]:
        """Return the parent's shards that contain the content of documents whose ids are new in a shard."""
        now = self._contents(self.parts["ingest"][shard].outputs["documents"])
        for label, outputs in self._parents_shards.items():
            if overlap(shard, label) is not None:
                earlier_contents = self._contents(outputs["documents"])
                now = {name: content for name, content in now.items() if name not in earlier_contents}
        shards = self._shard_of_content if now else {}
        return sorted({shards[content] for content in now.values() if content in shards})

    @cached_property
    def _shard_of_content(self) -> dict[str, str]:
        """A shard of the parent for each content hash."""
        return {
            content: label
            for label, outputs in self._parents_shards.items()
            for content in self._contents(outputs["documents"]).values()
        }

    def _contents(self, digest: str) -> dict[str, str]:
        """Return the content hashes of a table of documents, by id; empty if the table was lost."""
        if self.store.blob_size(digest) is None:
            return {}
        table = read_table(self.store, digest, DOCUMENTS, columns=("document_id", "content_hash"))
        return dict(zip(table["document_id"].to_pylist(), table["content_hash"].to_pylist(), strict=True))

    def _unpublished(self, stage: str) -> list[Receipt]:
        """Return the receipts that unpublished runs wrote for a stage; cached, and listed only if there is such a run.

        The current run is included if it has already made parts of the stage, and so is the run that published the
        parent if that run did not end well: it may have been in the middle of a backfill.
        """
        with self._lock:
            if stage not in self._scanned:
                others = runs.unpublished_runs(self.store) - {self.run_id}
                if self.parent is not None:
                    last = refs.read(self.store, self.parent.version).run_id
                    others |= set() if runs.ended_well(self.store, last) else {last}
                mine = {self.run_id} if self.report.stage(stage).parts_made else set()
                scanned = scan(self.store, stage) if others or mine else ()
                self._scanned[stage] = [one for one in scanned if one.run_id in others | mine]
            return self._scanned[stage]


def _may_recover(stage: Stage[Any], error: Exception) -> bool:
    """Return True if a failed call may succeed at another time, or without some documents."""
    return isinstance(error, WorkerDied) or (stage.per_document and blames_documents(error))


def row_space_of(stage: Stage[Any], settings: StageSettings) -> str:
    """Return a digest of everything that reusable rows depend on, besides texts; "" if no rows may be copied."""
    encoder = settings.row_space()
    if not encoder:
        return ""
    libraries = library_versions(*stage.libraries)
    version = stage.rows_version or stage.version
    made_by = {"stage": stage.name, "version": version, "libraries": libraries, "encoder": dict(encoder)}
    return digest_of(canonical_json(made_by))
