"""Whole-corpus arrays that a reader assembles from a snapshot's shards, cached for other processes and later starts.

A snapshot stores its links and postings shard by shard, so that a version rewrites only changed shards. A reader needs
some of them for the whole corpus. Opening and assembling thousands of blobs takes seconds and private memory; mapping
another process's result takes neither.

    assembled/<SHA-256 of the manifest>/<name>.json     names the cached blob with these arrays

The arrays are stored as a pack among the cache's blobs, and tables as an Arrow file; the cache's bound includes both.
The process that wrote a file checks its digest; others check it only if the file has changed since. No digest of the
snapshot covers these files, so a record is used only if no other user can have written it. A name ends with the number
of its layout, which changes with the code that makes the arrays.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from indexmill.errors import StoreError
from indexmill.store.arrow_file import ArrowFile, write_batches
from indexmill.store.blob_cache import BlobCache
from indexmill.store.folder_files import identity_of, trust_blob
from indexmill.store.layout import blob_path
from indexmill.store.pack_schema import Arrays
from indexmill.store.packs import open_pack, write_pack
from indexmill.store.record import Digest, Record
from indexmill.store.regular_files import RECORD_BYTES, is_own, open_regular

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

_FOLDER = "assembled"
_SHARE = 4
"""The cache's bound divided by this number is the maximum size of one table."""
_EARLIER = 4
"""The number of other snapshots that are searched for shared batches."""
_UNPACKED = 8
"""The assumed ratio of a table's decoded size to its size as Parquet."""


class Assembly(Record):
    """The record of an assembly: the digest and size of its file, and the file's identity when it was verified."""

    digest: Digest
    bytes: int
    file: list[int]


class Assemblies:
    """The assembled arrays of one snapshot. Safe to use from many threads and processes."""

    def __init__(self, cache: BlobCache, manifest: str) -> None:
        """Cache the arrays of one snapshot. manifest: the SHA-256 of the snapshot's manifest."""
        self._cache = cache
        self._folder = cache.folder / _FOLDER / manifest

    def arrays(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return the arrays cached under a name; if there are none, make them and cache them if possible."""
        record = self._record(name)
        cached = self._find(record, open_pack)
        if cached is not None:
            return cached
        arrays = make()
        self._store(record, lambda file: write_pack(file, arrays))
        return self._find(record, open_pack) or arrays

    def batches(
        self,
        name: str,
        packed: int,
        keys: Sequence[str],
        make: Callable[[int], pa.RecordBatch],
        is_local: Callable[[int], bool] = lambda _: True,
    ) -> Sequence[pa.RecordBatch] | None:
        """Return the batches cached under a name, mapped; if there are none, make and cache them.

        packed: the batches' size as Parquet. keys: a key of each batch's inputs; a batch that is cached for another
        snapshot under the same key is copied. make: makes a batch, given its number. is_local: returns True if ``make``
        fetches nothing for a batch. Returns None if the batches cannot be cached: if one would have to be fetched, if
        there is no room, if the cache cannot be written, if batches have different columns, or if ``make`` fails.
        """
        record = self._record(name)
        cached = self._find(record, ArrowFile)
        most = self._cache.most // _SHARE
        if cached is not None or packed * _UNPACKED >= most:
            return cached

        def are_at_hand(available: Collection[str]) -> bool:
            return all(key in available or is_local(number) for number, key in enumerate(keys))

        if not are_at_hand(self._keys_elsewhere(name)):
            return None
        elsewhere = self._batches_elsewhere(name, set(keys), are_at_hand)
        if not are_at_hand(elsewhere):  # a file of another snapshot is damaged
            return None

        def batch_of(number: int) -> pa.RecordBatch:
            file, at = elsewhere.get(keys[number], (None, 0))
            return make(number) if file is None else file[at]

        self._store(record, lambda file: write_batches(file, keys, batch_of, most))
        return self._find(record, ArrowFile)

    def _keys_elsewhere(self, name: str) -> set[str]:
        """Return the keys of other snapshots' batches; verify only files others can write, as verifying is slow."""
        keys: set[str] = set()
        for record in self._others(name):
            assembly = self._read(record)
            if assembly is None:
                continue
            with contextlib.suppress(OSError, StoreError):
                path = self._cache.folder / blob_path(assembly.digest)
                if is_own(path.stat()) or self._cache.find(assembly.digest, assembly.bytes) is not None:
                    keys.update(ArrowFile(path).keys)
        return keys

    def _batches_elsewhere(
        self, name: str, keys: set[str], are_enough: Callable[[Collection[str]], bool]
    ) -> dict[str, tuple[ArrowFile, int]]:
        """Return batches that are cached for other snapshots: by key, the file and the batch's number in it."""
        batches: dict[str, tuple[ArrowFile, int]] = {}
        for file in self._earlier(name, ArrowFile):
            batches |= {key: (file, number) for number, key in enumerate(file.keys) if key in keys}
            if 2 * len(batches) > len(keys) and are_enough(batches):
                break
        return batches

    def earlier(self, name: str) -> Iterator[Arrays]:
        """Return the arrays cached under a name for other snapshots, newest first."""
        return self._earlier(name, open_pack)

    def _earlier(self, name: str, opened: Callable[[Path], T]) -> Iterator[T]:
        """Open the files cached for other snapshots, after verifying them so that no damage is copied."""
        cached = (self._find(record, opened, trust=False) for record in self._others(name))
        return (file for file in cached if file is not None)

    def _others(self, name: str) -> Iterator[Path]:
        """Return the records of other snapshots, newest first."""
        records = []
        for record in self._folder.parent.glob(f"*/{name}.json"):
            with contextlib.suppress(OSError):
                records.append((record.stat().st_mtime_ns, record))
        others = (record for _, record in sorted(records, reverse=True) if record.parent != self._folder)
        return islice(others, _EARLIER)

    def _record(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _find(self, record: Path, opened: Callable[[Path], T], trust: bool = True) -> T | None:
        """Open the cached file a record points to; None if it is missing, damaged or stale.

        trust: False to verify the file even if it is unchanged since it was last verified.
        """
        assembly = self._read(record)
        if assembly is None:
            return None
        try:
            status = (self._cache.folder / blob_path(assembly.digest)).stat()
            is_known = trust and is_own(status) and assembly.file == _file_of(status)
            if is_known:
                trust_blob(self._cache.folder, assembly.digest, identity_of(status))
            path = self._cache.find(assembly.digest, assembly.bytes)
            if path is None:
                return None
            if trust and not is_known:
                with contextlib.suppress(OSError):  # a read-only cache is still usable
                    self._note(record, assembly.digest, assembly.bytes)
            return opened(path)
        except (OSError, StoreError):
            return None

    def _store(self, record: Path, write: Callable[[BinaryIO], object]) -> None:
        with contextlib.suppress(OSError, StoreError):
            digest, size = self._cache.keep(write)
            is_first = not self._folder.exists()
            self._folder.mkdir(parents=True, exist_ok=True)
            self._note(record, digest, size)
            if is_first:
                self._forget_evicted()

    def _note(self, record: Path, digest: str, size: int) -> None:
        """Write the record of a verified file."""
        file = _file_of((self._cache.folder / blob_path(digest)).stat())
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as draft:  # for this user alone
            draft.write(Assembly(digest=digest, bytes=size, file=file).to_bytes())
        Path(draft.name).replace(record)

    def _forget_evicted(self) -> None:
        """Remove this user's records of snapshots whose arrays the cache has evicted."""
        for folder in self._folder.parent.iterdir():
            records = list(folder.glob("*.json"))
            if folder == self._folder or any(self._is_cached(record) for record in records):
                continue
            for record in records:
                record.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # another process is adding to it
                folder.rmdir()

    def _is_cached(self, record: Path) -> bool:
        """Return True if a record is another user's or its blob is cached; does not mark the blob as used."""
        assembly = self._read(record)
        return assembly is None or (self._cache.folder / blob_path(assembly.digest)).exists()

    def _read(self, record: Path) -> Assembly | None:
        """Read a record; None if it is unreadable, or other users can have written it."""
        try:
            with open_regular(record, RECORD_BYTES) as file:
                is_mine = is_own(os.fstat(file.fileno()))
                return Assembly.from_bytes(file.read(), str(record)) if is_mine else None
        except (OSError, StoreError):
            return None


def _file_of(status: os.stat_result) -> list[int]:
    """Return a file's identity in a record, without the device, whose number may change when the machine restarts."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]
