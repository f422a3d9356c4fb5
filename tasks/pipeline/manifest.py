"""What a build publishes of what its stages made: the artifacts by name, and the manifest of them.

An output is an artifact unless it is private: the input of other stages and of the next build, not of a reader.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from indexmill.store.manifest import Artifact, Corpus, Manifest
from indexmill.store.manifest import Family as Published
from indexmill.store.packs import open_pack
from storage import lineage as lineages
from storage.lineage import Lineage, LineageEntry
from storage.publish import describe as artifact_of
from tasks.core.environment import environment_fingerprint
from tasks.core.part_runner import WHOLE
from tasks.stages.extract import llm as extract_llm
from tasks.stages.extract.tables import EXTRACTION
from tasks.stages.recognise import llm as recognise_llm

if TYPE_CHECKING:
    from tasks.pipeline.build import Build

__all__ = ["artifact_name", "is_private", "manifest_of"]

_TABLES = frozenset(
    {"documents", "passages", "sentences", "mentions", *EXTRACTION, "entities", "surfaces", "summaries"}
    | {"described", "related", "same_as", "communities", "community_members", "attributes", "elements"}
    | {"heterograph/nodes", "heterograph/edges", "heterograph/relations"}
)
"""The artifacts that are tables, by their names or the folders of their shards; the others are arrays or files."""

_PRIVATE = frozenset(
    {
        ("split", "plain"),
        ("resolve", "named"),
        ("resolve", "pieces"),
        ("resolve", "relation_pieces"),
        ("describe", "consolidated"),
        ("describe", "description_vectors"),
        ("describe", "name_vectors"),
        ("recognise", recognise_llm.BY_RULES),
        ("extract", extract_llm.BY_SENTENCES),
        ("community_levels", "community_relations"),
        ("community_levels", "community_sources"),
        ("community_reports", "community_vectors"),
    }
)
_PRIVATE_STAGES = frozenset(
    {"check", "community_clusters", "community_graph", "lsh_axes", "lsh_segments"}
    | {"hetero_first", "hetero_graph", "hetero_groups", "hetero_elements_read"}
)


def is_private(stage: str, label: str, output: str) -> bool:
    """Whether an output is the input of other stages and of the next build, not of a reader."""
    if stage == "zoom_links":
        return (label, output) != ("documents", "zoom_vectors")
    return stage in _PRIVATE_STAGES or (stage, output.split("/")[0]) in _PRIVATE


def artifact_name(stage: str, label: str, output: str) -> str:
    """Where an output stands in the snapshot: `<table>/<shard>`, `<family>/<name>` or `encoder/<file>`."""
    if stage == "zoom_links":
        return "zoom_graph/vectors"
    if stage in ("community_levels", "resolve", "same_as"):
        return output
    return f"{output}/{label}" if label != WHOLE else f"{stage}/{output}"


def _artifacts(build: Build) -> Iterable[Artifact]:
    """What the snapshot publishes; an artifact that the parent has is described as it was there."""
    before = build.parent.manifest.artifacts if build.parent and build.parent.manifest else ()
    described = {artifact.name: artifact for artifact in before}
    for stage, parts in build.parts.items():
        for label, receipt in parts.items():
            for output, digest in receipt.outputs.items():
                if is_private(stage, label, output):
                    continue
                name = artifact_name(stage, label, output)
                known = described.get(name)
                if known is not None and known.digest == digest:
                    yield known
                    continue
                yield artifact_of(build.store, name, _kind(stage, name), digest)


def _kind(stage: str, name: str) -> Literal["table", "arrays", "file"]:
    if name in _TABLES or name.split("/")[0] in _TABLES:
        return "table"
    return "file" if stage == "encoder" else "arrays"


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
                history_dependent=family.history_dependent(build.configuration),
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
            fingerprint=build.corpus_fingerprint,
            documents=build.documents_taken,
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
