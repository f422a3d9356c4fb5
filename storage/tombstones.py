"""Tombstones: the documents that a store must forget.

    tombstones/<SHA-256 of the id>.json

Ids themselves are not stored. A tombstone is created once and never removed: builds of a corpus that still contains the
document, and imports, skip it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from indexmill.store.canonical import digest_of
from indexmill.store.layout import TOMBSTONES, tombstone_name
from indexmill.store.record import Digest, Record, Timestamp, Word
from storage.protocol import Store
from storage.records import get_record

_SHOWN = 300
_WORD = re.compile(r'"([^"]*)"|([^\s"\',;:{}\[\]()]+)')


class Tombstone(Record):
    """One forgotten document."""

    document: Digest
    """The SHA-256 of its id."""
    shown: Digest
    """The SHA-256 of its id as a quarantine shows it, which cuts long ids."""
    derived: Annotated[tuple[Digest, ...], Field(strict=False)] = ()
    """The SHA-256 of the ids of its passages and of texts that models made from them, as far as known. Answers
    about them are not imported again."""
    run_id: Word
    created: Timestamp


@dataclass(frozen=True)
class Forgotten:
    """The documents that a store must forget."""

    tombstones: tuple[Tombstone, ...] = ()

    def __contains__(self, document_id: str) -> bool:
        return bool(self.tombstones) and bytes.fromhex(document_digest(document_id)) in self.id_hashes

    @cached_property
    def id_hashes(self) -> frozenset[bytes]:
        return frozenset(bytes.fromhex(tombstone.document) for tombstone in self.tombstones)

    def names(self, ids: Iterable[str]) -> bool:
        """Return True if an id belongs to a forgotten document, one of its passages, or a text made from them."""
        return bool(self.tombstones) and any(document_digest(name) in self._digests for name in ids)

    @cached_property
    def _digests(self) -> frozenset[str]:
        return frozenset(digest for tombstone in self.tombstones for digest in (tombstone.document, *tombstone.derived))

    def without(self, quarantine: pa.Table) -> pa.Table:
        """Return the rows of a quarantine (schema QUARANTINE) that name no forgotten document, compared by hash."""
        if not self.tombstones:
            return quarantine
        hidden = {digest for tombstone in self.tombstones for digest in (tombstone.shown, tombstone.document)}
        columns = (quarantine.column(name).to_pylist() for name in ("document_id", "file", "detail"))
        named = (
            any(document_digest(word) in hidden for word in (document_id or "", file, *_words(detail)))
            for document_id, file, detail in zip(*columns, strict=True)
        )
        return quarantine.filter(pa.array([not is_named for is_named in named], pa.bool_()))


def _words(detail: str) -> set[str]:
    """Return the possible ids in the detail of a refusal, which quotes the beginning of an invalid row."""
    return {quoted or word for quoted, word in _WORD.findall(detail)}


def document_digest(document_id: str) -> str:
    """Return the SHA-256 of a document id, used where the id must not appear."""
    return digest_of(document_id.encode("utf-8"))


def shown(document_id: str) -> str:
    """Return the id as a quarantine shows it: see `tasks.stages.ingest.documents.clip`."""
    return document_id if len(document_id) <= _SHOWN else document_id[: _SHOWN - 3] + "..."


def put(
    store: Store,
    document_ids: Iterable[str],
    *,
    run_id: str,
    created: str,
    derived: Mapping[str, Collection[str]] | None = None,
) -> int:
    """Create a tombstone for every document; returns the number of new ones.

    derived: by document, the SHA-256 of the ids of its passages and of texts made from them, as far as known.
    """
    new = 0
    for document_id in document_ids:
        tombstone = Tombstone(
            document=document_digest(document_id),
            shown=document_digest(shown(document_id)),
            derived=tuple(sorted((derived or {}).get(document_id, ()))),
            run_id=run_id,
            created=created,
        )
        new += store.create(tombstone_name(tombstone.document), tombstone.to_bytes())
    return new


def forgotten(store: Store) -> Forgotten:
    """Return the forgotten documents; CorruptBlob if a tombstone cannot be read."""
    names = store.list(TOMBSTONES)
    return Forgotten(tuple(get_record(store, name, Tombstone) for name in names))
