"""A store in a folder of a file system with hard links.

A record or blob is written in full to a file in `tmp/`, synced, and then linked to its name: `link` fails if the name
exists, on every process and host that shares the folder, and no reader ever sees an incomplete file.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from indexmill.errors import (
    ConfigurationError,
    CorruptBlob,
    DiskFull,
    SnapshotNotFound,
    StoreError,
    StoreNotWritable,
)
from indexmill.store.byte_rate import UNLIMITED, ByteRateLimit
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.folder_files import (
    blob_bytes,
    check_store,
    hash_file,
    list_names,
    read_name,
    verified_again,
    verified_blob,
)
from indexmill.store.layout import FORMAT_VERSION, REMOVALS, STORE_FILE, TEMPORARY, blob_path, check_name
from indexmill.text.printable import is_utf8, utf8_name
from storage import reserve
from storage.faults import fault_point, write_all
from storage.processes import Process, alive, this_process
from storage.protocol import Names, Stat, Store
from storage.write_errors import writing_to_store

_T = TypeVar("_T")

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV)
"""The errors of `link` on a file system without hard links, or between two file systems."""

_PIECE = 1 << 20
_OLD = 24 * 3600.0  # seconds after which a temporary file of another machine counts as abandoned
_counter = itertools.count()


def init_folder(path: Path | str) -> FolderStore:
    """Create a store in a folder, or open the existing store; safe to call from many processes at once.

    Raises ConfigurationError if the folder has other content or its path is not UTF-8, StoreNotWritable if it cannot
    be created.
    """
    root = _root(path)
    if not is_utf8(str(root)):
        raise ConfigurationError(
            f"the store's path must be UTF-8, since records contain it; this path is not: {utf8_name(str(root))}"
        )
    with contextlib.suppress(SnapshotNotFound):
        return FolderStore(root)
    _check_no_file(root)
    with writing_to_store(root):
        _make_folders(Path(root.anchor), root)
        if not _others(root):
            _create(root, STORE_FILE, canonical_json({"format_version": FORMAT_VERSION}))
    try:
        return FolderStore(root)  # also if another process has just created and filled the store
    except SnapshotNotFound:
        check_free(root)
        raise


def check_free(path: Path | str) -> None:
    """Raise ConfigurationError if a path is a file, or a folder that has other content than a store."""
    root = _root(path)
    _check_no_file(root)
    others = _others(root) if root.exists() else []
    if others:
        raise ConfigurationError(f"{root} is neither empty nor a store: it contains {others[0]!r}; choose a new folder")


def _check_no_file(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise ConfigurationError(f"{root} is a file; a store is a folder: choose another name")


def _others(root: Path) -> list[str]:
    """Return the names in a folder that do not belong to a store under construction."""
    expected = (TEMPORARY, STORE_FILE, "lost+found")
    names = (entry.name for entry in root.iterdir())
    return sorted(name for name in names if name not in expected and not name.startswith("."))


def open_folder(url: str | Path) -> FolderStore:
    """Open the store at a path or a `file:` URL.

    Raises SnapshotNotFound if there is none, UnsupportedFormat for other formats, ConfigurationError for other URLs.
    """
    return FolderStore(_root(url))


def _root(url: str | Path) -> Path:
    text = str(url)
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    elif "://" in text:
        raise ConfigurationError(f"{text} is not a folder")
    return Path(text).absolute()


class FolderStore(Store):
    """A store in a folder; see `storage.protocol.Store` for the contract of each method."""

    def __init__(self, path: Path | str) -> None:
        self.root = _root(path)
        check_store(self.root)
        self._frees_space = False
        self._pace = UNLIMITED

    def __reduce__(self) -> tuple[type[FolderStore], tuple[str]]:
        return FolderStore, (self.url,)

    def __repr__(self) -> str:
        return f"FolderStore({self.url!r})"

    def __eq__(self, value: object) -> bool:
        return isinstance(value, FolderStore) and self.url == value.url

    def __hash__(self) -> int:
        return hash(self.url)

    @property
    def url(self) -> str:
        return str(self.root)

    # Blobs

    def put_blob(self, data: bytes | Path) -> str:
        if isinstance(data, Path):
            return self._put_file(data)
        digest = digest_of(data)
        if not self._refresh(digest):
            with writing_to_store(self.root / blob_path(digest)):
                self._with_reserve(partial(self._put_bytes, digest, data), self._frees_space)
        return digest

    def _put_bytes(self, digest: str, data: bytes) -> None:
        with _temporary(self.root) as (temporary, descriptor):
            write_all(descriptor, data)
            self._name_blob(temporary, descriptor, digest)

    def _put_file(self, path: Path) -> str:
        ours = path.absolute().is_relative_to(self.root / TEMPORARY)
        if ours:
            digest, _ = hash_file(path)
            if not self._refresh(digest):
                with writing_to_store(self.root / blob_path(digest)):
                    descriptor = os.open(path, os.O_RDONLY)
                    try:
                        os.fchmod(descriptor, path.stat().st_mode & 0o444)
                        self._name_blob(path, descriptor, digest)
                    finally:
                        os.close(descriptor)
            return digest
        with path.open("rb") as source, writing_to_store(self.root), _temporary(self.root) as (temporary, descriptor):
            digest = _copy(self._pace.pieces(source, _PIECE), descriptor)
            if not self._refresh(digest):
                self._name_blob(temporary, descriptor, digest)
        return digest

    def discard_blob(self, digest: str) -> bool:
        """Remove a damaged blob. Renames it before checking it, since a process may be restoring it under its name."""
        path = self.root / blob_path(digest)
        with writing_to_store(path):
            aside = _temporary_path(self.root)
            try:
                path.rename(aside)
            except FileNotFoundError:
                return False
            try:
                stays = hash_file(aside)[0] == digest
            except (OSError, CorruptBlob):
                stays = True
            fault_point("discard")
            if stays:
                with contextlib.suppress(FileExistsError):
                    link(aside, path)
            aside.unlink()
            sync_folder(path.parent)
            fault_point("discarded")
        return not stays

    def _refresh(self, digest: str) -> bool:
        """Update the modification time of an intact blob, so that garbage collection treats it as recent."""
        path = self.root / blob_path(digest)
        with writing_to_store(path):
            try:
                if not path.exists():
                    return False
                verified_blob(self.root, digest)
                fault_point("refresh")
                os.utime(path)
                verified_again(self.root, digest)
            except (CorruptBlob, FileNotFoundError):  # damaged, or collected in between
                return False
            sync_folder(path.parent)  # the process that linked it may not have synced the folder yet
            fault_point("refreshed")
        return True

    def _name_blob(self, temporary: Path, descriptor: int, digest: str) -> None:
        path = self.root / blob_path(digest)
        _sync_file(descriptor)
        _make_folders(self.root, path.parent)
        fault_point("blob")
        try:
            link(temporary, path)
        except FileExistsError:
            try:
                verified_blob(self.root, digest)
            except CorruptBlob:
                restored = _temporary_path(self.root)
                link(temporary, restored)
                restored.replace(path)
        fault_point("blob linked")
        sync_folder(path.parent)
        fault_point("blob durable")

    def blob_size(self, digest: str) -> int | None:
        status = _stat(self.root / blob_path(digest))
        return None if status is None else status.st_size

    def blob_sizes(self, digests: Collection[str]) -> Mapping[str, int]:
        return {digest: size for digest in digests if (size := self.blob_size(digest)) is not None}

    def open_local(self, digest: str) -> Path:
        return verified_blob(self.root, digest)

    def get_blob(self, digest: str) -> bytes:
        return blob_bytes(self.root, digest)

    # Records

    def create(self, name: str, data: bytes) -> bool:
        with writing_to_store(self.root / check_name(name)):
            may_use_it = self._frees_space or name.startswith(REMOVALS)  # a version's blobs are removed after it
            return self._with_reserve(partial(_create, self.root, name, data), may_use_it)

    def get(self, name: str) -> bytes:
        return read_name(self.root, name)

    def list(self, prefix: str) -> Names:
        return list_names(self.root, prefix)

    def stat(self, name: str) -> Stat | None:
        status = _stat(self.root / check_name(name))
        return None if status is None else Stat(status.st_size, status.st_mtime)

    def now(self) -> float:
        """Return the file system's time, from a new file; the time of this machine if no file can be created."""
        try:
            with tempfile.TemporaryFile(dir=self.root / TEMPORARY) as file:
                return os.fstat(file.fileno()).st_mtime
        except OSError:
            return time.time()

    def replace(self, name: str, data: bytes) -> None:
        with writing_to_store(self.root / check_name(name)):
            self._with_reserve(partial(_replace, self.root, name, data), self._frees_space)

    def delete(self, name: str) -> None:
        path = self.root / check_name(name)
        with writing_to_store(path):
            fault_point("delete")
            path.unlink(missing_ok=True)
            fault_point("deleted")

    # The disk

    @property
    def folder(self) -> Path:
        return self.root

    def limit(self, pace: ByteRateLimit) -> None:
        self._pace = pace

    def keep_reserve(self) -> None:
        """Allocate the reserve if it is missing."""
        reserve.keep(self.root)

    @contextlib.contextmanager
    def freeing_space(self) -> Iterator[None]:
        """Let a block that removes more than it writes use the reserve if the disk is full."""
        self._frees_space = True
        try:
            yield
        finally:
            self._frees_space = False
            self.keep_reserve()

    def _with_reserve(self, write: Callable[[], _T], may_use_it: bool) -> _T:
        try:
            return write()
        except OSError as error:
            full = DiskFull.of(error, self.root) is not None
            if not (full and may_use_it and reserve.give_up(self.root)):
                raise
        return write()

    # Temporary files

    def scratch(self, run_id: str) -> Path:
        return make_scratch(self.root, run_id)

    def drop_scratch(self, run_id: str) -> None:
        drop_scratch(self.root, run_id)

    def sweep(self, now: float, keep: str = "") -> int:
        """Remove unfinished files of dead processes, and the scratch folders of runs other than `keep`."""
        swept = 0
        try:
            entries = sorted((self.root / TEMPORARY).iterdir())
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise StoreError(f"{self.root / TEMPORARY} cannot be listed: {error.strerror}") from error
        for entry in entries:
            if entry.name.startswith("run-"):
                if entry.name != f"run-{keep}":
                    shutil.rmtree(entry, ignore_errors=True)
                    swept += 1
            else:
                with contextlib.suppress(OSError):
                    maker = _maker(entry.name)
                    living = None if maker is None else alive(maker)
                    ours = maker is not None and maker.pid == os.getpid()  # alive, also on systems without /proc
                    old = entry.stat().st_mtime < now - _OLD and not (ours or living)
                    if old or living is False:
                        entry.unlink()
                        swept += 1
        return swept


def make_scratch(root: Path, run_id: str) -> Path:
    """Make the scratch folder of a run in the folder of a store."""
    folder = root / check_name(f"{TEMPORARY}/run-{run_id}")
    with writing_to_store(folder):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def drop_scratch(root: Path, run_id: str) -> None:
    shutil.rmtree(root / check_name(f"{TEMPORARY}/run-{run_id}"), ignore_errors=True)


def replace_file(root: Path, name: str, data: bytes) -> None:
    """Write a record of a store, replacing any file of that name; raises StoreNotWritable or DiskFull on failure."""
    with writing_to_store(root / check_name(name)):
        _replace(root, name, data)


def _replace(root: Path, name: str, data: bytes) -> None:
    path = root / name
    with _temporary(root) as (temporary, descriptor):
        write_all(descriptor, data)
        _sync_file(descriptor)
        _make_folders(root, path.parent)
        fault_point(f"replace {name}")
        temporary.replace(path)
        fault_point(f"replaced {name}")
        sync_folder(path.parent)
        fault_point(f"durable {name}")


def _copy(pieces: Iterable[bytes], descriptor: int) -> str:
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
        write_all(descriptor, piece)
    return hashed.hexdigest()


def _create(root: Path, name: str, data: bytes) -> bool:
    path = root / name
    if os.path.lexists(path):
        sync_folder(path.parent)  # the winner may not have synced it yet
        return False
    with _temporary(root) as (temporary, descriptor):
        write_all(descriptor, data)
        _sync_file(descriptor)
        _make_folders(root, path.parent)
        fault_point(f"create {name}")
        try:
            link(temporary, path)
            created = True
        except FileExistsError:
            created = False
        fault_point(f"linked {name}")
        sync_folder(path.parent)
        fault_point(f"durable {name}")
    return created


@contextlib.contextmanager
def _temporary(root: Path) -> Iterator[tuple[Path, int]]:
    """Yield a new file in the store's folder for temporary files; it is always removed at the end."""
    path = _temporary_path(root)
    fault_point("temporary")
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
    try:
        yield path, descriptor
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _temporary_path(root: Path) -> Path:
    """Return a path unique to this process and thread, whose name identifies the process."""
    folder = root / TEMPORARY
    folder.mkdir(exist_ok=True)
    process = this_process()
    return folder / f"{_machine(process)}.{process.pid}.{process.started or 0}.{next(_counter)}"


def _maker(name: str) -> Process | None:
    """Return the process of this machine that created a temporary file; None if another machine did."""
    here = this_process()
    machine, pid, started, *_ = [*name.split("."), "", "", ""]
    if machine != _machine(here) or not pid.isdecimal():
        return None
    return Process(host=here.host, space=here.space, pid=int(pid), started=started if here.space else "")


def _machine(process: Process) -> str:
    return digest_of(f"{process.host} {process.space}".encode())[:16]


def _make_folders(root: Path, folder: Path) -> None:
    missing = []
    while folder != root and not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for new in reversed(missing):
        new.mkdir(exist_ok=True)
        sync_folder(new.parent)


def link(source: Path, target: Path) -> None:
    """Give a file a second name; FileExistsError if it is taken, StoreNotWritable for a file system without links."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise StoreNotWritable(
                f"{target} cannot be linked ({error.strerror}): a store needs a file system with hard links; "
                "put it on another disk"
            ) from error
        raise


def _sync_file(descriptor: int) -> None:
    fault_point("sync")
    os.fsync(descriptor)
    fault_point("synced")


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that the names in it survive a loss of power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems cannot, and need not
            raise
    finally:
        os.close(descriptor)


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
