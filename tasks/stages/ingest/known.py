"""What the previous version read: its files, so that unchanged files are not opened again, and their rows.

A file is unchanged if its version token is equal (`SourceFile.token`) and its format is still read in the same way. Its
rows are copied without their texts, which the previous version stores. Tables are divided into buckets by the hash of
the file's name, so that an incremental build rewrites only the buckets that changed.

The table of files also says what became of each listed file (`tasks.stages.ingest.corpus_coverage`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from tasks.stages.ingest.file_counts import COUNTS, FileCounts
from tasks.stages.ingest.formats.format_registry import format_of
from tasks.stages.ingest.source_files import RECORDS, SourceFile
from tasks.stages.ingest.spill_files import CARRIED_ROW, of_files

_READERS_VERSION = 2
"""Increment it whenever a reader of records, text, Markdown or HTML returns different rows for the same bytes."""

_LIBRARIES = {
    "csv": ("chardet", "pyarrow"),
    "markdown": ("chardet", "pyyaml"),
    "mdx": ("chardet", "pyyaml"),
    "parquet": ("pyarrow",),
    "text": ("chardet",),
    "tsv": ("chardet", "pyarrow"),
}
"""The libraries that determine the rows of formats outside the registry."""

_ROWS_PER_BUCKET = 2_000


_LANGUAGE_VERSION = "2"
"""Increment it whenever languages are detected in another way."""

_COUNTS_VERSION = 1
"""Increment it whenever the words of a file are counted in another way."""


class FileIdentity(NamedTuple):
    """A listed file. details: the digest of metadata that its source states; empty if there is none.

    token: empty if the next build must read the file again.
    """

    source: str
    path: str
    name: str
    kind: str
    token: str
    details: str

    @classmethod
    def of(cls, file: SourceFile) -> FileIdentity:
        """Return the identity of a file as it is listed now."""
        details = digest_of(canonical_json(dict(file.details))) if file.details else ""
        return cls(file.source, utf8_name(file.path), file.name, file.kind, file.token, details)


FILES = pa.schema(
    [
        *(pa.field(name, pa.string(), nullable=False) for name in (*FileIdentity._fields, "outcome", "reason")),
        *(pa.field(name, pa.int64(), nullable=False) for name in ("bytes", "documents", "rejected")),
        *COUNTS,
    ]
)
"""What became of each file that a version listed; see `tasks.stages.ingest.corpus_coverage`."""


@dataclass(frozen=True, slots=True)
class KnownFile:
    """A file as a version read it."""

    identity: FileIdentity
    counts: FileCounts

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> KnownFile:
        """Return the file of a row of the schema FILES."""
        return cls(FileIdentity(*(row[name] for name in FileIdentity._fields)), FileCounts.of_row(row))


@dataclass(frozen=True)
class PreviousReading:
    """What the previous version read. documents: the tables' digests, by shard. files: by source and path."""

    store: Store
    record: ReadingRecord
    documents: Mapping[str, str]
    files: Mapping[tuple[str, str], KnownFile]

    def tokens(self, settings: CorpusSettings) -> Mapping[str, Mapping[str, str]]:
        """Return the tokens, by source and path, of files that need not be read again if they have not changed.

        A source may fetch other files while it lists them: a web server does not send an unchanged page again.
        """
        alike = self.read_alike(settings)
        tokens: dict[str, dict[str, str]] = {}
        for (source, path), file in self.files.items():
            if file.identity.kind in alike:
                tokens.setdefault(source, {})[path] = file.identity.token
        return tokens

    def cursor(self, file: SourceFile, settings: CorpusSettings) -> Any:
        """Return a record source's cursor; None if the way of reading records or the source's name has changed."""
        earlier = self.files.get((file.source, file.path))
        follows = earlier is not None and earlier.identity.name == file.name and RECORDS in self.read_alike(settings)
        return self.record.cursors.get(file.source) if follows else None

    def unchanged(self, files: Iterable[SourceFile], settings: CorpusSettings) -> frozenset[str]:
        """Return the names of unchanged files of formats that are still read in the same way."""
        alike = self.read_alike(settings)
        return frozenset(file.name for file in files if file.token and file.kind in alike and self._is_as_before(file))

    def _is_as_before(self, file: SourceFile) -> bool:
        earlier = self.files.get((file.source, utf8_name(file.path)))
        return earlier is not None and earlier.identity == FileIdentity.of(file)

    def read_alike(self, settings: CorpusSettings) -> frozenset[str]:
        """Return the formats that are still read in the same way."""
        return frozenset(kind for kind, then in self.record.formats.items() if then == format_digest(kind, settings))

    def documents_near(self, label: str) -> tuple[str, ...]:
        """Return the previous tables that may share documents with a shard: one label is a prefix of the other."""
        return tuple(
            digest for shard, digest in self.documents.items() if shard.startswith(label) or label.startswith(shard)
        )

    def rows(self, names: Collection[str]) -> pa.Table:
        """Return the rows of some files, as input for `spill.carry`."""
        return of_files(tables_of(self.store, self.record.rows, CARRIED_ROW), names)

    def refused(self, names: Collection[str]) -> pa.Table:
        """Return the rejected rows of some files, schema QUARANTINE."""
        return of_files(tables_of(self.store, self.record.refused, QUARANTINE), names)


def known_of(store: Store, manifest: Manifest) -> PreviousReading | None:
    """Return what a version read; None if the record is missing, or if any blob of the record or documents is missing.

    A damaged blob is removed, so that the next run writes it again.
    """
    tables = manifest.under("documents")
    documents = {table.name.rpartition("/")[2]: table.digest for table in tables}
    try:
        record = find_reading(store, manifest.corpus.fingerprint, also=set(documents.values()))
        if record is None or not _is_whole(store, (*record.files, *record.rows, *record.refused)):
            return None
        listed = tables_of(store, record.files, FILES)
        with_cursor = pc.is_in(listed["source"], pa.array(sorted(record.cursors), pa.string()))
        read = listed.filter(pc.or_(pc.not_equal(listed["token"], ""), with_cursor))
        files = {(row["source"], row["path"]): KnownFile.of_row(row) for row in read.to_pylist()}
        return PreviousReading(store, record, documents, files)
    except StoreError:
        return None


def _is_whole(store: Store, digests: Iterable[str]) -> bool:
    whole = True
    for digest in digests:
        try:
            store.open_local(digest)
        except CorruptBlob:
            store.discard_blob(digest)
            whole = False
    return whole


def format_digest(kind: str, settings: CorpusSettings) -> str:
    """Return the digest of everything, besides the bytes, that determines the rows of a file of a format."""
    registered = format_of(kind)
    ocr = settings.extract.ocr
    versions = library_versions(*_LIBRARIES.get(kind, ())) if registered is None else registered.versions(ocr)
    language = {**library_versions("py3langid"), "language": _LANGUAGE_VERSION}
    shaping: dict[str, Any] = {
        "documents": [f"{field.name}: {field.type}" for field in DOCUMENTS],
        "settings": settings.model_dump(mode="json", exclude={"paths", "sources", "include", "exclude", "formats"}),
        "version": _READERS_VERSION if registered is None else registered.version,
        "counts": _COUNTS_VERSION,
        "libraries": versions | (language if "language" in settings.file_metadata else {}),
        "python": python_version(),
    }
    return digest_of(canonical_json(shaping))


def reading_record(
    store: Store,
    fingerprint: str,
    settings: CorpusSettings,
    files: Sequence[SourceFile],
    coverage: pa.Table,
    rows: pa.Table,
    refused: pa.Table,
    cursors: Mapping[str, Any],
) -> ReadingRecord:
    """Store what a run read from its sources, and return its record.

    files: those whose rows the next build may copy. coverage: what became of each listed file, schema FILES. rows
    (schema CARRIED_ROW), refused (schema QUARANTINE): may include rows of other files, which are dropped.
    """
    names = {file.name for file in files}
    rows, refused = of_files(rows, names), of_files(refused, names)
    return ReadingRecord(
        fingerprint=fingerprint,
        formats={kind: format_digest(kind, settings) for kind in sorted({file.kind for file in files})},
        files=put_tables(store, _buckets(coverage, "name"), FILES),
        rows=put_tables(store, _buckets(rows, "file"), CARRIED_ROW),
        refused=put_tables(store, _buckets(refused, "file"), QUARANTINE),
        cursors={
            file.source: cursors[file.source] for file in files if file.kind == RECORDS and file.source in cursors
        },
    )


def _buckets(table: pa.Table, column: str) -> Iterator[pa.Table]:
    """Divide a table into buckets by the hash of a file's name, in an order that depends only on the rows."""
    bits = max(0, math.ceil(math.log2(max(1, table.num_rows / _ROWS_PER_BUCKET))))
    names = table.column(column).unique()
    places = [int.from_bytes(id_hash(name)[:4], "big") >> (32 - bits) if bits else 0 for name in names.to_pylist()]
    of_row = np.array(places, np.int64)[pc.index_in(table.column(column), names).to_numpy(zero_copy_only=False)]
    sortable = (field.name for field in table.schema if not pa.types.is_nested(field.type) and field.name != column)
    keys = [(column, "ascending"), *((name, "ascending") for name in sortable)]
    for bucket in np.unique(of_row):
        yield table.filter(pa.array(of_row == bucket)).sort_by(keys)
