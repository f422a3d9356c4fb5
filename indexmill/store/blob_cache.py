"""A bounded cache of verified blobs on the local disk, shared by all processes of a machine and all stores.

    blobs/sha256/ab/ab12...     as in a store: blobs are named by their content, so stores can share them
    tmp/                        unfinished files

Blobs are added atomically. When the cache exceeds its bound, the least recently used blobs are removed, except those
used in the last ten minutes: blobs in use may exceed the bound. A mapped file stays readable after its removal.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from indexmill.errors import ConfigurationError, CorruptBlob, DiskFull, StoreError, StoreNotWritable
from indexmill.forks import Lock
from indexmill.store.folder_files import BLOB_ADVICE, hash_file, verified_again, verified_blob
from indexmill.store.layout import TEMPORARY, blob_path
from indexmill.text.counted import bytes_of

CACHE_VARIABLE = "INDEXMILL_CACHE"
"""The environment variable that names the folder of the cache."""

_IN_USE = 600.0
"""The number of seconds after its last use during which a blob is not removed."""
_ABANDONED = 24 * 3600.0
"""The number of seconds after which an unfinished file counts as abandoned."""
_DEFAULT = 50 << 30


def cache_folder() -> Path:
    """Return the folder of the cache: `INDEXMILL_CACHE` if set, else `indexmill` in the user's cache folder."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "indexmill"


def _bound() -> int:
    """Return the maximum size of the cache in bytes: `INDEXMILL_CACHE_SIZE`, such as `20GB`, or 50 GiB by default."""
    text = os.environ.get("INDEXMILL_CACHE_SIZE", "").strip()
    if not text:
        return _DEFAULT
    try:
        return bytes_of(text)
    except ValueError as error:
        raise ConfigurationError(f"INDEXMILL_CACHE_SIZE is {text!r}; expected bytes, such as 20GB") from error


class BlobCache:
    """A cache in a folder. Safe to use from many threads and processes."""

    def __init__(self, folder: Path, most: int = _DEFAULT) -> None:
        """Use a folder as cache. most: the maximum size of the cache in bytes."""
        self.folder, self.most = folder, most
        self._lock = Lock()
        self._unchecked: int | None = None  # bytes added since the size was last summed up

    def __reduce__(self) -> tuple[type[BlobCache], tuple[Path, int]]:
        return BlobCache, (self.folder, self.most)

    @classmethod
    def default(cls, folder: str | os.PathLike[str] | None = None) -> BlobCache:
        """Return the cache in a folder, by default `cache_folder`, bounded by `INDEXMILL_CACHE_SIZE`."""
        return cls(cache_folder() if folder is None else Path(folder).absolute(), _bound())

    def find(self, digest: str, size: int | None = None, *, again: bool = False) -> Path | None:
        """Return the verified file of a blob; None if it is missing or damaged."""
        try:
            path = verified_blob(self.folder, digest, size, again=again)
        except (CorruptBlob, OSError):
            return None
        return path if _use(path) else None

    def local(self, digest: str) -> Path | None:
        """Return a blob's file without checking it; None if it is missing. The blob counts as used."""
        path = self.folder / blob_path(digest)
        return path if _use(path) else None

    def add(self, digest: str, size: int, fetch: Callable[[int], None]) -> Path:
        """Add a blob, and return its verified file. fetch: writes the bytes to a file descriptor.

        Raises CorruptBlob if the bytes do not match the digest, DiskFull or StoreNotWritable if they cannot be written.
        """
        with self._writing(), self._temporary() as (temporary, descriptor):
            fetch(descriptor)
            actual, length = hash_file(temporary)
            if (actual, length) != (digest, size):
                raise CorruptBlob(
                    f"expected {size} bytes with the SHA-256 {digest}, found {length} of {actual}; {BLOB_ADVICE}"
                )
            target = self._name(digest, temporary, descriptor)
        self._make_room(size)
        return target

    def keep(self, write: Callable[[BinaryIO], object]) -> tuple[str, int]:
        """Add the file that ``write`` writes, and return its digest and size. Raises DiskFull or StoreNotWritable."""
        with self._writing(), self._temporary() as (temporary, descriptor):
            with os.fdopen(os.dup(descriptor), "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())  # readers trust a verified file
            digest, size = hash_file(temporary)
            self._name(digest, temporary, descriptor)
        self._make_room(size)
        return digest, size

    def adopt(self, digest: str, path: Path) -> None:
        """Add a file as a blob by a hard link; does nothing if it is on another disk."""
        target = self.folder / blob_path(digest)
        size = path.stat().st_size
        with contextlib.suppress(OSError):
            target.parent.mkdir(parents=True, exist_ok=True)
            path.chmod(0o444)
            os.link(path, target)
        self._make_room(size)

    def _name(self, digest: str, temporary: Path, descriptor: int) -> Path:
        """Rename a complete file with this digest to its final name."""
        target = self.folder / blob_path(digest)
        os.fchmod(descriptor, 0o444)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.replace(target)
        verified_again(self.folder, digest)
        return target

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[tuple[Path, int]]:
        folder = self.folder / TEMPORARY
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, name = tempfile.mkstemp(dir=folder)
        try:
            yield Path(name), descriptor
        finally:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)  # noqa: PTH108 - a str

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        advice = "give another folder (--cache, INDEXMILL_CACHE) or a smaller INDEXMILL_CACHE_SIZE"
        try:
            yield
        except OSError as error:
            if isinstance(error, StoreError):
                raise
            full = DiskFull.of(error, self.folder, f"the cache is on a full disk: {advice}")
            if full is not None:
                raise full from error
            raise StoreNotWritable(f"the cache {self.folder} cannot be written: {error.strerror}; {advice}") from error

    def _make_room(self, added: int) -> None:
        """If the cache may exceed its bound, remove the least recently used blobs."""
        with self._lock:
            if self._unchecked is not None:
                self._unchecked += added
                if self._unchecked < self.most // 20:
                    return
            self._unchecked = 0
        now = time.time()
        self._sweep(now)
        entries: list[tuple[float, int, Path]] = []
        with contextlib.suppress(OSError):
            for path in self.folder.glob("blobs/sha256/*/*"):
                with contextlib.suppress(FileNotFoundError):  # another process has removed it
                    status = path.stat()
                    entries.append((status.st_atime, status.st_size, path))
        total = sum(size for _, size, _ in entries)
        for used, size, path in sorted(entries):
            if total <= self.most or used > now - _IN_USE:
                break
            with contextlib.suppress(OSError):
                path.unlink()
                total -= size

    def _sweep(self, now: float) -> None:
        with contextlib.suppress(OSError):
            for path in (self.folder / TEMPORARY).iterdir():
                with contextlib.suppress(OSError):
                    if path.is_file() and path.stat().st_mtime < now - _ABANDONED:
                        path.unlink()


def _use(path: Path) -> bool:
    """Set a file's access time, which is the time of its last use; False if the file is missing."""
    try:
        os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    except OSError:
        return False
    return True
