"""One run's work: bring the index up to date with the corpus, stage by stage.

Every run computes the corpus minus what is already there. A `Build` decides which parts a stage needs, finds those
that have receipts, hands the others to an executor and keeps the digests for the next stage. It knows neither Prefect
nor Dask, and it commits nothing: `manifest` returns what `storage.publish` may commit.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from numpy.typing import NDArray

from indexmill.errors import BadInput, CorruptBlob, GateRefused, ModelUnavailable
from indexmill.evaluate.recall import parse_questions
from indexmill.models import llm_recogniser
from indexmill.models.llm_recogniser import LlmRecogniser
from indexmill.models.openai_llm import open_llm
from indexmill.retrieve.registry import available
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.layout import blob_path, poison_prefix
from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack
from schemas.config import Configuration
from storage import poison, runs
from storage.protocol import Store
from tasks.core import encoder
from tasks.core.encoder import EncoderChoice, OpenedEncoder, choose_encoder, fingerprint_of, open_ahead
from tasks.core.environment import code_digest, environment_fingerprint
from tasks.core.executor import Call, Executor, timed
from tasks.core.family import Family
from tasks.core.isolate import DocumentsFailed
from tasks.core.part_runner import WHOLE, Maker, NotThere, Parent, Parts, Want
from tasks.core.report import Progress, Silent, StandIns
from tasks.core.stage import Stage, part_key
from tasks.core.step import Step
from tasks.core.writer import BoundWriter, Writer
from tasks.families.bm25 import postings as bm25
from tasks.llm.ask import Asking
from tasks.llm.batch import Batcher
from tasks.llm.prompts import Prompt, prompt
from tasks.llm.quota import Limits, NoQuota, RunQuota, Spent
from tasks.pipeline import gates, quality
from tasks.pipeline.corpus import Corpus
from tasks.pipeline.manifest import manifest_of
from tasks.pipeline.quality import Measured, Quality, compare
from tasks.registry import FAMILIES, WRITERS, enabled_steps
from tasks.stages.embed import embed
from tasks.stages.extract import extractive as extract
from tasks.stages.extract import llm as extract_llm
from tasks.stages.ingest import part as ingest_part
from tasks.stages.ingest import spill
from tasks.stages.recognise import rules as recognise
from tasks.stages.split import split

__all__ = ["Build"]


class Build(Maker):
    """The stages of one run, each a method; they may be called by hand, in threads, or by a flow."""

    makes_parts = True
    """Whether the parts of stages that have been called are there to be read."""

    def __init__(
        self,
        store: Store,
        configuration: Configuration,
        executor: Executor,
        run_id: str,
        *,
        parent: Parent | None = None,
        progress: Progress,
        cold: bool = False,
        allow_shrink: bool = False,
        retry_refused: bool = False,
        approve: Callable[[Build], None] | None = None,
        batch: bool = False,
    ) -> None:
        super().__init__(store, executor, run_id, parent=parent, progress=progress, cold=cold)
        self.configuration = configuration
        self.allow_shrink = allow_shrink
        self.retry_refused = retry_refused
        self.llm = configuration.llm
        self._batch = batch  # whether language models are asked by batches
        self._approve = approve  # raises where the build must not go on, once the corpus is known
        self.measured: Quality | None = None
        self.corpus = Corpus(self, configuration, allow_shrink=allow_shrink)
        self._encoder: OpenedEncoder | None = None
        self._attempt = 0
        self._quota: RunQuota | None = None  # of what language models are asked, once they are
        self._manifest: Manifest | None = None
        self._writers: dict[str, BoundWriter] = {}
        self._prompts: dict[str, Prompt] = {}

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that the settings ask for, in an order in which each follows those that it needs."""
        return enabled_steps(self.configuration)

    def look(self) -> None:
        """Raise at once what needs no worker to be known: no corpus, or a file or model that is not there."""
        self.corpus.preflight()
        self.questions  # noqa: B018 - raises
        self.choice  # noqa: B018 - raises
        self.recogniser_fingerprint  # noqa: B018 - raises
        if self.configuration.extracts:
            self.extractor_fingerprint  # noqa: B018 - raises
        for writer in WRITERS:
            self.writer(writer)

    def expects_work(self) -> bool:
        """Whether the corpus' files are others than the last run saw, as far as that can be told at a glance.

        `look` has found them. What has changed, and whether anything has that is in the index, a scan tells.
        """
        return runs.saw_other_files(self.store, self.report.corpus_files)

    # Stages, in the order of the flow of data.

    def encoder(self) -> None:
        """Find the model and, for a back-end that runs converted files, convert it once."""
        if self._encoder is not None:
            return
        want = self._conversion()
        files = self.make(encoder.STAGE, [want])[WHOLE].outputs if want is not None else {}
        opening = self.choice.opening(files)
        # A worker opens it, which has to do so anyway; this process never needs it.
        asked = (fingerprint_of, self.store.url, opening)
        call = Call(f"{self.run_id}-fingerprint", timed, asked, light=True, warms=True)
        report = self.report.stage("encoder")
        ((_, ((fingerprint, machine), seconds)),) = self.run_patiently([call], encoder.STAGE.priority)
        report.seconds += seconds
        self.report.worked("encoder", seconds)
        self._encoder = OpenedEncoder.of(opening, fingerprint, machine)

    def opening_ahead(self) -> Call | None:
        """What begins to open the encoder in the process that calls it; None where it has yet to be converted."""
        want, files = self._conversion(), {}
        if want is not None:
            found = self._found(encoder.STAGE, part_key(encoder.STAGE, want.settings, want.inputs))
            if found is None:
                return None
            files = found.outputs
        return Call(f"{self.run_id}-open", open_ahead, (self.store.url, self.choice.opening(files)))

    def _conversion(self) -> Want | None:
        """The part that is the converted model; None for a back-end that needs none."""
        model = self.choice.model
        if self.choice.backend != "openvino" or model is None:
            return None
        settings = encoder.ConversionSettings(model=model.digest, name=model.name, path=str(model.folder))
        return Want(WHOLE, {}, settings)

    def scan(self) -> None:
        """Read the corpus, and cut it into shards; raises what its gates and an approved plan refuse."""
        self.corpus.read(self._poison(), again=self._attempt > 0)
        if self._approve is not None:
            self._approve(self)

    def ingest(self) -> None:
        """Make the documents of each shard a part."""
        self.corpus.take_all()
        self.make(ingest_part.STAGE, self.corpus.wants())
        if not self._looking:
            self.corpus.drop_spill()

    def make(self, stage: Stage[Any], wants: Iterable[Want]) -> Parts:
        """Find or make the parts a stage needs; raises GateRefused where too many of their texts are stand-ins."""
        parts = super().make(stage, wants)
        if self.makes_parts and not self._looking:
            self._refuse_stand_ins(stage.name, parts)
        return parts

    def _refuse_stand_ins(self, stage: str, parts: Parts) -> None:
        """A language model that fails at text after text must not become an index of stand-ins."""
        receipts = {receipt.key: receipt for receipt in parts.values()}.values()
        failed = sum(receipt.failed for receipt in receipts)
        if not failed:
            return
        self.report.stand_ins[stage] = StandIns(stage, sum(max(one.texts or 0, one.failed) for one in receipts), failed)
        known = [one for one in receipts if one.texts is not None]  # those of earlier releases do not say it
        found = StandIns(stage, sum(one.texts or 0 for one in known), sum(one.failed for one in known))
        why = gates.refuse_stand_ins(found, self.configuration.run.max_stand_ins, whole=len(known) == len(receipts))
        if why is not None:
            raise GateRefused(why)

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        """Whether a stage makes its part `label`, a layer over the nodes that some parts have in a table."""
        return wants_another(sum(part.rows[table] for part in parts.values()))

    def mark_uncertain(self) -> None:
        """Whether the last layer is one cannot be told: only for a plan, where nothing is made."""

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]] | None:
        """The arrays of a pack; None where it is not there: it is planned, or was lost."""
        return None if self.store.blob_size(digest) is None else open_pack(self.store.open_local(digest))

    def quality(self) -> None:
        """Measure the candidate's recall on the questions of the gate, and hold it against the parent's."""
        if self.questions is None or not self.manifest().corpus.documents:  # an empty index finds nothing
            return
        setting = self.configuration.gates
        asked = [
            dataclasses.replace(one, gold_ids=tuple(gold for gold in one.gold_ids if gold not in self.corpus.forgotten))
            for one in parse_questions(self.questions, str(setting.questions))
        ]
        manifest = self.store.put_blob(self.manifest().to_bytes())
        candidate = self._measured(manifest, setting.methods)
        self.measured = Quality.of(manifest, candidate, asked, setting.k)
        before = self._measured_parent()
        if before is not None and self.parent is not None:
            compared = compare(candidate, before, asked, self.parent.version, lost_counts=not self.allow_shrink)
            self.measured = dataclasses.replace(self.measured, compared=compared)
        self.report.quality = self.measured.to_json()

    def _measured(self, manifest: str, methods: Sequence[str]) -> Measured:
        """What the questions of the gate find in the snapshot of a manifest; made once, like any part."""
        assert self.questions is not None  # noqa: S101 - or nothing would be measured
        inputs = {"manifest": manifest, "questions": self.store.put_blob(self.questions)}
        want = Want(manifest[:12], inputs, quality.shaping(methods, self.configuration.gates.k))
        digest = self.make(quality.STAGE, [want])[want.shard].outputs["measured"]
        return Measured.from_bytes(self.store.get_blob(digest), f"{self.store.url}/{blob_path(digest)}")

    def _measured_parent(self) -> Measured | None:
        """The same of the parent; None where there is none, or it cannot be read."""
        if self.parent is None or self.parent.manifest is None or not self.parent.manifest.corpus.documents:
            return None
        held = available(self.parent.manifest)
        try:
            return self._measured(
                self.parent.digest, [method for method in self.configuration.gates.methods if method in held]
            )
        except (CorruptBlob, ModelUnavailable) as error:
            self.progress.warn(f"the quality of version {self.parent.version} cannot be measured: {error}")
            return None

    @cached_property
    def questions(self) -> bytes | None:
        """The question file of the gate as it was when it was first read; raises BadInput where it cannot be used."""
        path = self.configuration.gates.questions
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError as error:
            raise BadInput(f"gates.questions: {path} cannot be read: {error.strerror or error}") from error
        parse_questions(data, str(path))
        return data

    def is_made(self, shards: Sequence[spill.Shard]) -> bool:
        """Whether every part of some shards is there; makes nothing, counts nothing."""
        progress, self.progress, self._looking = self.progress, Silent(), True
        corpus, parts = copy.copy(self.corpus), dict(self.parts)
        try:
            self.corpus.take(shards)
            for step in self.steps:
                if step.of_shards:
                    step.drive(self)
        except NotThere:
            return False
        finally:
            self.progress, self._looking = progress, False
            self.corpus, self.parts = corpus, parts
        return True

    def follow(self, parent: Parent) -> None:
        """Go on from a version that was published on the way: the stages of the whole corpus start anew."""
        self.parent = parent
        self._manifest = self.measured = None
        self._forget_parent()
        kept = {encoder.STAGE.name, *(step.name for step in self.steps if step.of_shards)}
        self.parts = {stage: parts for stage, parts in self.parts.items() if stage in kept}

    def run(self) -> Manifest:
        """Every stage in order, again without the documents that one of them cannot take; the manifest of the rest."""
        self.look()
        while True:
            try:
                for step in self.steps:
                    step.drive(self)
                return self.manifest()
            except DocumentsFailed as failed:
                self.begin_again(failed)

    def begin_again(self, failed: DocumentsFailed) -> None:
        """Let the stages run again, all of which have ended; what they made is found by its key."""
        self.progress.warn(f"{failed}; the build goes on without them")
        self._attempt += 1
        self.corpus.forget_shards()
        self.parts = {name: parts for name, parts in self.parts.items() if name == "encoder"}
        self._manifest = None
        self._scanned.clear()  # rows of this run, too, may be copied now

    def manifest(self) -> Manifest:
        """The manifest of what the stages made: a function of corpus, settings, code and environment alone."""
        if self._manifest is None:  # once, before its quality is measured, which is no part of it
            self._manifest = manifest_of(self, self.stages, self.corpus, self.models)
        return self._manifest

    # What the stages share.

    @cached_property
    def choice(self) -> EncoderChoice:
        """The encoder that the settings name; raises ModelUnavailable."""
        return choose_encoder(self.configuration.embed)

    def asking(self, stage: str) -> Asking:
        """How the workers of a stage ask the language model that the settings name; for `Want.extra`."""
        settings = self.configuration.llm
        if settings.backend == "extractive":
            return Asking(settings, NoQuota(), self.retry_refused)
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

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that the settings ask for."""
        return tuple(family for family in FAMILIES if family.enabled(self.configuration))

    @property
    def opened_encoder(self) -> OpenedEncoder:
        """The encoder of this run; the stage `encoder` has opened it."""
        if self._encoder is None:
            raise RuntimeError("the stage `encoder` has not run")
        return self._encoder

    @property
    def recogniser_fingerprint(self) -> str:
        """What determines the output of the recogniser that the settings name."""
        chosen, llm = self.configuration.recognise, self.configuration.llm
        if chosen.asks_llm:
            return LlmRecogniser(*self.prompt(llm_recogniser.TASK), llm.shaping()).fingerprint
        return recognise.recogniser_of(chosen.recogniser).fingerprint

    @property
    def extractor_fingerprint(self) -> dict[str, Any]:
        """What determines what is extracted from passages."""
        llm = self.configuration.llm
        if llm.backend == "extractive":
            return dict(extract.FINGERPRINT)
        return extract_llm.extractor_of(self.prompt).fingerprint(llm)

    @property
    def models(self) -> dict[str, Any]:
        """The fingerprints of the models of this run, as a manifest states them."""
        named = {"name": self.configuration.recognise.published_name, "fingerprint": self.recogniser_fingerprint}
        models = {"encoder": dict(self.opened_encoder.fingerprint), "recogniser": named}
        needed = (writer for writer in WRITERS if writer.needed(self.configuration))
        models |= {writer.model: dict(self.writer(writer).fingerprint) for writer in needed}
        if self.configuration.extracts:
            models["extractor"] = self.extractor_fingerprint
        return models

    @property
    def labels(self) -> list[str]:
        """The shards that the stages of shards are at."""
        return [shard.label for shard in self.corpus.wave]

    @property
    def tokenizer(self) -> dict[str, Any]:
        """What determines the tokens."""
        return self.choice.tokenizer

    def counts(self, stage: str) -> Counter[str]:
        """What the run's report counts of a stage."""
        return self.report.stage(stage).counts

    def writer(self, writer: Writer) -> BoundWriter:
        """A writer as the settings bind it, the prompt read once; raises ConfigurationError where it cannot be read."""
        if writer.task not in self._writers:
            prompt = writer.prompt(self.configuration.llm)
            self._writers[writer.task] = BoundWriter(prompt, writer.fingerprint(self.configuration, prompt))
        return self._writers[writer.task]

    def prompt(self, task: str) -> Prompt:
        """The prompt of a task, read once for a run; raises ConfigurationError where it cannot be read."""
        if task not in self._prompts:
            self._prompts[task] = prompt(task, self.configuration.llm.prompts)
        return self._prompts[task]

    def inputs(self, stage: Stage[Any], label: str) -> dict[str, str]:
        """What a stage reads to make the part of a label, as it declares it: digests by input name.

        Raises KeyError where no stage has made an input that is not optional.
        """
        found: dict[str, str] = {}
        for one in stage.inputs:
            if one.each:
                every = self.outputs(one.source).items()
                found |= {f"{one.name}/{name.partition('/')[2]}": digest for name, digest in every}
                continue
            digest = self._output(one.source, label)
            if digest is not None:
                found[one.name] = digest
            elif not one.optional:
                raise KeyError(f"no stage has made {one.source!r} of {label}, which {stage.name} reads")
        return found

    def _output(self, name: str, label: str) -> str | None:
        """The digest of an output of the part of a label, or of the part of the whole corpus that is of this label."""
        for parts in list(self.parts.values()):  # other stages may be adding theirs
            for shard, output in ((label, name), (WHOLE, f"{name}/{label}")):
                if shard in parts and output in parts[shard].outputs:
                    return parts[shard].outputs[output]
        return None

    def texts(self, shard: str) -> dict[str, str]:
        """The inputs of a stage that reads a shard's texts."""
        split = self.parts["split"][shard].outputs
        return {
            "documents": self.parts["ingest"][shard].outputs["documents"],
            "passages": split["passages"],
            "sentences": split["sentences"],
            "plain": split["plain"],
        }

    def outputs(self, *names: str) -> dict[str, str]:
        """The digests of some tables and vectors, all shards, by `<name>/<shard>`."""
        return {
            f"{name}/{shard}": digest
            for parts in list(self.parts.values())  # other stages may be adding theirs
            for label, receipt in parts.items()
            for output, digest in receipt.outputs.items()
            for name, shard in [output.split("/", 1) if "/" in output else (output, label)]
            if name in names and (label != WHOLE or "/" in output)
        }

    @cached_property
    def _makers(self) -> dict[str, str]:
        """By stage, what a record of poison holds for: with other settings, code or libraries, it is tried again."""
        configuration, model = self.configuration, self.choice.model
        settings = {
            "split": {"split": configuration.split.model_dump(), "tokenizer": self.choice.tokenizer},
            "recognise": {"fingerprint": self.recogniser_fingerprint},
            "extract": {"extractor": self.extractor_fingerprint if configuration.extracts else None},
            "embed": {
                "split": configuration.split.model_dump(),
                "encoder": [self.choice.backend, self.choice.precision, "" if model is None else model.digest],
                "sentences": configuration.embed.sentences,
            },
            "bm25": {"families": configuration.families.bm25.model_dump()},
        }
        shared = {"code": code_digest(), "environment": environment_fingerprint()}
        return {
            stage.name: digest_of(
                canonical_json(
                    {**shared, "stage": stage.name, "version": stage.version, "settings": settings[stage.name]}
                )
            )
            for stage in (split.STAGE, recognise.STAGE, extract.STAGE, embed.STAGE, bm25.STAGE)
        }

    def maker_of(self, stage: str) -> str:
        """What a record of poison at a stage holds for."""
        return self._makers[stage]

    def _poison(self) -> list[poison.Poison]:
        """What earlier runs, and this one, found that a stage cannot take."""
        if not self.store.list(poison_prefix()):
            return []
        return [one for maker in self._makers.values() for one in poison.known(self.store, maker)]
