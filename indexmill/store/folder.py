"""Reading a store in a folder: refs, aliases, manifests, and blobs that are verified before anything parses them.

Nothing here writes, locks or leaves a trace: a store on a read-only mount, or one that a build is extending at this
moment, reads the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from indexmill.errors import CorruptBlob, NotFound, SnapshotNotFound, StoreError, UnsupportedFormat
from indexmill.forks import Lock
from indexmill.store.canonical import digest_of
from indexmill.store.layout import (
    BRANCH,
    FORMAT_VERSION,
    STORE_FILE,
    alias_name,
    alias_prefix,
    blob_path,
    check_name,
    hold_name,
    hold_prefix,
    number_of,
    ref_name,
    ref_prefix,
    removal_name,
    removal_prefix,
    run_name,
)
from indexmill.store.manifest import Alias, Candidate, Hold, Manifest, Record, Ref, Removal
from indexmill.store.regular_files import BLOB_BYTES, MANIFEST_BYTES, RECORD_BYTES, open_regular, read_regular

__all__ = [
    "BLOB_ADVICE",
    "FolderReader",
    "blob_bytes",
    "check_store",
    "hash_file",
    "read_name",
    "verified_again",
    "verified_blob",
]

R = TypeVar("R", bound=Record)

_verified: dict[str, tuple[int, int, int, int]] = {}
_verifying = Lock()


def check_store(root: Path) -> None:
    """Raise unless a folder is a store that this indexmill can read.

    SnapshotNotFound: it is not a store, or not yet one. UnsupportedFormat: a newer indexmill wrote it. CorruptBlob:
    `store.json` is damaged.
    """
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
    try:
        version = json.loads(data)["format_version"]
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if type(version) is not int or version < 1:
        raise CorruptBlob(
            f'{path} is damaged: expected {{"format_version": {FORMAT_VERSION}}}, found {data[:80]!r}; '
            "`indexmill repair --from COPY` restores it from a copy of the store"
        )
    if version > FORMAT_VERSION:
        raise UnsupportedFormat(
            f"{root} is a store of format {version}; this indexmill knows formats up to {FORMAT_VERSION}: "
            "install a newer indexmill"
        )


def read_name(root: Path, name: str, most: int = BLOB_BYTES) -> bytes:
    """The bytes of a named record; NotFound if there is none, StoreError if it is unreadable or over ``most`` bytes."""
    path = root / check_name(name)
    try:
        return read_regular(path, most)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"{root} holds no {name}") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def hash_file(path: Path) -> tuple[str, int]:
    """The SHA-256 and the length of a regular file; CorruptBlob for any other."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return digest, file.tell()


def verified_blob(root: Path, digest: str, size: int | None = None, *, again: bool = False) -> Path:
    """The path of a blob whose bytes have been checked against its digest (once per process, or `again`).

    Raises CorruptBlob if it is missing, has another size than the given one, or other bytes.
    """
    path = root / blob_path(digest)
    with _reading_blob(path):
        status = path.stat()
        if size is not None and status.st_size != size:
            raise CorruptBlob(f"{path} is damaged: it has {status.st_size} bytes, expected {size}; {BLOB_ADVICE}")
        identity = _identity(status)
        key = str(path)
        if not again and _verified.get(key) == identity:
            return path
        found, _ = hash_file(path)
    with _verifying:
        if found == digest:
            _verified[key] = identity
        else:
            _verified.pop(key, None)
    if found != digest:
        raise CorruptBlob(f"{path} is damaged: its SHA-256 is {found}; {BLOB_ADVICE}")
    return path


def blob_bytes(root: Path, digest: str, most: int = BLOB_BYTES) -> bytes:
    """The bytes of a small blob, checked against its digest.

    Raises CorruptBlob if they are missing or damaged, or more than ``most``.
    """
    path = root / blob_path(digest)
    with _reading_blob(path):
        data = read_regular(path, most)
    found = digest_of(data)
    if found != digest:
        raise CorruptBlob(f"{path} is damaged: its SHA-256 is {found}; {BLOB_ADVICE}")
    return data


@contextmanager
def _reading_blob(path: Path) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise CorruptBlob(f"{path} is missing; {BLOB_ADVICE}") from None
    except OSError as error:
        raise CorruptBlob(f"{path} cannot be read: {error.strerror}; {BLOB_ADVICE}") from error


def verified_again(root: Path, digest: str) -> None:
    """Keep a blob's verified status after its verifier has set its modification time."""
    path = root / blob_path(digest)
    with _verifying:
        _verified[str(path)] = _identity(path.stat())


def _identity(status: os.stat_result) -> tuple[int, int, int, int]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


BLOB_ADVICE = (
    "run `indexmill repair` to restore it from a copy of the store, or from an export of its version (--from), or to "
    "delete it and build again: a build makes anew what the newest version needs, to the same bytes; what only older "
    "versions need comes back by a copy alone"
)
"""What to do about a blob that is damaged or missing."""


def _is_empty(root: Path) -> bool:
    """True if the path does not exist or is an empty folder."""
    try:
        return next(root.iterdir(), None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return False


class FolderReader:
    """A store in a folder, read-only. Safe to use from many threads.

    Raises SnapshotNotFound, UnsupportedFormat or CorruptBlob as `check_store` does.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.root = Path(path).absolute()
        check_store(self.root)

    def __repr__(self) -> str:
        return f"FolderReader({str(self.root)!r})"

    def _entries(self, prefix: str) -> list[Path]:
        """The entries below a prefix, ordered by name."""
        try:
            return sorted((self.root / prefix).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"{self.root / prefix} cannot be listed: {error.strerror}") from error

    def _numbers(self, prefix: str) -> list[int]:
        numbers = (number_of(entry.name) for entry in self._entries(prefix))
        return [number for number in numbers if number is not None]

    def _record(self, kind: type[R], name: str, most: int = RECORD_BYTES) -> R:
        """A record by its name; NotFound if there is none."""
        return kind.from_bytes(read_name(self.root, name, most), str(self.root / name))

    def versions(self, branch: str = BRANCH) -> list[int]:
        """The versions that were published, oldest first."""
        return self._numbers(ref_prefix(branch))

    def ref(self, version: int, branch: str = BRANCH) -> Ref:
        """The ref of a version; SnapshotNotFound if there is none, CorruptBlob if it is damaged."""
        name = ref_name(branch, max(version, 0))  # no version has the number 0
        try:
            found = self._record(Ref, name)
        except NotFound:
            known = self.versions(branch)
            which = str(version)
            if known and 1 <= version < known[-1]:
                which += f" (its record {name} is missing: a copy of the store may have it)"
            raise SnapshotNotFound(f"{self.root} has no version {which}: it has {self._there(branch)}") from None
        if found.version != version:
            raise CorruptBlob(f"{self.root / name} says that it is version {found.version}, expected {version}")
        return found

    def _there(self, branch: str = BRANCH) -> str:
        """The versions that can be opened, as a message lists them: "versions 1, 3 to 5"."""
        removed = set(self._numbers(removal_prefix()))
        runs: list[list[int]] = []
        for version in self.versions(branch):
            if version in removed or not self._opens(version, branch):
                continue
            if runs and runs[-1][1] == version - 1:
                runs[-1][1] = version
            else:
                runs.append([version, version])
        if not runs:
            return (
                "no version that can be opened" if self.versions(branch) else "no snapshot yet: run `indexmill build`"
            )
        shown = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
        return f"version{'s' if runs[0][0] != runs[-1][1] else ''} {shown}"

    def _opens(self, version: int, branch: str) -> bool:
        """True if a version's record can be read and its manifest exists."""
        try:
            return (self.root / blob_path(self.ref(version, branch).manifest)).is_file()
        except StoreError:
            return False

    def newest(self, branch: str = BRANCH) -> Ref:
        """The ref of the newest version (see ``newest_version``); SnapshotNotFound if nothing was published yet."""
        return self.ref(self.newest_version(branch), branch)

    def newest_version(self, branch: str = BRANCH) -> int:
        """The number of the newest version that was not removed.

        If none is left, the number of the last one, whose opening says why. SnapshotNotFound if none was published.
        """
        versions = self.versions(branch)
        if not versions:
            raise SnapshotNotFound(f"there is no index yet in {self.root} (no snapshot yet): run `indexmill build`")
        removed = set(self._numbers(removal_prefix()))
        there = [version for version in versions if version not in removed]
        return (there or versions)[-1]

    def history(self, branch: str = BRANCH) -> list[Ref]:
        """Every ref, oldest first."""
        return [self.ref(version, branch) for version in self.versions(branch)]

    def removals(self) -> dict[int, Removal]:
        """The removed versions, with the records of their removal."""
        return {number: self._record(Removal, removal_name(number)) for number in self._numbers(removal_prefix())}

    def check_there(self, version: int) -> None:
        """Raise SnapshotNotFound, saying why, if a version was collected or withdrawn."""
        try:
            removal = self._record(Removal, removal_name(version))
        except NotFound:
            return
        raise SnapshotNotFound(
            f"{self.root}: {removal}; it has {self._there()} (`indexmill snapshots` lists all that were published)"
        )

    def aliases(self) -> dict[str, int]:
        """The version that each alias points to, ordered by name."""
        entries = self._entries(alias_prefix())
        names = [entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")]
        return {alias: version for alias in names if (version := self._pointed(alias)) is not None}

    def _pointed(self, alias: str) -> int | None:
        """The version that an alias points to; None if there is no such alias."""
        try:
            numbers = self._numbers(alias_prefix(alias))
        except ValueError:  # no name at all
            return None
        if not numbers:
            return None
        return self._record(Alias, alias_name(alias, numbers[-1])).version

    def hold(self) -> Hold | None:
        """The hold in force, under which builds are refused; None if there is none."""
        numbers = self._numbers(hold_prefix())
        newest = self._record(Hold, hold_name(numbers[-1])) if numbers else None
        return newest if newest is not None and newest.held else None

    def resolve(self, version: int | None = None, alias: str | None = None) -> Ref:
        """The ref of a version, or the one an alias points to, or the newest.

        Raises SnapshotNotFound if there is no such version or alias, or it was removed, ValueError if both are given.
        """
        ref = self._resolve(version, alias)
        self.check_there(ref.version)
        return ref

    def _resolve(self, version: int | None, alias: str | None) -> Ref:
        if version is not None and alias is not None:
            raise ValueError("give a version or an alias, not both")
        if version is not None:
            return self.ref(version)
        if alias is None:
            return self.newest()
        pointed = self._pointed(alias) if alias else None
        if pointed is None:
            raise SnapshotNotFound(
                f"{self.root} has no alias {alias!r}: it has {', '.join(self.aliases()) or 'none'}; "
                "`indexmill promote` makes one"
            )
        return self.ref(pointed)

    def candidate(self, run: str) -> str:
        """The digest of the manifest that a run built and a gate refused to publish.

        Raises SnapshotNotFound if there is no such run, if it has not ended, or if no gate refused it.
        """
        try:
            ended = self._record(Candidate, run_name(run, "end"), MANIFEST_BYTES)
        except (NotFound, ValueError):
            raise SnapshotNotFound(
                f"{self.root} knows no run {run} that has ended; `indexmill runs` lists them"
            ) from None
        if ended.state != "refused" or ended.manifest is None:
            raise SnapshotNotFound(
                f"run {run} of {self.root} holds no candidate: it ended as {ended.state!r}, and a candidate is what a "
                "gate refused after it was built"
            )
        return ended.manifest

    def blob_path_verified(self, digest: str, size: int | None = None) -> Path:
        """The path of a blob, checked against its digest on first use in this process; CorruptBlob otherwise."""
        return verified_blob(self.root, digest, size)

    def manifest(self, digest: str) -> Manifest:
        """The manifest of this digest.

        Raises CorruptBlob if it is missing or damaged, UnsupportedFormat if it needs a newer reader.
        """
        return Manifest.from_bytes(blob_bytes(self.root, digest, MANIFEST_BYTES), f"{self.root / blob_path(digest)}")
