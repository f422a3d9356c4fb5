"""What the last version read: its files, unchanged ones of which are not opened again, and the rows it found there.

A file is unchanged if its place says so (`SourceFile.token`) and its format is read today as it was then. Its rows are
taken over without their texts, which the last version has. Tables are cut into buckets by the hash of the file's name,
a function of the set alone, so that a night writes again only the buckets in which something changed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import CorruptBlob, StoreError
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.manifest import Manifest
from indexmill.text.printable import utf8_name
from schemas.corpus import CorpusSettings
from schemas.tables import DOCUMENTS, QUARANTINE
from storage.protocol import Store
from storage.readings import ReadingRecord, find_reading, put_tables, tables_of
from tasks.core.environment import library_versions, python_version
from tasks.core.shards import id_hash
from tasks.stages.ingest.formats.registry import format_of
from tasks.stages.ingest.sources import RECORDS, SourceFile
from tasks.stages.ingest.spill_files import KNOWN

_READERS_VERSION = 1
"""Raised when a reader of records, text, Markdown or HTML makes another row of the same bytes."""

_LIBRARIES = {"html": ("trafilatura", "lxml"), "markdown": ("pyyaml",), "parquet": ("pyarrow",), "csv": ("pyarrow",)}
"""The libraries that shape the rows of formats that are in no registry."""

_ROWS_PER_BUCKET = 2_000

FILES = pa.schema(
    [
        pa.field("source", pa.string(), nullable=False),
        pa.field("path", pa.string(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("token", pa.string(), nullable=False),
        pa.field("details", pa.string(), nullable=False),  # the digest of what is known of it besides its bytes
        pa.field("left_out", pa.bool_(), nullable=False),  # its front matter
    ]
)
"""A file of a reading."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as the last version read it."""

    name: str
    kind: str
    token: str
    details: str
    left_out: bool


@dataclass(frozen=True)
class Known:
    """The reading that belongs to the last version. documents: the digests of that version's tables, by shard."""

    store: Store
    record: ReadingRecord
    documents: Mapping[str, str]

    @cached_property
    def files(self) -> dict[tuple[str, str], KnownFile]:
        """The files by source and path."""
        rows = tables_of(self.store, self.record.files, FILES).to_pylist()
        names = [field.name for field in fields(KnownFile)]
        return {(row["source"], row["path"]): KnownFile(*(row[name] for name in names)) for row in rows}

    def tokens(self, settings: CorpusSettings) -> Mapping[str, Mapping[str, str]]:
        """The tokens by source and path, of files that need not be read again if they have not changed.

        A place may fetch the others while it lists them: a page of the web that has not changed is not sent again.
        """
        alike = self.read_alike(settings)
        found: dict[str, dict[str, str]] = {}
        for (source, path), file in self.files.items():
            if file.kind in alike:
                found.setdefault(source, {})[path] = file.token
        return found

    def cursors(self, settings: CorpusSettings) -> Mapping[str, Any]:
        """Where places of records ended, by their keys; none if records were read in another way then."""
        return self.record.cursors if RECORDS in self.read_alike(settings) else {}

    def follows(self, file: SourceFile) -> bool:
        """True if the rows of a place of records are known under the name that it has now."""
        known = self.files.get((file.source, file.path))
        return known is not None and known.name == file.name

    def unchanged(self, files: Iterable[SourceFile], settings: CorpusSettings) -> frozenset[str]:
        """The names of the files that have not changed, and would be read today as they were then."""
        alike = self.read_alike(settings)
        return frozenset(file.name for file in files if file.kind in alike and self._is_as_before(file))

    def _is_as_before(self, file: SourceFile) -> bool:
        known = self.files.get((file.source, utf8_name(file.path)))
        return (
            known is not None
            and bool(file.token)
            and known == KnownFile(file.name, file.kind, file.token, details_digest(file), known.left_out)
        )

    def read_alike(self, settings: CorpusSettings) -> frozenset[str]:
        """The formats whose files are read today as they were then."""
        return frozenset(kind for kind, then in self.record.formats.items() if then == format_digest(kind, settings))

    def documents_near(self, label: str) -> tuple[str, ...]:
        """The tables that may hold documents of a shard of today: labels are paths in one trie."""
        return tuple(
            digest for other, digest in self.documents.items() if other.startswith(label) or label.startswith(other)
        )

    def rows(self, names: Collection[str]) -> pa.Table:
        """The rows of some files: what `spill.carry` takes."""
        return _of_files(tables_of(self.store, self.record.rows, KNOWN), names)

    def refused(self, names: Collection[str]) -> pa.Table:
        """The refused rows of some files, schema QUARANTINE."""
        return _of_files(tables_of(self.store, self.record.refused, QUARANTINE), names)


def known_of(store: Store, manifest: Manifest) -> Known | None:
    """The reading of a version; None if there is none, or parts of it or of the version's documents are gone.

    A damaged part of it is removed: the next reading writes it anew.
    """
    documents = {one.name.rpartition("/")[2]: one.digest for one in manifest.under("documents")}
    try:
        record = find_reading(store, manifest.corpus.fingerprint, also=set(documents.values()))
        known = None if record is None else Known(store, record, documents)
        if record is None or known is None or not _is_whole(store, (*record.files, *record.rows, *record.refused)):
            return None
        known.files  # noqa: B018 - raises
    except StoreError:
        return None
    return known


def _is_whole(store: Store, digests: Iterable[str]) -> bool:
    whole = True
    for digest in digests:
        try:
            store.open_local(digest)
        except CorruptBlob:
            store.discard_blob(digest)
            whole = False
    return whole


def details_digest(file: SourceFile) -> str:
    """The digest of what becomes metadata of a file's document besides its bytes; empty for nothing."""
    return digest_of(canonical_json(dict(file.details))) if file.details else ""


def format_digest(kind: str, settings: CorpusSettings) -> str:
    """The digest of what, besides its bytes, shapes the rows of a file of a format."""
    known = format_of(kind)
    versions = library_versions(*_LIBRARIES.get(kind, ())) if known is None else known.versions(settings.extract.ocr)
    said: dict[str, Any] = {
        "documents": [f"{field.name}: {field.type}" for field in DOCUMENTS],
        "settings": settings.model_dump(mode="json", exclude={"paths", "sources", "include", "exclude"}),
        "version": _READERS_VERSION if known is None else known.version,
        "libraries": versions | library_versions(*_libraries_for(settings)),
        "python": python_version(),
    }
    return digest_of(canonical_json(said))


def _libraries_for(settings: CorpusSettings) -> tuple[str, ...]:
    """The libraries that shape metadata, whatever the format."""
    return ("py3langid",) if "language" in settings.file_metadata else ()


def reading_record(
    store: Store,
    fingerprint: str,
    settings: CorpusSettings,
    files: Sequence[SourceFile],
    left_out: Collection[str],
    rows: pa.Table,
    refused: pa.Table,
    cursors: Mapping[str, Any],
) -> ReadingRecord:
    """Store what a run read, and return its record.

    files: those that may be taken over; rows (schema KNOWN) and refused (schema QUARANTINE): of any file.
    """
    files = [file for file in files if file.token or file.source in cursors]
    names = {file.name for file in files}
    without = set(left_out)
    table = pa.Table.from_pylist(
        [
            {
                "source": file.source,
                "path": utf8_name(file.path),
                "name": file.name,
                "kind": file.kind,
                "token": file.token,
                "details": details_digest(file),
                "left_out": file.name in without,
            }
            for file in files
        ],
        FILES,
    )
    rows, refused = _of_files(rows, names), _of_files(refused, names)
    return ReadingRecord(
        fingerprint=fingerprint,
        formats={kind: format_digest(kind, settings) for kind in sorted({file.kind for file in files})},
        files=put_tables(store, _buckets(table, "name"), FILES),
        rows=put_tables(store, _buckets(rows, "file"), KNOWN),
        refused=put_tables(store, _buckets(refused, "file"), QUARANTINE),
        cursors={one.source: cursors[one.source] for one in files if one.kind == RECORDS and one.source in cursors},
    )


def _buckets(table: pa.Table, column: str) -> Iterator[pa.Table]:
    """The rows of a table in buckets by the hash of a file's name, in an order that depends on the rows alone."""
    bits = max(0, math.ceil(math.log2(max(1, table.num_rows / _ROWS_PER_BUCKET))))
    names = table.column(column).unique()
    places = [int.from_bytes(id_hash(name)[:4], "big") >> (32 - bits) if bits else 0 for name in names.to_pylist()]
    of_row = np.array(places, np.int64)[pc.index_in(table.column(column), names).to_numpy(zero_copy_only=False)]
    keys = [(column, "ascending"), *((name, "ascending") for name in table.column_names if name != column)]
    for bucket in np.unique(of_row):
        yield table.filter(pa.array(of_row == bucket)).sort_by(keys)


def _of_files(table: pa.Table, names: Collection[str]) -> pa.Table:
    return table.filter(pc.is_in(table.column("file"), pa.array(sorted(names), pa.string())))
