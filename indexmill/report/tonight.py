"""What the run of a version did: what it changed, how good the result is, what it cost, and what went wrong."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from indexmill.diff import Difference, compare
from indexmill.errors import CorruptBlob, SnapshotNotFound
from indexmill.opening import open_snapshot
from indexmill.report.documents import Described, described, only_in
from indexmill.report.run_reading import read_run
from indexmill.report.run_record import RunRecord
from indexmill.retrieve.registry import METHODS
from indexmill.snapshot import Snapshot
from indexmill.store.reader import StoreReader
from indexmill.store.tables import row_groups

LISTED = 10
"""The most documents of each kind that are listed."""
NAMES = 12
"""The most entities that are named of those that came, and of those that went."""


@dataclass(frozen=True, slots=True)
class Document:
    """A document that came or went: its characters in the version that has it, None if they are not known."""

    id: str
    title: str
    characters: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A document whose content changed, and the characters of its text before and after."""

    id: str
    title: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A document under another id, its content unchanged."""

    before: str
    after: str
    title: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed from one version to another. The lists hold the largest changes, and are complete only if short.

    new_bytes: of the newer version's files that the older one lacks. rows: came and went, by table.
    """

    version: int
    added: int
    changed: int
    moved: int
    removed: int
    unchanged: int
    passages_added: int
    passages_removed: int
    entities_added: int
    entities_removed: int
    new_bytes: int
    rows: Mapping[str, tuple[int, int]]
    added_documents: tuple[Document, ...]
    changed_documents: tuple[Changed, ...]
    moved_documents: tuple[Moved, ...]
    removed_documents: tuple[Document, ...]
    entities_came: tuple[str, ...]
    entities_went: tuple[str, ...]

    @property
    def any(self) -> bool:
        """True if a document came, changed, moved or went."""
        return bool(self.added or self.changed or self.moved or self.removed)


@dataclass(frozen=True, slots=True)
class Tonight:
    """The run of a version. changes: None, and ``unknown`` says why, if there is nothing to compare with.

    run: None, and ``no_run`` says why, if there is no record. titles: of the documents that missed questions name.
    """

    changes: Changes | None
    unknown: str
    run: RunRecord | None
    no_run: str
    titles: Mapping[str, str]


def tonight(store: StoreReader | None, snapshot: Snapshot) -> Tonight:
    """The run of an opened version; store: None for an exported folder. Raises CorruptBlob."""
    if store is None or snapshot.ref is None:
        return Tonight(None, "An exported folder holds one version and no other.", None, "It has no run records.", {})
    run, why = read_run(store, snapshot.ref.run_id)
    changes, unknown = _changes(store, snapshot, run)
    return Tonight(changes, unknown, run, why, _titles(snapshot, run))


def _changes(store: StoreReader, snapshot: Snapshot, run: RunRecord | None) -> tuple[Changes | None, str]:
    """What changed since the version that the run began with."""
    before = None if snapshot.ref is None else snapshot.ref.parent
    if run is not None and run.parent is not None:
        before = run.parent
    if before is None:
        return None, "It is the first version: every document is new."
    try:
        with open_snapshot(store.url, version=before) as older:
            return changes_of(compare(older, snapshot, names=NAMES), before), ""
    except (SnapshotNotFound, CorruptBlob) as error:
        gone = isinstance(error, SnapshotNotFound)
        if not gone:
            _check_tables(snapshot)
        what = "is no longer in the store" if gone else "cannot be read"
        return None, f"Version {before}, from which it was built, {what}, so what changed cannot be told."


def _check_tables(snapshot: Snapshot) -> None:
    """Read what versions are compared by. Raises CorruptBlob: then this version is damaged."""
    of_families = (name for family in METHODS.values() for name in family.tables)
    for name in ("documents", "passages", "entities", *of_families):
        for shard in snapshot.shards(name):
            for _ in row_groups(snapshot.file(shard.name), shard):
                pass


def changes_of(found: Difference, version: int) -> Changes:
    """What changed from one snapshot to another, with titles and lengths. version: the older. Raises CorruptBlob."""
    older, newer, documents = found.a, found.b, found.documents
    left, right = only_in(older, newer), only_in(newer, older)
    before = described(older, {*documents.changed.to_pylist(), *documents.removed.to_pylist()}, left, lengths=True)
    after = described(newer, {*documents.changed.to_pylist(), *documents.added.to_pylist()}, right, lengths=True)
    moved = list(zip(documents.moved_from.to_pylist(), documents.moved_to.to_pylist(), strict=True))[:LISTED]
    titles = described(newer, [there for _, there in moved], right)
    return Changes(
        version=version,
        added=len(documents.added),
        changed=len(documents.changed),
        moved=len(documents.moved_to),
        removed=len(documents.removed),
        unchanged=documents.unchanged,
        passages_added=found.passages_added,
        passages_removed=found.passages_removed,
        entities_added=found.entities.added,
        entities_removed=found.entities.removed,
        new_bytes=found.bytes.new,
        rows=_rows(found),
        added_documents=_largest(documents.added.to_pylist(), after),
        changed_documents=_most_changed(documents.changed.to_pylist(), before, after),
        moved_documents=tuple(
            Moved(here, there, titles[there].title if there in titles else "") for here, there in moved
        ),
        removed_documents=_largest(documents.removed.to_pylist(), before),
        entities_came=found.entities.added_names,
        entities_went=found.entities.removed_names,
    )


def _rows(found: Difference) -> dict[str, tuple[int, int]]:
    return {name: pair for name, pair in sorted(found.rows.items()) if any(pair)}


def _largest(ids: Iterable[str], known: Mapping[str, Described]) -> tuple[Document, ...]:
    """The longest documents, ties by id."""
    some = [Document(one, known[one].title, known[one].characters) for one in ids if one in known]
    return tuple(sorted(some, key=lambda one: (-(one.characters or 0), one.id))[:LISTED])


def _most_changed(
    ids: Iterable[str], before: Mapping[str, Described], after: Mapping[str, Described]
) -> tuple[Changed, ...]:
    """The documents whose length changed most, ties by id."""
    some = [
        Changed(one, after[one].title, before[one].characters or 0, after[one].characters or 0)
        for one in ids
        if one in before and one in after
    ]
    return tuple(sorted(some, key=lambda one: (-abs(one.after - one.before), one.id))[:LISTED])


def _titles(snapshot: Snapshot, run: RunRecord | None) -> dict[str, str]:
    """The titles of the documents that the missed questions name, where the snapshot has them."""
    missed = () if run is None or run.quality is None else run.quality.missed
    ids = {one for question in missed for one in (*question.missed, *question.found)}
    return {} if not ids else {one: it.title for one, it in sorted(described(snapshot, ids).items()) if it.title}
