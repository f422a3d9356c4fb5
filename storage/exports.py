"""Exports: snapshots as plain folders outside the store, the ledger as a file, and records of their paths.

    exports/<number>.json

The record is created before the first byte is copied, so every exported file has a record, and a run that removes a
document from the store can name the copies that it cannot reach. A record does not say that the copy still exists or
was ever complete: see the record of its run for the latter.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
from pydantic import Field

from indexmill.errors import CorruptBlob
from indexmill.store import table_reader
from indexmill.store.artifact_listing import Artifact
from indexmill.store.exported import MANIFEST_FILE, exported_name
from indexmill.store.folder_files import BLOB_ADVICE
from indexmill.store.layout import EXPORTS, export_name
from indexmill.store.manifest import Manifest
from indexmill.store.record import Digest, Record, Timestamp, Word
from indexmill.store.regular_files import open_regular
from storage.clock import Clock, timestamp
from storage.faults import fault_point, write_all
from storage.folder import sync_folder
from storage.processes import this_user
from storage.protocol import Store
from storage.records import create_next, get_record, numbered
from storage.table_blobs import writer
from storage.write_errors import writing

_PIECE = 1 << 20
_GROUP_BYTES = 32 << 20


class Export(Record):
    """A copy of a snapshot outside the store, or of the ledger if `version` is None."""

    number: Annotated[int, Field(ge=1)]
    version: Annotated[int, Field(ge=1)] | None
    manifest: Digest | None
    path: str
    """The absolute path of the copy, on the host of `by`; the URL of a copy in another store."""
    form: Word
    """The form of the copy: `snapshot`, a form that other tools read, `copy` in another store, or `ledger`."""
    run_id: Word
    by: str
    created: Timestamp


def record(store: Store, clock: Clock, **fields: Any) -> Export:
    """Record that a snapshot, or the ledger, is about to be copied to a path; safe for concurrent processes.

    fields: the fields of `Export` except the number, the user and the time.
    """
    fields |= {"by": this_user(), "created": timestamp(clock())}
    return create_next(store, EXPORTS, export_name, lambda number: Export(number=number, **fields))


def exports(store: Store) -> list[Export]:
    """Return every export, oldest first. Raises CorruptBlob for a damaged record: its export is unknown."""
    return [get_record(store, name, Export) for name in numbered(store.list(EXPORTS)).values()]


def lay_out(store: Store, manifest: Manifest, folder: Path, copied: Callable[[Artifact], None]) -> None:
    """Copy a snapshot into an empty folder as `indexmill.store.exported` reads it, and sync it.

    The manifest is written last. `copied` is called with every artifact. Raises CorruptBlob for a blob whose bytes do
    not match its digest, DiskFull or StoreNotWritable if the folder cannot be written.
    """
    folders = {folder}
    for artifact in manifest.artifacts:
        path = folder / exported_name(artifact, manifest)
        with writing_export(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        folders.update(path.parents[: len(path.relative_to(folder).parts)])
        try:
            blob = store.open_local(artifact.digest)
        except CorruptBlob as error:
            raise CorruptBlob(f"the artifact {artifact.name!r}: {error}; nothing was exported") from error
        _copy(blob, path, artifact)
        copied(artifact)
    write_file(folder / MANIFEST_FILE, [manifest.to_bytes()])
    for new_folder in sorted(folders):
        with writing_export(new_folder / MANIFEST_FILE):
            sync_folder(new_folder)
    fault_point("exported")


def write_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write and sync a new file. Raises DiskFull or StoreNotWritable if it cannot be written."""
    with writing_export(path), _new_file(path) as descriptor:
        for piece in pieces:
            write_all(descriptor, piece)
        os.fsync(descriptor)


def write_table(path: Path, schema: pa.Schema, pieces: Iterable[pa.Table]) -> None:
    """Write a table in pieces as a new Parquet file, and sync it; the rows and pieces determine its bytes.

    Raises DiskFull or StoreNotWritable if it cannot be written, ValueError for a piece with a different schema.
    """
    with writing_export(path), _new_file(path) as descriptor:
        with writer(_Sink(descriptor), schema) as parquet:
            for group in _groups(pieces):
                parquet.write_table(group, row_group_size=table_reader.ROWS_PER_GROUP)
        os.fsync(descriptor)


def _groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join pieces into tables that have enough rows or bytes for large row groups."""
    pending: list[pa.Table] = []
    for piece in pieces:
        pending.append(piece)
        if (
            sum(map(len, pending)) >= table_reader.ROWS_PER_GROUP
            or sum(table.nbytes for table in pending) >= _GROUP_BYTES
        ):
            yield pa.concat_tables(pending)
            pending = []
    if pending:
        yield pa.concat_tables(pending)


class _Sink(io.RawIOBase):
    """A file-like object that writes through `write_all`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        write_all(self._descriptor, view)
        return len(view)


def _copy(blob: Path, path: Path, artifact: Artifact) -> None:
    """Copy a blob's bytes, hashing what is written."""
    hashed = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        try:
            source = stack.enter_context(open_regular(blob, artifact.bytes))
        except OSError as error:
            raise CorruptBlob(f"{blob}, the artifact {artifact.name!r}, cannot be read: {error.strerror}") from error
        with writing_export(path), _new_file(path) as descriptor:
            while piece := source.read(_PIECE):
                hashed.update(piece)
                write_all(descriptor, piece)
            os.fsync(descriptor)
    if hashed.hexdigest() != artifact.digest:
        raise CorruptBlob(
            f"{blob}, the artifact {artifact.name!r}, is damaged: its SHA-256 is {hashed.hexdigest()}; nothing was "
            f"exported: {BLOB_ADVICE}"
        )


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def writing_export(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turn write errors into a StoreError, as `writing` does, with advice for a user who exports."""
    return writing(
        path,
        full="free some space or export to another disk",
        forbidden="export to a folder that this user may write to",
    )
