"""The files of a spill folder: their names, their schemas, and how they are written and read.

A scan writes Arrow IPC files: `<scan>.documents.<piece>.arrow` for each sixteenth of the id hashes that contains
documents, `<scan>.index.arrow` (the same rows in the same batches, without the texts) and `<scan>.quarantine.arrow`. A
batch is about a megabyte; its rows are in the order of their id hashes. A plan adds `known.arrow`, `winners.arrow` (a
batch per shard) and `refused.arrow`. All names are relative to the spill folder, which may be mounted anywhere.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import DiskFull, StoreError, StoreNotWritable

_INDEX_FIELDS: list[pa.Field[Any]] = [
    pa.field("document_id", pa.string(), nullable=False),
    pa.field("id_hash", pa.binary(32), nullable=False),
    pa.field("content_hash", pa.binary(32), nullable=False),
    pa.field("tokens", pa.int64(), nullable=False),  # estimated
    pa.field("size", pa.int64(), nullable=False),  # bytes of title and text
    pa.field("published", pa.bool_(), nullable=False),  # whether the previous version has this very document
    pa.field("gone", pa.bool_(), nullable=False),  # whether the row only cancels its id's earlier rows
    pa.field("file", pa.string(), nullable=False),
    pa.field("line", pa.int64()),
]
INDEX = pa.schema(_INDEX_FIELDS)
"""The schema of the row that `scan` stores for a document besides the document itself."""

CARRIED_ROW = pa.schema([column for column in _INDEX_FIELDS if column.name not in ("id_hash", "gone")])
"""The schema of the rows that `carry` gets."""

CARRIED_SCAN = "carried"
"""The scan name of the rows copied from the previous version."""

PIECE_BITS = 4
"""The number of leading bits of the id hash that determine a document's piece."""


def piece_of(id_hash: bytes) -> int:
    """Return the piece of the document with this id hash."""
    return id_hash[0] >> 8 - PIECE_BITS


def documents_file(scan: str, piece: int) -> str:
    """Return the name of a piece of a scan's documents."""
    return f"{scan}.documents.{piece:x}.arrow"


def index_file(scan: str) -> str:
    """Return the name of a scan's rows without their texts (schema INDEX)."""
    return f"{scan}.index.arrow"


def quarantine_file(scan: str) -> str:
    """Return the name of a scan's rejected rows (schema QUARANTINE)."""
    return f"{scan}.quarantine.arrow"


def quarantine_row(file: str, line: int | None, document_id: str | None, reason: str, detail: str) -> dict[str, Any]:
    """Return a rejected row, for a table of the schema QUARANTINE."""
    return {"file": file, "line": line, "document_id": document_id, "reason": reason, "detail": detail}


def of_files(table: pa.Table, names: Collection[str]) -> pa.Table:
    """Return the rows of some files in a table with a column `file`."""
    return table.filter(pc.is_in(table.column("file"), pa.array(sorted(names), pa.string())))


def open_spilled(path: Path) -> pa.ipc.RecordBatchFileReader:
    """Map a spill file. Raises StoreError if it is missing or damaged."""
    try:
        return pa.ipc.open_file(pa.memory_map(str(path)))
    except (OSError, pa.ArrowInvalid) as error:
        raise StoreError(f"the spill file {path} cannot be read ({error}): scan and plan again") from error


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[pa.ipc.RecordBatchFileWriter]:
    """Open a writer; its file appears at `path` only when it is complete. Raises DiskFull, StoreNotWritable."""
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
        with os.fdopen(handle, "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
            yield writer
        Path(temporary).replace(path)
    except OSError as error:
        needed = "documents are spilled there: free about the size of the corpus, uncompressed"
        advice = f"{needed}, and run again: nothing is lost, and the next run continues"
        if (full := DiskFull.of(error, path.parent, advice)) is not None:
            raise full from error
        message = f"cannot spill documents to {path.parent}: {error.strerror or error}"
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT):
            raise StoreNotWritable(f"{message}. Grant write permission there") from error
        raise
    finally:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()
