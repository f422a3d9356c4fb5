"""The facts of a report about a version, as plain data, for the page and for ``report --json``."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import indexmill
from indexmill.errors import BadInput
from indexmill.report.comparison import VersionComparison, comparison
from indexmill.report.history import VersionFacts, history
from indexmill.report.inside import Inside, inside
from indexmill.report.tonight import Tonight, tonight
from indexmill.snapshot import Snapshot
from indexmill.store.bucket import place_of
from indexmill.store.canonical import digest_of
from indexmill.store.exported import is_exported
from indexmill.store.reader import StoreReader


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a version. version: its number, or None for an exported folder. rights: the access field, or ""."""

    version: int | None
    manifest: str
    created: str
    note: str
    run: str
    aliases: tuple[str, ...]
    rights: str
    documents: int
    passages: int
    methods: tuple[str, ...]
    history_dependent: tuple[str, ...]
    tonight: Tonight
    history: tuple[VersionFacts, ...]
    inside: Inside
    comparison: VersionComparison | None

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a JSON object."""
        return asdict(self)


def facts_of(
    where: str | os.PathLike[str], version: int | None = None, alias: str | None = None, *, compare: int | None = None
) -> Facts:
    """Collect the facts about a version in a store, or about an exported folder; see ``render_report``."""
    location = place_of(where)
    exported = isinstance(location, Path) and is_exported(location)
    if exported and compare is not None:
        raise BadInput(f"{location}: is an exported folder, which contains no version {compare} to compare with")
    with indexmill.open(where, version=version, alias=alias) as snapshot:
        if compare is not None and compare == snapshot.version:
            raise BadInput(f"--compare {compare}: this is the version of the report; name another version")
        return _facts(snapshot, None if exported else StoreReader(where), compare)


def _facts(snapshot: Snapshot, store: StoreReader | None, compare: int | None) -> Facts:
    manifest, ref, access = snapshot.manifest, snapshot.ref, snapshot.access
    versions = () if store is None or ref is None else history(store, ref.version)
    tonight_facts = tonight(store, snapshot)
    return Facts(
        version=snapshot.version,
        manifest=digest_of(manifest.to_bytes()) if ref is None else ref.manifest,
        created="" if ref is None else ref.created,
        note="" if ref is None else ref.note,
        run="" if ref is None else ref.run_id,
        aliases=versions[-1].aliases if versions and versions[-1].version == snapshot.version else (),
        rights="" if access is None else access.field,
        documents=manifest.corpus.documents,
        passages=manifest.corpus.passages,
        methods=snapshot.methods,
        history_dependent=tuple(sorted(name for name, family in manifest.families.items() if family.history_dependent)),
        tonight=tonight_facts,
        history=versions,
        inside=inside(snapshot),
        comparison=None
        if store is None or compare is None
        else comparison(store, snapshot, compare, tonight_facts.changes),
    )
