"""What a reader assembles of a snapshot's shards, kept in the cache for other processes and for the next start.

A snapshot holds its links and postings shard by shard, so that a version writes again what changed. A reader needs some
of them over the whole corpus. To open thousands of blobs and to put them together takes seconds and memory of its own;
to map what another process has put together takes neither.

    assembled/<SHA-256 of the manifest>/<name>.json     which blob of the cache has these arrays

The arrays are a pack among the cache's blobs, and bounded as all of these are; tables are an Arrow file there. Their
digest is checked by the process that wrote them, and by others only where the file is not the one that it wrote.
No digest of the snapshot covers them: a record counts only if nobody but its user can have written it.
A name ends with the number of its layout, which changes with the code that makes the arrays.
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
from indexmill.store.folder import identity_of, trust_blob
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
"""The part of the cache's bound that one table may take, as a divisor."""
_EARLIER = 4
"""How many other snapshots are looked at for what this one has as well."""
_UNPACKED = 8
"""How many times its bytes as Parquet a table is taken to have, unpacked."""


class Assembly(Record):
    """The record of what was assembled: the digest and the bytes of its file, and which file was verified."""

    digest: Digest
    bytes: int
    file: list[int]


class Assemblies:
    """The assembled arrays of one snapshot. Safe to use from many threads and processes."""

    def __init__(self, cache: BlobCache, manifest: str) -> None:
        """manifest: the SHA-256 of the snapshot's manifest."""
        self._cache = cache
        self._folder = cache.folder / _FOLDER / manifest

    def arrays(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The arrays that are kept under this name, mapped; where none are, those of ``make``, which are kept then.

        A cache that cannot be written keeps nothing, and is no error.
        """
        record = self._record(name)
        kept = self._find(record, open_pack)
        if kept is not None:
            return kept
        made = make()
        self._keep(record, lambda file: write_pack(file, made))
        return self._find(record, open_pack) or made

    def batches(
        self,
        name: str,
        packed: int,
        keys: Sequence[str],
        make: Callable[[int], pa.RecordBatch],
        is_local: Callable[[int], bool] = lambda _: True,
    ) -> Sequence[pa.RecordBatch] | None:
        """The batches that are kept under this name, mapped; where none are, those of ``make``, which are kept then.

        packed: their bytes as Parquet. keys: what each batch is a function of; those that are kept for another snapshot
        are copied from there. is_local: True if ``make`` fetches nothing for a batch. None if they cannot be kept: if
        one would have to be fetched, if there is no room for them, if the cache cannot be written, if they have
        different columns, or if ``make`` fails as the reading of a table does.
        """
        record = self._record(name)
        kept = self._find(record, ArrowFile)
        most = self._cache.most // _SHARE
        if kept is not None or packed * _UNPACKED >= most:
            return kept

        def are_at_hand(known: Collection[str]) -> bool:
            return all(key in known or is_local(number) for number, key in enumerate(keys))

        if not are_at_hand(self._keys_elsewhere(name)):
            return None
        places = self._places(name, set(keys), are_at_hand)
        if not are_at_hand(places):  # a file of another snapshot is damaged
            return None

        def batch_of(number: int) -> pa.RecordBatch:
            file, at = places.get(keys[number], (None, 0))
            return make(number) if file is None else file[at]

        self._keep(record, lambda file: write_batches(file, keys, batch_of, most))
        return self._find(record, ArrowFile)

    def _keys_elsewhere(self, name: str) -> set[str]:
        """The keys that other snapshots have. Only files that others can write are verified, which takes long."""
        found: set[str] = set()
        for record in self._others(name):
            kept = self._read(record)
            if kept is None:
                continue
            with contextlib.suppress(OSError, StoreError):
                path = self._cache.folder / blob_path(kept.digest)
                if is_own(path.stat()) or self._cache.find(kept.digest, kept.bytes) is not None:
                    found.update(ArrowFile(path).keys)
        return found

    def _places(
        self, name: str, wanted: set[str], are_enough: Callable[[Collection[str]], bool]
    ) -> dict[str, tuple[ArrowFile, int]]:
        """Where batches are kept for other snapshots, by their keys: a file, and the number of the batch there."""
        found: dict[str, tuple[ArrowFile, int]] = {}
        for file in self._earlier(name, ArrowFile):
            found |= {key: (file, number) for number, key in enumerate(file.keys) if key in wanted}
            if 2 * len(found) > len(wanted) and are_enough(found):
                break
        return found

    def earlier(self, name: str) -> Iterator[Arrays]:
        """The arrays that are kept under this name for other snapshots, those that were written last first."""
        return self._earlier(name, open_pack)

    def _earlier(self, name: str, opened: Callable[[Path], T]) -> Iterator[T]:
        """What is kept for other snapshots, verified: a damage must not be copied from one to the next."""
        found = (self._find(record, opened, trust=False) for record in self._others(name))
        return (one for one in found if one is not None)

    def _others(self, name: str) -> Iterator[Path]:
        """The records of other snapshots, those that were written last first."""
        records = []
        for record in self._folder.parent.glob(f"*/{name}.json"):
            with contextlib.suppress(OSError):
                records.append((record.stat().st_mtime_ns, record))
        others = (record for _, record in sorted(records, reverse=True) if record.parent != self._folder)
        return islice(others, _EARLIER)

    def _record(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def _find(self, record: Path, opened: Callable[[Path], T], trust: bool = True) -> T | None:
        """What a record names, opened; None if the cache lacks it, or the record does not count.

        trust: False to verify the file even if it is the one that was.
        """
        kept = self._read(record)
        if kept is None:
            return None
        try:
            status = (self._cache.folder / blob_path(kept.digest)).stat()
            is_known = trust and is_own(status) and kept.file == _file_of(status)
            if is_known:
                trust_blob(self._cache.folder, kept.digest, identity_of(status))
            path = self._cache.find(kept.digest, kept.bytes)
            if path is None:
                return None
            if trust and not is_known:
                with contextlib.suppress(OSError):  # a cache that cannot be written is read as it is
                    self._note(record, kept.digest, kept.bytes)
            return opened(path)
        except (OSError, StoreError):
            return None

    def _keep(self, record: Path, write: Callable[[BinaryIO], object]) -> None:
        with contextlib.suppress(OSError, StoreError):
            self._write(record, write)

    def _write(self, record: Path, write: Callable[[BinaryIO], object]) -> None:
        digest, size = self._cache.keep(write)
        is_first = not self._folder.exists()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._note(record, digest, size)
        if is_first:
            self._forget_evicted()

    def _note(self, record: Path, digest: str, size: int) -> None:
        """Write a record of a verified file."""
        file = _file_of((self._cache.folder / blob_path(digest)).stat())
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as draft:  # for this user alone
            draft.write(Assembly(digest=digest, bytes=size, file=file).to_bytes())
        Path(draft.name).replace(record)

    def _forget_evicted(self) -> None:
        """Remove the records of this user's of snapshots of which the cache has no arrays any more."""
        for folder in self._folder.parent.iterdir():
            records = list(folder.glob("*.json"))
            if folder == self._folder or any(self._is_there(one) for one in records):
                continue
            for one in records:
                one.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # another process is adding to it
                folder.rmdir()

    def _is_there(self, record: Path) -> bool:
        """True if the cache has the blob that a record names, or the record is not this user's. Uses nothing."""
        kept = self._read(record)
        return kept is None or (self._cache.folder / blob_path(kept.digest)).exists()

    def _read(self, record: Path) -> Assembly | None:
        """A record; None for one that is unreadable, or that others can have written."""
        try:
            with open_regular(record, RECORD_BYTES) as file:
                is_mine = is_own(os.fstat(file.fileno()))
                return Assembly.from_bytes(file.read(), str(record)) if is_mine else None
        except (OSError, StoreError):
            return None


def _file_of(status: os.stat_result) -> list[int]:
    """What a record says of a file: its identity but for the device, which another start of the machine may number
    otherwise."""
    return [status.st_ino, status.st_size, status.st_mtime_ns]
