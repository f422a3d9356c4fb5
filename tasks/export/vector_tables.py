"""Export of a snapshot's texts with their vectors, as Parquet tables that vector databases load.

Every export has the table ``passages``. It has ``entities`` if the snapshot has vectors of names, and the families add
tables of the texts that they wrote. Vectors have unit length and the same dimension, so cosine, inner product and
distance give the same order. The tables are built one shard at a time; repeated exports of a snapshot have the same
rows in the same pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.export.entity_graph import paired, pieces
from indexmill.export.export_tables import DocumentIds, TableOf, vector_table
from indexmill.hits import url_of
from indexmill.retrieve.columns import take_rows
from indexmill.retrieve.directions import unit_vectors
from indexmill.retrieve.locations import place_of
from indexmill.retrieve.metadata import metadata_of
from indexmill.retrieve.method_registry import families_of
from indexmill.retrieve.reader_family import load
from indexmill.store.table_reader import LOCATIONS
from indexmill.text.canonical_names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts
    from indexmill.store.manifest import Manifest

_PASSAGES: Mapping[str, tuple[str, str, pa.DataType]] = {
    "id": ("passages", "passage_id", pa.string()),
    "document_id": ("passages", "document_id", pa.string()),
    "ordinal": ("passages", "ordinal", pa.int32()),
    "title": ("documents", "title", pa.string()),
    "section": ("passages", "section", pa.string()),
    "page": ("documents", "page", pa.int32()),
    "text": ("passages", "text", pa.string()),
    "source": ("documents", "source", pa.string()),
    "url": ("documents", "url", pa.string()),
    "span_start": ("passages", "start", pa.int32()),
    "span_end": ("passages", "end", pa.int32()),
    "tokens": ("passages", "tokens", pa.int32()),
    "metadata": ("documents", "metadata", pa.string()),
}
"""Each column of ``passages``: its source table, source column and type. ``url`` and ``page`` are derived.

Older snapshots have no ``section``; snapshots whose documents have no pages have no ``page``.
"""

_ENTITIES: Mapping[str, tuple[str, pa.DataType]] = {
    "id": ("entity_id", pa.string()),
    "title": ("surface", pa.string()),
    "text": ("name", pa.string()),
    "mentions": ("mentions", pa.int64()),
    "passages": ("passages", pa.int64()),
    "documents": ("documents", pa.int64()),
}
"""Each column of ``entities``: its source column and type. The vectors are those of the names."""


def check(manifest: Manifest, where: object) -> None:
    """Raise FamilyNotFound if a snapshot has no vectors, because its corpus is empty."""
    if not manifest.under("vectors"):
        raise FamilyNotFound(f"{where}: the snapshot has no passages, so it has no vectors to export")


def tables(artifacts: Artifacts) -> Iterator[TableOf]:
    """Yield the tables of texts with vectors. Raises FamilyNotFound without vectors, CorruptBlob for damaged files.

    Every table has ``id``, ``text`` and ``vector``, a list of float32 of the encoder's dimension. Passages name their
    document; other texts name their source documents. Read all pieces of a table before the next table.
    """
    check(artifacts.manifest, artifacts.path)
    length = artifacts.dimensions or 0
    kinds = {name: kind for name, (_, _, kind) in _columns(artifacts).items()}
    yield vector_table("passages", length, kinds, _passages(artifacts))
    if artifacts.shards("names"):
        kinds = {name: kind for name, (_, kind) in _ENTITIES.items()}
        yield vector_table("entities", length, kinds, _entities(artifacts))
    documents = DocumentIds(artifacts)
    for family in families_of(artifacts.manifest):
        for reference in family.vectors.values():
            yield load(reference)(artifacts, documents)


def _columns(artifacts: Artifacts) -> Mapping[str, tuple[str, str, pa.DataType]]:
    """Return the columns of passages, without ``page`` if no document has pages."""
    has_pages = any(shard.has_column(LOCATIONS) for shard in artifacts.shards("documents"))
    return {name: column for name, column in _PASSAGES.items() if has_pages or name != "page"}


def _passages(artifacts: Artifacts) -> Iterator[Mapping[str, Any]]:
    shown = _columns(artifacts)
    columns = {
        table: sorted({column for of, column, _ in shown.values() if of == table} - {"page", "url"})
        for table in ("passages", "documents")
    }
    columns["documents"] += ["document_id", *([LOCATIONS] if "page" in shown else [])]
    shards = paired(artifacts, "passages", columns["passages"], "documents", columns["documents"])
    vectors, first = artifacts.row_vectors("passages"), 0
    for _, passages, documents in shards:
        vector_rows = np.arange(first, first + len(passages))
        first += len(passages)
        rows = pc.index_in(passages["document_id"], documents["document_id"].combine_chunks())
        if rows.null_count:
            raise CorruptBlob(f"{artifacts.path}: 'passages' has passages of unknown documents; build again")
        texts = documents.drop_columns([LOCATIONS]) if "page" in shown else documents
        of_passages = texts.append_column("url", _urls(artifacts, documents)).take(rows)
        if "page" in shown:
            of_passages = of_passages.append_column("page", _pages(artifacts, documents, rows, passages))
        sources = {"passages": passages, "documents": of_passages}
        yield {name: sources[table][column] for name, (table, column, _) in shown.items()} | {
            "vector": take_rows(vectors, vector_rows)
        }


def _urls(artifacts: Artifacts, documents: pa.Table) -> pa.Array:
    """Return the documents' URLs, null for a document without a URL. Raises CorruptBlob for damaged metadata."""
    urls = []
    for metadata, source in zip(documents["metadata"].to_pylist(), documents["source"].to_pylist(), strict=True):
        urls.append(url_of(metadata_of(metadata, artifacts.path), source))
    return pa.array(urls, pa.string())


def _pages(artifacts: Artifacts, documents: pa.Table, rows: pa.ChunkedArray, passages: pa.Table) -> pa.Array:
    """Return the pages on which passages begin, null if unknown. rows: the row of each passage's document."""
    column, where = documents[LOCATIONS].combine_chunks(), artifacts.path
    spans = zip(passages["start"].to_pylist(), passages["end"].to_pylist(), strict=True)
    places = (place_of(column, row, span, where) for row, span in zip(rows.to_pylist(), spans, strict=True))
    return pa.array([None if place is None else place.pages[0] for place in places], pa.int32())


def _entities(artifacts: Artifacts) -> Iterator[Mapping[str, Any]]:
    columns = [column for column, _ in _ENTITIES.values()]
    names = {shard.name.partition("/")[2] for shard in artifacts.shards("names")}
    labels = [shard.name.partition("/")[2] for shard in artifacts.shards("entities")]
    for label, (_, table) in zip(labels, pieces(artifacts, "entities", columns), strict=True):
        if label not in names:
            continue
        arrays = artifacts.arrays(f"names/{label}")
        keys, owners = NameIndex.keys(table["entity_id"].to_pylist()), arrays["entity_keys"]
        rows = np.searchsorted(keys, owners)
        if (rows == len(keys)).any() or (keys[rows] != owners).any():
            raise CorruptBlob(f"{artifacts.path}: 'names/{label}' has entities that 'entities/{label}' lacks")
        named = table.take(pa.array(rows))
        yield {name: named[column] for name, (column, _) in _ENTITIES.items()} | {
            "vector": unit_vectors(arrays["vectors"])
        }
