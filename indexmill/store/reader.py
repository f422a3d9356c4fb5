"""Reading a store: versions, aliases, holds, manifests and blobs.

Nothing here writes to the store or locks it, so a store can be read from a read-only mount and during a build.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from indexmill.errors import CorruptBlob, NotFound, SnapshotNotFound, StoreError
from indexmill.store.blob_cache import BlobCache
from indexmill.store.canonical import json_object
from indexmill.store.files import open_files
from indexmill.store.layout import (
    BRANCH,
    HOLDS,
    REFS,
    REMOVALS,
    alias_name,
    alias_prefix,
    blob_path,
    hold_name,
    number_of,
    ref_name,
    ref_prefix,
    removal_name,
    run_name,
    signature_prefix,
)
from indexmill.store.manifest import Alias, Candidate, Hold, Manifest, Ref, Removal
from indexmill.store.record import Record
from indexmill.store.regular_files import BLOB_BYTES, MANIFEST_BYTES, RECORD_BYTES
from indexmill.store.signatures import ENVELOPE_BYTES

R = TypeVar("R", bound=Record)

_SIGNATURES = 64


@dataclass(frozen=True, slots=True)
class _Listing:
    """The names of all refs, removals and aliases at one moment."""

    names: tuple[str, ...]

    def numbers(self, prefix: str) -> list[int]:
        """Return the numbers of the records directly below a prefix, in order."""
        below = (name.removeprefix(prefix) for name in self.names if name.startswith(prefix))
        return [number for rest in below if "/" not in rest and (number := number_of(rest)) is not None]

    def aliases(self) -> list[str]:
        """Return the aliases that have records."""
        prefix = alias_prefix()
        aliases = (name.removeprefix(prefix).partition("/")[0] for name in self.names if name.startswith(prefix))
        return list(dict.fromkeys(aliases))


class StoreReader:
    """A store, read-only. Safe to use from many threads.

    Raises SnapshotNotFound, UnsupportedFormat or CorruptBlob if this indexmill cannot read a store there. A folder is
    checked when it is opened; an object store is checked only when no version is found in it.
    """

    def __init__(self, where: str | os.PathLike[str], cache: BlobCache | None = None) -> None:
        """Open a store. where: a folder or URL. cache: the cache for blobs of an object store."""
        self.files = open_files(where, cache)

    def __repr__(self) -> str:
        return f"StoreReader({self.url!r})"

    @property
    def url(self) -> str:
        """The path or URL of the store."""
        return self.files.url

    def _listing(self) -> _Listing:
        listing = _Listing(tuple(self.files.names(REFS)))
        if not listing.names:
            self.files.check()
        return listing

    def _record(self, kind: type[R], name: str, most: int = RECORD_BYTES) -> R:
        return kind.from_bytes(self.files.read(name, most), f"{self.url}/{name}")

    def versions(self) -> list[int]:
        """List the published versions, oldest first, including removed ones."""
        return self._listing().numbers(ref_prefix(BRANCH))

    def ref(self, version: int) -> Ref:
        """Return the ref of a version; raises SnapshotNotFound if there is none, CorruptBlob if it is damaged."""
        name = ref_name(BRANCH, max(version, 0))  # no version has the number 0
        try:
            ref = self._record(Ref, name)
        except NotFound:
            listing = self._listing()
            published = listing.numbers(ref_prefix(BRANCH))
            which = str(version)
            if published and 1 <= version < published[-1]:
                which += f" (its record {name} is missing: a copy of the store may have it)"
            raise SnapshotNotFound(f"{self.url} has no version {which}: it has {self._there(listing)}") from None
        if ref.version != version:
            raise CorruptBlob(f"{self.url}/{name} says that it is version {ref.version}; expected {version}")
        return ref

    def _there(self, listing: _Listing) -> str:
        """Describe the versions that can be opened, such as "versions 1, 3 to 5"."""
        removed = set(listing.numbers(REMOVALS))
        versions = listing.numbers(ref_prefix(BRANCH))
        runs: list[list[int]] = []
        for version in versions:
            if version in removed or not self._opens(version):
                continue
            if runs and runs[-1][1] == version - 1:
                runs[-1][1] = version
            else:
                runs.append([version, version])
        if not runs:
            return "no version that can be opened" if versions else "no snapshot yet: run `indexmill build`"
        shown = ", ".join(str(first) if first == last else f"{first} to {last}" for first, last in runs)
        return f"version{'s' if runs[0][0] != runs[-1][1] else ''} {shown}"

    def _opens(self, version: int) -> bool:
        """Return True if a version's record can be read and its manifest exists."""
        try:
            return self.files.has_blob(self._record(Ref, ref_name(BRANCH, version)).manifest)
        except StoreError:
            return False

    def newest(self) -> Ref:
        """Return the ref of ``newest_version``; raises SnapshotNotFound if no version was published yet."""
        return self.ref(self.newest_version())

    def newest_version(self) -> int:
        """Return the number of the newest version that was not removed.

        If all were removed, returns the number of the last, and opening it reports why. Raises SnapshotNotFound if none
        was published.
        """
        return self._newest(self._listing())

    def _newest(self, listing: _Listing) -> int:
        versions = listing.numbers(ref_prefix(BRANCH))
        if not versions:
            raise SnapshotNotFound(f"there is no index yet in {self.url} (no snapshot yet): run `indexmill build`")
        removed = set(listing.numbers(REMOVALS))
        there = [version for version in versions if version not in removed]
        return (there or versions)[-1]

    def history(self) -> list[Ref]:
        """Return every ref, oldest first."""
        return [self.ref(version) for version in self.versions()]

    def removals(self) -> dict[int, Removal]:
        """Return the record of each removed version's removal, by version."""
        removed = self._listing().numbers(REMOVALS)
        return {number: self._record(Removal, removal_name(number)) for number in removed}

    def check_there(self, version: int) -> None:
        """Raise SnapshotNotFound, with the reason, if a version was collected or withdrawn."""
        self._check_there(version, self._listing())

    def _check_there(self, version: int, listing: _Listing) -> None:
        if version not in listing.numbers(REMOVALS):
            return
        try:
            removal = self._record(Removal, removal_name(version))
        except NotFound:  # it was restored a moment ago
            return
        raise SnapshotNotFound(
            f"{self.url}: {removal}; the store has {self._there(listing)} "
            "(`indexmill snapshots` lists all that were published)"
        )

    def aliases(self) -> dict[str, int]:
        """Return the version that each alias points to, ordered by name."""
        return self._aliases(self._listing())

    def _aliases(self, listing: _Listing) -> dict[str, int]:
        names = listing.aliases()
        return {alias: version for alias in names if (version := self._pointed(alias, listing)) is not None}

    def _pointed(self, alias: str, listing: _Listing) -> int | None:
        try:
            numbers = listing.numbers(alias_prefix(alias))
        except ValueError:  # an invalid name
            return None
        if not numbers:
            return None
        return self._record(Alias, alias_name(alias, numbers[-1])).version

    def hold(self) -> Hold | None:
        """Return the hold in force, under which builds are refused; None if there is none."""
        numbers = _Listing(tuple(self.files.names(HOLDS))).numbers(HOLDS)
        newest = self._record(Hold, hold_name(numbers[-1])) if numbers else None
        return newest if newest is not None and newest.held else None

    def resolve(self, version: int | None = None, alias: str | None = None) -> Ref:
        """Return the ref of a version, or of the version that an alias points to, or of the newest.

        Raises SnapshotNotFound if there is no such version or alias, or it was removed, ValueError if both are given.
        """
        if version is not None and alias is not None:
            raise ValueError("give a version or an alias, not both")
        listing = self._listing()
        if version is None:
            version = self._newest(listing) if alias is None else self._named(alias, listing)
        ref = self.ref(version)
        self._check_there(version, listing)
        return ref

    def _named(self, alias: str, listing: _Listing) -> int:
        """Return the version that an alias points to; raises SnapshotNotFound if there is no such alias."""
        pointed = self._pointed(alias, listing) if alias else None
        if pointed is None:
            raise SnapshotNotFound(
                f"{self.url} has no alias {alias!r}: it has {', '.join(self._aliases(listing)) or 'none'}; "
                "`indexmill promote` creates one"
            )
        return pointed

    def signatures(self, version: int) -> list[bytes]:
        """Return the envelopes of a version's signatures without checking them: oldest first, at most 64."""
        envelopes = []
        for name in self.files.names(signature_prefix(version))[:_SIGNATURES]:
            with contextlib.suppress(NotFound, CorruptBlob):
                envelopes.append(self.files.read(name, ENVELOPE_BYTES))
        return envelopes

    def candidate(self, run: str) -> str:
        """Return the digest of the manifest that a run built and a gate refused to publish.

        Raises SnapshotNotFound if there is no such run, if it has not ended, or if no gate refused it.
        """
        try:
            ended = self._record(Candidate, run_name(run, "end"), MANIFEST_BYTES)
        except (NotFound, ValueError):
            raise SnapshotNotFound(f"{self.url} has no finished run {run}; `indexmill runs` lists the runs") from None
        if ended.state != "refused" or ended.manifest is None:
            raise SnapshotNotFound(
                f"run {run} of {self.url} has no candidate: it ended as {ended.state!r}, and only a run that a gate "
                "refused after building has one"
            )
        return ended.manifest

    def run_record(self, run: str, record: Literal["start", "end"]) -> dict[str, Any] | None:
        """Return a run's record as a JSON object; None if there is none. Raises CorruptBlob; fields are not checked."""
        name = run_name(run, record)
        try:
            data = self.files.read(name, MANIFEST_BYTES)
        except NotFound:
            return None
        content = json_object(data)
        if content is None:
            raise CorruptBlob(f"{self.url}/{name} is not a run's record; restore the file from a copy of the store")
        return content

    def blob(self, digest: str, size: int | None = None, *, again: bool = False) -> Path:
        """Return a verified local file of a blob: see `indexmill.store.files.Files.blob`."""
        return self.files.blob(digest, size, again=again)

    def blob_bytes(self, digest: str, most: int = BLOB_BYTES, *, again: bool = False) -> bytes:
        """Return the verified bytes of a small blob: see `indexmill.store.files.Files.blob_bytes`."""
        return self.files.blob_bytes(digest, most, again=again)

    def manifest(self, digest: str) -> Manifest:
        """Read the manifest that has the given digest; CorruptBlob or UnsupportedFormat if it cannot be used."""
        return Manifest.from_bytes(self.blob_bytes(digest, MANIFEST_BYTES), f"{self.url}/{blob_path(digest)}")
