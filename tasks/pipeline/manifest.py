"""What a build publishes of what its stages made: the artifacts by name, and the manifest of them.

A stage declares which of its outputs are artifacts; the others are private: inputs of other stages and of the next
build.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from indexmill.store.manifest import Artifact, Corpus, Family, Manifest
from indexmill.store.packs import open_pack
from storage import lineage as lineages
from storage.lineage import Lineage, LineageEntry
from storage.publish import describe as artifact_of
from tasks.core.environment import environment_fingerprint
from tasks.core.part_runner import WHOLE
from tasks.families.bm25 import postings as bm25

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["FAMILIES", "manifest_of"]

FAMILIES = {
    "tri_graph": ("matrices", "tasks.families.tri_graph.matrices"),
    "zoom_graph": ("matrices", "tasks.families.zoom_graph.graph"),
    "lsh_tree": ("tree", "tasks.families.lsh_tree.tree"),
    "community_tree": ("tree", "tasks.families.community_tree.tree"),
    "heterograph": ("graph", "tasks.families.heterograph.index"),
}
"""The families by name, each with an artifact and the module whose `counts` counts it. Modules whose libraries are slow
to import are loaded where a build needs them."""


def _artifacts(build: Build) -> Iterable[Artifact]:
    """What the snapshot publishes; an artifact that the parent has is described as it was there."""
    before = build.parent.manifest.artifacts if build.parent and build.parent.manifest else ()
    described = {artifact.name: artifact for artifact in before}
    for stage, parts in build.parts.items():
        for label, receipt in parts.items():
            for output, digest in receipt.outputs.items():
                declared = build.stages[stage].output(output)
                name = declared.artifact_name(label, output)
                if name is None:
                    continue
                known = described.get(name)
                if known is not None and known.digest == digest:
                    yield known
                    continue
                yield artifact_of(build.store, name, declared.kind, digest)


def _families(build: Build) -> dict[str, Family]:
    """The families that were made, with their parameters and counts."""
    settings, store = build.configuration.families, build.store
    families = {
        name: Family(parameters=dict(getattr(settings, name).parameters), counts={}) for name in ("dense", "fused")
    }
    if "bm25" in build.parts:
        packs = [open_pack(store.open_local(one.outputs["bm25"])) for one in build.parts["bm25"].values()]
        families["bm25"] = Family(parameters=dict(settings.bm25.parameters), counts=bm25.counts(packs))
    for name, (artifact, module) in FAMILIES.items():
        if name in build.parts:
            counted = importlib.import_module(module).counts
            families[name] = Family(
                parameters=dict(getattr(settings, name).parameters),
                counts=counted(open_pack(store.open_local(build.parts[name][WHOLE].outputs[artifact]))),
                history_dependent=build.goes_on_from_before(name),
            )
    return families


def manifest_of(build: Build) -> Manifest:
    """The manifest of what the stages made: a function of corpus, settings, code and environment alone."""
    artifacts = list(_artifacts(build))
    lineage = Lineage(
        entries=tuple(
            # A receipt names the shard that it was first made for.
            LineageEntry.of(receipt).model_copy(update={"shard": shard})
            for parts in build.parts.values()
            for shard, receipt in parts.items()
        )
    )
    return Manifest(
        corpus=Corpus(
            fingerprint=build.corpus.fingerprint,
            documents=build.corpus.documents,
            passages=sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith("passages/")),
            counts={
                table: sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith(table + "/"))
                for table in ("sentences", "mentions", "entities", *build.extraction, *build.descriptions)
            },
        ),
        configuration=build.configuration.published(),
        environment=dict(environment_fingerprint()),
        models=build.models,
        artifacts=tuple(artifacts),
        families=_families(build),
        lineage=lineages.put(build.store, lineage),
    )
