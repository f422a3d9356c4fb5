"""An overlay over another store: reads fall through to that store, writes go to a separate folder.

The store below is never changed; it may be read-only, in use by a writing run, or missing. The folder above is
temporary: nothing in it is synced, and its creator removes it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from indexmill.errors import CorruptBlob, NotFound
from indexmill.store.byte_rate import ByteRateLimit
from indexmill.store.canonical import digest_of
from indexmill.store.folder_files import hash_file, read_name
from indexmill.store.layout import TEMPORARY, blob_path, check_name
from storage.folder import drop_scratch, link, make_scratch
from storage.protocol import Names, Stat, Store
from storage.write_errors import writing_to_store

SCHEME = "overlay"
"""The scheme of an overlay's URL."""
_DELETED = "deleted"


def open_overlay(url: str, open_below: Callable[[str], Store]) -> OverlayStore:
    """Open the overlay that a URL names. open_below: a function that opens the underlying store by its URL."""
    above, _, below = url.removeprefix(f"{SCHEME}:").partition("?")
    return OverlayStore(Path(unquote(above)), open_below(unquote(below)) if below else None)


class OverlayStore(Store):
    """A store over another one; see `storage.protocol.Store` for the contract of each method, except durability."""

    def __init__(self, above: Path, below: Store | None) -> None:
        self.above, self.below = above, below

    def __reduce__(self) -> tuple[type[OverlayStore], tuple[Path, Store | None]]:
        return OverlayStore, (self.above, self.below)

    @property
    def url(self) -> str:
        return f"{SCHEME}:{quote(str(self.above))}?{quote(self.below.url) if self.below else ''}"

    def is_new(self, digest: str) -> bool:
        """Return True if a blob was written here and is not in the store below."""
        return (self.above / blob_path(digest)).exists()

    def put_blob(self, data: bytes | Path) -> str:
        """Store bytes or a file above, unless the store below has them; returns the digest."""
        digest = hash_file(data)[0] if isinstance(data, Path) else digest_of(data)
        if self.below is not None:
            with contextlib.suppress(CorruptBlob):
                self.below.open_local(digest)
                return digest
        path = self.above / blob_path(digest)
        if not path.exists() or hash_file(path)[0] != digest:
            with self._writing(path) as temporary:
                if isinstance(data, Path):
                    shutil.copyfile(data, temporary)
                else:
                    temporary.write_bytes(data)
                temporary.replace(path)
        return digest

    def blob_size(self, digest: str) -> int | None:
        path = self.above / blob_path(digest)
        if path.exists():
            return path.stat().st_size
        return self.below.blob_size(digest) if self.below is not None else None

    def blob_sizes(self, digests: Collection[str]) -> Mapping[str, int]:
        here = {digest: path.stat().st_size for digest in digests if (path := self.above / blob_path(digest)).exists()}
        if self.below is None:
            return here
        return {**self.below.blob_sizes([digest for digest in digests if digest not in here]), **here}

    def open_local(self, digest: str) -> Path:
        """Return the blob's file above, which is not verified, or else the verified file of the store below."""
        path = self.above / blob_path(digest)
        if path.exists():
            return path
        if self.below is None:
            raise CorruptBlob(f"{path} is missing")
        return self.below.open_local(digest)

    def get_blob(self, digest: str) -> bytes:
        path = self.above / blob_path(digest)
        if path.exists() or self.below is None:
            return self.open_local(digest).read_bytes()
        return self.below.get_blob(digest)

    def discard_blob(self, digest: str) -> bool:
        """Remove a damaged blob above; the store below stays as it is."""
        path = self.above / blob_path(digest)
        damaged = path.exists() and hash_file(path)[0] != digest
        if damaged:
            path.unlink()
        return damaged

    def create(self, name: str, data: bytes) -> bool:
        """Create a record above; False if either store has the name."""
        try:
            self.get(name)
        except NotFound:
            path = self.above / check_name(name)
            with self._writing(path) as temporary:
                temporary.write_bytes(data)
                try:
                    link(temporary, path)
                except FileExistsError:
                    return False
            return True
        return False

    def get(self, name: str) -> bytes:
        with contextlib.suppress(NotFound):
            return read_name(self.above, name)
        if self.below is None or self._deleted(name).exists():
            raise NotFound(f"{self.url} has no {name}")
        return self.below.get(name)

    def list(self, prefix: str) -> Names:
        folder = self.above / prefix.rpartition("/")[0]
        names = {path.relative_to(self.above).as_posix() for path in folder.rglob("*") if path.is_file()}
        if self.below is not None:
            names |= {name for name in self.below.list(prefix) if not self._deleted(name).exists()}
        hidden = (f"{TEMPORARY}/", f"{_DELETED}/")
        return sorted(name for name in names if name.startswith(prefix) and not name.startswith(hidden))

    def delete(self, name: str) -> None:
        """Remove a record here, and hide one of the same name in the store below."""
        (self.above / check_name(name)).unlink(missing_ok=True)
        mark = self._deleted(name)
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.touch()

    def stat(self, name: str) -> Stat | None:
        path = self.above / check_name(name)
        if path.is_file():
            status = path.stat()
            return Stat(status.st_size, status.st_mtime)
        return self.below.stat(name) if self.below is not None and not self._deleted(name).exists() else None

    def now(self) -> float:
        return time.time()

    def replace(self, name: str, data: bytes) -> None:
        with self._writing(self.above / check_name(name)) as temporary:
            temporary.write_bytes(data)
            temporary.replace(self.above / name)

    def scratch(self, run_id: str) -> Path:
        return make_scratch(self.above, run_id)

    def drop_scratch(self, run_id: str) -> None:
        drop_scratch(self.above, run_id)

    def sweep(self, now: float, keep: str = "") -> int:
        """Do nothing: files of other runs are not visible here. Returns 0."""
        return 0

    @property
    def folder(self) -> Path:
        return self.above

    def limit(self, pace: ByteRateLimit) -> None:
        if self.below is not None:
            self.below.limit(pace)

    def requests(self) -> Mapping[str, int]:
        return {} if self.below is None else self.below.requests()

    def _deleted(self, name: str) -> Path:
        return self.above / _DELETED / name

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[Path]:
        with writing_to_store(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            (self.above / TEMPORARY).mkdir(exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.above / TEMPORARY)
            os.close(handle)
            try:
                yield Path(name)
            finally:
                Path(name).unlink(missing_ok=True)
