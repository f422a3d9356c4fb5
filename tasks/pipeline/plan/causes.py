"""The reasons why parts are made again: their differences from the parent's parts.

A part's key is a hash and cannot be decomposed. So the current code replays the stages with the settings, the models
and the parts of the parent. If a replayed key differs from the key in the parent's lineage, the code has changed;
otherwise settings and inputs are compared one by one, and a changed input inherits the cause of its change.
"""

from __future__ import annotations

import contextlib
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
from storage.table_blobs import read_table
from tasks.core.encoder import OpenedEncoder
from tasks.core.part_runner import Parent, Parts, PartSpec
from tasks.core.stage import WHOLE, NoSettings, Stage, part_key
from tasks.pipeline.base_run import BaseRun
from tasks.pipeline.run_models import PublishedModels
from tasks.stages.ingest import part as ingest_part
from tasks.stages.ingest.shard_plan import digest_of_documents

Cause = Literal["first", "cold", "model", "code", "settings", "corpus", "lost"]
"""In this order: there is no version yet; `--cold`; a model's fingerprint; the stage's version or libraries; the
settings that a stage reads; documents; a missing or damaged part of the parent."""

CAUSES: tuple[Cause, ...] = ("first", "cold", "model", "code", "settings", "corpus", "lost")
"""The causes by precedence: the first that applies is reported."""

_MODELS = frozenset({"describer", "encoder", "extractor", "fingerprint", "summariser", "tokenizer", "writer"})
"""The settings of a stage that identify its model."""

_PLACES = frozenset({"layer", "level"})
"""The settings that give the position of a part; ignored when parts of different positions are compared."""


@dataclass(frozen=True)
class PlannedPart:
    """A part of the next version. is_made: False if it is reused. certain: False if it may not be needed."""

    stage: Stage[Any]
    spec: PartSpec
    key: str
    is_made: bool
    outputs: Mapping[str, str]
    certain: bool = True


@dataclass(frozen=True)
class Why:
    """The cause for which a part is made. certain: False if its inputs may turn out unchanged, so it may be reused."""

    cause: Cause
    certain: bool = True


class ParentReplay(BaseRun):
    """The parts (`specs`, by stage and label) that the current code requests for the parent's corpus and settings.

    Raises ValidationError if the parent's settings are no longer valid.
    """

    makes_parts = False
    cold = False
    run_id = "plan"
    parent = None

    def __init__(self, store: Store, manifest: Manifest, entries: Iterable[LineageEntry]) -> None:
        # The settings of the corpus affect no part.
        shaping = {name: value for name, value in manifest.configuration.items() if name != "corpus"}
        configuration = Configuration.model_validate(shaping)
        super().__init__(configuration, PublishedModels(configuration, manifest))
        self.store = store
        self._encoder = OpenedEncoder({}, manifest.models["encoder"])  # type: ignore[arg-type]
        self.parts: dict[str, Parts] = {}
        for entry in entries:
            receipt = Receipt(
                stage=entry.stage,
                key=entry.key,
                shard=entry.shard,
                outputs=entry.outputs,
                row_space=entry.row_space,
                run_id="parent",
            )
            self.parts.setdefault(entry.stage, {})[entry.shard] = receipt
        self.labels = list(self.parts.get("ingest", {}))
        self._stages: dict[str, Stage[Any]] = {}
        self._same_code: dict[str, bool] = {}
        self.specs: dict[str, dict[str, PartSpec]] = {}
        for step in self.steps:
            with contextlib.suppress(KeyError):  # the parent did not have a stage
                step.drive(self)

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        return label in self.parts.get(stage, {})

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        part = self.parts.get(stage, {}).get(shard)
        return None if part is None else LineageEntry.of(part)

    def keeps_code(self, stage: str) -> bool:
        """Return True if the stage's current code gives the parent's parts the same keys."""
        if stage not in self._same_code:
            self._same_code[stage] = all(
                part_key(self._stages[stage], shard, spec.settings, spec.inputs) == self.parts[stage][shard].key
                for shard, spec in self.specs.get(stage, {}).items()
                if shard in self.parts.get(stage, {})
            )
        return self._same_code[stage]

    def parts_of_others(self, stages: set[str]) -> list[Receipt]:
        return [part for stage, parts in self.parts.items() if stage not in stages for part in parts.values()]

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        """Record the requested parts; returns the parent's parts."""
        self._stages[stage.name] = stage
        self.specs.setdefault(stage.name, {}).update({spec.shard: spec for spec in specs})
        return self.parts.get(stage.name, {})

    def ingest(self) -> None:
        """Replay `ingest` for one shard, which detects a change of its code; digesting all shards would be slow."""
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
    """Find the cause of each part that is made, or None for a reused part; `parts` are in the order of the data flow.

    planned: placeholder digests of unknown outputs. former: None if the parent is damaged or was written with settings
    that are no longer valid.
    """
    stages = {part.stage.name for part in parts}
    causes: list[Why | None] = []
    origin: dict[str, Cause] = {}  # causes by output that the parent does not have
    same: set[str] = set()  # unknown outputs that may be unchanged
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
        causes.append(why if part.is_made else None)
    return causes


def _key_if_same(part: PlannedPart, former: ParentReplay, same: Collection[str]) -> str:
    """Return the key of a part, assuming that its possibly unchanged inputs are unchanged.

    For unknown inputs `<name>/<label>`, the labels are assumed to be unchanged, too.
    """
    before = former.specs.get(part.stage.name, {}).get(part.spec.shard)
    certain_inputs = {name: digest for name, digest in part.spec.inputs.items() if digest not in same}
    unknown = {name.partition("/")[0] for name in part.spec.inputs.keys() - certain_inputs.keys()}
    was = {} if before is None else before.inputs
    inputs = {name: digest for name, digest in was.items() if name.partition("/")[0] in unknown}
    return part_key(part.stage, part.spec.shard, part.spec.settings, inputs | certain_inputs)


def _cause(
    part: PlannedPart, former: ParentReplay, configuration: Configuration, origin: Mapping[str, Cause], stages: set[str]
) -> Cause:
    stage = part.stage.name
    if stage == "encoder":  # its conversion is part of the model's fingerprint
        return "model"
    if not part.stage.listed:  # such parts cannot start from earlier parts: the model or settings changed
        origins = {origin[digest] for digest in part.spec.inputs.values() if digest in origin}
        return next((cause for cause in CAUSES if cause in origins), "settings")
    specs = former.specs.get(stage, {})
    if not specs:
        return "settings"  # a family was enabled
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
    if not inherited:  # only something was removed: documents, or a family that was disabled
        disabled = any((was - now) & set(part.outputs.values()) for part in former.parts_of_others(stages))
        inherited.add("settings" if disabled else "corpus")
    causes = direct or inherited
    return next(cause for cause in CAUSES if cause in causes)
