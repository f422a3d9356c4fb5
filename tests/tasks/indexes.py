"""An index that a test builds night after night, with the deterministic encoder and small shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from flows.plan import make_plan
from flows.run import Outcome, backfill_inline, run_build
from indexmill.snapshot import Snapshot
from indexmill.store.packs import open_pack
from schemas.config import Configuration
from storage import lineage, runs
from storage.folder import FolderStore, open_store
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.pipeline.backfill import Waves
from tasks.pipeline.build import Build
from tasks.pipeline.plan.plan import Plan
from tests.corpora import Documents, write_corpus
from tests.flows.children import settings

__all__ = ["FAMILIES", "Index", "Outputs", "edited", "only", "outputs_of"]

FAMILIES = ("bm25", "tri_graph", "zoom_graph", "lsh_tree", "community_tree", "heterograph")

Outputs = Mapping[tuple[str, str], Mapping[str, str]]
"""The outputs of parts, by stage and shard."""


def only(*families: str, **changes: Any) -> dict[str, Any]:
    """Settings with some families alone; changes: settings of the first."""
    found: dict[str, Any] = {name: {"enabled": name in families} for name in FAMILIES}
    if families:
        found[families[0]] |= changes
    return found


def edited(rows: Documents, text: str = "Then Zed Vex came to Krait Hall.", name: str = "doc-0007") -> Documents:
    """The documents with a sentence more in one of them."""
    title, before = rows[name]
    return {**rows, name: (title, f"{before} {text}")}


def outputs_of(store: FolderStore, digest: str) -> Outputs:
    """The outputs of all parts that a version was made of."""
    return {(entry.stage, entry.shard): entry.outputs for entry in lineage.read(store, digest).entries}


class Index:
    """A store, and how it is built. settings: sections that differ from those of every test.

    at: the section that the changes of one build are of, by dots, if they are not of the whole configuration.
    """

    def __init__(self, root: Path, at: str = "", **settings: Any) -> None:
        self.root, self.at, self.sections = root, at, settings

    def beside(self, name: str = "fresh") -> Index:
        """Another store of the same settings."""
        return Index(self.root.parent / name, self.at, **self.sections)

    def settings(self, rows: Documents, **changes: Any) -> dict[str, Any]:
        """The settings of a build of some documents, fit to be sent as JSON; writes the corpus."""
        corpus = write_corpus(self.root.parent / f"{self.root.name}.jsonl", rows)
        path = [name for name in self.at.split(".") if name]
        nested: dict[str, Any] = reduce(lambda inner, name: {name: inner}, reversed(path), changes)
        return settings(self.root, corpus, **merged(self.sections, nested))

    def configuration(self, rows: Documents, **changes: Any) -> Configuration:
        return Configuration.model_validate(self.settings(rows, **changes))

    def build(self, rows: Documents, *, cold: bool = False, **changes: Any) -> Outcome:
        """The next version, or none; documents may be far fewer than before."""
        chosen = self.configuration(rows, **changes)
        return run_build(chosen, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True, cold=cold)

    def backfill(self, rows: Documents, **changes: Any) -> Outcome:
        """Build it shard by shard."""
        return backfill_inline(self.configuration(rows, **changes), progress=Silent(), waves=Waves(shards=1))

    def plan(self, rows: Documents, **changes: Any) -> Plan:
        return make_plan(self.configuration(rows, **changes), progress=Silent())

    # What the newest version holds.

    def snapshot(self) -> Snapshot:
        return indexmill.open(self.root)

    def store(self) -> FolderStore:
        return open_store(self.root)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.snapshot() as snapshot:
            found: list[dict[str, Any]] = snapshot.table(table).to_pylist()
        return found

    def outputs(self) -> Outputs:
        with self.snapshot() as snapshot:
            return outputs_of(self.store(), snapshot.manifest.lineage)

    def labels(self, *stages: str) -> set[str]:
        """The labels of the parts of some stages."""
        return {label for stage, label in self.outputs() if stage in stages}

    def vectors(self, stage: str, name: str, letter: str) -> np.ndarray:
        """The vectors of a private pack, all shards or groups whose label begins with a letter."""
        parts = sorted(self.outputs().items())
        digests = [outputs[name] for (of, label), outputs in parts if of == stage and label.startswith(letter)]
        return np.concatenate([open_pack(self.store().open_local(one))["vectors"] for one in digests])

    def artifacts(self) -> set[str]:
        """The names of artifacts, without their shards."""
        with self.snapshot() as snapshot:
            return {one.name.partition("/")[0] for one in snapshot.manifest.artifacts}

    def family(self, name: str) -> Any:
        """What the manifest says of a family."""
        with self.snapshot() as snapshot:
            return snapshot.manifest.families[name]

    def counts(self, outcome: Outcome, stage: str) -> dict[str, int]:
        """What a run's report counts of a stage."""
        end = runs.read_run(self.store(), outcome.run).end
        assert end is not None
        found: Any = end.report["stages"]
        return found.get(stage, {})  # type: ignore[no-any-return]


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with others laid over them, section by section."""
    found = dict(below)
    for name, value in above.items():
        held = found.get(name)
        found[name] = merged(held, value) if isinstance(held, dict) and isinstance(value, dict) else value
    return found
