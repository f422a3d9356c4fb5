"""The base of all runs of the pipeline's steps: a build, a plan, and the replay of the previous version's stages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from indexmill.store.packs import open_pack
from schemas.config import Configuration
from storage.protocol import Store
from tasks.core.builder_family import BuilderFamily
from tasks.core.checks import Check
from tasks.core.encoder import EncoderChoice, OpenedEncoder
from tasks.core.part_runner import Parts
from tasks.core.stage import WHOLE, Stage
from tasks.core.step import Step
from tasks.llm.ask import LlmAccess
from tasks.llm.quota import NoQuota
from tasks.pipeline.run_models import RunModels
from tasks.registry import FAMILIES, enabled_steps


class BaseRun:
    """The part of `tasks.core.run.Run` shared by runs that make parts and runs that do not."""

    store: Store
    parts: dict[str, Parts]
    retry_refused = False

    def __init__(self, configuration: Configuration, models: RunModels) -> None:
        self.configuration = configuration
        self.models = models
        self._encoder: OpenedEncoder | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that the settings enable, each after the steps that it needs."""
        return enabled_steps(self.configuration)

    @property
    def families(self) -> tuple[BuilderFamily, ...]:
        return tuple(family for family in FAMILIES if family.enabled(self.configuration))

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(check for family in self.families for check in family.checks)

    # Steps that do nothing in some runs

    def encoder(self) -> None:
        """Do nothing: the encoder is known."""

    def scan(self) -> None:
        """Do nothing: the corpus is known."""

    def quality(self) -> None:
        """Do nothing: there is no snapshot to measure."""

    # Models

    @property
    def opened_encoder(self) -> OpenedEncoder:
        if self._encoder is None:
            raise RuntimeError("the step `encoder` has not run")
        return self._encoder

    @property
    def choice(self) -> EncoderChoice:
        return self.models.choice()

    def asking(self, stage: str) -> LlmAccess:
        """Return the access of a stage's workers to the language model, without a quota, since no calls are made."""
        return LlmAccess(self.configuration.llm, NoQuota(), self.retry_refused)

    # Parts

    def inputs(self, stage: Stage[Any], label: str) -> dict[str, str]:
        digests: dict[str, str] = {}
        for part_input in stage.inputs:
            name, source = part_input.name, part_input.source
            if part_input.each:
                outputs = self.outputs(source).items()
                digests |= {f"{name}/{output.partition('/')[2]}": digest for output, digest in outputs}
                continue
            if part_input.pieces:
                digests |= {f"{name}/{piece}": digest for piece, digest in self._pieces(source, label).items()}
                continue
            digest = self._output(source, label)
            if digest is not None:
                digests[name] = digest
            elif not part_input.optional:
                raise KeyError(f"no stage has made {source!r} for {label}, which {stage.name} reads")
        return digests

    def _output(self, name: str, label: str) -> str | None:
        """Return the digest of an output for a label, made by the label's part or by the part of the whole corpus."""
        for parts in list(self.parts.values()):  # other steps may be adding theirs
            for shard, output in ((label, name), (WHOLE, f"{name}/{label}")):
                if shard in parts and output in parts[shard].outputs:
                    return parts[shard].outputs[output]
        return None

    def _pieces(self, name: str, label: str) -> dict[str, str]:
        outputs_of_label = [parts[label].outputs for parts in list(self.parts.values()) if label in parts]
        return {
            output.partition("/")[2]: digest
            for outputs in outputs_of_label
            for output, digest in outputs.items()
            if output.startswith(f"{name}/")
        }

    def outputs(self, *names: str) -> dict[str, str]:
        return {
            f"{name}/{shard}": digest
            for parts in list(self.parts.values())  # other steps may be adding theirs
            for label, receipt in parts.items()
            for output, digest in receipt.outputs.items()
            for name, shard in [output.split("/", 1) if "/" in output else (output, label)]
            if name in names and (label != WHOLE or "/" in output)
        }

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]] | None:
        return None if self.store.blob_size(digest) is None else open_pack(self.store.open_local(digest))

    # Methods that only some runs need

    def mark_uncertain(self, stage: str = "") -> None:
        """Do nothing: only a plan has uncertain parts."""

    def counts(self, stage: str) -> Counter[str]:
        """Return an empty counter: only builds and plans have a report."""
        return Counter()
