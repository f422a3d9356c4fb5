"""Parts of the heterograph's stages, made one by one over a store, without a build around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from indexmill.store.packs import open_pack
from indexmill.text.names import entity_id
from schemas.config import Configuration, LlmSettings
from schemas.tables import ENTITIES, EXTRACTED, MENTIONS, RELATIONS, UNIT_ENTITIES, UNITS, conform
from storage.folder import FolderStore
from storage.receipts import Receipt
from storage.tables import put_table
from tasks.core.encoder import fingerprint_of
from tasks.core.part_runner import Want
from tasks.core.stage import Inputs, Job, Made, Stage, make_part, part_key
from tasks.core.writer import BoundWriter, Writer
from tasks.stages.embed.embed import Floats
from tests.tasks.families.heterograph.graphs import Corpus

__all__ = ["OPENING", "Parts", "bound", "numbers_of", "put_corpus"]

OPENING: Mapping[str, Any] = {"backend": "hash", "precision": "f32", "path": "", "files": {}}
"""What opens the deterministic encoder."""


def numbers_of(store: FolderStore) -> dict[str, Any]:
    """What determines the vectors of the deterministic encoder."""
    fingerprint, _ = fingerprint_of(store.url, OPENING)
    return {name: value for name, value in fingerprint.items() if name != "model"}


def bound(writer: Writer, llm: LlmSettings, language: str = "en", **settings: int) -> BoundWriter:
    """A writer as the settings of a language model and of the family bind it."""
    configuration = Configuration.model_validate(
        {"llm": llm, "split": {"language": language}, "families": {"heterograph": settings}}
    )
    prompt = writer.prompt(llm)
    return BoundWriter(prompt, writer.fingerprint(configuration, prompt))


def put_corpus(
    store: FolderStore, corpus: Corpus, names: Sequence[str], shown: Mapping[str, str] | None = None, shards: int = 2
) -> dict[str, str]:
    """The digests of a corpus's extraction, and of its entities in so many shards.

    names: canonical, of all entities that a unit names, each of which is shown with its first letters in capitals
    unless `shown` says otherwise; each passage that names one in a unit mentions it in that form.
    """
    surfaces = {name: (shown or {}).get(name, name.title()) for name in names}
    by_id = {entity_id(name): name for name in names}
    passages = dict(zip(*(corpus.units[name].to_pylist() for name in ("unit_id", "passage_id")), strict=True))
    links = zip(*(corpus.unit_entities[name].to_pylist() for name in ("unit_id", "entity_id")), strict=True)
    mentions = [
        {"passage_id": passages[unit], "sentence": 0, "start": 0, "end": 1, "kind": "name"}
        | {"surface": surfaces[by_id[one]], "name": by_id[one], "entity_id": one}
        for unit, one in sorted(set(links))
    ]
    rows = [
        {"entity_id": one, "name": name, "surface": surfaces[name], "mentions": 1, "passages": 1, "documents": 1}
        for one, name in sorted(by_id.items())
    ]
    held = {
        "units/p": (corpus.units, UNITS),
        "unit_entities/p": (corpus.unit_entities, UNIT_ENTITIES),
        "relations/p": (corpus.relations, RELATIONS),
        "mentions/p": (pa.Table.from_pylist(mentions, MENTIONS), MENTIONS),
        "extracted/p": (EXTRACTED.empty_table(), EXTRACTED),
    }
    half = len(rows) // shards + 1
    for shard in range(shards):
        some = pa.Table.from_pylist(rows[shard * half : (shard + 1) * half], ENTITIES)
        held[f"entities/e{shard}"] = (some, ENTITIES)
    return {name: put_table(store, conform(table, schema))[0] for name, (table, schema) in held.items()}


class Parts:
    """Makes parts; `run` names the run, as the ledger and receipts keep it."""

    def __init__(self, store: FolderStore, run: str = "run") -> None:
        self.store = store
        self.run = run

    def job(self, stage: Stage, want: Want, reuse: Sequence[Receipt] = ()) -> Job:
        """The job of a part, which may copy rows of some parts."""
        return Job(
            stage=stage.module,
            key=part_key(stage, want.settings, want.inputs),
            shard=want.shard,
            store_url=self.store.url,
            run_id=self.run,
            inputs=want.inputs,
            settings=want.job_settings,
            reuse=tuple(digest for part in reuse for digest in part.outputs.values()),
        )

    def make(self, stage: Stage, want: Want, reuse: Sequence[Receipt] = ()) -> Made:
        """Make a part, or find it."""
        return make_part(self.job(stage, want, reuse))

    def inputs(self, stage: Stage, want: Want, reuse: Sequence[Receipt] = ()) -> Inputs:
        """What an estimate and the questions of a part are made from."""
        return Inputs(self.store, self.job(stage, want, reuse))

    def vectors(self, digest: str) -> Floats:
        """The vectors of a pack."""
        found: Floats = open_pack(self.store.open_local(digest))["vectors"]
        return found
