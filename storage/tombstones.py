"""Tombstones: the documents that a store must forget.

    tombstones/<SHA-256 of the id>.json

Ids themselves are not stored. A tombstone is never removed: builds of a corpus that still contains the document, and
imports, skip it. Once it is lifted, builds admit documents with this id again, but answers about the forgotten document
still do not return.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from indexmill.errors import NotFound
from indexmill.store.canonical import digest_of
from indexmill.store.layout import TOMBSTONES, tombstone_name
from indexmill.store.record import Digest, Record, Timestamp, Word
from storage.protocol import Store
from storage.records import get_record

_SHOWN = 300
_WORD = re.compile(r'"([^"]*)"|([^\s"\',;:{}\[\]()]+)')
_RUN = re.compile(r"[\w-]+")


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
    lifted: Timestamp | None = None
    """When documents with this id were let in again."""


@dataclass(frozen=True)
class Forgotten:
    """The documents that a store must forget."""

    tombstones: tuple[Tombstone, ...] = ()

    def __contains__(self, document_id: str) -> bool:
        return bool(self.tombstones) and bytes.fromhex(document_digest(document_id)) in self.id_hashes

    @cached_property
    def _in_force(self) -> tuple[Tombstone, ...]:
        return tuple(tombstone for tombstone in self.tombstones if tombstone.lifted is None)

    @cached_property
    def id_hashes(self) -> frozenset[bytes]:
        """The SHA-256 of the ids of documents that builds leave out."""
        return frozenset(bytes.fromhex(tombstone.document) for tombstone in self._in_force)

    def names(self, ids: Iterable[str]) -> bool:
        """Return True if an id belongs to a forgotten document, one of its passages, or a text made from them."""
        return bool(self.tombstones) and any(document_digest(name) in self._digests for name in ids)

    @cached_property
    def _digests(self) -> frozenset[str]:
        derived = (digest for tombstone in self.tombstones for digest in tombstone.derived)
        return frozenset((*derived, *(tombstone.document for tombstone in self._in_force)))

    def is_named_in(self, path: str) -> bool:
        """Return whether a path contains the id of a forgotten document between its words, compared by hash."""
        if not self._hidden:
            return False
        runs = [match.span() for match in _RUN.finditer(path)]
        spans = (path[start:end] for row, (start, _) in enumerate(runs) for _, end in runs[row:])
        return any(document_digest(part) in self._hidden for part in (path, *spans))

    @cached_property
    def _hidden(self) -> frozenset[str]:
        return frozenset(digest for tombstone in self._in_force for digest in (tombstone.shown, tombstone.document))

    def without(self, quarantine: pa.Table) -> pa.Table:
        """Return the rows of a quarantine (schema QUARANTINE) that name no forgotten document, compared by hash."""
        if not self._in_force:
            return quarantine
        columns = (quarantine.column(name).to_pylist() for name in ("document_id", "file", "detail"))
        named = (
            any(document_digest(word) in self._hidden for word in (document_id or "", file, *_words(detail)))
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
    """Create a tombstone for every document, or put a lifted one in force again; returns their number.

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
        name = tombstone_name(tombstone.document)
        if store.create(name, tombstone.to_bytes()):
            new += 1
        elif (earlier := get_record(store, name, Tombstone)).lifted is not None:
            every = tuple(sorted({*earlier.derived, *tombstone.derived}))
            store.replace(name, tombstone.model_copy(update={"derived": every}).to_bytes())
            new += 1
    return new


def lift(store: Store, document_ids: Iterable[str], *, created: str) -> tuple[str, ...]:
    """Let documents with these ids in again; returns the ids that were forgotten."""
    lifted = []
    for document_id in dict.fromkeys(document_ids):
        name = tombstone_name(document_digest(document_id))
        with contextlib.suppress(NotFound):
            tombstone = get_record(store, name, Tombstone)
            if tombstone.lifted is None:
                store.replace(name, tombstone.model_copy(update={"lifted": created}).to_bytes())
                lifted.append(document_id)
    return tuple(lifted)


def forgotten(store: Store) -> Forgotten:
    """Return the forgotten documents; CorruptBlob if a tombstone cannot be read."""
    names = store.list(TOMBSTONES)
    return Forgotten(tuple(get_record(store, name, Tombstone) for name in names))
