"""The interface of a run to the drivers of steps: a build, a plan, or the replay of the previous version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from schemas.config import Configuration
from storage.lineage import LineageEntry
from storage.protocol import Store
from tasks.core.checks import Check
from tasks.core.encoder import EncoderChoice, OpenedEncoder
from tasks.core.part_runner import Parent, Parts, PartSpec
from tasks.core.stage import Stage
from tasks.core.writer import BoundWriter, Writer
from tasks.llm.ask import LlmAccess
from tasks.llm.prompts import Prompt


class Models(Protocol):
    """The models of a run: the models that the settings name, or the models of the previous version."""

    def choice(self) -> EncoderChoice:
        """Return the encoder, before it is opened; raises ModelUnavailable."""
        ...

    def recogniser(self) -> str:
        """Return the fingerprint of the recogniser, which determines its output."""
        ...

    def extractor(self) -> Mapping[str, Any]:
        """Return the values that determine what is extracted from passages."""
        ...

    def prompt(self, task: str) -> Prompt:
        """Return the prompt of a task, read once for a run; raises ConfigurationError if it cannot be read."""
        ...

    def writer(self, writer: Writer) -> BoundWriter:
        """Return a writer bound to the settings; raises ConfigurationError if its prompt cannot be read."""
        ...


class Run(Protocol):
    """A run of the steps, as drivers see it."""

    @property
    def configuration(self) -> Configuration:
        """The settings."""
        ...

    @property
    def store(self) -> Store:
        """The store of the parts."""
        ...

    @property
    def run_id(self) -> str:
        """The name of the run, for scratch files."""
        ...

    @property
    def cold(self) -> bool:
        """True if every part is made again from scratch."""
        ...

    @property
    def parent(self) -> Parent | None:
        """The version that the run starts from."""
        ...

    @property
    def makes_parts(self) -> bool:
        """True if outputs of finished stages can be read; False while planning."""
        ...

    @property
    def parts(self) -> Mapping[str, Parts]:
        """The receipts so far, by stage and label."""
        ...

    @property
    def labels(self) -> Sequence[str]:
        """The labels of the shards that the per-shard steps process now."""
        ...

    @property
    def checks(self) -> Sequence[Check]:
        """The checks of the families that the settings ask for."""
        ...

    @property
    def models(self) -> Models:
        """The models of the run."""
        ...

    @property
    def opened_encoder(self) -> OpenedEncoder:
        """The encoder of the run; the step `encoder` has opened it."""
        ...

    def encoder(self) -> None:
        """Find the model, and make a part of its files (the step `encoder`)."""
        ...

    def scan(self) -> None:
        """Read the corpus, and divide it into shards (the step `scan`)."""
        ...

    def ingest(self) -> None:
        """Make a part of the documents of each shard (the step `ingest`)."""
        ...

    def quality(self) -> None:
        """Measure the recall of the candidate (the step `quality`)."""
        ...

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        """Find or make the parts that a stage needs; returns the receipts of all parts of the stage, by label."""
        ...

    def inputs(self, stage: Stage[Any], label: str) -> dict[str, str]:
        """Return a part's declared inputs as digests by name. Raises KeyError if a required input was not made."""
        ...

    def outputs(self, *names: str) -> dict[str, str]:
        """Return the digests of some outputs for all labels, by `<name>/<label>`."""
        ...

    def asking(self, stage: str) -> LlmAccess:
        """Return the access of a stage's workers to the language model that the settings name."""
        ...

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        """Return the parent's part of a stage for a label, if it has one; its blobs or receipt may be missing."""
        ...

    def pack(self, digest: str) -> Mapping[str, NDArray[Any]] | None:
        """Return the arrays of a pack; None if the pack is only planned or was lost."""
        ...

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        """Return True if a stage makes its part `label`, a layer over the nodes in a table of the given parts."""
        ...

    def mark_uncertain(self, stage: str = "") -> None:
        """Mark a stage's parts, or all later parts until one of the whole corpus, as possibly unnecessary."""
        ...

    def counts(self, stage: str) -> Counter[str]:
        """Return the counts of a stage in the run's report."""
        ...
