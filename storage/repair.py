"""Repair: find damaged data of the kept versions, and restore it from copies.

`needs` lists the blobs that the versions need, `damaged_blobs` reads each of them, and `repair_blobs` restores the
damaged blobs from copies, or removes them, so that the next build makes the blobs it needs again. Reading is
slow and needs no lease; every change checks again, under the lease. A blob that matches its digest is never removed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from indexmill.errors import CorruptBlob, NotFound, SnapshotNotFound, StoreError
from indexmill.store.files import Files, files_at
from indexmill.store.layout import BRANCH, STORE_FILE, blob_path, number_of, ref_prefix, removal_name
from indexmill.store.manifest import Manifest, Ref
from storage.copies import Copy, read_record, record_names
from storage.gc import blobs_of
from storage.lease import Lease
from storage.lineage import Lineage
from storage.protocol import Store
from storage.stores import restore_store_file

Damage = Literal["missing", "damaged", "unreadable"]
"""missing: it does not exist. damaged: wrong bytes, or not a valid record. unreadable: the system cannot read it."""

Outcome = Literal["restored", "rebuild", "dropped", "lost", "unreadable"]
"""The remedy for a damaged blob or record.

restored: from a copy. rebuild: the next build makes it again. dropped: no reader needs it, and a build that does makes
it again. lost: only a copy could restore it. unreadable: left as it is, since the disk or permissions may be at fault.
"""


@dataclass(frozen=True)
class Finding:
    """A damaged blob or record, and its remedy; in a dry run, the remedy it would get."""

    name: str
    """The path of the blob or record in the store."""
    what: str
    """Its role in its versions: the manifest, the lineage, an artifact, or a part."""
    versions: tuple[int, ...]
    damage: Damage
    outcome: Outcome
    source: str | None = None
    """The copy that it is restored from."""


@dataclass
class Need:
    """The role of a blob in the versions that need it."""

    what: str
    served: bool
    """True if readers of these versions need it; otherwise it is a part that only builds read."""
    versions: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Needs:
    """The existing versions, and the blobs they need by digest."""

    versions: tuple[int, ...]
    blobs: dict[str, Need]

    def of(self, version: int | None) -> list[str]:
        """Return the digests of the blobs that a version needs; for None, those of all versions."""
        return [digest for digest, need in self.blobs.items() if version is None or version in need.versions]


def needs(store: Store, copies: Sequence[Copy]) -> Needs:
    """Find the blobs that the existing versions need; damaged manifests and lineages are read from copies.

    If no copy has the manifest or lineage of a version, its needs are unknown: it may need any blob of the store.
    """
    blobs: dict[str, Need] = {}

    def need(number: int, digest: str, what: str, *, served: bool) -> None:
        blob_need = blobs.setdefault(digest, Need(what, served))
        blob_need.served |= served
        if blob_need.versions[-1:] != [number]:
            blob_need.versions.append(number)

    refs = _refs(store, copies)
    for number, ref in refs.items():
        need(number, ref.manifest, "the manifest", served=True)
        data = _bytes(store, copies, ref.manifest)
        if data is not None:
            manifest = Manifest.from_bytes(data, f"{store.url}/{blob_path(ref.manifest)}")
            need(number, manifest.lineage, "the lineage", served=True)
            for artifact in manifest.artifacts:
                need(number, artifact.digest, artifact.name, served=True)
            data = _bytes(store, copies, manifest.lineage)
        if data is None:
            for digest, _ in blobs_of(store):
                need(number, digest, "a blob of unknown use", served=False)
            continue
        for part in Lineage.from_bytes(data, f"{store.url}, the lineage of version {number}").entries:
            for output, digest in part.outputs.items():
                need(number, digest, f"{output} of {part.stage} {part.shard}", served=False)
    return Needs(tuple(refs), blobs)


def damaged_blobs(store: Store, digests: Iterable[str], read: Callable[[int], None]) -> list[str]:
    """Read these blobs completely and return the damaged ones. read: called with the length of each."""
    damaged, files = [], files_at(store.url)
    for digest in digests:
        if _damage(files, digest) is not None:
            damaged.append(digest)
        read(store.blob_size(digest) or 0)
    return damaged


def repair_blobs(
    store: Store, copies: Sequence[Copy], damaged: Iterable[str], needed: Needs, lease: Lease | None
) -> list[Finding]:
    """Restore damaged blobs from copies, or remove them; without a lease, a dry run.

    Each is checked again, and skipped if it is intact by now or no version needs it any longer. Raises LeaseLost
    once another run has taken over.
    """
    newest = needed.versions[-1] if needed.versions else 0
    findings, files = [], files_at(store.url)
    for digest in damaged:
        need = needed.blobs.get(digest)
        damage = _damage(files, digest) if need is not None else None
        if need is None or damage is None:
            continue
        if lease is not None:
            lease.check()
        source = _restore(store, copies, digest, apply=lease is not None)
        outcome: Outcome
        if source is not None:
            outcome = "restored"
        elif damage == "unreadable":
            outcome = "unreadable"
        else:
            outcome = "rebuild" if newest in need.versions else "lost" if need.served else "dropped"
            if damage == "missing" and outcome == "dropped":
                continue
            if damage == "damaged" and lease is not None and not store.discard_blob(digest):
                continue
        where = None if source is None else str(source)
        findings.append(Finding(blob_path(digest), need.what, tuple(need.versions), damage, outcome, where))
    return findings


def repair_records(store: Store, copies: Sequence[Copy], lease: Lease | None) -> list[Finding]:
    """Restore damaged records of versions, aliases, holds and exports; without a lease, only list them.

    Raises LeaseLost once another run has taken over.
    """
    findings, files = [], files_at(store.url)
    for name in record_names(files):
        damage: Damage
        try:
            read_record(files, name)
            continue
        except NotFound:
            damage = "missing"
        except CorruptBlob:
            damage = "damaged"
        except StoreError:
            damage = "unreadable"
        source, data = next(
            ((copy, data) for copy in copies if (data := copy.record(files, name)) is not None), (None, b"")
        )
        if source is not None and lease is not None:
            lease.check()
            store.replace(name, data)
        versions = (number_of(name) or 0,) if name.startswith(ref_prefix(BRANCH)) else ()
        outcome: Outcome = "lost" if source is None else "restored"
        findings.append(Finding(name, "the record", versions, damage, outcome, None if source is None else str(source)))
    return findings


def repair_store_file(where: Path | str, copies: Sequence[Copy], *, apply: bool) -> Finding | None:
    """Restore the record that marks a folder or bucket as a store from a copy; None if it is intact.

    Raises SnapshotNotFound or CorruptBlob if no copy has it, UnsupportedFormat if it has a different format.
    """
    files = files_at(where)
    try:
        files.check()
    except (CorruptBlob, SnapshotNotFound) as error:
        for copy in copies:
            if (data := copy.record(files, STORE_FILE)) is not None:
                damage: Damage = "damaged" if isinstance(error, CorruptBlob) else "missing"
                if apply:
                    restore_store_file(where, data)
                return Finding(STORE_FILE, "the record", (), damage, "restored", str(copy))
        raise
    return None


def _refs(store: Store, copies: Sequence[Copy]) -> dict[int, Ref]:
    """Return the refs of the existing versions by number; a damaged record is read from a copy."""
    refs, files = {}, files_at(store.url)
    for name in record_names(files):
        if not name.startswith(ref_prefix(BRANCH)) or store.stat(removal_name(number_of(name) or 0)) is not None:
            continue
        try:
            ref = read_record(files, name)
        except StoreError:
            copy = next((copy for copy in copies if copy.record(files, name) is not None), None)
            if copy is None or copy.files is None:
                continue
            ref = read_record(copy.files, name)
        if isinstance(ref, Ref):
            refs[ref.version] = ref
    return refs


def _damage(files: Files, digest: str) -> Damage | None:
    try:
        files.blob(digest, again=True)
    except CorruptBlob as error:
        if isinstance(error.__cause__, OSError):
            return "unreadable"
        return "damaged" if files.has_blob(digest) else "missing"
    return None


def _restore(store: Store, copies: Sequence[Copy], digest: str, *, apply: bool) -> Copy | None:
    """Restore a blob from the first copy with intact bytes; returns that copy, or None if there is none."""
    for copy in copies:
        path = copy.blob(digest)
        if path is not None and (not apply or store.put_blob(path) == digest):
            return copy
    return None


def _bytes(store: Store, copies: Sequence[Copy], digest: str) -> bytes | None:
    """Return the bytes of a small blob, from the store or the first copy with intact bytes."""
    with contextlib.suppress(CorruptBlob):
        return store.get_blob(digest)
    paths = (path for copy in copies if (path := copy.blob(digest)) is not None)
    return next((path.read_bytes() for path in paths), None)
