"""The differences between a snapshot and its planned successor: documents, and settings or other mappings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from indexmill.store.canonical import content_id


@dataclass(frozen=True, slots=True)
class DocumentChanges:
    """The numbers of documents that are new, changed, removed, moved (new id, same content) and unchanged."""

    added: int = 0
    changed: int = 0
    removed: int = 0
    moved: int = 0
    unchanged: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A changed value. name: its dotted name. was, now: None if the value does not exist."""

    name: str
    was: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.name} ({self.was}, now {self.now})"


def changed(was: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[Change]:
    """List the values that differ between two nested mappings, by name."""
    changes: list[Change] = []
    for name in sorted({*was, *now}):
        before, after = was.get(name), now.get(name)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += changed(before, after, f"{prefix}{name}.")
        elif before != after:
            changes.append(Change(prefix + name, before, after))
    return changes


def document_changes(before: Iterable[pa.Table], now: Iterable[pa.Table], untouched: int) -> DocumentChanges:
    """Compare documents (`schemas.tables.DOCUMENTS`) of changed shards.

    untouched: the number of documents in the other shards. A new document counts as moved if a document with the same
    title, text and metadata was removed, for example by a rename.
    """
    old, new = _contents(before), _contents(now)
    removed = Counter(body for identity, (_, body) in old.items() if identity not in new)
    added = Counter(body for identity, (_, body) in new.items() if identity not in old)
    moved = (removed & added).total()
    both = old.keys() & new.keys()
    edited = sum(old[identity][0] != new[identity][0] for identity in both)
    return DocumentChanges(
        added=added.total() - moved,
        changed=edited,
        removed=removed.total() - moved,
        moved=moved,
        unchanged=untouched + len(both) - edited,
    )


def _contents(tables: Iterable[pa.Table]) -> dict[str, tuple[str, str]]:
    """Return the content hash and a hash of the body, by document id."""
    names = ("document_id", "content_hash", "title", "text", "metadata")
    return {
        identity: (content_hash, content_id("body", *body))
        for table in tables
        for identity, content_hash, *body in zip(*(table.column(name).to_pylist() for name in names), strict=True)
    }
