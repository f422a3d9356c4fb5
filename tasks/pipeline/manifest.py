"""What a build publishes of what its stages made: the artifacts by name, and the manifest of them.

A stage declares which of its outputs are artifacts; the others are private: inputs of other stages and of the next
build.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from indexmill.store.manifest import Artifact, Corpus, Manifest
from indexmill.store.manifest import Family as Published
from indexmill.store.packs import open_pack
from storage import lineage as lineages
from storage.lineage import Lineage, LineageEntry
from storage.publish import describe as artifact_of
from tasks.core.environment import environment_fingerprint

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["manifest_of"]


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


def _families(build: Build) -> dict[str, Published]:
    """The families that were made, with their parameters and counts."""
    settings, store = build.configuration.families, build.store
    families = {
        name: Published(parameters=dict(getattr(settings, name).parameters), counts={}) for name in ("dense", "fused")
    }
    for family in build.families:
        if family.name in build.parts:
            parts = build.parts[family.name].values()
            packs = (open_pack(store.open_local(part.outputs[family.artifact])) for part in parts)
            families[family.name] = Published(
                parameters=dict(getattr(settings, family.name).parameters),
                counts=dict(family.counts(*packs)),
                history_dependent=family.history_dependent,
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
