"""What every run of the steps shares: a build, a plan, and the replay of the version before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from indexmill.store.packs import open_pack
from schemas.config import Configuration
from storage.protocol import Store
from tasks.core.encoder import EncoderChoice, OpenedEncoder
from tasks.core.family import Family
from tasks.core.part_runner import Parts
from tasks.core.stage import WHOLE, Stage
from tasks.core.step import Step
from tasks.core.writer import BoundWriter, Writer
from tasks.llm.ask import Asking
from tasks.llm.prompts import Prompt
from tasks.llm.quota import NoQuota
from tasks.pipeline.models import Models
from tasks.registry import FAMILIES, enabled_steps

__all__ = ["BaseRun"]


class BaseRun:
    """The part of `tasks.core.run.Run` that does not depend on whether parts are made."""

    store: Store
    parts: dict[str, Parts]
    retry_refused = False

    def __init__(self, configuration: Configuration, models: Models) -> None:
        self.configuration = configuration
        self.models = models
        self._encoder: OpenedEncoder | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that the settings ask for, in an order in which each follows those that it needs."""
        return enabled_steps(self.configuration)

    @property
    def families(self) -> tuple[Family, ...]:
        """The families that the settings ask for."""
        return tuple(family for family in FAMILIES if family.enabled(self.configuration))

    # Models

    @property
    def opened_encoder(self) -> OpenedEncoder:
        """The encoder of this run; the step `encoder` has opened it."""
        if self._encoder is None:
            raise RuntimeError("the step `encoder` has not run")
        return self._encoder

    @property
    def choice(self) -> EncoderChoice:
        """The encoder that the settings name; raises ModelUnavailable."""
        return self.models.choice

    @property
    def tokenizer(self) -> dict[str, Any]:
        """What determines the tokens."""
        return self.models.choice.tokenizer

    @property
    def recogniser_fingerprint(self) -> str:
        """What determines the output of the recogniser."""
        return self.models.recogniser

    @property
    def extractor_fingerprint(self) -> dict[str, Any]:
        """What determines what is extracted from passages."""
        return self.models.extractor

    def writer(self, writer: Writer) -> BoundWriter:
        """A writer as the settings bind it; raises ConfigurationError where its prompt cannot be read."""
        return self.models.writer(writer)

    def prompt(self, task: str) -> Prompt:
        """The prompt of a task; raises ConfigurationError where it cannot be read."""
        return self.models.prompt(task)

    def asking(self, stage: str) -> Asking:
        """How the workers of a stage ask the language model: not at all, where nothing is made."""
        return Asking(self.configuration.llm, NoQuota(), self.retry_refused)

    # Parts

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
        for parts in list(self.parts.values()):  # other steps may be adding theirs
            for shard, output in ((label, name), (WHOLE, f"{name}/{label}")):
                if shard in parts and output in parts[shard].outputs:
                    return parts[shard].outputs[output]
        return None

    def outputs(self, *names: str) -> dict[str, str]:
        """The digests of some outputs, all labels, by `<name>/<label>`."""
        return {
            f"{name}/{shard}": digest
            for parts in list(self.parts.values())  # other steps may be adding theirs
            for label, receipt in parts.items()
            for output, digest in receipt.outputs.items()
            for name, shard in [output.split("/", 1) if "/" in output else (output, label)]
            if name in names and (label != WHOLE or "/" in output)
        }

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]] | None:
        """The arrays of a pack; None where it is not there: it is planned, or was lost."""
        return None if self.store.blob_size(digest) is None else open_pack(self.store.open_local(digest))

    def mark_uncertain(self) -> None:
        """Nothing is uncertain where parts are there."""
