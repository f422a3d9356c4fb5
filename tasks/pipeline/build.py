"""One run's work: bring the index up to date with the corpus, step by step.

Every run computes the corpus minus what is already there. The registry says which steps there are and what each waits
for; a step drives its stages through what `tasks.core.run.Run` offers. A `Build` knows neither Prefect nor Dask, and it
commits nothing: `manifest` returns what `storage.publish` may commit.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from indexmill.errors import GateRefused
from indexmill.models.openai_llm import open_llm
from indexmill.store.manifest import Manifest
from tasks.core import encoder
from tasks.core.isolate import DocumentsFailed
from tasks.core.part_runner import Parent, Parts, PartSpec
from tasks.core.report import StandIns
from tasks.core.stage import Stage
from tasks.llm.ask import Asking
from tasks.llm.batch import Batcher
from tasks.llm.quota import Limits, RunQuota, Spent
from tasks.pipeline import gates
from tasks.pipeline.corpus_run import CorpusRun
from tasks.pipeline.manifest import manifest_of
from tasks.pipeline.quality import Quality

__all__ = ["Build"]


class Build(CorpusRun):
    """A run that makes what is missing; its steps may be driven by hand or by a flow.

    batch: whether language models are asked by batches.
    """

    makes_parts = True

    def __init__(self, *arguments: Any, batch: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._batch = batch
        self._quota: RunQuota | None = None  # of what language models are asked, once they are
        self._manifest: Manifest | None = None
        self.measured: Quality | None = None

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        """Find or make the parts a stage needs; raises GateRefused where too many of their texts are stand-ins."""
        parts = super().make(stage, specs)
        self._refuse_stand_ins(stage.name, parts)
        return parts

    def _refuse_stand_ins(self, stage: str, parts: Parts) -> None:
        """A language model that fails at text after text must not become an index of stand-ins."""
        receipts = {receipt.key: receipt for receipt in parts.values()}.values()
        failed = sum(receipt.failed for receipt in receipts)
        if not failed:
            return
        self.report.stand_ins[stage] = StandIns(
            stage, sum(max(receipt.texts or 0, receipt.failed) for receipt in receipts), failed
        )
        known = [receipt for receipt in receipts if receipt.texts is not None]  # earlier releases did not say it
        found = StandIns(stage, sum(part.texts or 0 for part in known), sum(part.failed for part in known))
        why = gates.refuse_stand_ins(found, self.configuration.run.max_stand_ins, whole=len(known) == len(receipts))
        if why is not None:
            raise GateRefused(why)

    def quality(self) -> None:
        """Measure the candidate's recall on the questions of the gate, and compare it with the parent's."""
        self.measured = self._quality.measure(
            self, self.manifest(), self.corpus.forgotten, lost_counts=not self.allow_shrink
        )
        if self.measured is not None:
            self.report.quality = self.measured.to_json()

    def manifest(self) -> Manifest:
        """The manifest of what the steps made: a function of corpus, settings, code and environment alone."""
        if self._manifest is None:  # once, before its quality is measured, which is no part of it
            self._manifest = manifest_of(self)
        return self._manifest

    def run(self) -> Manifest:
        """Every step in order, again without the documents that one of them cannot take; the manifest of the rest."""
        self.preflight()
        while True:
            try:
                for step in self.steps:
                    step.drive(self)
                return self.manifest()
            except DocumentsFailed as failed:
                self.begin_again(failed)

    def begin_again(self, failed: DocumentsFailed) -> None:
        """Let the steps run again, all of which have ended; what they made is found by its key."""
        self.progress.warn(f"{failed}; the build goes on without them")
        self._attempt += 1
        self.corpus.forget_shards()
        self.parts = {name: parts for name, parts in self.parts.items() if name == encoder.STAGE.name}
        self._manifest = None
        self.forget_receipts()  # rows of this run, too, may be copied now

    def follow(self, parent: Parent) -> None:
        """Go on from a version that was published on the way: the steps of the whole corpus start anew."""
        self.parent = parent
        self._manifest = self.measured = None
        self.forget_parent()
        kept = {encoder.STAGE.name, *(stage.name for step in self.steps if step.of_shards for stage in step.stages)}
        self.parts = {stage: parts for stage, parts in self.parts.items() if stage in kept}

    # Language models

    def asking(self, stage: str) -> Asking:
        """How the workers of a stage ask the language model that the settings name."""
        settings = self.configuration.llm
        if settings.backend == "extractive":
            return super().asking(stage)
        self._quota = self.executor.quota(self.run_id, Limits.of(settings, self.configuration.prices))
        return Asking(settings, self._quota.of(stage), self.retry_refused)

    @cached_property
    def batcher(self) -> Batcher | None:
        """What asks the language model by batches; it also collects those that an earlier run has started."""
        if self.configuration.llm.backend == "extractive":
            return None
        return Batcher(
            self.store,
            open_llm(self.configuration.llm),
            self.run_id,
            submit=self._batch,
            wait=lambda seconds: self.executor.wait(seconds),
            note=lambda message: self.progress.note(message),
            warn=lambda message: self.progress.warn(message),
        )

    def update_costs(self) -> None:
        """Put into the report what language models were asked until now, and what that costs."""
        price = self.configuration.prices.get(self.configuration.llm.model or "")
        spent = self._quota.spent() if self._quota is not None else {}
        for stage in {**self.report.stages, **spent}:
            self.report.stage(stage).asked(spent.get(stage, Spent()), price)
