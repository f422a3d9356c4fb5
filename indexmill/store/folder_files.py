"""Reading a store's files in a folder: records by name, and blobs, which are verified before they are parsed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from indexmill.errors import CorruptBlob, NotFound, SnapshotNotFound, StoreError, UnsupportedFormat
from indexmill.forks import Lock
from indexmill.store.canonical import digest_of
from indexmill.store.layout import FORMAT_VERSION, STORE_FILE, TEMPORARY, TOO_OLD, blob_path, check_name
from indexmill.store.regular_files import BLOB_BYTES, RECORD_BYTES, open_regular, read_regular

Identity = tuple[int, ...]
"""The identity of a file, which changes with its content: device, inode, size, and modification time."""

_verified: dict[str, Identity] = {}
_verifying = Lock()


def check_store(root: Path) -> None:
    """Raise unless a folder is a store that this indexmill can read: see `indexmill.store.files.Files.check`."""
    path = root / STORE_FILE
    try:
        data = read_regular(path, RECORD_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        if _is_empty(root):
            raise SnapshotNotFound(
                f"there is no index yet in {root}: run `indexmill build`, or name another folder with --store"
            ) from None
        raise SnapshotNotFound(
            f"{root} is not an index store: it has no {STORE_FILE}; give the folder that a build wrote"
        ) from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    check_format(data, str(root))


def check_format(data: bytes, where: str) -> None:
    """Raise CorruptBlob for an unreadable `store.json`, and UnsupportedFormat for a different format version."""
    try:
        version = json.loads(data)["format_version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if type(version) is not int or version < 1:
        raise CorruptBlob(
            f'{where}/{STORE_FILE} is damaged: expected {{"format_version": {FORMAT_VERSION}}}, found {data[:80]!r}; '
            "`indexmill repair --from COPY` restores it from a copy of the store"
        )
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{where} is a store of format {version}; this indexmill reads format {FORMAT_VERSION}: "
            "install a newer indexmill"
        )
    if version < FORMAT_VERSION:
        raise UnsupportedFormat(f"{where}, a store of format {version}, {TOO_OLD}")


def read_name(root: Path, name: str, most: int = BLOB_BYTES) -> bytes:
    """Read a record; raises NotFound if there is none, StoreError if it is unreadable or over ``most`` bytes."""
    path = root / check_name(name)
    try:
        return read_regular(path, most)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{root} has no {name}") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def list_names(root: Path, prefix: str) -> list[str]:
    """List the names below a folder that begin with a prefix, sorted, without unfinished and hidden files."""
    folder = prefix.rpartition("/")[0]
    top = root / check_name(folder) if folder else root
    names = []
    try:
        for parent, folders, files in os.walk(top, onerror=_unless_gone):
            below = Path(parent).relative_to(root)
            hidden = (TEMPORARY, "lost+found") if below == Path() else ()
            folders[:] = [name for name in folders if name not in hidden and not name.startswith(".")]
            # No name of a store has a leading dot; network file systems and desktops leave such files. A folder in
            # place of a record is listed, so that its reader reports the damage.
            there = (*files, *(name for name in folders if name.endswith(".json")))
            names += [(below / name).as_posix() for name in there if not name.startswith(".")]
    except OSError as error:
        raise StoreError(f"{top} cannot be listed: {error.strerror}") from error
    return sorted(name for name in names if name.startswith(prefix))


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def hash_file(path: Path) -> tuple[str, int]:
    """Return the SHA-256 and the length of a regular file; raises CorruptBlob for any other kind."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return digest, file.tell()


def verified_blob(root: Path, digest: str, size: int | None = None, *, again: bool = False) -> Path:
    """Return the path of a blob, checked as `indexmill.store.files.Files.blob` describes."""
    path = root / blob_path(digest)
    with _reading_blob(path):
        status = path.stat()
        if size is not None and status.st_size != size:
            raise CorruptBlob(f"{path} is damaged: it has {status.st_size} bytes; expected {size}; {BLOB_ADVICE}")
        identity = identity_of(status)
        key = str(path)
        if not again and _verified.get(key) == identity:
            return path
        actual, _ = hash_file(path)
    with _verifying:
        if actual == digest:
            _verified[key] = identity
        else:
            _verified.pop(key, None)
    if actual != digest:
        raise CorruptBlob(f"{path} is damaged: its SHA-256 is {actual}; {BLOB_ADVICE}")
    return path


def blob_bytes(root: Path, digest: str, most: int = BLOB_BYTES) -> bytes:
    """Return the verified bytes of a small blob; raises CorruptBlob if missing, damaged, or over ``most`` bytes."""
    path = root / blob_path(digest)
    with _reading_blob(path):
        data = read_regular(path, most)
    actual = digest_of(data)
    if actual != digest:
        raise CorruptBlob(f"{path} is damaged: its SHA-256 is {actual}; {BLOB_ADVICE}")
    return data


@contextmanager
def _reading_blob(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptBlob(f"{path} is missing; {BLOB_ADVICE}") from None
    except OSError as error:
        raise CorruptBlob(f"{path} cannot be read: {error.strerror}; {BLOB_ADVICE}") from error


def trust_blob(root: Path, digest: str, identity: Identity) -> None:
    """Trust another process's verification of a blob as long as the blob's file has this identity."""
    with _verifying:
        _verified.setdefault(str(root / blob_path(digest)), identity)


def verified_again(root: Path, digest: str) -> None:
    """Keep treating a blob as verified after this process has changed its file's modification time."""
    path = root / blob_path(digest)
    with _verifying:
        _verified[str(path)] = identity_of(path.stat())


def identity_of(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


BLOB_ADVICE = (
    "run `indexmill repair` to restore it from a copy of the store or from an export of its version (--from), or to "
    "delete it and build again: a build recreates the blobs of the newest version with the same bytes; blobs that only "
    "older versions need can only be restored from a copy"
)


def _is_empty(root: Path) -> bool:
    """Return True if the path does not exist or is an empty folder."""
    try:
        return next(root.iterdir(), None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return False


class FolderFiles:
    """The files of a store in a folder; see `indexmill.store.files.Files`."""

    def __init__(self, root: Path) -> None:
        """Create the reader without reading anything."""
        self.root = root

    @property
    def url(self) -> str:
        return str(self.root)

    def check(self) -> None:
        check_store(self.root)

    def read(self, name: str, most: int) -> bytes:
        return read_name(self.root, name, most)

    def names(self, prefix: str) -> list[str]:
        return list_names(self.root, prefix)

    def blob(self, digest: str, size: int | None = None, *, again: bool = False) -> Path:
        return verified_blob(self.root, digest, size, again=again)

    def blob_bytes(self, digest: str, most: int, *, again: bool = False) -> bytes:
        return blob_bytes(self.root, digest, most)

    def local(self, digest: str) -> Path:
        return self.root / blob_path(digest)

    def has_blob(self, digest: str) -> bool:
        return (self.root / blob_path(digest)).is_file()
