"""Reading a store in an object store: a request per record, and a verified cache of blobs on the local disk."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from indexmill.errors import CorruptBlob, NotFound, SnapshotNotFound
from indexmill.store.blob_cache import BlobCache
from indexmill.store.bucket import Bucket
from indexmill.store.folder_files import BLOB_ADVICE, check_format
from indexmill.store.layout import STORE_FILE, blob_path
from indexmill.store.regular_files import RECORD_BYTES
from indexmill.text.counted import byte_size


class BucketFiles:
    """The files of a store in an object store; see `indexmill.store.files.Files`."""

    def __init__(self, bucket: Bucket, cache: BlobCache) -> None:
        """Create the reader without sending a request."""
        self.bucket, self.cache = bucket, cache

    @property
    def url(self) -> str:
        return self.bucket.url

    def check(self) -> None:
        try:
            data = self.bucket.read(STORE_FILE, RECORD_BYTES)
        except NotFound:
            raise SnapshotNotFound(
                f"there is no index in {self.url} (it has no {STORE_FILE}): run `indexmill build`, or name another "
                "store with --store"
            ) from None
        check_format(data, self.url)

    def read(self, name: str, most: int) -> bytes:
        try:
            return self.bucket.read(name, most)
        except NotFound:
            raise NotFound(f"{self.url} has no {name}") from None

    def names(self, prefix: str) -> list[str]:
        return [entry.name for entry in self.bucket.entries(prefix)]

    def blob(self, digest: str, size: int | None = None, *, again: bool = False) -> Path:
        """Return a blob's verified file in the cache, fetching it if it is not cached, or if `again` is set."""
        name = blob_path(digest)
        cached = None if again else self.cache.find(digest, size)
        if cached is not None:
            return cached
        if size is None or again:
            entry = self.bucket.stat(name)
            if entry is None:
                raise CorruptBlob(f"{self.bucket.path(name)} is missing; {BLOB_ADVICE}")
            if size not in (None, entry.bytes):
                raise CorruptBlob(
                    f"{self.bucket.path(name)} is damaged: it has {entry.bytes} bytes, expected {size}; {BLOB_ADVICE}"
                )
            size = entry.bytes
        try:
            return self.cache.add(digest, size, partial(self.bucket.fetch, name, size=size))
        except NotFound:
            raise CorruptBlob(f"{self.bucket.path(name)} is missing; {BLOB_ADVICE}") from None
        except CorruptBlob as error:
            raise CorruptBlob(f"{self.bucket.path(name)} is damaged: {error}") from error

    def blob_bytes(self, digest: str, most: int, *, again: bool = False) -> bytes:
        data = self.blob(digest, again=again).read_bytes()
        if len(data) > most:
            raise CorruptBlob(
                f"{self.bucket.path(blob_path(digest))} is {byte_size(len(data))}; the maximum is {byte_size(most)}"
            )
        return data

    def local(self, digest: str) -> Path | None:
        return self.cache.local(digest)

    def has_blob(self, digest: str) -> bool:
        return self.bucket.stat(blob_path(digest)) is not None
