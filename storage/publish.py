"""Publishing: the manifest is stored once every blob it names is there, and the ref is created last."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import pyarrow.parquet as pq
from pydantic import JsonValue

from indexmill.counted import byte_size
from indexmill.errors import CorruptBlob, StoreError
from indexmill.layout import BRANCH, blob_path
from indexmill.manifest import Artifact, Manifest, Ref, describe_table
from indexmill.packs import open_pack
from indexmill.regular_files import MANIFEST_BYTES
from storage.lease import Lease
from storage.protocol import Store
from storage.refs import commit

__all__ = ["check_whole", "describe", "publish"]


def describe(store: Store, name: str, kind: Literal["table", "arrays", "file"], digest: str) -> Artifact:
    """The manifest's entry for a blob: its length, rows and schema as the blob itself states them.

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


def check_whole(store: Store, manifest: Manifest) -> None:
    """Raise CorruptBlob unless every blob that a manifest names is there and has its length; no byte is read."""
    for artifact in manifest.artifacts:
        size = store.blob_size(artifact.digest)
        if size != artifact.bytes:
            raise CorruptBlob(
                f"{store.url}/{blob_path(artifact.digest)}, the artifact {artifact.name!r}, "
                f"{'is missing' if size is None else f'has {size} bytes'}, expected {artifact.bytes} bytes; "
                "nothing was published: run the build again, or restore the file from a copy of the store"
            )
    if store.blob_size(manifest.lineage) is None:
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
    branch: str = BRANCH,
) -> Ref:
    """Make a snapshot visible: check that its blobs are there, keep its manifest, create its ref.

    Raises CorruptBlob if a blob is missing or has another length, StoreError for a manifest that is too long for
    readers, LeaseLost if another run took over or published first. Until the ref exists, no reader can see anything of
    it; calling again after a crash is safe.
    """
    lease.check()
    check_whole(store, manifest)
    data = manifest.to_bytes()
    if len(data) > MANIFEST_BYTES:
        raise StoreError(
            f"the manifest has {byte_size(len(data))}, more than the {byte_size(MANIFEST_BYTES)} that readers take; "
            "nothing was published: larger shards (shards.document_tokens) make fewer artifacts"
        )
    digest = store.put_blob(data)
    lease.check()
    return commit(store, digest, parent, lease.epoch, lease.run_id, created, cost or {}, note, branch=branch)
