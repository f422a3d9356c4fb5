"""What a build publishes of what its stages made: the artifacts by name, and the manifest of them.

A stage declares which of its outputs are artifacts; the others are private: inputs of other stages and of the next
run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from indexmill.store.manifest import Artifact, Corpus, Manifest
from indexmill.store.manifest import Family as Published
from indexmill.store.packs import open_pack
from storage import lineage as lineages
from storage.lineage import Lineage, LineageEntry
from storage.publish import describe as artifact_of
from tasks.core.environment import environment_fingerprint
from tasks.core.run import Run
from tasks.core.stage import Stage
from tasks.pipeline import corpus
from tasks.stages.extract.tables import EXTRACTION

__all__ = ["manifest_of"]


def _artifacts(run: Run, stages: Mapping[str, Stage[Any]]) -> Iterable[Artifact]:
    """What the snapshot publishes; an artifact that the parent has is described as it was there."""
    before = run.parent.manifest.artifacts if run.parent and run.parent.manifest else ()
    described = {artifact.name: artifact for artifact in before}
    for stage, parts in run.parts.items():
        for label, receipt in parts.items():
            for output, digest in receipt.outputs.items():
                declared = stages[stage].output(output)
                name = declared.artifact_name(label, output)
                if name is None:
                    continue
                known = described.get(name)
                if known is not None and known.digest == digest:
                    yield known
                    continue
                yield artifact_of(run.store, name, declared.kind, digest)


def _families(run: Run) -> dict[str, Published]:
    """The families that were made, with their parameters and counts."""
    settings, store = run.configuration.families, run.store
    families = {
        name: Published(parameters=dict(getattr(settings, name).parameters), counts={}) for name in ("dense", "fused")
    }
    for family in run.families:
        if family.name in run.parts:
            parts = run.parts[family.name].values()
            packs = (open_pack(store.open_local(part.outputs[family.artifact])) for part in parts)
            families[family.name] = Published(
                parameters=dict(getattr(settings, family.name).parameters),
                counts=dict(family.counts(*packs)),
                history_dependent=family.history_dependent,
            )
    return families


def manifest_of(run: Run, stages: Mapping[str, Stage[Any]], read: corpus.Corpus, models: Mapping[str, Any]) -> Manifest:
    """The manifest of what the stages made: a function of corpus, settings, code and environment alone.

    stages: by name, all that the run has driven. models: the fingerprints of those that it used.
    """
    artifacts = list(_artifacts(run, stages))
    settings = run.configuration
    tables = ["sentences", "mentions", "entities"]
    tables += EXTRACTION if settings.extracts else ()
    tables += ("described", "related") if settings.describes else ()
    lineage = Lineage(
        entries=tuple(
            # A receipt names the shard that it was first made for.
            LineageEntry.of(receipt).model_copy(update={"shard": shard})
            for parts in run.parts.values()
            for shard, receipt in parts.items()
        )
    )
    return Manifest(
        corpus=Corpus(
            fingerprint=read.fingerprint,
            documents=read.documents,
            passages=sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith("passages/")),
            counts={
                table: sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith(table + "/"))
                for table in tables
            },
        ),
        configuration=settings.published(),
        environment=dict(environment_fingerprint()),
        models=dict(models),
        artifacts=tuple(artifacts),
        families=_families(run),
        lineage=lineages.put(run.store, lineage),
    )
