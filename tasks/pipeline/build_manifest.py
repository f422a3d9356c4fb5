"""The manifest of a build and its artifacts.

A stage declares which of its outputs are artifacts; the others are private inputs of other stages and of the next run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pyarrow as pa

from indexmill.store.artifact_listing import Artifact
from indexmill.store.layout import READER_VERSION
from indexmill.store.manifest import Corpus, LanguageCounts, Manifest
from indexmill.store.manifest import FamilyRecord as Published
from indexmill.store.packs import Pack, open_pack
from schemas.tables import LANGUAGES
from storage import lineage as lineages
from storage.lineage import Lineage, LineageEntry
from storage.publish import describe as artifact_of
from storage.table_blobs import read_table
from tasks.core.environment import environment_fingerprint
from tasks.pipeline.corpus_run import CorpusRun
from tasks.stages.extract.extraction_tables import EXTRACTION


def _artifacts(run: CorpusRun) -> Iterable[Artifact]:
    """Yield the artifacts of the snapshot; an unchanged artifact reuses its description from the parent."""
    before = run.parent.manifest.artifacts if run.parent and run.parent.manifest else ()
    described = {artifact.name: artifact for artifact in before}
    for stage, parts in run.parts.items():
        for label, receipt in parts.items():
            for output, digest in receipt.outputs.items():
                declared = run.stages[stage].output(output)
                name = declared.artifact_name(label, output)
                if name is None:
                    continue
                earlier = described.get(name)
                if earlier is not None and earlier.digest == digest:
                    yield earlier
                    continue
                yield artifact_of(run.store, name, declared.kind, digest)


def _languages(run: CorpusRun) -> dict[str, LanguageCounts]:
    """Sum the counts of all documents by language."""
    tables = [read_table(run.store, digest, LANGUAGES) for digest in run.outputs("languages").values()]
    names = list(LanguageCounts.model_fields)
    rows = pa.concat_tables([LANGUAGES.empty_table(), *tables]).group_by("language")
    sums = rows.aggregate([(name, "sum") for name in names]).sort_by("language").to_pylist()
    return {row["language"]: LanguageCounts(**{name: row[f"{name}_sum"] for name in names}) for row in sums}


def _families(run: CorpusRun) -> dict[str, Published]:
    settings, store = run.configuration.families, run.store

    @functools.cache
    def shared_packs(name: str) -> list[Pack]:
        return [open_pack(store.open_local(digest)) for digest in run.outputs(name).values()]

    families = {
        name: Published(parameters=dict(getattr(settings, name).parameters), counts={}) for name in ("dense", "fused")
    }
    for family in run.families:
        if not family.artifact or family.name in run.parts:
            parts = run.parts[family.name].values() if family.artifact else ()
            packs = (open_pack(store.open_local(part.outputs[family.artifact])) for part in parts)
            shared = {name: shared_packs(name) for name in family.shared}
            families[family.name] = Published(
                parameters=dict(getattr(settings, family.name).parameters),
                counts=dict(family.counts(*packs, **shared)),
                history_dependent=family.history_dependent,
            )
    return families


def manifest_of(run: CorpusRun) -> Manifest:
    """Return the manifest of the parts: a function of corpus, settings, code and environment alone."""
    artifacts = list(_artifacts(run))
    lineage = Lineage(
        entries=tuple(
            # A receipt names the shard for which the part was first made.
            LineageEntry.of(receipt).model_copy(update={"shard": shard})
            for parts in run.parts.values()
            for shard, receipt in parts.items()
        )
    )
    published = run.configuration.published()
    tables = ["sentences", "mentions", "entities"]
    tables += EXTRACTION if run.configuration.extracts else ()
    tables += ("described", "related") if run.configuration.describes else ()
    return Manifest(
        minimum_reader_version=READER_VERSION,
        corpus=Corpus(
            fingerprint=run.corpus.fingerprint,
            documents=run.corpus.documents,
            passages=sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith("passages/")),
            counts={
                table: sum(artifact.rows or 0 for artifact in artifacts if artifact.name.startswith(table + "/"))
                for table in tables
            },
            languages=_languages(run),
        ),
        configuration=published,
        environment=dict(environment_fingerprint()),
        models=run.fingerprints,
        artifacts=tuple(artifacts),
        families=_families(run),
        lineage=lineages.put(run.store, lineage),
    )
