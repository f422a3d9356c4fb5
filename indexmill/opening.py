"""Open a snapshot: choose the version and the source, check signatures, and choose the cache of assembled arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.errors import BadInput, CorruptBlob, SnapshotNotFound
from indexmill.snapshot import Snapshot
from indexmill.store.listing import Artifact

if TYPE_CHECKING:
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.retrieve.worker_pool import ReaderPool
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.reader import StoreReader
    from indexmill.store.signatures import Trust


def open_snapshot(
    path: str | os.PathLike[str],
    version: int | None = None,
    alias: str | None = None,
    processes: int = 1,
    manifest: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    trust: Trust | str | os.PathLike[str] | None = None,
    encoder: OpenAiEmbeddings | None = None,
) -> Snapshot:
    """Open a snapshot: see ``indexmill.open``."""
    snapshot = _opened(path, version, alias, processes, manifest, cache, trust)
    snapshot.use_encoder(encoder)
    return snapshot


def _opened(
    path: str | os.PathLike[str],
    version: int | None,
    alias: str | None,
    processes: int,
    manifest: str | None,
    cache: str | os.PathLike[str] | None,
    trust: Trust | str | os.PathLike[str] | None,
) -> Snapshot:
    from indexmill.store.blob_cache import BlobCache
    from indexmill.store.bucket import place_of
    from indexmill.store.exported import ExportedFolder, is_exported
    from indexmill.store.layout import is_digest
    from indexmill.store.reader import StoreReader
    from indexmill.store.signatures import Trust

    if version is not None and alias is not None:
        raise BadInput(f"version={version} and alias={alias!r} are both given; expected at most one of them")
    if manifest is not None and not is_digest(manifest):
        raise BadInput(f"manifest is {manifest!r:.200}; expected a SHA-256 in 64 lower-case hex digits")
    policy = None if trust is None else Trust.of(trust)
    where, reopen = place_of(path), partial(open_snapshot, manifest=manifest, cache=cache, trust=policy)
    if isinstance(where, Path) and is_exported(where):
        if version is not None or alias is not None:
            raise SnapshotNotFound(f"{where}: is an exported folder, which holds one snapshot and no other versions")
        exported = ExportedFolder(where, manifest, policy)
        assemblies = _assemblies(where, cache, exported.digest)
        pool = _pool(processes, reopen, where)
        return Snapshot(where, exported.open_local, exported.manifest, None, pool, assemblies, exported.path_of)
    store = StoreReader(where, None if cache is None else BlobCache.default(cache))
    ref = store.resolve(version=version, alias=alias)
    if manifest not in (None, ref.manifest):
        raise SnapshotNotFound(
            f"{where}: the manifest of version {ref.version} has the SHA-256 {ref.manifest}; expected {manifest}"
        )
    if policy is not None:
        policy.check(ref.manifest, store.signatures(ref.version), f"version {ref.version} of {where}")
    try:
        opened_manifest = store.manifest(ref.manifest)
    except CorruptBlob:
        store.check_there(ref.version)  # another process may just have removed it
        raise
    pool = _pool(processes, reopen, where, ref.version)
    assemblies = _assemblies(where, cache, ref.manifest)
    return Snapshot(
        where,
        partial(_open_blob, store, ref.version),
        opened_manifest,
        ref,
        pool,
        assemblies,
        partial(_local_blob, store),
    )


def open_candidate(path: str | os.PathLike[str], run: str, processes: int = 1) -> Snapshot:
    """Open the candidate that a gate refused; raises SnapshotNotFound if there is no such run or candidate."""
    from indexmill.store.reader import StoreReader

    return open_manifest(path, StoreReader(path).candidate(run), processes)


def open_manifest(path: str | os.PathLike[str], manifest: str, processes: int = 1) -> Snapshot:
    """Open the snapshot of a store whose manifest has this digest, even if no version publishes it."""
    from indexmill.store.bucket import place_of
    from indexmill.store.reader import StoreReader

    where = place_of(path)
    store = StoreReader(where)
    opened_manifest = store.manifest(manifest)
    pool = _pool(processes, open_manifest, where, manifest)
    assemblies = _assemblies(where, None, manifest)
    return Snapshot(
        where, partial(_open_blob, store, None), opened_manifest, None, pool, assemblies, partial(_local_blob, store)
    )


def _assemblies(where: Path | str, cache: str | os.PathLike[str] | None, manifest: str) -> Assemblies | None:
    """The cache of a snapshot's assembled arrays; None for a local folder without a configured cache."""
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.blob_cache import CACHE_VARIABLE, BlobCache

    if cache is None and isinstance(where, Path) and not os.environ.get(CACHE_VARIABLE):
        return None
    return Assemblies(BlobCache.default(cache), manifest)


def _pool(processes: int, reopen: Callable[..., Snapshot], where: Path | str, *which: object) -> ReaderPool | None:
    """The worker processes that answer batches; None if this process answers them."""
    if processes == 1:
        return None
    from indexmill.retrieve.worker_pool import ReaderPool

    return ReaderPool(partial(reopen, where.absolute() if isinstance(where, Path) else where, *which), processes)


def _local_blob(store: StoreReader, artifact: Artifact) -> Path | None:
    return store.files.local(artifact.digest)


def _open_blob(store: StoreReader, version: int | None, artifact: Artifact) -> Path:
    """The local file of a blob; raises CorruptBlob, or SnapshotNotFound if the version was removed."""
    try:
        return store.blob(artifact.digest, artifact.bytes)
    except CorruptBlob:
        if version is not None:  # it may have been removed while open, before the first use of this blob
            store.check_there(version)
        raise
