"""An index that a test builds night after night, with the deterministic encoder and small shards."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

import indexmill
from flows.build_run import BuildOutcome, backfill_inline, run_build
from flows.plan import make_plan
from indexmill.snapshot import Snapshot
from indexmill.store.packs import open_pack
from indexmill.text.canonical_names import NameIndex, canonical_name, entity_id
from indexmill.text.terms import term_keys
from schemas.config import Configuration
from storage import lineage, runs
from storage.folder import FolderStore, open_folder
from tasks.core.executor import InlineExecutor
from tasks.core.report import Silent
from tasks.core.shards import id_hash
from tasks.pipeline.backfill import Waves
from tasks.pipeline.build import Build
from tasks.pipeline.plan.plan import Plan
from tests.corpora import Documents, write_corpus
from tests.flows.children import settings

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

    def build(self, rows: Documents, *, cold: bool = False, **changes: Any) -> BuildOutcome:
        """The next version, or none; documents may be far fewer than before."""
        chosen = self.configuration(rows, **changes)
        return run_build(chosen, InlineExecutor(), Build.run, progress=Silent(), allow_shrink=True, cold=cold)

    def backfill(self, rows: Documents, **changes: Any) -> BuildOutcome:
        """Build it shard by shard."""
        return backfill_inline(self.configuration(rows, **changes), progress=Silent(), waves=Waves(shards=1))

    def plan(self, rows: Documents, *, cold: bool = False, **changes: Any) -> Plan:
        """What a build would do, in this process: others take seconds to start."""
        chosen = self.configuration(rows, **changes)
        alone = chosen.model_copy(update={"run": chosen.run.model_copy(update={"workers": 1})})
        return make_plan(alone, progress=Silent(), allow_shrink=True, cold=cold)

    def planned(self, rows: Documents, **changes: Any) -> tuple[Plan, BuildOutcome]:
        """A build, and the plan before it, which says what is made at most, and what for certain."""
        plan, outcome = self.plan(rows, **changes), self.build(rows, **changes)
        assert (plan.publishes, plan.corpus.documents) == (outcome.published, outcome.documents)
        assert outcome.parts_made <= plan.parts.made
        assert (plan.parts.vectors_made, plan.parts.vectors_reused) == (outcome.vectors_made, outcome.vectors_reused)
        for name, stage in plan.stages.items():
            assert stage.certain <= self.counts(outcome, name).get("parts_made", 0) <= stage.made, name
        return plan, outcome

    # What the newest version holds.

    def snapshot(self) -> Snapshot:
        return indexmill.open(self.root)

    def store(self) -> FolderStore:
        return open_folder(self.root)

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

    def counts(self, outcome: BuildOutcome, stage: str) -> dict[str, int]:
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


def traces(snapshot: Snapshot, document_id: str, text: str) -> set[str]:
    """The artifacts that know of a document: its id, its first word, and the name in its third and fourth words."""
    canary, name = text.split()[0], canonical_name(" ".join(text.split()[2:4]))
    words = (canary.lower(), name, entity_id(name), document_id)
    known_terms = term_keys([canary.lower()])
    known_entity = NameIndex.keys([entity_id(name)])
    known_rows = np.append(known_entity, np.frombuffer(id_hash(document_id)[:8], dtype=">u8").astype(np.uint64))
    found = []
    for artifact in snapshot.manifest.artifacts:
        folder = artifact.name.partition("/")[0]
        table = artifact.name if folder == "heterograph" else folder  # whose tables are of several schemas
        if artifact.kind == "table":
            rows = snapshot.table(table)
            texts = [str(value).lower() for name in rows.column_names for value in rows.column(name).to_pylist()]
            if any(word in value for value in texts for word in words):
                found.append(table)
        elif artifact.kind == "arrays":
            arrays = snapshot.arrays(artifact.name)
            names = [("keys", known_terms), ("keys", known_rows), ("entity_keys", known_entity), ("names", known_rows)]
            for key, strange in names:
                if key in arrays and arrays[key].ndim == 1 and np.isin(strange, arrays[key]).any():
                    found.append(folder)
    return set(found)
