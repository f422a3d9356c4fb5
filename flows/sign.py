"""Signing a version, so that those who receive it can prove whose it is."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from flows.operation import recorded
from indexmill.store.manifest import Manifest, Ref
from indexmill.store.signatures import Statement, key_id, public_key, signed
from storage import refs, signatures
from storage.clock import Clock, timestamp
from storage.protocol import Store
from storage.publish import check_whole, read_manifest

__all__ = ["Signed", "sign"]


@dataclass(frozen=True, slots=True)
class Signed:
    """The result of a signature, printed by `sign --json`."""

    version: int
    manifest: str
    key: str
    """The public key."""
    keyid: str
    run: str


def sign(store: Store, version: int, private: str, *, clock: Clock = time.time) -> Signed:
    """Sign the manifest of a version with a private key. Needs no lease: a build may be at work.

    Raises ConfigurationError for what is no key, SnapshotNotFound for a version that does not exist or was removed,
    CorruptBlob for one that is not whole.
    """
    public = public_key(private)
    with recorded(store, "sign", details={"version": version, "key": public}, clock=clock) as run:
        ref = refs.read(store, version)
        refs.check_there(store, version)
        manifest = read_manifest(store, ref.manifest)
        check_whole(store, manifest)
        said = Statement(ref.manifest, version, timestamp(clock()), _provenance(ref, manifest))
        signatures.add(store, version, signed(said, private))
        run.done, run.version, run.manifest = True, version, ref.manifest
        return Signed(version, ref.manifest, public, key_id(public), run.run_id)


def _provenance(ref: Ref, manifest: Manifest) -> Mapping[str, object]:
    """What the manifest was made from, and by which run."""
    return {
        "corpus": manifest.corpus.model_dump(mode="json"),
        "environment": manifest.environment,
        "models": manifest.models,
        "run": ref.run_id,
        "parent": ref.parent,
    }
