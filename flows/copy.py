"""Copying a version into another store, where it becomes the newest.

Blobs are named by their content, so only those that the target lacks are sent, and an interrupted copy continues where
it ended. The target is written under its lease, as in a build: the version appears once every blob exists. The source
records the copy before it sends the first byte, so that a later `forget` can list it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from flows.operation import operation, recorded
from indexmill.errors import BadInput, CorruptBlob
from indexmill.store.byte_rate import ByteRateLimit
from indexmill.store.layout import blob_path
from indexmill.store.manifest import Manifest
from indexmill.store.signatures import Trust
from indexmill.text.counted import byte_size, counted
from schemas.tables import DOCUMENTS
from storage import exports, holds, refs, signature_records, tombstones
from storage.clock import Clock, timestamp
from storage.protocol import Store
from storage.publish import check_whole, publish, read_manifest
from storage.stores import init_store
from storage.table_blobs import read_table
from tasks.core.report import Progress

_THREADS = 8
"""The number of blobs that are copied at the same time."""


@dataclass(frozen=True, slots=True)
class Copied:
    """The result of a copy, printed by `copy --json`."""

    published: bool
    """False if the newest version of the target already had that manifest."""
    version: int
    """The newest version of the target now."""
    target: str
    source: str
    source_version: int
    manifest: str
    blobs: int
    """The number of blobs that were copied; the target had the others."""
    bytes: int
    run: str
    """The run in the target."""


def copy_version(
    source: Store,
    version: int,
    target_url: str,
    *,
    bytes_per_second: float = math.inf,
    note: str = "",
    trust: Trust | None = None,
    progress: Progress,
    clock: Clock = time.time,
) -> Copied:
    """Publish a version of a store as the newest of another store, which is created if it does not exist.

    Every blob is checked against its digest on the way, and signatures are copied too. trust: the signers whose
    signatures the version must have; raises NotTrusted before reading it. Raises SnapshotNotFound for a version
    that does not exist or was removed, CorruptBlob for an incomplete one, BadInput for a target inside the source
    or a document that the target has forgotten, GateRefused if the target is on hold, LeaseLost if another run is
    at work there.
    """
    ref = refs.read(source, version)
    refs.check_there(source, version)
    envelopes = signature_records.envelopes(source, version)
    if trust is not None:
        trust.check(ref.manifest, envelopes, f"version {version} of {source.url}")
    manifest = read_manifest(source, ref.manifest)
    check_whole(source, manifest)
    target = _target(source, target_url)
    paces = [ByteRateLimit(bytes_per_second), ByteRateLimit(bytes_per_second)]
    for store, pace in zip((source, target), paces, strict=True):
        store.limit(pace)
    out: dict[str, JsonValue] = {"version": version, "to": target.url}
    back: dict[str, JsonValue] = {"version": version, "from": source.url, "note": note}
    with (
        recorded(source, "copy", details=out, clock=clock) as reading,
        operation(target, "copy", details=back, clock=clock) as run,
    ):
        holds.check(target)
        _check_forgotten(source, version, manifest, target)
        lacking = _lacking(source, ref.manifest, manifest, target)
        standing = refs.standing(target)
        if lacking or standing is None or standing.manifest != ref.manifest:
            exports.record(
                source,
                clock,
                version=version,
                manifest=ref.manifest,
                path=target.url,
                form="copy",
                run_id=reading.run_id,
            )
        _send(source, lacking, target, paces, progress)
        if standing is None or standing.manifest != ref.manifest:
            refs.check_there(source, version)  # one of its documents may have been forgotten meanwhile
            newest = refs.newest(target)
            standing = publish(
                target,
                run.lease,
                manifest,
                None if newest is None else newest.version,
                created=timestamp(clock()),
                note=note or f"version {version} of {source.url}",
            )
            run.published = True
        else:
            run.done = bool(lacking)
        for envelope in envelopes:
            signature_records.add(target, standing.version, envelope)
        run.version, run.manifest = standing.version, standing.manifest
        run.report = {
            "copy": {"blobs": len(lacking), "bytes": sum(lacking.values())},
            "requests": {**target.requests()},
        }
        reading.done, reading.version, reading.manifest = True, version, ref.manifest
        return Copied(
            published=run.published,
            version=standing.version,
            target=target.url,
            source=source.url,
            source_version=version,
            manifest=ref.manifest,
            blobs=len(lacking),
            bytes=sum(lacking.values()),
            run=run.run_id,
        )


def _target(source: Store, url: str) -> Store:
    """Open the store to write to, created if it does not exist."""
    if "://" not in url and Path(url).resolve().is_relative_to(source.folder.resolve()):
        raise BadInput(f"{url} is, or is inside, the store {source.url}: choose another target")
    target = init_store(url)
    if target.url == source.url:
        raise BadInput(f"{url} is the store to copy from: choose another target; `rollback` makes a version the newest")
    return target


def _check_forgotten(source: Store, version: int, manifest: Manifest, target: Store) -> None:
    forgotten = tombstones.forgotten(target)
    if not forgotten.tombstones:
        return
    count = 0
    for artifact in manifest.under("documents"):
        ids = read_table(source, artifact.digest, DOCUMENTS).column("document_id").to_pylist()
        count += sum(forgotten.names([document_id]) for document_id in ids)
    if count:
        raise BadInput(
            f"version {version} of {source.url} contains {counted(count, 'document')} that {target.url} has forgotten; "
            f"nothing was copied: `indexmill forget` there removes them, and publishes a version to copy"
        )


def _lacking(source: Store, digest: str, manifest: Manifest, target: Store) -> Mapping[str, int]:
    """Return the sizes, by digest, of blobs that the target lacks or has with a different size."""
    sizes = {artifact.digest: artifact.bytes for artifact in manifest.artifacts}
    sizes |= source.blob_sizes([digest, manifest.lineage])
    there = target.blob_sizes(sizes)
    return {digest: size for digest, size in sizes.items() if there.get(digest) != size}


def _send(
    source: Store, blobs: Mapping[str, int], target: Store, paces: Iterable[ByteRateLimit], progress: Progress
) -> None:
    progress.begin("copy", len(blobs))
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            sent = [pool.submit(_send_one, source, digest, target) for digest in blobs]
            for copy in as_completed(sent):
                copy.result()
                progress.advance("copy")
        except BaseException:
            for pace in paces:
                pace.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    progress.end("copy", f"{counted(len(blobs), 'blob')}, {byte_size(sum(blobs.values()))}")


def _send_one(source: Store, digest: str, target: Store) -> None:
    if target.put_blob(source.open_local(digest)) != digest:
        raise CorruptBlob(
            f"{source.url}/{blob_path(digest)} changed while it was copied; nothing was published: check the store "
            "with `indexmill verify`"
        )
