"""A run over the current corpus, with workers: the common base of a build and a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.layout import poison_prefix
from schemas.config import EmbedSettings
from storage import poison, runs
from tasks.core import encoder
from tasks.core.encoder import OpenedEncoder, endpoint_fingerprint, fingerprint_of
from tasks.core.environment import code_digest, environment_fingerprint
from tasks.core.executor import Call, timed
from tasks.core.part_runner import PartRunner, Parts, PartSpec
from tasks.core.stage import WHOLE
from tasks.llm.vectors import EncoderAccess
from tasks.pipeline.base_run import BaseRun
from tasks.pipeline.quality import QualityGate
from tasks.pipeline.run_corpus import RunCorpus
from tasks.pipeline.run_models import RunModels
from tasks.pipeline.run_setup import RunSetup
from tasks.registry import STEPS, WRITERS
from tasks.stages.ingest import part as ingest_part

LARGE_INDEX = 100_000
"""The passages beyond which stages over the whole corpus take long, so that no refresh is small."""


class CorpusRun(BaseRun, PartRunner):
    """A run that reads the corpus, and finds or makes its parts."""

    makes_parts: bool

    def __init__(self, setup: RunSetup) -> None:
        PartRunner.__init__(
            self,
            setup.store,
            setup.executor,
            setup.run_id,
            parent=setup.parent,
            progress=setup.progress,
            cold=setup.cold,
        )
        BaseRun.__init__(self, setup.configuration, RunModels(setup.configuration))
        self.allow_shrink = setup.allow_shrink
        self.retry_refused = setup.retry_refused
        self.endpoints = setup.configuration.endpoints
        self.corpus = RunCorpus(self, setup)
        self._quality = QualityGate(setup.configuration.gates)
        self._attempt = 0

    def preflight(self) -> None:
        """Raise errors that need no worker to detect: no corpus, or a missing file or model."""
        self.corpus.preflight()
        self.models.preflight(WRITERS)
        self._quality.read()

    def expects_work(self) -> bool:
        """Return True if the list of corpus files differs from those of the last version and of the last run.

        This quick check scans nothing, and only a scan can detect a change of indexed content. Call `preflight` first,
        which lists the files.
        """
        return self.corpus.expects_work

    def expects_small_refresh(self) -> bool:
        """Return True if little has changed since the last build, and the index is not large.

        Settings and software are the same, and there are few changed files, all small. False after a build that did not
        end well, since a document may have ended its process. Call `preflight` first.
        """
        manifest = None if self.parent is None else self.parent.manifest
        if (
            manifest is None
            or self.cold
            or manifest.corpus.passages > LARGE_INDEX
            or manifest.configuration != self.configuration.published()
            or manifest.environment != environment_fingerprint()
            or not self.corpus.has_small_changes
        ):
            return False
        last = runs.last_build(self.store, self.run_id)
        code = None if last is None else last.details.get("code")
        return isinstance(code, dict) and code.get("digest") == code_digest()

    @property
    def labels(self) -> list[str]:
        return [shard.label for shard in self.corpus.wave]

    @property
    def fingerprints(self) -> dict[str, Any]:
        """The fingerprints of the models, as in a manifest."""
        return self.models.fingerprints(self.opened_encoder.fingerprint, WRITERS)

    def counts(self, stage: str) -> Counter[str]:
        return self.report.stage(stage).counts

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        return wants_another(sum(part.rows[table] for part in parts.values()))

    # Steps that no stage drives itself

    def encoder(self) -> None:
        """Find the model, and make a part of its files, either converted or as published."""
        if self._encoder is not None:
            return
        settings = self.choice.conversion(self.store)
        files = self.make(encoder.STAGE, [PartSpec(WHOLE, {}, settings)])[WHOLE].outputs if settings is not None else {}
        opening = self.choice.opening(files)
        if self.choice.endpoint is not None:
            self._encoder = self._endpoint(opening)
            return
        # A worker opens the encoder, which it needs anyway; this process never needs it.
        arguments = (fingerprint_of, self.store.url, opening)
        call = Call(f"{self.run_id}-fingerprint", timed, arguments, light=True)
        report = self.report.stage("encoder")
        ((_, ((fingerprint, machine), seconds)),) = self.run_patiently([call], encoder.STAGE.priority)
        report.seconds += seconds
        self.report.count_work("encoder", seconds)
        self._encoder = OpenedEncoder.of(opening, fingerprint, machine)

    def _endpoint(self, opening: Mapping[str, Any]) -> OpenedEncoder:
        """Open the encoder behind an endpoint, and request its dimension if the ledger does not have it."""
        with self.report.at_work("encoder") as report:
            access = self.encoder_access("encoder")
            fingerprint, counts = endpoint_fingerprint(self.store, opening, access, ask=self.makes_parts)
        report.counts.update(counts)
        return OpenedEncoder(opening, fingerprint)

    def encoder_access(self, stage: str) -> EncoderAccess:
        """Return the access of a stage's workers to an encoder's endpoint, without a quota, since no calls are made."""
        return EncoderAccess(self.configuration.embed, self.run_id, retry_refused=self.retry_refused)

    def scan(self) -> None:
        """Read the corpus and divide it into shards; raises if a gate refuses it."""
        makers = self._makers.values() if self.store.list(poison_prefix()) else ()
        records = [record for maker in makers for record in poison.scan(self.store, maker)]
        self.corpus.read(records, again=self._attempt > 0)

    def ingest(self) -> None:
        self.corpus.take_all()
        self.make(ingest_part.STAGE, self.corpus.specs(self.corpus.wave))
        self.corpus.drop_spill()

    # Documents that a stage cannot process

    @cached_property
    def _makers(self) -> dict[str, str]:
        """The scope of poison records, by stage: with other settings, code or libraries, a document is retried."""
        stages = {stage.name: stage for step in STEPS for stage in step.stages if stage.per_document}
        shaping = {
            **self.configuration.model_dump(mode="json", include={"split", "families"}),
            "embed": EmbedSettings.of_encoder(self.configuration.embed.model_dump(mode="json")),
            "tokenizer": self.choice.tokenizer,
            "model": self.choice.digest,
            "recogniser": self.models.recogniser(),
            "extractor": self.models.extractor() if self.configuration.extracts else None,
            "code": code_digest(),
            "environment": environment_fingerprint(),
        }
        return {
            name: digest_of(canonical_json({**shaping, "stage": name, "version": stage.version}))
            for name, stage in stages.items()
        }

    def poison_scope(self, stage: str) -> str:
        return self._makers[stage]
