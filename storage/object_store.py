"""A store in an object store: S3 and services that speak its protocol, Google Cloud Storage, Azure Blob Storage.

A record is created by one request that fails if the object exists. A blob may be uploaded in parts, since its name is
the digest of its content: every writer writes the same. Blobs are read through a verified cache on the local disk.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import secrets
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from indexmill.errors import CorruptBlob, SnapshotNotFound, StoreNotWritable
from indexmill.forks import Lock
from indexmill.store.blob_cache import BlobCache
from indexmill.store.bucket import Bucket
from indexmill.store.bucket_files import BucketFiles
from indexmill.store.byte_rate import ByteRateLimit
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.folder_files import hash_file
from indexmill.store.layout import FORMAT_VERSION, STORE_FILE, TEMPORARY, blob_path, check_name
from indexmill.store.regular_files import BLOB_BYTES
from storage.faults import fault_point
from storage.probe import check_quickly
from storage.protocol import Names, Stat, Store
from storage.write_errors import writing_to_store

_SEVERAL = 10
"""The maximum number of blobs that one call checks one by one; for more, all are listed."""
_MANY = 100
"""The number of separate calls after which all blobs are listed."""

_OLD = 24 * 3600.0
"""Seconds without a write after which a scratch folder counts as abandoned."""

_checked: set[str] = set()
"""The URLs that this process has verified to be stores."""


def init_object_store(url: str) -> ObjectStore:
    """Create a store at a URL, or open the existing store; safe to call from many processes at once.

    Raises StoreError if the service lacks a guarantee that stores need, StoreNotWritable without permission.
    """
    try:
        return ObjectStore(url)
    except SnapshotNotFound:
        bucket = Bucket(url)
        check_quickly(bucket)
        bucket.create(STORE_FILE, canonical_json({"format_version": FORMAT_VERSION}))
    return ObjectStore(url)


class ObjectStore(Store):
    """A store at a URL; see `storage.protocol.Store` for the contract of each method."""

    def __init__(self, url: str) -> None:
        """Open a store. Raises SnapshotNotFound if there is none, UnsupportedFormat or CorruptBlob if unusable."""
        self._bucket = Bucket(url)
        self._files = BucketFiles(self._bucket, BlobCache.default())
        if self.url not in _checked:  # a worker opens its store for each part
            self._files.check()
            _checked.add(self.url)
        self._lock = Lock()
        self._size_calls = 0
        self._listed: dict[str, int] = {}  # the sizes of all blobs, after many separate calls

    def __reduce__(self) -> tuple[type[ObjectStore], tuple[str]]:
        return ObjectStore, (self.url,)

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def __eq__(self, value: object) -> bool:
        return isinstance(value, ObjectStore) and self.url == value.url

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def url(self) -> str:
        """The URL, without credentials."""
        return self._bucket.url

    # Blobs

    def put_blob(self, data: bytes | Path) -> str:
        """Store bytes or a file, even if the blob exists: this renews its time, and restores a damaged one."""
        digest = hash_file(data)[0] if isinstance(data, Path) else digest_of(data)
        fault_point("blob")
        self._bucket.put(blob_path(digest), data)
        fault_point("blob durable")
        if isinstance(data, Path) and data.absolute().is_relative_to(self._scratch_folder):
            self._files.cache.adopt(digest, data)
        return digest

    def blob_size(self, digest: str) -> int | None:
        """Return a blob's length or None. Many calls share a listing, since only the lease's holder removes blobs."""
        with self._lock:
            self._size_calls += 1
            if self._size_calls == _MANY:
                self._listed = {name: stat.bytes for name, stat in self.stats("blobs/").items()}
            size = self._listed.get(blob_path(digest))
        if size is not None:
            return size
        entry = self._bucket.stat(blob_path(digest))
        return None if entry is None else entry.bytes

    def blob_sizes(self, digests: Collection[str]) -> Mapping[str, int]:
        """Return the lengths of the blobs that exist; for more than a few digests, from one listing of all blobs."""
        names = {blob_path(digest): digest for digest in digests}
        if len(names) > _SEVERAL:
            listed = self._bucket.entries("blobs/")
        else:
            listed = [entry for name in names if (entry := self._bucket.stat(name)) is not None]
        return {names[entry.name]: entry.bytes for entry in listed if entry.name in names}

    def open_local(self, digest: str) -> Path:
        return self._files.blob(digest)

    def get_blob(self, digest: str) -> bytes:
        return self._files.blob_bytes(digest, BLOB_BYTES)

    def discard_blob(self, digest: str) -> bool:
        try:
            self._files.blob(digest, again=True)
        except CorruptBlob:
            damaged = self._files.has_blob(digest)
            if damaged:
                self.delete(blob_path(digest))
            return damaged
        return False

    # Records

    def create(self, name: str, data: bytes) -> bool:
        check_name(name)
        fault_point(f"create {name}")
        created = self._bucket.create(name, data)
        fault_point(f"durable {name}")
        return created

    def get(self, name: str) -> bytes:
        return self._files.read(check_name(name), BLOB_BYTES)

    def list(self, prefix: str) -> Names:
        return self._files.names(prefix)

    def stat(self, name: str) -> Stat | None:
        entry = self._bucket.stat(check_name(name))
        return None if entry is None else Stat(entry.bytes, entry.modified)

    def stats(self, prefix: str) -> Mapping[str, Stat]:
        return {entry.name: Stat(entry.bytes, entry.modified) for entry in self._bucket.entries(prefix)}

    def now(self) -> float:
        """Return the service's time, from a new object; the time of this machine if no object can be created."""
        name = f"{TEMPORARY}/clock-{secrets.token_hex(8)}"
        try:
            self._bucket.put(name, b"")
            entry = self._bucket.stat(name)
            self._bucket.delete(name)
        except StoreNotWritable:
            return time.time()
        return time.time() if entry is None else entry.modified

    def replace(self, name: str, data: bytes) -> None:
        fault_point(f"replace {name}")
        self._bucket.put(check_name(name), data)
        fault_point(f"durable {name}")

    def delete(self, name: str) -> None:
        check_name(name)
        with self._lock:
            self._listed.pop(name, None)
        fault_point("delete")
        self._bucket.delete(name)
        fault_point("deleted")

    # Temporary files

    @property
    def _scratch_folder(self) -> Path:
        """The folder for the scratch folders of this store's runs, on the same disk as the cache."""
        return self._files.cache.folder / TEMPORARY / f"store-{digest_of(self.url.encode())[:16]}"

    def scratch(self, run_id: str) -> Path:
        """Create a run's scratch folder. The first call removes folders that killed workers left a day or more ago."""
        folder = self._scratch_folder / check_name(f"run-{run_id}")
        if not folder.is_dir():
            self._sweep(folder.name, before=time.time() - _OLD)
        with writing_to_store(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return folder

    def drop_scratch(self, run_id: str) -> None:
        shutil.rmtree(self._scratch_folder / check_name(f"run-{run_id}"), ignore_errors=True)

    @property
    def folder(self) -> Path:
        return self._files.cache.folder

    def limit(self, pace: ByteRateLimit) -> None:
        self._bucket.pace = pace

    def requests(self) -> Mapping[str, int]:
        """Return the number of requests that this object has sent, by kind, and their bytes."""
        return dataclasses.asdict(self._bucket.requests)

    def sweep(self, now: float, keep: str = "") -> int:
        """Remove the scratch folders of runs other than `keep` on this machine."""
        return self._sweep(f"run-{keep}", before=math.inf)

    def _sweep(self, keep: str, before: float) -> int:
        swept = 0
        with contextlib.suppress(FileNotFoundError):
            for path in sorted(self._scratch_folder.iterdir()):
                with contextlib.suppress(FileNotFoundError):  # another process was faster
                    if path.name != keep and path.stat().st_mtime < before:
                        shutil.rmtree(path, ignore_errors=True)
                        swept += 1
        return swept
