"""The planner runs the stages of a build over an overlay of its store, and estimates expensive stages.

A plan uses the code of a build: a `Planner` is a run whose store writes to a temporary folder. Cheap stages (ingest,
split, recognise, resolve, the encoder's conversion) run if a part is missing. For the others, a part's inputs determine
whether it must be made. The content of such a part is unknown, so its digest is a placeholder that is in no receipt,
and every stage that reads it makes its own part again.

Language models are never called. If the recogniser is a language model, rules replace it; if extraction uses one,
extraction without a model replaces it. The parts that follow are then guesses, with wide bounds for their calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from indexmill.errors import CorruptBlob
from indexmill.store.canonical import canonical_json, digest_of
from schemas.tables import DOCUMENTS
from storage.overlay import OverlayStore
from storage.receipts import Receipt
from storage.runs import StoredRun
from storage.stores import open_store
from storage.table_blobs import read_table
from tasks.core.encoder_estimate import use_of_encoder
from tasks.core.environment import environment_fingerprint
from tasks.core.estimate import EncoderTexts, Estimate, Expected, Forecast, LlmUse, Range
from tasks.core.executor import Call
from tasks.core.part_runner import Parts, PartSpec
from tasks.core.stage import WHOLE, Job, Part, Stage, part_key, stage_of
from tasks.llm.vectors import PROBE, recorded_dimension
from tasks.pipeline.corpus_run import CorpusRun
from tasks.pipeline.plan.causes import CAUSES, Cause, ParentReplay, PlannedPart, Why, causes_of
from tasks.pipeline.plan.changes import Change, DocumentChanges, changed, document_changes
from tasks.pipeline.plan.duration import StageWork, seconds_of
from tasks.pipeline.plan.judged import ModelUse, model_uses
from tasks.pipeline.plan.past_texts import expected_texts, past_texts
from tasks.pipeline.plan.plan import (
    Plan,
    PlanCorpus,
    PlanParent,
    PlanParts,
    PlanSettings,
    TokenCounts,
    cost_of,
    settings_of,
)
from tasks.pipeline.plan.sizes import sizes_of
from tasks.pipeline.run_setup import RunSetup
from tasks.registry import STEPS
from tasks.stages.ingest.shard_plan import ShardPlan

_GUESS = 4
"""The factor on the upper bound of calls about guessed parts."""


def estimate_part(job: Job, expected: Expected) -> Estimate:
    stage = stage_of(job)
    part: Part[Any] = Part(open_store(job.store_url), job)
    estimate = Estimate() if stage.estimate is None else stage.estimate(part, expected)
    if stage.encodes is None or "access" not in getattr(job.settings, "opening", ()):
        return estimate
    return replace(estimate, texts=stage.encodes(part, expected))


class Planner(CorpusRun):
    """A run that only plans a build. Its store is an `OverlayStore`."""

    makes_parts = False
    store: OverlayStore

    def __init__(self, setup: RunSetup) -> None:
        super().__init__(setup)
        self.planned: list[PlannedPart] = []
        self._rows: dict[str, Range | None] = {}  # rows of planned outputs, by placeholder digest
        self._guessed: set[str] = set()  # digests of readable guesses and of parts made from them
        self._labels: dict[str, str] = {}  # labels of groups that may turn out not to exist, by output digest
        self._llm: dict[str, list[LlmUse]] = {}  # by stage
        self._texts: list[EncoderTexts] = []
        self._in_doubt = False  # True if the current layer of summaries may not be needed
        self._stages_in_doubt: set[str] = set()

    def plan(self, history: Iterable[StoredRun], workers: int) -> Plan:
        """Run all steps and return the plan.

        The time with `workers` workers is estimated from the runs in `history`. Raises the errors that the build would
        raise before it makes anything: bad input, a gate, a missing model.
        """
        for step in self.steps:
            step.drive(self)
        corpus = self.corpus.plan
        former = self._former()
        unknown = self._rows.keys() | self._guessed
        why = causes_of(self.planned, unknown, self.parent, former, self.configuration, cold=self.cold)
        stages = {name: self._stage(name, why) for name in self.report.stages}
        past = list(history)
        documents = self._documents(corpus)
        uses = [
            use
            for stage, uses in self._llm.items()
            for use in self._rewritten(stage, uses, stages[stage], documents, past)
        ]
        llm, encoder = model_uses(uses, self.store), self._vectors()
        work = {name: StageWork(stage.made, stage.vectors_made) for name, stage in stages.items()}
        return Plan(
            parent=PlanParent(version=self.parent.version, manifest=self.parent.digest) if self.parent else None,
            corpus=PlanCorpus(
                fingerprint=corpus.fingerprint,
                documents=corpus.documents,
                shards={shard.label: shard.digest for shard in corpus.shards},
            ),
            settings=PlanSettings.of(settings_of(self)),
            publishes=self._publishes(),
            documents=documents,
            refused=corpus.refused,
            parts=PlanParts(
                made=sum(stage.made for stage in stages.values()),
                certain=sum(stage.certain for stage in stages.values()),
                reused=sum(stage.reused for stage in stages.values()),
                vectors_made=sum(stage.vectors_made for stage in stages.values()),
                vectors_reused=sum(stage.vectors_reused for stage in stages.values()),
                causes=_added(stage.causes for stage in stages.values()),
            ),
            stages=stages,
            changes=tuple(self._changes()),
            llm_calls=Forecast.total(use.calls for use in llm.values()),
            llm_tokens=TokenCounts(
                input=Forecast.total(use.input_tokens for use in llm.values()),
                output=Forecast.total(use.output_tokens for use in llm.values()),
            ),
            embed_calls=Forecast.total(use.calls for use in encoder.values()),
            embed_tokens=Forecast.total(use.input_tokens for use in encoder.values()),
            cost=cost_of([*llm.items(), *encoder.items()], self.configuration.prices),
            bytes=sizes_of(self.planned, why, self.store, self.parent, corpus.documents),
            seconds=seconds_of(past, work, self.configuration.embed.model_dump(mode="json"), workers),
            coverage=dict(self.report.coverage),
        )

    def _vectors(self) -> dict[str, ModelUse]:
        """Return all parts' use of an encoder's endpoint, by its name; equal texts are sent once."""
        if self.choice.endpoint is None:
            return {}
        is_recorded = recorded_dimension(self.store, self.encoder_access("encoder")) is not None
        return model_uses([use_of_encoder(self._texts, self.choice, () if is_recorded else PROBE)], self.store)

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        least = sum(
            part.rows[table] if (rows := self._rows.get(part.outputs[table])) is None else rows.low
            for part in parts.values()
        )
        self._in_doubt = self._in_doubt or not wants_another(least)
        return super().wants_layer(stage, label, wants_another, parts, table)

    def mark_uncertain(self, stage: str = "") -> None:
        """Mark a stage's parts, or all parts up to the next whole-corpus part, as possibly unnecessary."""
        if stage:
            self._stages_in_doubt.add(stage)
        else:
            self._in_doubt = True

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        requested = list(specs)
        self.stages[stage.name] = stage
        keys = {spec.shard: part_key(stage, spec.shard, spec.settings, spec.inputs) for spec in requested}
        receipts = {key: self.find(stage, key) for key in keys.values()}
        to_make = {key for key, receipt in receipts.items() if receipt is None or self.cold}
        asks = stage.uses_encoder and self.choice.endpoint is not None
        if asks:
            access = self.encoder_access(stage.name)
            requested = [spec.with_access(access) for spec in requested]
        if stage.expensive or stage.estimate is not None or asks:
            existing = {key: receipt for key, receipt in receipts.items() if receipt is not None}
            parts = self._plan_parts(stage, requested, keys, existing, to_make)
        else:
            parts = super().make(stage, requested)
            for spec in requested:
                if keys[spec.shard] in to_make and self._is_guessed(spec):
                    self._guessed |= set(parts[spec.shard].outputs.values())
        if any(spec.shard == WHOLE for spec in requested):
            self._in_doubt = False  # the layers end here
        seen: set[str] = set()
        for spec in requested:
            key = keys[spec.shard]
            if key not in seen:  # shards with the same inputs share one part
                seen.add(key)
                outputs = parts[spec.shard].outputs
                in_doubt = self._in_doubt or stage.name in self._stages_in_doubt
                certain = not (in_doubt or self._may_not_exist(stage, spec))
                if not certain:
                    self._labels |= dict.fromkeys(outputs.values(), spec.shard)
                self.planned.append(PlannedPart(stage, spec, key, key in to_make, outputs, certain=certain))
        return parts

    def _may_not_exist(self, stage: Stage[Any], spec: PartSpec) -> bool:
        """Return True if a part's label is a guess: its group or blocks depend on nodes that are not computed."""
        if spec.shard == WHOLE or _is_of_shards(stage):
            return False
        labels = (self._labels.get(digest, "") for digest in spec.inputs.values())
        return self._is_guessed(spec) or any(label.startswith(spec.shard) for label in labels)

    def _plan_parts(
        self,
        stage: Stage[Any],
        specs: list[PartSpec],
        keys: Mapping[str, str],
        existing: Mapping[str, Receipt],
        to_make: set[str],
    ) -> Parts:
        """Return the receipts of an expensive stage's parts, including parts to be made."""
        report = self.report.stage(stage.name)
        report.parts_made += len(to_make)
        report.parts_reused += len(set(keys.values()) - to_make)
        self.progress.begin(stage.name, len(to_make))
        if specs:
            self._compare_parts(stage, specs[0])
        first = {keys[spec.shard]: spec for spec in reversed(specs)}
        calls = []
        for key in sorted(to_make):
            spec = first[key]
            expected: Expected = {
                name: self._rows[digest] for name, digest in spec.inputs.items() if digest in self._rows
            }
            calls.append(Call(f"plan-{stage.name}-{key}", estimate_part, (self._job(stage, spec, key), expected)))
        receipts = dict(existing)
        for call, estimate in self.executor.run(calls):
            key = call.arguments[0].key
            report.counts.update(estimate.counts)
            self._llm.setdefault(stage.name, []).extend(self._guess(stage, first[key], estimate.llm))
            self._texts.append(estimate.texts)
            receipts[key] = self._expected(stage, first[key], key, estimate, existing.get(key))
            self.progress.advance(stage.name)
        parts = self.record_receipts(stage, {spec.shard: receipts[keys[spec.shard]] for spec in specs})
        self.progress.end(stage.name, f"{report.parts_made} to make, {report.parts_reused} to reuse")
        return parts

    def _expected(
        self, stage: Stage[Any], spec: PartSpec, key: str, estimate: Estimate, existing: Receipt | None
    ) -> Receipt:
        """Return the receipt of a part to be made; a part that was made earlier keeps its outputs."""
        outputs = existing.outputs if existing else self._parents_outputs.get((stage.name, key))
        if estimate.stand_ins and not (outputs and all(self.store.blob_size(digest) for digest in outputs.values())):
            outputs = dict(estimate.stand_ins)
            if estimate.guessed or self._is_guessed(spec):  # the outputs of guessed inputs are guesses, too
                self._guessed |= set(outputs.values())
        elif outputs is None:
            names = [*(output.name for output in stage.outputs if not (output.each or output.pieces)), *estimate.rows]
            grouped = {name.partition("/")[0] for name in estimate.rows}  # the pieces of other outputs are unknown
            several = (output.name for output in stage.outputs if output.pieces or output.each)
            uncut = {f"{name}/{spec.shard}" for name in several if name not in grouped}
            outputs = {
                name: digest_of(canonical_json({"planned": key, "stage": stage.name, "output": name}))
                for name in sorted({*names, *uncut})
            }
            self._rows |= {digest: estimate.rows.get(name) for name, digest in outputs.items()}
            groups = {name: name.partition("/")[2] for name in outputs.keys() - uncut}
            self._labels |= {outputs[name]: label for name, label in groups.items() if label}
        most = {name: rows.high for name, rows in estimate.rows.items()}
        return Receipt(stage=stage.name, key=key, shard=spec.shard, outputs=outputs, rows=most, run_id=self.run_id)

    def _is_guessed(self, spec: PartSpec) -> bool:
        return not self._guessed.isdisjoint(spec.inputs.values())

    def _guess(self, stage: Stage[Any], spec: PartSpec, uses: Sequence[LlmUse]) -> Iterable[LlmUse]:
        """Return the model calls of a part, with wide bounds if its inputs are guessed.

        The bounds of a per-shard stage are not widened, since it makes calls about each document in any case.
        """
        guessed = not _is_of_shards(stage) and self._is_guessed(spec)
        return [use.guessed(_GUESS) for use in uses] if guessed else uses

    def _rewritten(
        self,
        stage: str,
        uses: Sequence[LlmUse],
        parts: PlanParts,
        documents: DocumentChanges,
        history: Iterable[StoredRun],
    ) -> Iterable[LlmUse]:
        """Return the model calls of a stage; if documents changed and nothing else, those expected from past builds."""
        changed = documents.added + documents.changed + documents.removed
        exact = sum(use.expected_prompts for use in uses if use.prompts.low == use.prompts.high)
        guessed = sum(use.expected_prompts for use in uses) - exact
        if not (guessed and changed) or set(parts.causes) != {"corpus"}:
            return uses
        texts = expected_texts(past_texts(history, stage), self.corpus.plan.documents, changed)
        if texts is None:
            return uses
        factor = max(texts - exact, 0.0) / guessed
        return [use if use.prompts.low == use.prompts.high else use.scaled(factor) for use in uses]

    def _stage(self, name: str, why: list[Why | None]) -> PlanParts:
        report = self.report.stages[name]
        parts = zip(self.planned, why, strict=True)
        reasons = [reason for part, reason in parts if part.stage.name == name and reason is not None]
        causes = Counter(reason.cause for reason in reasons)
        return PlanParts(
            made=report.parts_made,
            certain=sum(reason.certain for reason in reasons),
            reused=report.parts_reused,
            vectors_made=report.counts["vectors_made"],
            vectors_reused=report.counts["vectors_reused"],
            causes={cause: causes[cause] for cause in CAUSES if causes[cause]},
        )

    def _former(self) -> ParentReplay | None:
        if self.parent is None or self.parent.manifest is None:
            return None
        try:
            return ParentReplay(self.store, self.parent.manifest, self.parent.lineage.entries)
        except (ValidationError, KeyError):  # written by another version of this program
            return None

    def _changes(self) -> list[Change]:
        manifest = self.parent.manifest if self.parent else None
        if manifest is None:
            return []
        return [
            *changed(manifest.configuration, self.configuration.published()),
            *changed({"environment": manifest.environment}, {"environment": environment_fingerprint()}),
            *changed({"models": manifest.models}, {"models": self.fingerprints}),
        ]

    def _publishes(self) -> bool:
        """Return True if the manifest would differ from the parent's, in its parts or its other fields."""
        if self.parent is None or self.parent.manifest is None:
            return True
        now = {(stage, shard, receipt.key) for stage, parts in self.parts.items() for shard, receipt in parts.items()}
        was = {(entry.stage, entry.shard, entry.key) for entry in self.parent.lineage.entries}
        return now != was or bool(self._changes())

    def _documents(self, corpus: ShardPlan) -> DocumentChanges:
        """Return the differences from the parent's documents; reads only changed shards."""
        entries = self.parent.lineage.entries if self.parent else ()
        before = {entry.outputs["documents"] for entry in entries if entry.stage == "ingest"}
        now = {shard: receipt.outputs["documents"] for shard, receipt in self.parts["ingest"].items()}
        untouched = sum(shard.documents for shard in corpus.shards if now[shard.label] in before)
        return document_changes(
            self._tables(before - set(now.values())), self._tables(set(now.values()) - before), untouched
        )

    def _tables(self, digests: set[str]) -> Iterator[pa.Table]:
        for digest in sorted(digests):
            try:
                yield read_table(self.store, digest, DOCUMENTS)
            except CorruptBlob as error:
                self.progress.warn(f"documents of the parent cannot be compared and count as added: {error}")


def _added(counted: Iterable[Mapping[Cause, int]]) -> dict[Cause, int]:
    total: Counter[Cause] = Counter()
    for causes in counted:
        total.update(causes)
    return {cause: total[cause] for cause in CAUSES if total[cause]}


def _is_of_shards(stage: Stage[Any]) -> bool:
    return any(step.of_shards for step in STEPS if step.name == stage.name)
