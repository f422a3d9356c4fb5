"""Copies from which a store can be repaired: another store's folder, an exported snapshot.

A blob is found by its digest and verified by its bytes, so a copy may itself be damaged, or be of another store. A
record has no digest. It is taken only from a copy of the same store: records that can be read in both are the same,
and the run that the record names is on record in both.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from indexmill.errors import BadInput, CorruptBlob, StoreError
from indexmill.store.exported import MANIFEST_FILE, ExportedFolder, is_exported
from indexmill.store.folder import check_store, read_name
from indexmill.store.layout import (
    BRANCH,
    STORE_FILE,
    alias_prefix,
    blob_path,
    export_prefix,
    hold_prefix,
    number_of,
    ref_prefix,
    removal_prefix,
    run_name,
    tombstone_prefix,
)
from indexmill.store.manifest import Alias, Hold, Record, Ref, Removal
from storage.exports import Export

__all__ = ["Copy", "open_copy", "read_record", "record_names"]


class Copy:
    """A folder that may hold blobs and records of a store. files: the blobs of an export, which is no store."""

    def __init__(self, path: Path, files: Mapping[str, Path] | None = None) -> None:
        self.path = path
        self._files = files

    def __str__(self) -> str:
        return str(self.path)

    def blob(self, digest: str) -> Path | None:
        """The file that should hold a blob, not verified; None if there is none."""
        path = self.path / blob_path(digest) if self._files is None else self._files.get(digest)
        return path if path is not None and path.is_file() else None

    def record(self, root: Path, name: str) -> bytes | None:
        """The bytes of a record of the store at a root; None if this is no copy of that store or lacks the record."""
        if self._files is not None or not self._is_of(root):
            return None
        if name == STORE_FILE:
            with contextlib.suppress(StoreError):
                check_store(self.path)
                return read_name(self.path, name)
            return None
        try:
            found = read_record(self.path, name)
            run_id = getattr(found, "run_id", None)
            if run_id is not None:
                start = run_name(run_id, "start")
                if read_name(self.path, start) != read_name(root, start):
                    return None
            return read_name(self.path, name)
        except StoreError:
            return None

    def _is_of(self, root: Path) -> bool:
        """True if this is a copy of the store at a root and holds all tombstones of that store."""
        tombstones = (path.name for path in (root / tombstone_prefix()).glob("*.json"))
        if not all((self.path / tombstone_prefix() / name).exists() for name in tombstones):
            return False
        same = 0
        for name in record_names(root):
            with contextlib.suppress(StoreError):
                if read_record(root, name) != read_record(self.path, name):
                    return False
                same += 1
        return same > 0


def open_copy(path: Path) -> Copy:
    """The store's folder or exported snapshot at a path.

    Raises BadInput where it is neither, CorruptBlob or UnsupportedFormat where an export's manifest cannot be read.
    """
    path = path.absolute()
    if is_exported(path):
        exported = ExportedFolder(path)
        files = {artifact.digest: exported.path_of(artifact) for artifact in exported.manifest.artifacts}
        return Copy(path, {exported.digest: path / MANIFEST_FILE, **files})
    if (path / "blobs" / "sha256").is_dir():
        return Copy(path)
    raise BadInput(f"{path} is neither a store nor an exported snapshot: give the folder of a copy of either")


def record_names(root: Path) -> Iterator[str]:
    """The sorted names of the records that a repair restores, including those of missing versions."""
    versions = [number for number in map(number_of, _names(root, ref_prefix(BRANCH))) if number is not None]
    refs = {f"{ref_prefix(BRANCH)}{number:020d}.json" for number in range(1, max(versions, default=0) + 1)}
    prefixes = (removal_prefix(), alias_prefix(), hold_prefix(), export_prefix())
    others = (name for prefix in prefixes for name in _names(root, prefix))
    yield from sorted(refs.union(name for name in others if number_of(name) is not None))


def _names(root: Path, prefix: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in (root / prefix).rglob("*.json") if path.name[0] != "."]


def read_record(root: Path, name: str) -> Record:
    """A record of a version, an alias, the hold or an export.

    Raises NotFound where it is missing, CorruptBlob where it cannot be read or is not the one that its name says.
    """
    kinds: dict[str, type[Ref | Removal | Alias | Hold | Export]] = {
        removal_prefix(): Removal,
        alias_prefix(): Alias,
        hold_prefix(): Hold,
        export_prefix(): Export,
        ref_prefix(BRANCH): Ref,
    }
    kind = next(kind for prefix, kind in kinds.items() if name.startswith(prefix))
    found = kind.from_bytes(read_name(root, name), str(root / name))
    number = found.version if isinstance(found, Ref | Removal) else found.number
    if number != number_of(name) or (isinstance(found, Alias) and found.alias != name.split("/")[-2]):
        raise CorruptBlob(f"{root / name} holds the record of another name")
    return found
