"""Open a snapshot: choose the version and the source, check signatures, and choose the cache of assembled arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from indexmill.errors import BadInput, CorruptBlob, SnapshotNotFound
from indexmill.forks import LOADING
from indexmill.snapshot import Snapshot
from indexmill.store.artifact_listing import Artifact

if TYPE_CHECKING:
    from indexmill.models.openai_embeddings import OpenAiEmbeddings
    from indexmill.retrieve.worker_pool import ReaderPool
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.manifest import Ref
    from indexmill.store.reader import StoreReader
    from indexmill.store.signatures import Trust


@LOADING
def open(  # noqa: A001
    path: str | os.PathLike[str],
    version: int | None = None,
    alias: str | None = None,
    processes: int = 1,
    manifest: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    trust: Trust | str | os.PathLike[str] | None = None,
    encoder: OpenAiEmbeddings | None = None,
) -> Snapshot:
    """Open a snapshot of a store, or of an exported folder, read-only and memory-mapped.

    path: a folder, or the URL of a store in an object store (``s3://``, ``gs://``, ``az://``; needs
    ``indexmill[cloud]``), with credentials from the environment.

    The newest version is opened unless ``version`` or ``alias`` pins one; versions published later are not noticed.
    processes: if above 1, the number of worker processes that answer batches of questions instead of this process; they
    end with ``close``. Leave it at 1 if the readers already are separate processes.
    manifest: the SHA-256 that the manifest must have, as ``indexmill show --json`` prints it; any other manifest is
    rejected before parsing.
    cache: the folder for files fetched from an object store and for arrays assembled from all shards, which processes
    share by mapping; ``INDEXMILL_CACHE`` by default. Without either, a store in a folder caches nothing, and an object
    store uses the user's cache folder. The files a method needs are fetched when it is first used.
    trust: whose signatures the version must have: a ``Trust``, or a JSON file as ``indexmill sign --help`` shows it;
    needs ``indexmill[signed]``. A version without these signatures raises NotTrusted before it is parsed.
    encoder: the endpoint that encodes questions if the index's vectors come from an endpoint: see ``open_encoder``.
    Without it, such an index can be queried only with ``vectors=`` or with methods that need no vectors.
    Raises SnapshotNotFound if the store, version or alias does not exist or the manifest has a different SHA-256, and
    BadInput for both a version and an alias, fewer than one process, or a ``manifest`` that is not a SHA-256.
    """
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
    where, reopen = place_of(path), partial(open, manifest=manifest, cache=cache, trust=policy)
    if isinstance(where, Path) and is_exported(where):
        if version is not None or alias is not None:
            raise SnapshotNotFound(f"{where}: an exported folder contains one snapshot, without versions or aliases")
        exported = ExportedFolder(where, manifest, policy)
        assemblies = _assemblies(where, cache, exported.digest)
        pool = _pool(processes, reopen, where)
        snapshot = Snapshot(where, exported.open_local, exported.manifest, None, pool, assemblies, exported.path_of)
    else:
        store = StoreReader(where, None if cache is None else BlobCache.default(cache))
        ref = store.resolve(version=version, alias=alias)
        if manifest not in (None, ref.manifest):
            raise SnapshotNotFound(
                f"{where}: the manifest of version {ref.version} has the SHA-256 {ref.manifest}; expected {manifest}"
            )
        if policy is not None:
            policy.check(ref.manifest, store.signatures(ref.version), f"version {ref.version} of {where}")
        snapshot = _stored(
            store, where, ref.manifest, ref, cache, partial(_pool, processes, reopen, where, ref.version)
        )
    snapshot.use_encoder(encoder)
    return snapshot


def open_candidate(path: str | os.PathLike[str], run: str, processes: int = 1) -> Snapshot:
    """Open the candidate that a gate refused; raises SnapshotNotFound if there is no such run or candidate."""
    from indexmill.store.reader import StoreReader

    return open_manifest(path, StoreReader(path).candidate(run), processes)


def open_manifest(path: str | os.PathLike[str], manifest: str, processes: int = 1) -> Snapshot:
    """Open the snapshot of a store whose manifest has this digest, even if no version publishes it."""
    from indexmill.store.bucket import place_of
    from indexmill.store.reader import StoreReader

    where = place_of(path)
    pool = partial(_pool, processes, open_manifest, where, manifest)
    return _stored(StoreReader(where), where, manifest, None, None, pool)


def _stored(
    store: StoreReader,
    where: Path | str,
    digest: str,
    ref: Ref | None,
    cache: str | os.PathLike[str] | None,
    pool: Callable[[], ReaderPool | None],
) -> Snapshot:
    """Open a store's snapshot by the digest of its manifest. ref: None if no version publishes it."""
    version = None if ref is None else ref.version
    try:
        manifest = store.manifest(digest)
    except CorruptBlob:
        if version is not None:
            store.check_there(version)  # another process may just have removed it
        raise
    return Snapshot(
        where,
        partial(_open_blob, store, version),
        manifest,
        ref,
        pool(),
        _assemblies(where, cache, digest),
        lambda artifact: store.files.local(artifact.digest),
    )


def _assemblies(where: Path | str, cache: str | os.PathLike[str] | None, manifest: str) -> Assemblies | None:
    """Return the cache of a snapshot's assembled arrays; None for a local folder without a configured cache."""
    from indexmill.store.assemblies import Assemblies
    from indexmill.store.blob_cache import CACHE_VARIABLE, BlobCache

    if cache is None and isinstance(where, Path) and not os.environ.get(CACHE_VARIABLE):
        return None
    return Assemblies(BlobCache.default(cache), manifest)


def _pool(processes: int, reopen: Callable[..., Snapshot], where: Path | str, *which: object) -> ReaderPool | None:
    """Start the worker processes that answer batches; None if this process answers them."""
    if processes == 1:
        return None
    from indexmill.retrieve.worker_pool import ReaderPool

    return ReaderPool(partial(reopen, where.absolute() if isinstance(where, Path) else where, *which), processes)


def _open_blob(store: StoreReader, version: int | None, artifact: Artifact) -> Path:
    """Return the local file of a blob; raises CorruptBlob, or SnapshotNotFound if the version was removed."""
    try:
        return store.blob(artifact.digest, artifact.bytes)
    except CorruptBlob:
        if version is not None:  # it may have been removed while open, before the first use of this blob
            store.check_there(version)
        raise
