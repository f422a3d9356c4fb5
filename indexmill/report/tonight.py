"""The run of a version: its changes, quality, cost and problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import indexmill
from indexmill.diff import Difference, compare
from indexmill.errors import CorruptBlob, SnapshotNotFound
from indexmill.report.document_titles import Described, describe, only_in
from indexmill.report.run_reading import read_run
from indexmill.report.run_record import RunRecord
from indexmill.retrieve.method_registry import METHODS
from indexmill.snapshot import Snapshot
from indexmill.store.reader import StoreReader
from indexmill.store.table_reader import row_groups

LISTED = 10
"""The maximum number of documents listed of each kind."""
NAMES = 12
"""The maximum number of entities named as added, and as removed."""


@dataclass(frozen=True, slots=True)
class DocumentSummary:
    """An added or removed document, and its length in characters in the version that has it; None if unknown."""

    id: str
    title: str
    characters: int | None


@dataclass(frozen=True, slots=True)
class Changed:
    """A document whose content changed, and the length of its text in characters before and after."""

    id: str
    title: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Moved:
    """A document whose id changed but whose content did not."""

    before: str
    after: str
    title: str


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes from one version to another; the lists contain the largest changes.

    new_bytes: the size of the newer version's files that the older version lacks. rows: by table, the numbers of added
    and removed rows.
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
    added_documents: tuple[DocumentSummary, ...]
    changed_documents: tuple[Changed, ...]
    moved_documents: tuple[Moved, ...]
    removed_documents: tuple[DocumentSummary, ...]
    entities_came: tuple[str, ...]
    entities_went: tuple[str, ...]

    @property
    def any(self) -> bool:
        """True if a document was added, changed, moved or removed."""
        return bool(self.added or self.changed or self.moved or self.removed)


@dataclass(frozen=True, slots=True)
class Tonight:
    """The run that published a version. changes: None if there is nothing to compare with; ``unknown`` says why.

    run: None if there is no record; ``no_run`` says why. titles: titles by document id, for missed questions.
    """

    changes: Changes | None
    unknown: str
    run: RunRecord | None
    no_run: str
    titles: Mapping[str, str]


def tonight(store: StoreReader | None, snapshot: Snapshot) -> Tonight:
    """Collect facts about the run that published a version. store: None for an exported folder. Raises CorruptBlob."""
    if store is None or snapshot.ref is None:
        return Tonight(None, "An exported folder contains only one version.", None, "It has no run records.", {})
    run, why = read_run(store, snapshot.ref.run_id)
    changes, unknown = _changes(store, snapshot, run)
    return Tonight(changes, unknown, run, why, _titles(snapshot, run))


def _changes(store: StoreReader, snapshot: Snapshot, run: RunRecord | None) -> tuple[Changes | None, str]:
    """Return the changes since the version that the run started from."""
    before = None if snapshot.ref is None else snapshot.ref.parent
    if run is not None and run.parent is not None:
        before = run.parent
    if before is None:
        return None, "It is the first version: every document is new."
    try:
        with indexmill.open(store.url, version=before) as older:
            return changes_of(compare(older, snapshot, names=NAMES), before), ""
    except (SnapshotNotFound, CorruptBlob) as error:
        gone = isinstance(error, SnapshotNotFound)
        if not gone:
            _check_tables(snapshot)
        what = "is no longer in the store" if gone else "cannot be read"
        return None, f"Version {before}, from which it was built, {what}, so the changes are unknown."


def _check_tables(snapshot: Snapshot) -> None:
    """Read all tables that a comparison of versions uses. Raises CorruptBlob if this version is damaged."""
    of_families = (name for family in METHODS.values() for name in family.tables)
    for name in ("documents", "passages", "entities", *of_families):
        for shard in snapshot.shards(name):
            for _ in row_groups(snapshot.file(shard.name), shard):
                pass


def changes_of(difference: Difference, version: int) -> Changes:
    """Describe a difference with titles and lengths. version: the number of the older version. Raises CorruptBlob."""
    older, newer, documents = difference.a, difference.b, difference.documents
    old_shards, new_shards = only_in(older, newer), only_in(newer, older)
    before = describe(older, {*documents.changed.to_pylist(), *documents.removed.to_pylist()}, old_shards, lengths=True)
    after = describe(newer, {*documents.changed.to_pylist(), *documents.added.to_pylist()}, new_shards, lengths=True)
    moved = list(zip(documents.moved_from.to_pylist(), documents.moved_to.to_pylist(), strict=True))[:LISTED]
    titles = describe(newer, [after_id for _, after_id in moved], new_shards)
    return Changes(
        version=version,
        added=len(documents.added),
        changed=len(documents.changed),
        moved=len(documents.moved_to),
        removed=len(documents.removed),
        unchanged=documents.unchanged,
        passages_added=difference.passages_added,
        passages_removed=difference.passages_removed,
        entities_added=difference.entities.added,
        entities_removed=difference.entities.removed,
        new_bytes=difference.bytes.new,
        rows={name: pair for name, pair in sorted(difference.rows.items()) if any(pair)},
        added_documents=_largest(documents.added.to_pylist(), after),
        changed_documents=_most_changed(documents.changed.to_pylist(), before, after),
        moved_documents=tuple(
            Moved(before_id, after_id, titles[after_id].title if after_id in titles else "")
            for before_id, after_id in moved
        ),
        removed_documents=_largest(documents.removed.to_pylist(), before),
        entities_came=difference.entities.added_names,
        entities_went=difference.entities.removed_names,
    )


def _largest(ids: Iterable[str], descriptions: Mapping[str, Described]) -> tuple[DocumentSummary, ...]:
    """Return the longest documents, ties by id."""
    documents = [
        DocumentSummary(document_id, descriptions[document_id].title, descriptions[document_id].characters)
        for document_id in ids
        if document_id in descriptions
    ]
    return tuple(sorted(documents, key=lambda document: (-(document.characters or 0), document.id))[:LISTED])


def _most_changed(
    ids: Iterable[str], before: Mapping[str, Described], after: Mapping[str, Described]
) -> tuple[Changed, ...]:
    """Return the documents whose length changed most, ties by id."""
    documents = [
        Changed(
            document_id,
            after[document_id].title,
            before[document_id].characters or 0,
            after[document_id].characters or 0,
        )
        for document_id in ids
        if document_id in before and document_id in after
    ]
    return tuple(sorted(documents, key=lambda document: (-abs(document.after - document.before), document.id))[:LISTED])


def _titles(snapshot: Snapshot, run: RunRecord | None) -> dict[str, str]:
    missed = () if run is None or run.quality is None else run.quality.missed
    ids = {document_id for question in missed for document_id in (*question.missed, *question.found)}
    return (
        {}
        if not ids
        else {
            document_id: document.title
            for document_id, document in sorted(describe(snapshot, ids).items())
            if document.title
        }
    )
