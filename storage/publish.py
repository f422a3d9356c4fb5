"""Publish a snapshot: the manifest is stored once every blob it names exists, and the ref is created last.

Then every blob is checked again: a run that was suspended before it created the ref may have lost its lease, and a
collection may have removed some blobs. Missing blobs are restored if possible, or the version is withdrawn;
`storage.deletions` explains why that is enough.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Literal

import pyarrow.parquet as pq
from pydantic import JsonValue

from indexmill.errors import CorruptBlob, DiskFull, LeaseLost, StoreError, VersionWithdrawn
from indexmill.store.artifact_listing import Artifact, describe_table
from indexmill.store.layout import blob_path
from indexmill.store.manifest import Manifest, Ref, Removal
from indexmill.store.packs import open_pack
from indexmill.store.regular_files import MANIFEST_BYTES
from indexmill.text.counted import byte_size
from storage import deletions, lineage, refs
from storage.lease import Lease
from storage.protocol import Store


def describe(store: Store, name: str, kind: Literal["table", "arrays", "file"], digest: str) -> Artifact:
    """Return the manifest's entry for a blob: its length, rows and schema as the blob itself states them.

    Raises CorruptBlob if the blob is missing or damaged, StoreError if it is not of this kind.
    """
    path = store.open_local(digest)
    size = path.stat().st_size
    if kind == "arrays":
        return Artifact(name=name, kind=kind, digest=digest, bytes=size, schema=dict(open_pack(path).schema))
    if kind == "file":
        return Artifact(name=name, kind=kind, digest=digest, bytes=size)
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            rows, schema = file.metadata.num_rows, file.schema_arrow
    except (ValueError, OSError) as error:
        raise StoreError(f"{path}, the artifact {name!r}, is not a Parquet table: {error}") from error
    return Artifact(name=name, kind=kind, digest=digest, bytes=size, rows=rows, schema=describe_table(schema))


def read_manifest(store: Store, digest: str) -> Manifest:
    """Read the manifest with this digest; raises CorruptBlob if it is missing or damaged."""
    return Manifest.from_bytes(store.get_blob(digest), f"{store.url}/{blob_path(digest)}, a manifest")


def check_whole(store: Store, manifest: Manifest) -> None:
    """Raise CorruptBlob unless every blob of a manifest exists with its recorded length; reads no bytes."""
    sizes = store.blob_sizes({manifest.lineage, *(artifact.digest for artifact in manifest.artifacts)})
    _check_sizes(store, manifest, sizes)


def _check_sizes(store: Store, manifest: Manifest, sizes: Mapping[str, int]) -> None:
    """Raise CorruptBlob unless every blob of a manifest is in `sizes` with its recorded length."""
    for artifact in manifest.artifacts:
        size = sizes.get(artifact.digest)
        if size != artifact.bytes:
            raise CorruptBlob(
                f"{store.url}/{blob_path(artifact.digest)}, the artifact {artifact.name!r}, "
                f"{'is missing' if size is None else f'has {size} bytes'}, expected {artifact.bytes} bytes; "
                "nothing was published: run the build again, or restore the file from a copy of the store"
            )
    if manifest.lineage not in sizes:
        raise CorruptBlob(
            f"{store.url}/{blob_path(manifest.lineage)}, the lineage, is missing; nothing was published: "
            "restore the file from a copy of the store"
        )


def publish(
    store: Store,
    lease: Lease,
    manifest: Manifest,
    parent: int | None,
    *,
    created: str,
    cost: Mapping[str, JsonValue] | None = None,
    note: str = "",
) -> Ref:
    """Make a snapshot visible: check its blobs, store its manifest, create its ref, check again.

    Raises CorruptBlob if a blob is missing or has the wrong length, StoreError for a manifest that is too long for
    readers, LeaseLost if another run took over, published first or may be removing its blobs. If the check after
    the ref finds the version incomplete, it is withdrawn: VersionWithdrawn, or DiskFull if a full disk prevented its
    completion. A StoreError that is raised after the ref was created says so in its message. Until the ref exists,
    readers see nothing of the version; calling again after a crash is safe.
    """
    lease.check()
    data = manifest.to_bytes()
    if len(data) > MANIFEST_BYTES:
        raise StoreError(
            f"the manifest is {byte_size(len(data))}, more than the {byte_size(MANIFEST_BYTES)} that readers accept; "
            "nothing was published: larger shards (shards.document_tokens) make fewer artifacts"
        )
    digest = store.put_blob(data)
    at_hand = {digest: data}
    needed = {digest, manifest.lineage, *(artifact.digest for artifact in manifest.artifacts)}
    with contextlib.suppress(CorruptBlob):  # `_check_sizes` or `verify` report it
        read = lineage.read(store, manifest.lineage)
        at_hand[manifest.lineage] = read.to_bytes()
        needed |= lineage.blobs(read)
    deletions.check_unannounced(store, needed, lease.clock)
    sizes = store.blob_sizes(needed)
    _check_sizes(store, manifest, sizes)  # outputs that are not artifacts may be missing: no reader needs them
    lease.check()
    ref = refs.commit(store, digest, parent, lease.epoch, lease.run_id, created, cost or {}, note)
    try:
        _check_again(store, lease, sizes, at_hand)
    except _NotWhole as incomplete:
        problem = incomplete.error
        message = f"version {ref.version} of {store.url} was published, and withdrawn again: {problem}"
        try:
            refs.remove(store, Removal(version=ref.version, reason="incomplete", run_id=lease.run_id, created=created))
        except StoreError as error:
            raise type(error)(
                f"version {ref.version} of {store.url} was published but is incomplete ({problem}), and could not be "
                f"withdrawn: {error}; check it with `indexmill verify`, and run again"
            ) from error
        raise (DiskFull(message) if isinstance(problem, DiskFull) else VersionWithdrawn(message)) from problem
    except StoreError as error:
        raise type(error)(
            f"version {ref.version} of {store.url} is published, but could not be checked for missing blobs: "
            f"{error}; check it with `indexmill verify`"
        ) from error
    return ref


class _NotWhole(Exception):
    """A blob of a published version is missing, or may be about to be removed. error: the cause."""

    def __init__(self, error: LeaseLost | StoreError) -> None:
        super().__init__(str(error))
        self.error = error


def _check_again(store: Store, lease: Lease, there: Collection[str], at_hand: Mapping[str, bytes]) -> None:
    """Restore missing blobs of a published version.

    there: the digests of the blobs that existed before the ref was created. at_hand: the blobs that can be restored, by
    digest. Raises _NotWhole if a later run may be removing a blob, or a missing blob cannot be restored, and StoreError
    if the check itself fails; it is tried twice, since network shares may fail for a moment.
    """
    missing: list[str] = []
    for last in (False, True):
        try:
            deletions.check_unannounced(store, there, lease.clock, after=lease.epoch)
            required = {*there, *at_hand}
            missing = sorted(required - store.blob_sizes(required).keys())
            _restore(store, missing, at_hand)
        except LeaseLost as error:
            raise _NotWhole(error) from error
        except StoreError as error:
            if not last:
                continue
            if missing:
                raise _NotWhole(error) from error
            raise
        return


def _restore(store: Store, missing: Collection[str], at_hand: Mapping[str, bytes]) -> None:
    for digest in missing:
        if digest not in at_hand:
            raise LeaseLost(
                f"{store.url}/{blob_path(digest)} is missing: another run has removed it; the previous "
                "version is the newest again: run the same command again"
            )
    for digest in missing:
        store.put_blob(at_hand[digest])
