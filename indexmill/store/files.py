"""The files of a store, in a folder or an object store, as a reader sees them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from indexmill.store.blob_cache import BlobCache
from indexmill.store.bucket import Bucket, is_bucket
from indexmill.store.bucket_files import BucketFiles
from indexmill.store.folder_files import FolderFiles


class Files(Protocol):
    """Records by name and blobs by digest, read-only and thread-safe. I/O failures raise StoreError."""

    @property
    def url(self) -> str:
        """The path or URL of the store, as messages show it."""
        ...

    def check(self) -> None:
        """Raise unless this is a store that this indexmill can read.

        SnapshotNotFound: it is not a store. UnsupportedFormat: it has a different format. CorruptBlob: it is damaged.
        """
        ...

    def read(self, name: str, most: int) -> bytes:
        """Return the bytes of a record; raises NotFound if it does not exist, StoreError if it exceeds `most` bytes."""
        ...

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a prefix, sorted."""
        ...

    def blob(self, digest: str, size: int | None = None, *, again: bool = False) -> Path:
        """Return a local file with a blob's bytes, checked against its digest once per process, and again if `again`.

        Raises CorruptBlob if it is missing, or has the wrong size or digest.
        """
        ...

    def blob_bytes(self, digest: str, most: int, *, again: bool = False) -> bytes:
        """Return the verified bytes of a small blob; raises CorruptBlob if missing, damaged, or over `most` bytes.

        again: read the blob from the store even if a cache has it.
        """
        ...

    def local(self, digest: str) -> Path | None:
        """Return a blob's file on the local disk without checking it; None if the blob has to be fetched."""
        ...

    def has_blob(self, digest: str) -> bool:
        """Return True if the blob exists; its bytes are not checked."""
        ...


def open_files(where: str | os.PathLike[str], cache: BlobCache | None = None) -> Files:
    """Open the files of the store at a path or URL. cache: the cache for blobs of an object store.

    Raises SnapshotNotFound, UnsupportedFormat or CorruptBlob if a folder is not a store, ConfigurationError if a URL
    cannot be the URL of a store.
    """
    files = files_at(where, cache)
    if not is_bucket(where):
        files.check()
    return files


def files_at(where: str | os.PathLike[str], cache: BlobCache | None = None) -> Files:
    """Return the same as ``open_files``, without reading or checking any file."""
    if is_bucket(where):
        return BucketFiles(Bucket(os.fspath(where)), cache or BlobCache.default())
    return FolderFiles(Path(where).absolute())
