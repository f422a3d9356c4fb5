"""The history up to a version: documents, recall, cost, duration and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from indexmill.errors import StoreError
from indexmill.report.inside import total_bytes
from indexmill.report.run_reading import read_run
from indexmill.report.run_record import RunRecord
from indexmill.store.manifest import Manifest, Ref, Removal
from indexmill.store.reader import StoreReader

MOST_VERSIONS = 90
"""The maximum number of versions drawn: the newest up to the reported version."""

_REMOVED = {"gc": "removed by gc", "forgotten": "withdrawn", "incomplete": "withdrawn"}


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """One version. A field is None if the version's manifest or run record is missing or lacks it.

    removed: "", "removed by gc" or "withdrawn". bytes: the size of its files; each file counts once.
    """

    version: int
    created: str
    note: str
    command: str
    aliases: tuple[str, ...]
    removed: str
    documents: int | None
    passages: int | None
    bytes: int | None
    recall: Mapping[str, float]
    k: int | None
    cost: float | None
    seconds: float | None


def history(store: StoreReader, version: int) -> tuple[VersionFacts, ...]:
    """Return the MOST_VERSIONS latest versions up to ``version``, oldest first, omitting any with a damaged ref."""
    aliases, removals = store.aliases(), store.removals()
    versions = []
    for number in [known_version for known_version in store.versions() if known_version <= version][-MOST_VERSIONS:]:
        try:
            ref = store.ref(number)
        except StoreError:
            continue
        run, _ = read_run(store, ref.run_id)
        pointing = tuple(sorted(name for name, target in aliases.items() if target == number))
        versions.append(_facts(ref, _manifest(store, ref, removals), run, pointing, removals.get(number)))
    return tuple(versions)


def _manifest(store: StoreReader, ref: Ref, removals: Mapping[int, Removal]) -> Manifest | None:
    if ref.version in removals:
        return None
    try:
        return store.manifest(ref.manifest)
    except StoreError:
        return None


def _facts(
    ref: Ref, manifest: Manifest | None, run: RunRecord | None, aliases: tuple[str, ...], removal: Removal | None
) -> VersionFacts:
    quality = None if run is None else run.quality
    corpus = None if manifest is None else manifest.corpus
    return VersionFacts(
        version=ref.version,
        created=ref.created,
        note=ref.note,
        command="" if run is None else run.command,
        aliases=aliases,
        removed="" if removal is None else _REMOVED[removal.reason],
        documents=None if corpus is None else corpus.documents,
        passages=None if corpus is None else corpus.passages,
        bytes=None if manifest is None else total_bytes(manifest),
        recall={} if quality is None else quality.recall,
        k=None if quality is None else quality.k,
        cost=None if run is None or not run.stages else round(run.total("cost"), 6),
        seconds=None if run is None else run.seconds,
    )
