"""Why a part is made again: what differs from the part that the parent has in its place.

A part's key is a hash and cannot be taken apart. So the stages are asked what they would want with the settings, the
models and the parts of the parent, by the same code that says what they want now. Where the key of that is not the key
in the parent's lineage, the code differs; otherwise settings and inputs can be compared one by one, and an input that
differs passes on the cause for which it does.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from indexmill.errors import CorruptBlob
from indexmill.store.manifest import Manifest
from schemas.config import Configuration
from schemas.tables import DOCUMENTS
from storage.lineage import LineageEntry
from storage.protocol import Store
from storage.receipts import Receipt
from storage.tables import read_table
from tasks.core.encoder import OpenedEncoder
from tasks.core.part_runner import WHOLE, Parent, Parts, PartSpec
from tasks.core.stage import NoSettings, Stage, part_key
from tasks.pipeline.base_run import BaseRun
from tasks.pipeline.models import PublishedModels
from tasks.stages.ingest import part as ingest_part
from tasks.stages.ingest.spill import digest_of_documents

__all__ = ["CAUSES", "Cause", "ParentReplay", "PlannedPart", "Why", "causes_of"]

Cause = Literal["first", "cold", "model", "code", "settings", "corpus", "lost"]
"""No version is there yet, `--cold`, the fingerprint of encoder, recogniser or summariser, the stage's version or
libraries, the settings that a stage reads, documents, or a part of the parent that is missing or damaged."""

CAUSES: tuple[Cause, ...] = ("first", "cold", "model", "code", "settings", "corpus", "lost")
"""Where a part has several causes, the first of these stands for it: it alone would be enough."""

_MODELS = frozenset({"describer", "encoder", "extractor", "fingerprint", "summariser", "tokenizer", "writer"})
"""The settings of a stage that say which model it uses."""

_PLACES = frozenset({"layer", "level"})
"""Those that say where a part stands: it may be held against one that stands elsewhere."""


@dataclass(frozen=True)
class PlannedPart:
    """A part of the next version: made or found. certain: False where it may turn out not to be needed."""

    stage: Stage[Any]
    spec: PartSpec
    key: str
    made: bool
    outputs: Mapping[str, str]
    certain: bool = True


@dataclass(frozen=True)
class Why:
    """The cause of a part that is made.

    certain: False where the parts that it reads are made again, and it is found after all if these come out the same.
    """

    cause: Cause
    certain: bool = True


class ParentReplay(BaseRun):
    """The parts that today's code wants for the parent's corpus, settings and models: `wants`, by stage and label.

    Raises ValidationError for a parent whose settings are no longer known.
    """

    makes_parts = False
    cold = False
    run_id = "plan"
    parent = None

    def __init__(self, store: Store, manifest: Manifest, entries: Iterable[LineageEntry]) -> None:
        configuration = Configuration.model_validate(manifest.configuration)
        super().__init__(configuration, PublishedModels(configuration, manifest))
        self.store = store
        self._encoder = OpenedEncoder({}, manifest.models["encoder"])  # type: ignore[arg-type]
        self.parts: dict[str, Parts] = {}
        for entry in entries:
            receipt = Receipt(
                stage=entry.stage, key=entry.key, shard=entry.shard, outputs=entry.outputs, run_id="parent"
            )
            self.parts.setdefault(entry.stage, {})[entry.shard] = receipt
        self.labels = list(self.parts.get("ingest", {}))
        self._stages: dict[str, Stage[Any]] = {}
        self._same_code: dict[str, bool] = {}
        self.specs: dict[str, dict[str, PartSpec]] = {}
        for step in self.steps:
            with contextlib.suppress(KeyError):  # a stage that the parent did not have
                step.drive(self)

    def encoder(self) -> None:
        """The parent's encoder is known."""

    def scan(self) -> None:
        """The parent's corpus is in its parts."""

    def quality(self) -> None:
        """Nothing is measured."""

    def counts(self, stage: str) -> Counter[str]:
        """Nothing is reported."""
        return Counter()

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        """Whether the parent has such a layer."""
        return label in self.parts.get(stage, {})

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        """The parent's part itself: it was made from what it says."""
        part = self.parts.get(stage, {}).get(shard)
        return None if part is None else LineageEntry.of(part)

    def keeps_code(self, stage: str) -> bool:
        """Whether the stage would make the parent's parts under the keys that they have."""
        if stage not in self._same_code:
            self._same_code[stage] = all(
                part_key(self._stages[stage], spec.settings, spec.inputs) == self.parts[stage][shard].key
                for shard, spec in self.specs.get(stage, {}).items()
                if shard in self.parts.get(stage, {})
            )
        return self._same_code[stage]

    def made_by_others(self, stages: set[str]) -> list[Receipt]:
        """The parent's parts of other stages than these."""
        return [part for stage, parts in self.parts.items() if stage not in stages for part in parts.values()]

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        """Note what is wanted; the parent's parts."""
        self._stages[stage.name] = stage
        self.specs.setdefault(stage.name, {}).update({spec.shard: spec for spec in specs})
        return self.parts.get(stage.name, {})

    def ingest(self) -> None:
        """One shard's documents tell whether the code of `ingest` is the same; the digests of all would be slow."""
        for shard, receipt in self.parts.get("ingest", {}).items():
            with contextlib.suppress(CorruptBlob):
                table = read_table(
                    self.store, receipt.outputs["documents"], DOCUMENTS, columns=["document_id", "content_hash"]
                )
                pairs = (table.column(name).to_pylist() for name in ("document_id", "content_hash"))
                self.make(
                    ingest_part.STAGE, [PartSpec(shard, {"documents": digest_of_documents(*pairs)}, NoSettings())]
                )
                return


def causes_of(
    parts: Sequence[PlannedPart],
    planned: Collection[str],
    parent: Parent | None,
    former: ParentReplay | None,
    configuration: Configuration,
    *,
    cold: bool,
) -> list[Why | None]:
    """Why each part is made, None for one that is found; `parts` in the order of the flow of data.

    `planned` are the digests that stand for outputs which are not known. `former` is None where the parent is damaged
    or was written with settings that are no longer known.
    """
    stages = {part.stage.name for part in parts}
    found: list[Why | None] = []
    origin: dict[str, Cause] = {}  # of each output that the parent does not have
    same: set[str] = set()  # unknown outputs that may be what they were
    had = {digest for entry in parent.lineage.entries for digest in entry.outputs.values()} if parent else set()
    keys = {(entry.stage, entry.key) for entry in parent.lineage.entries} if parent else set()
    for part in parts:
        cause: Cause
        certain = True
        if parent is None:
            cause = "first"
        elif (part.stage.name, part.key) in keys or parent.manifest is None:
            cause = "lost"
        elif former is None:
            cause = "code"
        else:
            cause = _cause(part, former, configuration, origin, stages)
            certain = (part.stage.name, _key_if_same(part, former, same)) not in keys
        origin |= {digest: cause for digest in part.outputs.values() if digest not in had}
        if parent is not None:
            same |= {digest for digest in part.outputs.values() if digest in planned}
        why = Why("cold" if cold else cause, part.certain and (cold or certain))
        found.append(why if part.made else None)
    return found


def _key_if_same(part: PlannedPart, former: ParentReplay, same: Collection[str]) -> str:
    """The key of a part if those of its inputs that may be what they were are that.

    Of inputs `<name>/<label>` that are not known, the labels may be what they were, too.
    """
    before = former.specs.get(part.stage.name, {}).get(part.spec.shard)
    known = {name: digest for name, digest in part.spec.inputs.items() if digest not in same}
    unknown = {name.partition("/")[0] for name in part.spec.inputs.keys() - known.keys()}
    was = {} if before is None else before.inputs
    inputs = {name: digest for name, digest in was.items() if name.partition("/")[0] in unknown}
    return part_key(part.stage, part.spec.settings, inputs | known)


def _cause(
    part: PlannedPart, former: ParentReplay, configuration: Configuration, origin: Mapping[str, Cause], stages: set[str]
) -> Cause:
    stage = part.stage.name
    if stage == "encoder":  # how it is converted is asked of the model's fingerprint
        return "model"
    specs = former.specs.get(stage, {})
    if not specs:
        return "settings"  # a family that was switched on
    if not former.parts.get(stage) or not former.keeps_code(stage):
        return "code"
    if stage == "ingest":
        return "settings" if configuration.shards != former.configuration.shards else "corpus"
    before = specs.get(part.spec.shard) or next(iter(specs.values()))
    direct: set[Cause] = set()
    if part.spec.shard not in specs and part.spec.shard in ("documents", "entities", WHOLE):
        direct.add("settings")
    settings, earlier = part.spec.settings.keyed(), before.settings.keyed()
    for name in {*settings, *earlier} - _PLACES:
        if settings.get(name) != earlier.get(name):
            direct.add("model" if name in _MODELS else "settings")
    now, was = set(part.spec.inputs.values()), set(before.inputs.values())
    inherited: set[Cause] = {origin.get(digest, "corpus") for digest in now - was}
    if not inherited:  # all that differs is what is gone: documents, or a family that was switched off
        off = any((was - now) & set(one.outputs.values()) for one in former.made_by_others(stages))
        inherited.add("settings" if off else "corpus")
    causes = direct or inherited
    return next(cause for cause in CAUSES if cause in causes)
