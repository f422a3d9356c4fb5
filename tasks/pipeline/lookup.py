"""A check that all parts of given shards exist, without making any."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from storage.lineage import LineageEntry
from storage.receipts import Receipt
from tasks.core.part_runner import Parent, Parts, PartSpec
from tasks.core.stage import Stage, part_key
from tasks.pipeline.base_run import BaseRun
from tasks.pipeline.corpus_run import CorpusRun
from tasks.stages.ingest import part as ingest_part
from tasks.stages.ingest.shard_plan import Shard


class _NotThere(Exception):
    """A part does not exist yet."""


class _Lookup(BaseRun):
    """A run over given shards that finds parts and stops at the first missing one."""

    makes_parts = False

    def __init__(self, build: CorpusRun, shards: Sequence[Shard]) -> None:
        super().__init__(build.configuration, build.models)
        self.store, self.run_id, self.cold = build.store, build.run_id, build.cold
        self.retry_refused = build.retry_refused
        self.parent: Parent | None = build.parent
        self.parts: dict[str, Parts] = dict(build.parts)
        self.labels = [shard.label for shard in shards]
        self._encoder = build.opened_encoder
        self._build, self._shards = build, shards

    def ingest(self) -> None:
        self.make(ingest_part.STAGE, self._build.corpus.specs(self._shards))

    def make(self, stage: Stage[Any], specs: Iterable[PartSpec]) -> Parts:
        receipts: dict[str, Receipt] = {}
        for spec in specs:
            receipt = self._build.find(stage, part_key(stage, spec.shard, spec.settings, spec.inputs))
            if receipt is None:
                raise _NotThere
            receipts[spec.shard] = receipt
        self.parts[stage.name] = {**self.parts.get(stage.name, {}), **receipts}
        return self.parts[stage.name]

    def earlier_part(self, stage: str, shard: str) -> LineageEntry | None:
        return self._build.earlier_part(stage, shard)

    def wants_layer(
        self, stage: str, label: str, wants_another: Callable[[int], bool], parts: Parts, table: str
    ) -> bool:
        """Return False: per-shard steps have no layers."""
        return False


def are_made(build: CorpusRun, shards: Sequence[Shard]) -> bool:
    """Return True if every part of the shards exists; makes and counts nothing."""
    lookup = _Lookup(build, shards)
    try:
        for step in build.steps:
            if step.of_shards:
                step.drive(lookup)
    except _NotThere:
        return False
    return True
