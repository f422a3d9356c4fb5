"""Copies from which a store can be repaired: another store, an exported snapshot, the cache of a bucket's blobs.

A blob is identified and verified by its digest, so a copy may itself be damaged, or be a copy of another store. A
record has no digest, so it is taken only from a copy of the same store: all records readable in both are equal, and
both contain the run that the record names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from indexmill.errors import BadInput, CorruptBlob, StoreError
from indexmill.store.bucket import is_bucket
from indexmill.store.exported import MANIFEST_FILE, ExportedFolder, is_exported
from indexmill.store.files import Files, files_at
from indexmill.store.folder_files import hash_file
from indexmill.store.layout import (
    BRANCH,
    EXPORTS,
    HOLDS,
    REMOVALS,
    STORE_FILE,
    TOMBSTONES,
    alias_prefix,
    number_of,
    ref_prefix,
    run_name,
)
from indexmill.store.manifest import Alias, Hold, Ref, Removal
from indexmill.store.record import Record
from indexmill.store.regular_files import BLOB_BYTES
from storage.exports import Export

_KINDS: Mapping[str, type[Removal | Alias | Hold | Export]] = {
    REMOVALS: Removal,
    alias_prefix(): Alias,
    HOLDS: Hold,
    EXPORTS: Export,
}
"""The records that a repair restores, besides refs."""


class Copy:
    """A source of blobs and records of a store."""

    def __init__(self, where: str, blob: Callable[[str], Path | None], files: Files | None = None) -> None:
        """Create a copy. where: its name in messages. blob: returns a digest's verified file. files: for records."""
        self.files = files
        self._where, self._blob = where, blob

    def __str__(self) -> str:
        return self._where

    def blob(self, digest: str) -> Path | None:
        """Return a verified file with the bytes of a blob; None if the copy has none."""
        with contextlib.suppress(CorruptBlob, OSError):
            return self._blob(digest)
        return None

    def record(self, store: Files, name: str) -> bytes | None:
        """Return the bytes of a record of a store; None if this is not a copy of that store or lacks the record."""
        if self.files is None or not _is_copy(self.files, store):
            return None
        try:
            if name == STORE_FILE:
                self.files.check()
            else:
                record = read_record(self.files, name)
                run_id = getattr(record, "run_id", None)
                if run_id is not None:
                    start = run_name(run_id, "start")
                    if self.files.read(start, BLOB_BYTES) != store.read(start, BLOB_BYTES):
                        return None
            return self.files.read(name, BLOB_BYTES)
        except StoreError:
            return None


def _is_copy(copy: Files, store: Files) -> bool:
    """Return True if `copy` is a copy of the store with all its tombstones."""
    if not set(store.names(TOMBSTONES)) <= set(copy.names(TOMBSTONES)):
        return False
    same = 0
    for name in record_names(store):
        with contextlib.suppress(StoreError):
            if read_record(store, name) != read_record(copy, name):
                return False
            same += 1
    return same > 0


def open_copy(where: Path | str) -> Copy:
    """Open the store at a path or URL, or the exported snapshot at a path.

    Raises BadInput if it is neither, CorruptBlob or UnsupportedFormat if an export's manifest cannot be read.
    """
    if not is_bucket(where) and is_exported(path := Path(where).absolute()):
        exported = ExportedFolder(path)
        paths = {artifact.digest: exported.path_of(artifact) for artifact in exported.manifest.artifacts}
        paths[exported.digest] = path / MANIFEST_FILE

        def verified_file(digest: str) -> Path | None:
            file = paths.get(digest)
            return file if file is not None and hash_file(file)[0] == digest else None

        return Copy(str(path), verified_file)
    files = files_at(where)
    # A copy may lack the record that marks a folder or bucket as a store.
    if files.names(ref_prefix(BRANCH)) if is_bucket(where) else (Path(where) / "blobs" / "sha256").is_dir():
        return Copy(files.url, files.blob, files)
    raise BadInput(f"{files.url} is neither a store nor an exported snapshot: give a copy of either")


def record_names(files: Files) -> Iterator[str]:
    """Yield the sorted names of the records that a repair restores, including those of missing versions."""
    versions = [number for number in map(number_of, files.names(ref_prefix(BRANCH))) if number is not None]
    refs = {f"{ref_prefix(BRANCH)}{number:020d}.json" for number in range(1, max(versions, default=0) + 1)}
    others = (name for prefix in _KINDS for name in files.names(prefix))
    yield from sorted(refs.union(name for name in others if number_of(name) is not None))


def read_record(files: Files, name: str) -> Record:
    """Read a record of a version, alias, hold or export; NotFound, or CorruptBlob if it is damaged or misnamed."""
    kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), Ref)
    record = kind.from_bytes(files.read(name, BLOB_BYTES), f"{files.url}/{name}")
    number = record.version if isinstance(record, Ref | Removal) else record.number
    if number != number_of(name) or (isinstance(record, Alias) and record.alias != name.split("/")[-2]):
        raise CorruptBlob(f"{files.url}/{name} contains the record of another name")
    return record
