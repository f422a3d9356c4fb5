"""Complete documents of a snapshot, read by id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from indexmill.errors import BadInput, NotFound
from indexmill.retrieve.artifacts import CacheKey
from indexmill.retrieve.metadata import metadata_of
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    from indexmill.retrieve.rights import Principals
    from indexmill.snapshot import Snapshot

_BY_ID: CacheKey[tuple[TableRows, dict[str, int]]] = CacheKey("documents by id")


class ServedDocument(NamedTuple):
    """A row of the corpus."""

    document_id: str
    title: str
    text: str
    source: str | None
    metadata: dict[str, Any]


def document_of(snapshot: Snapshot, document_id: str, principals: Principals = None) -> ServedDocument:
    """Read a document that the principals may read; raises NotFound. The first call reads the ids of all documents."""
    rows, places = snapshot.once(_BY_ID, lambda: _index(snapshot))
    readable = snapshot.readable_documents(principals)
    row = places.get(document_id)
    if row is None or not (readable is None or readable[row]):
        try:
            document_id.encode("utf-8")
        except UnicodeEncodeError as error:
            raise BadInput(f"document_id is not valid Unicode text (character {error.start})") from error
        raise NotFound(f"there is no document {document_id!r:.200}; hits have ids in document_ids")
    number, place = rows.locate(row)
    title, text, source, metadata = (
        rows.column(number, name)[place].as_py() for name in ("title", "text", "source", "metadata")
    )
    return ServedDocument(document_id, title, text, source, metadata_of(metadata, snapshot.path))


def _index(snapshot: Snapshot) -> tuple[TableRows, dict[str, int]]:
    rows = TableRows(snapshot, "documents", ["document_id"])
    ids = (
        document_id
        for number in range(len(rows.tables))
        for document_id in rows.shard(number)["document_id"].to_pylist()
    )
    return rows, {document_id: row for row, document_id in enumerate(ids)}
