"""One stage at a time, without a build around it: how a test runs a stage on small inputs.

All that the tests know of jobs, of what a part is made from and of what a stage is given is in this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from indexmill.store.manifest import Manifest
from indexmill.store.packs import open_pack
from schemas.config import Configuration, LlmSettings
from storage import refs
from storage.arrays import put_pack
from storage.folder import FolderStore, open_folder
from storage.receipts import Receipt
from storage.table_blobs import put_table, read_table
from tasks.core import encoder
from tasks.core.encoder import EncoderSettings, OpenedEncoder, encoder_of, fingerprint_of
from tasks.core.isolate import Failing, failing_documents
from tasks.core.part_runner import PartSpec
from tasks.core.stage import WHOLE, Job, Part, PartResult, Stage, StageSettings, make_part, part_key
from tasks.core.writer import BoundWriter, Writer
from tasks.llm.ask import LlmAccess
from tasks.llm.quota import LocalQuota
from tasks.registry import FAMILIES
from tasks.stages.check.check import STAGE as CHECK
from tasks.stages.check.check import CheckSettings, checks_of
from tasks.stages.check.shared_checks import CHECKS
from tests.tasks.indexes import outputs_of

OPENING: Mapping[str, Any] = {"backend": "hash", "precision": "f32", "files": {}}
"""What opens the deterministic encoder."""

CLOSED: Mapping[str, Any] = {"backend": "none", "files": {}}
"""What opens none."""

UNASKED: Mapping[str, Any] = {
    "opening": CLOSED,
    "language": "en",
    "asking": LlmAccess(LlmSettings(), LocalQuota(None)),
    "prompt": None,
}
"""What `WriterSettings` have where no model is asked."""

Pack = dict[str, np.ndarray]


def numbers_of(store: FolderStore) -> dict[str, Any]:
    """What determines the vectors of the deterministic encoder."""
    fingerprint, _ = fingerprint_of(store.url, OPENING)
    return {name: value for name, value in fingerprint.items() if name != "model"}


def embedded(
    store: FolderStore, shard: str, inputs: Mapping[str, str], opening: Mapping[str, Any] = OPENING, **settings: Any
) -> PartSpec:
    """A part whose rows the deterministic encoder makes, or one that cannot be opened in its place."""
    return PartSpec(shard, inputs, EncoderSettings(**settings, encoder=numbers_of(store), opening=opening))


def bound(writer: Writer, llm: LlmSettings, language: str = "en", **families: Mapping[str, Any]) -> BoundWriter:
    """A writer as the settings of a language model, and of its family, bind it."""
    given = {"llm": llm, "split": {"language": language}, "families": families}
    prompt = writer.prompt(llm)
    return BoundWriter(prompt, writer.fingerprint(Configuration.model_validate(given), prompt))


class Parts:
    """Makes parts in a store; `run` names the run, as the ledger and receipts keep it."""

    def __init__(self, store: FolderStore, run: str = "run") -> None:
        self.store = store
        self.run = run

    def _job(self, stage: Stage, spec: PartSpec, reuse: Sequence[Receipt]) -> Job:
        return Job(
            stage=stage.module,
            key=part_key(stage, spec.shard, spec.settings, spec.inputs),
            shard=spec.shard,
            store_url=self.store.url,
            run_id=self.run,
            inputs=spec.inputs,
            settings=spec.settings,
            reuse=tuple(digest for part in reuse for digest in part.outputs.values()),
        )

    def make(self, stage: Stage, spec: PartSpec, reuse: Sequence[Receipt] = ()) -> PartResult:
        """Make a part, or find it; reuse: parts whose rows it may copy."""
        return make_part(self._job(stage, spec, reuse))

    def inputs(self, stage: Stage, spec: PartSpec, reuse: Sequence[Receipt] = ()) -> Part:
        """What an estimate and the questions of a part are made from."""
        return Part(self.store, self._job(stage, spec, reuse))

    def vectors(self, digest: str) -> np.ndarray:
        """The vectors of a pack."""
        return open_pack(self.store.open_local(digest))["vectors"]


def part_with(store: FolderStore, stage: Stage, settings: StageSettings) -> Part:
    """A part of these settings that has no inputs."""
    return Part(store, Job(stage.module, "", "", store.url, "run", {}, settings), stage)


def encoder_for(store: FolderStore, opened: OpenedEncoder) -> object:
    """The encoder that the worker at a part of a run has."""
    return encoder_of(part_with(store, encoder.STAGE, EncoderSettings(**opened.settings)))


def failing(stage: str, store: FolderStore, inputs: Mapping[str, str], *more: Any) -> list[Failing]:
    """The documents that a stage, which is the STAGE of a module, fails by."""
    return failing_documents(Job(stage, "0" * 64, "", str(store.root), "run", inputs, {}), *more)


@dataclasses.dataclass(frozen=True)
class Check:
    """The check of a shard, a group or the whole corpus (`all`); its inputs can be others."""

    store: FolderStore
    shard: str
    inputs: Mapping[str, str]

    def run(self) -> None:
        """Raises CheckError."""
        of_families = (check for family in FAMILIES for check in family.checks)
        checks = checks_of(of_families, self.inputs, whole=self.shard == WHOLE)
        CHECK.compute(self.opened(CheckSettings(checks=checks)))

    def opened(self, settings: CheckSettings | None = None) -> Part:
        """What the check reads."""
        job = Job(CHECK.module, "", self.shard, self.store.url, "run", self.inputs, settings)
        checks = (*CHECKS, *(check for family in FAMILIES for check in family.checks))
        read = {one.name: one for check in checks if check.whole == (self.shard == WHOLE) for one in check.inputs}
        return Part(self.store, job, dataclasses.replace(CHECK, inputs=(*CHECK.inputs, *read.values())))

    def with_inputs(self, **inputs: str) -> Check:
        return dataclasses.replace(self, inputs={**self.inputs, **inputs})

    def with_shard(self, shard: str) -> Check:
        return dataclasses.replace(self, shard=shard)

    def with_table(self, name: str, table: pa.Table) -> Check:
        return self.with_inputs(**{name: put_table(self.store, table)[0]})

    def with_column(self, name: str, column: str, values: Any) -> Check:
        """values: an array, or one value for all rows."""
        table = self.table(name)
        at = table.schema.get_field_index(column)
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = pa.array([values] * len(table))
        return self.with_table(name, table.set_column(at, table.schema.field(at), values))

    def with_arrays(self, name: str, **arrays: Any) -> Check:
        return self.with_inputs(**{name: put_pack(self.store, "run", self.pack(name) | arrays)[0]})

    def table(self, name: str) -> pa.Table:
        return read_table(self.store, self.inputs[name])

    def pack(self, name: str) -> Pack:
        return arrays_of(self.store, self.inputs[name])


class Built:
    """A store with a version: what its stages made, and the checks of that."""

    def __init__(self, root: Any) -> None:
        self.store = open_folder(root)
        newest = refs.newest(self.store)
        assert newest is not None
        self.manifest = Manifest.from_bytes(self.store.get_blob(newest.manifest))
        self.outputs = outputs_of(self.store, self.manifest.lineage)

    def rows(self, artifact: str) -> int:
        """The rows of the artifacts of this name."""
        return sum(one.rows or 0 for one in self.manifest.under(artifact))

    def pack(self, stage: str, name: str, shard: str = WHOLE) -> Pack:
        """The arrays of an output, as copies."""
        return arrays_of(self.store, self.outputs[stage, shard][name])

    def table(self, stage: str, name: str, shard: str = WHOLE) -> pa.Table:
        return read_table(self.store, self.outputs[stage, shard][name])

    def check(self, shard: str, *stages: str, **inputs: str) -> Check:
        """The check of what some stages made for a shard, and of more."""
        made = {name: digest for stage in stages for name, digest in self.outputs[stage, shard].items()}
        return Check(self.store, shard, {**made, **inputs})

    def named(self, *left_out: str) -> dict[str, str]:
        """The digests of all outputs but those of some stages, by `<name>/<shard>`."""
        return {
            name if "/" in name else f"{name}/{shard}": digest
            for (stage, shard), outputs in self.outputs.items()
            for name, digest in outputs.items()
            if stage not in left_out
        }


def arrays_of(store: FolderStore, digest: str) -> Pack:
    """The arrays of a pack, as copies that can be changed."""
    return {name: np.array(array) for name, array in open_pack(store.open_local(digest)).items()}
