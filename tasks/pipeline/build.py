"""A build: brings the index up to date with the corpus, step by step.

Every run computes only missing parts. The registry defines the steps and their dependencies; a step drives its stages
through the interface `tasks.core.run.Run`. A `Build` depends on neither Prefect nor Dask, and it commits nothing:
`manifest` returns the manifest for `storage.publish` to commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

from indexmill.errors import GateRefused
from indexmill.models.openai_llm import open_llm
from indexmill.store.manifest import Manifest
from tasks.core import encoder
from tasks.core.isolate import DocumentsFailed
from tasks.core.part_runner import Parent, Parts, PartSpec
from tasks.core.report import Fallbacks
from tasks.core.stage import Stage
from tasks.llm.account import CallLimits, Spent
from tasks.llm.ask import LlmAccess
from tasks.llm.batch import PromptBatcher
from tasks.llm.quota import Quota, RunQuota
from tasks.llm.vectors import EncoderAccess
from tasks.pipeline import gates
from tasks.pipeline.build_manifest import manifest_of
from tasks.pipeline.corpus_run import CorpusRun
from tasks.pipeline.quality import Quality
from tasks.pipeline.run_setup import RunSetup

OF_VECTORS = "/vectors"
"""The suffix of a stage's name in the quota for calls to an encoder, not to a language model."""


class Build(CorpusRun):
    """A run that makes missing parts; its steps may be driven by hand or by a flow.

    batch: whether to call language models in batches. approve: called once the corpus has been read; raises if the
    build must not continue.
    """

    makes_parts = True
    measured: Quality | None = None
    _quota: RunQuota | None = None  # for language models, once they are called
    _manifest: Manifest | None = None

    def __init__(
        self, setup: RunSetup, *, batch: bool = False, approve: Callable[[CorpusRun], None] | None = None
    ) -> None:
        super().__init__(setup)
        self._batch, self._approve = batch, approve

    def scan(self) -> None:
        """Read the corpus and divide it into shards; raises if a gate or an approved plan refuses it."""
        super().scan()
        if self._approve is not None:
            self._approve(self)

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        """Find or make the parts that a stage needs; raises GateRefused if too many of their texts are fallbacks."""
        if stage.uses_encoder and self.choice.endpoint is not None:
            access = self.encoder_access(stage.name)
            specs = [spec.with_access(access) for spec in specs]
        parts = super().make(stage, specs)
        self._refuse_stand_ins(stage.name, parts)
        return parts

    def _refuse_stand_ins(self, stage: str, parts: Parts) -> None:
        receipts = {receipt.key: receipt for receipt in parts.values()}.values()
        failed = sum(receipt.failed for receipt in receipts)
        if not failed:
            return
        worthless = self.report.stage(stage).counts["llm_worthless"]
        texts = sum(max(receipt.texts or 0, receipt.failed) for receipt in receipts)
        self.report.stand_ins[stage] = Fallbacks(stage, texts, failed, worthless)
        counted = [receipt for receipt in receipts if receipt.texts is not None]  # other receipts come from the lineage
        counts = Fallbacks(
            stage, sum(part.texts or 0 for part in counted), sum(part.failed for part in counted), worthless
        )
        why = gates.refuse_fallbacks(counts, self.configuration.run.max_stand_ins, whole=len(counted) == len(receipts))
        if why is not None:
            raise GateRefused(why)

    def quality(self) -> None:
        """Measure the candidate's recall on the questions of the gate, and compare it with the parent's."""
        self.measured = self._quality.measure(
            self, self.progress, self.manifest(), self.corpus.forgotten, lost_counts=not self.allow_shrink
        )
        if self.measured is not None:
            self.report.quality = self.measured.to_json()
            self.report.quality_details = self.measured.details()

    def manifest(self) -> Manifest:
        """Return the manifest of the parts: a function of corpus, settings, code and environment alone."""
        if self._manifest is None:  # made once, before quality is measured, which it does not include
            self._manifest = manifest_of(self)
        return self._manifest

    def run(self) -> Manifest:
        """Run all steps in order, and rerun them without documents that a step cannot process; returns the manifest."""
        self.preflight()
        while True:
            try:
                for step in self.steps:
                    step.run(self)
                return self.manifest()
            except DocumentsFailed as failed:
                self.begin_again(failed)

    def begin_again(self, failed: DocumentsFailed) -> None:
        """Reset the build after all steps have ended, so that they run again; existing parts are found by key."""
        self.progress.warn(f"{failed}; the build continues without them")
        self._attempt += 1
        self.corpus.forget_shards()
        self.parts = {name: parts for name, parts in self.parts.items() if name == encoder.STAGE.name}
        self._manifest = None
        self.forget_receipts()  # now rows of this run may be copied, too

    def follow(self, parent: Parent) -> None:
        """Continue from an intermediate version as the parent; the whole-corpus steps start again."""
        self.parent = parent
        self._manifest = self.measured = None
        self.forget_parent()
        stages = {
            encoder.STAGE.name,
            *(stage.name for step in self.steps if step.of_shards for stage in step.stages),
        }
        self.parts = {stage: parts for stage, parts in self.parts.items() if stage in stages}

    # Language models

    def asking(self, stage: str) -> LlmAccess:
        settings = self.configuration.llm
        if settings.backend == "extractive":
            return super().asking(stage)
        return LlmAccess(settings, self._quota_of(stage), self.retry_refused)

    def encoder_access(self, stage: str) -> EncoderAccess:
        quota = self._quota_of(stage + OF_VECTORS)
        return EncoderAccess(self.configuration.embed, self.run_id, quota, self.retry_refused)

    def _quota_of(self, caller: str) -> Quota:
        limits = CallLimits.of(self.configuration.llm, self.configuration.prices, self.configuration.embed)
        self._quota = self.executor.quota(self.run_id, limits)
        return self._quota.of(caller)

    @cached_property
    def batcher(self) -> PromptBatcher | None:
        """The batcher for the language model; it also collects batches of earlier runs."""
        if self.configuration.llm.backend == "extractive":
            return None
        return PromptBatcher(
            self.store,
            open_llm(self.configuration.llm),
            self.run_id,
            submit=self._batch,
            wait=lambda seconds: self.executor.wait(seconds),
            note=lambda message: self.progress.note(message),
            warn=lambda message: self.progress.warn(message),
        )

    def update_costs(self) -> None:
        """Write the calls made so far to models behind endpoints, and their cost, into the report."""
        prices, embed = self.configuration.prices, self.configuration.embed
        price = prices.get(self.configuration.llm.model or "")
        price_of_vectors = prices.get(embed.model) if embed.asks else None
        spent = self._quota.spent() if self._quota is not None else {}
        for stage in {**self.report.stages, **dict.fromkeys(name.removesuffix(OF_VECTORS) for name in spent)}:
            report = self.report.stage(stage)
            report.add_llm_use(spent.get(stage, Spent()), price)
            report.add_encoder_use(spent.get(stage + OF_VECTORS, Spent()), price_of_vectors)
